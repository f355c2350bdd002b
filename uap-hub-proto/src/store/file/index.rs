//! Where the records of each job are in the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ubos_common::log::Position;

use crate::{id::JobId, role::hub::Record};

/// What the log says of the jobs. It is made anew from the log, and is the same then, but for records that were written again.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) jobs: BTreeMap<JobId, Places>,
    /// Unfinished jobs by their places in the log.
    pub(super) unfinished: BTreeMap<Position, JobId>,
    pub(super) labels: BTreeMap<Arc<str>, JobId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub(super) accepted: Option<Position>,
    pub(super) ended: Option<Position>,
    /// The last acceptance and the last end in the log, copies among them.
    last: [Option<Position>; 2],
}

impl Index {
    pub(super) fn add(&mut self, id: JobId, record: &Record, at: Position) {
        let places = self.jobs.entry(id).or_default();
        places.saw(record, at);
        match record {
            // The first place is the one that its end removes.
            Record::Accepted(_) if places.accepted.is_some() => {}
            Record::Accepted(job) => {
                places.accepted = Some(at);
                if places.ended.is_none() {
                    self.unfinished.insert(at, id);
                }
                if let Some(label) = &job.label {
                    self.labels.insert(label.clone(), id);
                }
            }
            // The first end of a job is final.
            Record::Ended(_) => {
                places.ended = places.ended.or(Some(at));
                if let Some(accepted) = places.accepted {
                    self.unfinished.remove(&accepted);
                }
            }
        }
    }

    /// Where the acceptance and the end of a job are.
    pub(super) fn places(&self, id: JobId) -> [Option<Position>; 2] {
        let places = self.jobs.get(&id);
        places.map_or([None; 2], |places| [places.accepted, places.ended])
    }

    /// The end of a job whose last acceptance is behind its last end.
    pub(super) fn end_before_acceptance(&self, id: JobId) -> Option<Position> {
        let places = self.jobs.get(&id)?;
        let [accepted, ended] = places.last;
        places.ended.filter(|_| accepted > ended)
    }

    /// The jobs to be kept, in the order in which they came, and those that may go: all that ended but the last `keep`.
    pub(super) fn divide(&self, keep: usize) -> (Vec<JobId>, Vec<JobId>) {
        let mut ended: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(id, places)| Some((places.ended?, *id)))
            .collect();
        ended.sort_unstable();
        let gone = ended.len().saturating_sub(keep);
        let gone: Vec<_> = ended.into_iter().take(gone).map(|(_, id)| id).collect();
        let without: BTreeSet<_> = gone.iter().collect();
        let mut kept: Vec<_> = self
            .jobs
            .iter()
            .filter(|(id, _)| !without.contains(id))
            .map(|(id, places)| (places.accepted, *id))
            .collect();
        kept.sort_unstable();
        (kept.into_iter().map(|(_, id)| id).collect(), gone)
    }

    pub(super) fn forget(&mut self, jobs: &[JobId]) {
        for id in jobs {
            self.jobs.remove(id);
        }
        self.labels.retain(|_, id| self.jobs.contains_key(id));
    }

    /// A record was written again.
    pub(super) fn move_to(&mut self, id: JobId, record: &Record, to: Position) {
        let Some(places) = self.jobs.get_mut(&id) else {
            return;
        };
        places.saw(record, to);
        match record {
            Record::Accepted(_) => {
                let old = places.accepted.replace(to);
                if old.is_some_and(|old| self.unfinished.remove(&old).is_some()) {
                    self.unfinished.insert(to, id);
                }
            }
            Record::Ended(_) => places.ended = Some(to),
        }
    }
}

impl Places {
    fn saw(&mut self, record: &Record, at: Position) {
        let [accepted, ended] = &mut self.last;
        let last = match record {
            Record::Accepted(_) => accepted,
            Record::Ended(_) => ended,
        };
        *last = (*last).max(Some(at));
    }
}
