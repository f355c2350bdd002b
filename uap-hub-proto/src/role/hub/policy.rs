//! Placement policies.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use ubos_common::time::Mono;

use super::Job;
use crate::{capability::Skill, id::ClientId};

/// An agent that listens and has room, for a [`Placement`] to rank.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// Its client id.
    pub client_id: &'a ClientId,
    /// Its display name.
    pub name: &'a str,
    /// Its proposals and sessions that have not ended.
    pub load: usize,
    /// The most that it may have.
    pub max_load: usize,
    /// When its last session ended, or it started to listen.
    pub idle_since: Mono,
}

/// The order in which agents are offered jobs.
///
/// An agent is ranked when it changes, not when a job comes: the hub keeps the ranks in an index, so that
/// placing a job among thousands of agents looks at one of them. A rank may therefore depend on nothing but
/// the candidate and the skill. Whether an agent can take a job at all is not asked here: the hub has seen to that.
///
/// It is called inside the machine, in `transport::server` under the one lock of the hub: it must not block, because all calls
/// wait for it, and must not call the hub's handle, whose calls would wait for that lock for ever. What it takes from
/// elsewhere is read from memory. If it panics, the agent is ranked last until it changes, or the job has no key, and the hub
/// goes on; the panic is reported by the process's panic hook alone.
///
/// ```
/// use uap_hub_proto::capability::Skill;
/// use uap_hub_proto::role::hub::{Candidate, Config, Job, Placement};
///
/// /// Machines of our own before rented ones, and a group's jobs on the machine that has its files.
/// #[derive(Debug)]
/// struct OwnFirst;
///
/// impl Placement for OwnFirst {
///     fn rank(&self, agent: &Candidate<'_>, _: &Skill) -> [u64; 2] {
///         [u64::from(!agent.name.starts_with("own-")), agent.load as u64]
///     }
///
///     fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
///         job.group.as_deref()
///     }
/// }
///
/// let config = Config::default().with_placement(OwnFirst);
/// # use uap_hub_proto::ubos_common::id::IdSource;
/// # let _ = uap_hub_proto::role::hub::Hub::new(config, IdSource::seeded(1));
/// ```
///
/// Spec: UAP hub 3
pub trait Placement: fmt::Debug + Send + Sync {
    /// The agent's rank for jobs of a skill; the lowest is asked first, and among equals who registered first.
    fn rank(&self, agent: &Candidate<'_>, skill: &Skill) -> [u64; 2];

    /// A key of the job, of at most 1 KiB: the agent that last accepted a job of the same key is asked first, if it can
    /// take this one now. The hub remembers 4,096 keys. `None`, which is the default, leaves the job to the ranks.
    fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        let _ = job;
        None
    }
}

/// A caller's placement, whose panics stay with the agent or the job that it was asked about: the machine is in the middle of a
/// change when it asks.
#[derive(Debug)]
pub(super) struct Guarded(pub(super) Arc<dyn Placement>);

impl Guarded {
    pub(super) fn rank(&self, agent: &Candidate<'_>, skill: &Skill) -> [u64; 2] {
        let rank = catch_unwind(AssertUnwindSafe(|| self.0.rank(agent, skill)));
        rank.unwrap_or([u64::MAX; 2])
    }

    pub(super) fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        let key = catch_unwind(AssertUnwindSafe(|| self.0.affinity(job)));
        key.unwrap_or_default()
    }
}

/// The placements that are built in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// Least loaded first, then longest idle: work spreads over the fleet. The default.
    #[default]
    LeastLoaded,
    /// Longest idle first, however much it runs: agents take turns.
    LongestIdle,
    /// Most loaded first, as long as it has room: as few agents as possible work, and the others can be sent home.
    MostLoaded,
}

// impl: HUB-3-6
impl Placement for Spread {
    fn rank(&self, agent: &Candidate<'_>, _: &Skill) -> [u64; 2] {
        let (load, idle) = (agent.load as u64, agent.idle_since.as_nanos());
        match self {
            Self::LeastLoaded => [load, idle],
            Self::LongestIdle => [idle, load],
            Self::MostLoaded => [u64::MAX - load, u64::MAX - idle],
        }
    }
}
