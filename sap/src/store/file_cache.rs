//! A cache on the hash-chained log.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::json::{self, Fault, Read, Reader};
use ubos_common::log::{AppendError, Config, Log, OpenError, Position, ReadError};
use ubos_common::violation::Profile;

use super::thread::{StoreThread, Taken, opened};
use crate::cache::{CacheKey, CacheRecord, CacheStore, Lookup, SAP_VERSION};
use crate::error::StoreError;
use crate::future::{BoxFuture, ready};
use crate::limits::unbounded;

/// A cache in the files of a folder. One process at a time holds it.
///
/// It has a thread of its own, as [`FileTranscript`](super::FileTranscript) has. The index is made anew from the records when it is opened; each record is proven again when it is read.
#[derive(Debug)]
pub struct FileCache {
    store: StoreThread,
    max_records: usize,
    index: Arc<Mutex<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    records: usize,
    places: BTreeMap<CacheKey, Places>,
}

/// Where the versions of one record are; most have one.
#[derive(Clone, Debug)]
struct Places {
    newest: Position,
    /// Oldest first.
    older: Vec<Position>,
}

/// Why a cache in files cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileCacheError {
    /// The log cannot be opened; it may be damaged.
    #[error("opening the cache failed")]
    Open(#[from] OpenError),
    /// A record cannot be read; it may be damaged.
    #[error("reading the cache failed")]
    Read(#[from] ReadError),
    /// It holds more records than it may.
    #[error("cache holds more than {limit} records, which is its bound")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

/// The kind of a cache's log.
const KIND: &str = "sap-cache";

impl FileCache {
    /// Records that are indexed; at the bound nothing more is kept. An entry takes about 150 bytes.
    pub(crate) const MAX_RECORDS: usize = 1_000_000;

    /// Opens the cache in a folder, or makes it there; `config` needs a log id for that.
    ///
    /// # Errors
    ///
    /// [`FileCacheError`]; damage is named and left as it is.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, FileCacheError> {
        let (path, config) = (path.into(), config.with_kind(KIND));
        let log = opened(&path, || Log::open(&path, config.clone()))?;
        let mut index = Index::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            if index.records == Self::MAX_RECORDS {
                return Err(FileCacheError::TooMany {
                    limit: Self::MAX_RECORDS,
                });
            }
            // A record of a later version of this crate is kept and never answers.
            if let Some(key) = key_of(entry.bytes) {
                index.records += 1;
                index.add(key, entry.position);
            }
        }
        let store = StoreThread::start(&path, log).map_err(OpenError::Io)?;
        Ok(Self {
            store,
            max_records: Self::MAX_RECORDS,
            index: Arc::new(Mutex::new(index)),
        })
    }

    /// Waits until all that was handed over is written, and the log is closed. It blocks the thread; a drop does not.
    pub fn close(self) {
        self.store.close();
    }

    /// The log beneath: for its report, its head and for archiving.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.store.log()
    }

    /// Oldest first.
    fn places(&self, key: &CacheKey) -> Vec<Position> {
        let Some(places) = locked(&self.index).places.get(key).cloned() else {
            return Vec::new();
        };
        let mut all = places.older;
        all.push(places.newest);
        all
    }
}

impl Index {
    /// Notes where a record is that was counted.
    fn add(&mut self, key: CacheKey, place: Position) {
        match self.places.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Places {
                    newest: place,
                    older: Vec::new(),
                });
            }
            Entry::Occupied(mut there) => {
                let places = there.get_mut();
                places
                    .older
                    .push(core::mem::replace(&mut places.newest, place));
            }
        }
    }
}

/// A record that counts before it is written, so that the bound holds for those that wait. What is not written
/// counts no more.
struct Counted {
    index: Arc<Mutex<Index>>,
    is_written: bool,
}

impl Counted {
    fn new(index: &Arc<Mutex<Index>>, limit: usize) -> Result<Self, StoreError> {
        let mut held = locked(index);
        if held.records >= limit {
            let what = "records of a cache";
            return Err(StoreError::Full { what, limit });
        }
        held.records += 1;
        Ok(Self {
            index: Arc::clone(index),
            is_written: false,
        })
    }

    fn note(mut self, key: CacheKey, place: Position) {
        self.is_written = true;
        locked(&self.index).add(key, place);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_written {
            locked(&self.index).records -= 1;
        }
    }
}

