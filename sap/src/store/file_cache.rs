//! A cache on the hash-chained log.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::json::{self, Limits};
use ubos_common::log::{Config, FsDir, Log, LogDir, OpenError, Position, ReadError};
use ubos_common::violation::Profile;

use crate::cache::{CacheError, CacheKey, CacheRecord, CacheStore, Lookup, SAP_VERSION};

/// A cache in the files of a folder. One process at a time holds it.
///
/// The index is made anew from the records when it is opened; each record is proven again when it is read.
#[derive(Debug)]
pub struct FileCache {
    log: Log,
    max_records: usize,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    records: usize,
    places: BTreeMap<CacheKey, Vec<Position>>,
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

impl FileCache {
    /// Records that are indexed; at the bound nothing more is kept. An entry takes about 100 bytes.
    pub const MAX_RECORDS: usize = 1_000_000;

    /// Opens the cache in a folder, or makes it there; `config` needs a log id for that.
    ///
    /// # Errors
    ///
    /// [`FileCacheError`]; damage is named and left as it is.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, FileCacheError> {
        let dir = FsDir::create(path).map_err(OpenError::from)?;
        Self::open_in(Arc::new(dir), config)
    }

    /// Opens the cache in a folder of any kind.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(dir: Arc<dyn LogDir>, config: Config) -> Result<Self, FileCacheError> {
        let log = Log::open_in(dir, config)?;
        let mut index = Index::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            if index.records == Self::MAX_RECORDS {
                return Err(FileCacheError::TooMany {
                    limit: Self::MAX_RECORDS,
                });
            }
            // A record of a later version of this crate is kept and never answers.
            if let Some(record) = decode(entry.bytes) {
                index.add(record.cache_key, entry.position);
            }
        }
        Ok(Self {
            log,
            max_records: Self::MAX_RECORDS,
            index: Mutex::new(index),
        })
    }

    /// The log beneath: for its report, its head and for archiving.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self, key: &CacheKey) -> Vec<Position> {
        self.index().places.get(key).cloned().unwrap_or_default()
    }
}

impl Index {
    fn add(&mut self, key: CacheKey, place: Position) {
        self.records += 1;
        self.places.entry(key).or_default().push(place);
    }
}

impl CacheStore for FileCache {
    // impl: SAP-6-8
    fn find(&self, key: &CacheKey) -> Result<Lookup, CacheError> {
        let mut reader = self.log.reader();
        let mut damaged = 0;
        for place in self.places(key).into_iter().rev() {
            match reader.read(place) {
                Ok(bytes) => {
                    let record = decode(&bytes).filter(|record| record.sap_version == SAP_VERSION);
                    if record.is_some() {
                        return Ok(Lookup::new(record, damaged));
                    }
                }
                Err(ReadError::Io(error)) => return Err(CacheError::Store(Box::new(error))),
                Err(_) => damaged += 1,
            }
        }
        Ok(Lookup::new(None, damaged))
    }

    fn put(&self, record: &CacheRecord) -> Result<(), CacheError> {
        if self.index().records >= self.max_records {
            return Err(CacheError::Full {
                limit: self.max_records,
            });
        }
        let bytes = json::to_vec(record);
        let place = self.log.append(&bytes);
        let place = place.map_err(|error| CacheError::Store(Box::new(error)))?;
        self.index().add(record.cache_key, place);
        Ok(())
    }

    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, CacheError> {
        let mut reader = self.log.reader();
        let mut records = Vec::new();
        for place in self.places(key) {
            match reader.read(place) {
                Ok(bytes) => records.extend(decode(&bytes)),
                Err(ReadError::Io(error)) => return Err(CacheError::Store(Box::new(error))),
                Err(_) => {}
            }
        }
        Ok(records)
    }
}

fn decode(bytes: &[u8]) -> Option<CacheRecord> {
    let limits = Limits::default()
        .with_max_bytes(usize::MAX)
        .with_max_depth(Limits::DEEPEST)
        .with_max_string_bytes(usize::MAX);
    json::decode(bytes, &limits, Profile::Strict)
        .ok()
        .map(|(record, _)| record)
}
