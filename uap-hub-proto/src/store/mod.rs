//! Stores for the jobs of a durable hub and their ends: in memory, and (feature `log`) in files.
//!
//! A hub that is [`durable`](crate::role::hub::Config::with_durable) asks for two things to be kept: each job before
//! it is accepted, and its end before it is reported. What follows from that:
//!
//! * A job that was accepted is never lost: after a restart, [`JobStore::unfinished`] has all that have no end.
//! * A caller is told an end at most once, because a stored end is not reported again after a restart. Whoever may
//!   have missed one asks for it: [`JobStore::outcome`].
//! * A job that ran when the process died runs again. Jobs that must not run twice check that themselves.
//!
//! ```
//! use uap_hub_proto::{role::hub::{Job, Record}, store::{JobStore, MemoryStore}};
//! # let id: uap_hub_proto::id::JobId = "a1b2c3d4-0000-4000-8000-000000000001".parse()?;
//!
//! let store = MemoryStore::default();
//! store.write(&[(id, Record::Accepted(Job::test("sum", vec![])))])?;
//! assert_eq!(store.unfinished()?.len(), 1);
//! assert!(store.outcome(id)?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "log")]
mod file;
mod memory;
mod record;

use std::fmt;

#[cfg(feature = "log")]
pub use self::file::{FileStore, FileStoreError};
pub use self::{
    memory::MemoryStore,
    record::{DecodeError, decode, encode},
};
use crate::{
    id::JobId,
    role::hub::{Job, Outcome, Record},
};

/// Keeps jobs and their ends. Calls may block; a transport makes them on a blocking thread.
pub trait JobStore: fmt::Debug + Send + Sync {
    /// Writes records, all or none. They are durable when this returns.
    ///
    /// # Errors
    ///
    /// They could not be kept: what was refused does not count. After [`StoreError::Full`] and [`StoreError::TooLarge`] the caller
    /// may write each of them again alone; after any other the ids are not written again. A store whose medium failed tries again
    /// with each call.
    fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError>;

    /// The jobs that have no end, in the order in which they were accepted.
    ///
    /// # Errors
    ///
    /// A stored record cannot be read.
    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError>;

    /// How a job ended; `None` where it has not, or was never kept.
    ///
    /// # Errors
    ///
    /// A stored record cannot be read.
    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError>;

    /// The job of that [`label`](Job::label); the last one where there are several.
    ///
    /// # Errors
    ///
    /// A stored record cannot be read.
    fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError>;
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It holds as many jobs as it may.
    #[error("{most} jobs are kept, which is the limit")]
    Full {
        /// The bound.
        most: usize,
    },
    /// A record, or all of them together, are larger than the store takes.
    #[error("{seen} bytes are to be kept at once, at most {most} can be")]
    TooLarge {
        /// Bytes of the record or the records.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// What was read is no record of ours.
    #[error("a record cannot be read")]
    Record(#[from] DecodeError),
    /// The storage failed.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;
    use crate::role::hub::Verdict;

    /// A job ends once, whatever is written after its end.
    pub(super) fn takes_the_first_end(store: &dyn JobStore) {
        let id = IdSource::seeded(2).next_id();
        let accepted = || Record::Accepted(Job::test("t", Vec::new()));
        let first = Outcome::new(Verdict::Completed, "first");
        let second = Outcome::new(Verdict::Failed, "second");
        store.write(&[(id, accepted()), (id, accepted())]).unwrap();
        assert_eq!(store.unfinished().unwrap().len(), 1);
        for outcome in [&first, &second] {
            store
                .write(&[(id, Record::Ended(outcome.clone()))])
                .unwrap();
        }
        store.write(&[(id, accepted())]).unwrap();
        assert_eq!(store.outcome(id).unwrap(), Some(first));
        assert_eq!(store.unfinished().unwrap(), []);
    }

    /// What holds of every store; leaves two jobs unfinished and one ended in it.
    pub(super) fn keeps_jobs_until_they_end(store: &dyn JobStore) {
        let mut ids = IdSource::seeded(1);
        let jobs: Vec<(JobId, Job)> = ["a", "b", "c"]
            .map(|label| (ids.next_id(), Job::test("t", Vec::new()).with_label(label)))
            .into();
        let accepted = |(id, job): &(JobId, Job)| (*id, Record::Accepted(job.clone()));
        store.write(&[accepted(&jobs[0])]).unwrap();
        store
            .write(&jobs[1..].iter().map(accepted).collect::<Vec<_>>())
            .unwrap();
        assert_eq!(store.unfinished().unwrap(), jobs);
        let (id, _) = &jobs[1];
        assert_eq!(store.labelled("b").unwrap(), Some(*id));
        assert_eq!(store.labelled("x").unwrap(), None);
        assert_eq!(store.outcome(*id).unwrap(), None);
        let outcome = Outcome::new(Verdict::Completed, "done");
        store
            .write(&[(*id, Record::Ended(outcome.clone()))])
            .unwrap();
        assert_eq!(store.outcome(*id).unwrap(), Some(outcome));
        let left = [jobs[0].clone(), jobs[2].clone()];
        assert_eq!(store.unfinished().unwrap(), left);
    }
}
