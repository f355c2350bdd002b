//! A cache on the hash-chained log.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ubos_common::json::{self, Fault, Read, Reader};
use ubos_common::log::{Config, Log, OpenError, Position, ReadError};
use ubos_common::violation::{Level, Profile};

use crate::cache::{CacheKey, CacheRecord, CacheStore, Lookup, SAP_VERSION};
use crate::error::StoreError;
use crate::limits::unbounded;

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
        let log = Log::open(path, config.with_kind(KIND))?;
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
                index.add(key, entry.position);
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

    /// Oldest first.
    fn places(&self, key: &CacheKey) -> Vec<Position> {
        let Some(places) = self.index().places.get(key).cloned() else {
            return Vec::new();
        };
        let mut all = places.older;
        all.push(places.newest);
        all
    }
}

impl Index {
    fn add(&mut self, key: CacheKey, place: Position) {
        self.records += 1;
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

impl CacheStore for FileCache {
    // impl: SAP-6-8
    fn find(&self, key: &CacheKey) -> Result<Lookup, StoreError> {
        let mut reader = self.log.reader();
        let mut damaged = 0;
        for place in self.places(key).into_iter().rev() {
            match reader.read(place) {
                Ok(bytes) => {
                    let record = decode(&bytes).filter(|record| record.sap_version == SAP_VERSION);
                    if record.is_some() {
                        return Ok(Lookup { record, damaged });
                    }
                }
                Err(ReadError::Io(error)) => return Err(StoreError::Failed(Box::new(error))),
                Err(_) => damaged += 1,
            }
        }
        Ok(Lookup {
            record: None,
            damaged,
        })
    }

    fn put(&self, record: &CacheRecord) -> Result<(), StoreError> {
        if self.index().records >= self.max_records {
            return Err(StoreError::Full {
                what: "records of a cache",
                limit: self.max_records,
            });
        }
        let bytes = json::to_vec(record);
        let place = self.log.append(&bytes);
        let place = place.map_err(|error| StoreError::Failed(Box::new(error)))?;
        self.index().add(record.cache_key, place);
        Ok(())
    }

    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        let mut reader = self.log.reader();
        let mut records = Vec::new();
        for place in self.places(key) {
            match reader.read(place) {
                Ok(bytes) => records.extend(decode(&bytes)),
                Err(ReadError::Io(error)) => return Err(StoreError::Failed(Box::new(error))),
                Err(_) => {}
            }
        }
        Ok(records)
    }
}

pub(super) fn decode(bytes: &[u8]) -> Option<CacheRecord> {
    json::decode(bytes, &unbounded(), Profile::Strict)
        .ok()
        .map(|(record, _)| record)
}

/// The one member that the index needs; the whole record is proven when it is read.
struct Key(CacheKey);

impl Read<'_> for Key {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let mut key = None;
        reader.object(|reader, name| {
            if name == "cacheKey" {
                key = Some(CacheKey::read(reader)?);
                return Ok(());
            }
            reader.skip()
        })?;
        key.map(Self).ok_or_else(|| {
            reader.missing(at, "cacheKey", "SAP-6-10", Level::Must);
            reader.noted()
        })
    }
}

fn key_of(bytes: &[u8]) -> Option<CacheKey> {
    let key = json::decode::<Key>(bytes, &unbounded(), Profile::Strict);
    key.ok().map(|(key, _)| key.0)
}
