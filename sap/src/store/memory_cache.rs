//! A cache that lives as long as the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache::{CacheKey, CacheRecord, CacheStore, Lookup, SAP_VERSION};
use crate::error::StoreError;
use crate::future::{BoxFuture, ready};

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

/// About the bytes that a record takes.
fn bytes_of(record: &CacheRecord) -> usize {
    let citations = record.citations.iter().map(String::len).sum::<usize>();
    RECORD + record.output.as_str().len() + citations
}

/// Bytes that a store keeps where nothing else is set.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Bytes of what every record has.
const RECORD: usize = 256;

/// What a panic of another thread left is whole: every change is one push.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
