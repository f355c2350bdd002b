//! A store that survives its hub but not its process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{JobStore, StoreError};
use crate::{
    id::JobId,
    role::hub::{Job, Outcome, Record},
};

/// Jobs in memory, for tests and for hubs that are replaced within a process. Clones are one store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    jobs: BTreeMap<JobId, (u64, Job)>,
    outcomes: BTreeMap<JobId, Outcome>,
    labels: BTreeMap<Arc<str>, JobId>,
    accepted: u64,
}

impl MemoryStore {
    /// Jobs that are kept, ended ones included; at the limit none is accepted.
    const MAX_JOBS: usize = 100_000;

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobStore for MemoryStore {
    fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let (most, new) = (Self::MAX_JOBS, new_jobs(records));
        if new > 0 && kept.jobs.len() + kept.outcomes.len() + new > most {
            return Err(StoreError::Full { most });
        }
        for (id, record) in records {
            match record {
                // A job ends once, and begins once.
                Record::Accepted(_)
                    if kept.jobs.contains_key(id) || kept.outcomes.contains_key(id) => {}
                Record::Accepted(job) => {
                    kept.accepted += 1;
                    if let Some(label) = &job.label {
                        kept.labels.insert(label.clone(), *id);
                    }
                    let order = kept.accepted;
                    kept.jobs.insert(*id, (order, job.clone()));
                }
                Record::Ended(outcome) => {
                    kept.jobs.remove(id);
                    kept.outcomes.entry(*id).or_insert_with(|| outcome.clone());
                }
            }
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        let kept = self.kept();
        let mut jobs: Vec<_> = kept.jobs.iter().collect();
        jobs.sort_by_key(|(_, (order, _))| *order);
        let jobs = jobs.into_iter().map(|(id, (_, job))| (*id, job.clone()));
        Ok(jobs.collect())
    }

    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        Ok(self.kept().outcomes.get(&job).cloned())
    }

    fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError> {
        Ok(self.kept().labels.get(label).copied())
    }
}

/// How many of the records are jobs.
pub(super) fn new_jobs(records: &[(JobId, Record)]) -> usize {
    let is_new = |(_, record): &&(JobId, Record)| matches!(record, Record::Accepted(_));
    records.iter().filter(is_new).count()
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;
    use crate::role::hub::Verdict;

    #[test]
    fn a_store_in_memory_keeps_jobs_until_they_end() {
        let store = MemoryStore::default();
        super::super::tests::keeps_jobs_until_they_end(&store);
    }

    // spec: HUB-6-1
    #[test]
    fn the_first_end_in_memory_is_final() {
        super::super::tests::takes_the_first_end(&MemoryStore::default());
    }

    // spec: HUB-6-1
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_full_store_in_memory_takes_no_jobs_and_still_takes_ends() {
        let (store, most) = (MemoryStore::default(), MemoryStore::MAX_JOBS);
        let mut ids = IdSource::seeded(0);
        let mut job = || (ids.next_id(), Record::Accepted(Job::test("t", vec![])));
        let jobs: Vec<_> = std::iter::repeat_with(&mut job).take(most).collect();
        store.write(&jobs).unwrap();
        let full = store.write(&[job()]);
        assert!(matches!(full, Err(StoreError::Full { most: at }) if at == most));
        let end = || Record::Ended(Outcome::new(Verdict::Failed, ""));
        // One of a job that it does not know, which is one more to be kept.
        store.write(&[(job().0, end())]).unwrap();
        store.write(&[(jobs[0].0, end())]).unwrap();
        assert!(store.write(&[job()]).is_err());
    }
}
