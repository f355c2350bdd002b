//! Records, and where they are kept.

use core::fmt;

use ubos_common::json::RawBuf;
use ubos_common::time::{Timestamp, WholeSecond};

use super::{CacheKey, Fingerprint};
use crate::error::StoreError;
use crate::evidence::Alignment;
use crate::future::BoxFuture;
use crate::ident::AgentId;

/// The version of the protocol as records carry it.
pub(crate) const SAP_VERSION: &str = "2.0";

ubos_common::wire! {
    /// An outcome that was vetted, kept for good. Spec: SAP 6
    // impl: SAP-6-10
    pub struct CacheRecord {
        /// The key that it answers.
        required cache_key: CacheKey = "cacheKey", "SAP-6-10";
        /// When it was written.
        required stored_at: WholeSecond = "storedAt", "SAP-6-10";
        /// The agent that produced it.
        required producer: AgentId = "producer", "SAP-6-10";
        /// The verdict when it was written.
        required alignment: Alignment = "alignment", "SAP-6-10";
        /// The output, any JSON value.
        required output: RawBuf = "output", "SAP-6-10";
        /// What grounds the output.
        required citations: Vec<String> = "citations", "SAP-6-10";
        /// The essence that it was computed of.
        required fingerprint: Fingerprint = "fingerprint", "SAP-6-10";
        /// The version of the protocol; records of another one never answer.
        required sap_version: String = "sapVersion", "SAP-6-9";
    }
}

impl CacheRecord {
    /// Bytes of what an answer is made of.
    #[cfg(feature = "driver")]
    pub(crate) fn bytes(&self) -> usize {
        let citations = self.citations.iter().map(String::len);
        self.output.as_str().len() + citations.sum::<usize>()
    }

    /// Whole seconds since it was written; a record of the future has age 0. Spec: SAP 6
    // impl: SAP-6-10
    #[must_use]
    pub fn age_sec(&self, now: Timestamp) -> u64 {
        now.saturating_since(self.stored_at.timestamp()).as_secs()
    }
}

/// What looking for a key found.
// exhaustive: stores make it
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "stores make it")]
pub struct Lookup {
    /// The newest intact record of this version of the protocol.
    pub record: Option<CacheRecord>,
    /// Newer records that are there and do not hold; each counts as a miss.
    pub damaged: usize,
}

/// Where records are kept. There is no way to change or remove one.
///
/// The calls that a processor makes are asynchronous and must not block.
pub trait CacheStore: fmt::Debug + Send + Sync {
    /// The newest intact record of a key.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn find(&self, key: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>>;

    /// Adds a record; those of the same key stay. The call hands it over, before the future is polled.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] at the store's bound, or the store cannot be written.
    fn put(&self, record: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every intact record of a key, of every version of the protocol, oldest first. For audits: it may
    /// block for as long as the disk takes, and no processor calls it.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, StoreError>;
}
