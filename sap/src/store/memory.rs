//! Stores that live as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::canon::{Digest, Domain};
use ubos_common::json;

use crate::cache::{CacheKey, CacheRecord, CacheStore, Lookup, SAP_VERSION};
use crate::error::StoreError;
use crate::future::{BoxFuture, ready};
use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError, Verdict};

/// A cache in memory, bounded in records and in bytes: what would be above a bound is not kept, and a task is computed
/// each time.
#[derive(Debug)]
pub struct MemoryCache {
    max_records: usize,
    max_bytes: usize,
    records: Mutex<Records>,
}

#[derive(Debug)]
struct Records {
    count: usize,
    bytes: usize,
    by_key: BTreeMap<CacheKey, Vec<CacheRecord>>,
}

impl MemoryCache {
    /// A cache of at most `max_records` records, all versions counted, and 64 MiB.
    #[must_use]
    pub const fn new(max_records: usize) -> Self {
        Self {
            max_records,
            max_bytes: MAX_BYTES,
            records: Mutex::new(Records {
                count: 0,
                bytes: 0,
                by_key: BTreeMap::new(),
            }),
        }
    }

    /// Sets how many bytes of records it keeps.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }
}

impl Default for MemoryCache {
    /// At most 10,000 records and 64 MiB.
    fn default() -> Self {
        Self::new(10_000)
    }
}

impl CacheStore for MemoryCache {
    fn find(&self, key: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>> {
        let records = lock(&self.records);
        let versions = records.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let newest = versions.iter().rev();
        let mut answering = newest.filter(|record| record.sap_version == SAP_VERSION);
        ready(Ok(Lookup {
            record: answering.next().cloned(),
            damaged: 0,
        }))
    }

    fn put(&self, record: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut records = lock(&self.records);
        if records.count >= self.max_records {
            return ready(Err(StoreError::Full {
                what: "records of a cache",
                limit: self.max_records,
            }));
        }
        let bytes = records.bytes.saturating_add(bytes_of(record));
        if bytes > self.max_bytes {
            return ready(Err(StoreError::Full {
                what: "bytes of a cache",
                limit: self.max_bytes,
            }));
        }
        records.bytes = bytes;
        records.count += 1;
        let versions = records.by_key.entry(record.cache_key).or_default();
        versions.push(record.clone());
        ready(Ok(()))
    }

    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        Ok(lock(&self.records)
            .by_key
            .get(key)
            .cloned()
            .unwrap_or_default())
    }
}

/// A transcript in memory, chained like one in files, and bounded in entries and in bytes: what would be above a bound is
/// not taken, so that its task is not answered.
#[derive(Debug)]
pub struct MemoryTranscript {
    bounds: Bounds,
    /// Shared with what is being made of long entries on another thread.
    chain: Arc<Chain>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    entries: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Chain {
    domain: Domain,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Each with the digest of the one before, and its own.
    chain: Vec<(Vec<u8>, Digest)>,
    bytes: usize,
}

impl MemoryTranscript {
    /// A transcript of at most `max_entries` entries and 64 MiB.
    #[must_use]
    pub fn new(max_entries: usize) -> Self {
        Self {
            bounds: Bounds {
                entries: max_entries,
                bytes: MAX_BYTES,
            },
            chain: Arc::new(Chain {
                domain: Domain::new("ubos sap 2026-11 transcript in memory"),
                entries: Mutex::default(),
            }),
        }
    }

    /// Sets how many bytes of entries it takes.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.bounds.bytes = bytes;
        self
    }
}

impl Chain {
    /// Adds an entry, and gives its number.
    fn add(&self, entry: &Entry, bounds: Bounds) -> Result<u64, TranscriptError> {
        let mut bytes = Self::linked(entry);
        let mut entries = lock(&self.entries);
        if entries.chain.len() >= bounds.entries {
            return Err(TranscriptError::Full {
                limit: bounds.entries,
            });
        }
        let held = entries.bytes.saturating_add(bytes.len());
        if held > bounds.bytes {
            return Err(TranscriptError::FullOfBytes {
                limit: bounds.bytes,
            });
        }
        entries.bytes = held;
        let previous = entries.chain.last().map(|(_, digest)| digest);
        let digest = self.link(previous, &mut bytes);
        entries.chain.push((bytes, digest));
        Ok(entries.chain.len() as u64 - 1)
    }

    /// An entry as it is kept: the digest of the one before, then its text.
    fn linked(entry: &Entry) -> Vec<u8> {
        /// What stands around the body.
        const AROUND: usize = 128;
        let mut bytes = Vec::with_capacity(LINK + entry.body.as_str().len() + AROUND);
        bytes.resize(LINK, 0);
        json::Write::write(entry, &mut bytes);
        bytes
    }

    fn link(&self, previous: Option<&Digest>, linked: &mut [u8]) -> Digest {
        if let Some((link, _)) = linked.split_first_chunk_mut::<LINK>() {
            *link = previous.map_or([0; LINK], |digest| *digest.as_bytes());
        }
        Digest::of(&self.domain, linked)
    }

    fn head(entries: &[(Vec<u8>, Digest)]) -> Head {
        let digest = entries.last().map_or_else(
            || Digest::of_bytes(b"").to_string(),
            |(_, digest)| digest.to_string(),
        );
        Head::from(format!("memory:{}:{digest}", entries.len()))
    }
}

impl Default for MemoryTranscript {
    /// At most 100,000 entries and 64 MiB.
    fn default() -> Self {
        Self::new(100_000)
    }
}

impl Transcript for MemoryTranscript {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        ready(self.chain.add(entry, self.bounds))
    }

    /// Made on another thread where the entry is long.
    #[cfg(feature = "driver")]
    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        let (chain, bounds) = (Arc::clone(&self.chain), self.bounds);
        let bytes = entry.body.as_str().len();
        Box::pin(crate::work::done(bytes, move || {
            chain.add(&make(entry), bounds)
        }))
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        let entries = &lock(&self.chain.entries).chain;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let wanted = entries.iter().skip(from).take(max);
        let read = wanted.map(|(bytes, _)| Entry::decode(bytes.get(LINK..).unwrap_or_default()));
        ready(read.collect())
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        let entries = &lock(&self.chain.entries).chain;
        let mut previous = None;
        let mut verdict = Verdict::Intact;
        let mut is_kept = kept.is_none() || kept == Some(&Chain::head(&[]));
        for (index, (bytes, digest)) in entries.iter().enumerate() {
            if self.chain.link(previous, &mut bytes.clone()) != *digest {
                verdict = Verdict::broken(index as u64, "record is damaged");
                break;
            }
            is_kept |= kept == entries.get(..=index).map(Chain::head).as_ref();
            previous = Some(digest);
        }
        if verdict == Verdict::Intact && !is_kept {
            verdict = Verdict::broken(entries.len() as u64, "the head that was kept is not here");
        }
        Ok(Proof {
            records: entries.len() as u64,
            head: Chain::head(entries),
            verdict,
        })
    }
}

/// About the bytes that a record takes.
fn bytes_of(record: &CacheRecord) -> usize {
    let citations = record.citations.iter().map(String::len).sum::<usize>();
    RECORD + record.output.as_str().len() + citations
}

/// Bytes that a store keeps where nothing else is set.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of what every record has.
const RECORD: usize = 256;
/// Bytes of the digest that an entry begins with.
const LINK: usize = 32;

/// What a panic of another thread left is whole: every change is one push.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