impl CacheStore for FileCache {
    // impl: SAP-6-8
    fn find(&self, key: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>> {
        let places = self.places(key);
        if places.is_empty() {
            return ready(Ok(Lookup::default()));
        }
        let lookup = self.store.call(move |log| newest(log, places));
        Box::pin(async { lookup.await.map_err(failed)? })
    }

    fn put(&self, record: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        let counted = match Counted::new(&self.index, self.max_records) {
            Ok(counted) => counted,
            Err(full) => return ready(Err(full)),
        };
        let key = record.cache_key;
        let put = self
            .store
            .append(Taken::WithRoom, json::to_vec(record), move |place| {
                counted.note(key, place?);
                Ok(())
            });
        Box::pin(async {
            let kept: Result<(), AppendError> = put.await.map_err(failed)?;
            kept.map_err(failed)
        })
    }

    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        let mut reader = self.log().reader();
        let mut records = Vec::new();
        for place in self.places(key) {
            match reader.read(place) {
                Ok(bytes) => records.extend(decode(&bytes)),
                Err(ReadError::Io(error)) => return Err(failed(error)),
                Err(_) => {}
            }
        }
        Ok(records)
    }
}

/// The newest record that holds and is of this version of the protocol.
fn newest(log: &Log, places: Vec<Position>) -> Result<Lookup, StoreError> {
    let mut reader = log.reader();
    let mut damaged = 0;
    for place in places.into_iter().rev() {
        match reader.read(place) {
            Ok(bytes) => {
                let record = decode(&bytes).filter(|record| record.sap_version == SAP_VERSION);
                if record.is_some() {
                    return Ok(Lookup { record, damaged });
                }
            }
            Err(ReadError::Io(error)) => return Err(failed(error)),
            // What was moved is a miss.
            Err(ReadError::Archived { .. }) => {}
            Err(_) => damaged += 1,
        }
    }
    Ok(Lookup {
        record: None,
        damaged,
    })
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Failed(Box::new(error))
}

fn locked(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn decode(bytes: &[u8]) -> Option<CacheRecord> {
    json::decode(bytes, &unbounded(), Profile::Strict)
        .ok()
        .map(|(record, _)| record)
}

/// The one member that the index needs; the whole record is proven when it is read.
struct Key(Option<CacheKey>);

impl Read<'_> for Key {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut key = None;
        reader.object(|reader, name| {
            if name == "cacheKey" {
                key = Some(CacheKey::read(reader)?);
                return Ok(());
            }
            reader.skip()
        })?;
        Ok(Self(key))
    }
}

fn key_of(bytes: &[u8]) -> Option<CacheKey> {
    let (key, _) = json::decode::<Key>(bytes, &unbounded(), Profile::Strict).ok()?;
    key.0
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::json::RawBuf;
    use ubos_common::log::LogId;
    use ubos_common::time::Timestamp;

    use super::*;
    use crate::evidence::{Alignment, Fingerprint};

    // spec: SAP-6-8
    #[test]
    fn at_the_bound_no_more_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        let mut cache = FileCache::open(folder.path(), config).unwrap();
        cache.max_records = 2;
        let digest = ubos_common::canon::Digest::of_bytes(b"");
        let record = CacheRecord::new(
            CacheKey(digest),
            Timestamp::EPOCH.into(),
            "a".parse().unwrap(),
            Alignment::Valid,
            RawBuf::parse("1").unwrap(),
            Vec::new(),
            Fingerprint(digest),
            SAP_VERSION.into(),
        );
        let put = || block_on(cache.put(&record));
        assert!(put().is_ok() && put().is_ok());
        let full = put().unwrap_err();
        assert_eq!(full.to_string(), "records of a cache at their limit of 2");
        // What is not written counts no more.
        drop(Counted::new(&cache.index, 3).unwrap());
        assert_eq!(locked(&cache.index).records, 2);
        // To close it waits for all that was handed over.
        let (done, is_done) = std::sync::mpsc::channel();
        drop(cache.store.call(move |_| {
            (0..1_000).for_each(|_| std::thread::yield_now());
            done.send(()).unwrap();
        }));
        cache.close();
        assert!(is_done.try_recv().is_ok());
    }
}
