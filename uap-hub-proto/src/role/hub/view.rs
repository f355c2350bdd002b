//! A read-only view of a hub's state.

use std::collections::BTreeMap;

use super::{
    Hub,
    fleet::Agent,
    queue::{Entry, Stage},
    session::Stage as SessionStage,
};
use crate::{
    capability::Skill,
    id::{ClientId, JobId, SessionId, StreamId},
    wire::PayloadRequirement,
};

/// The phase of a hub.
///
/// ```text
/// Open <-> Paused -> Draining -> Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It offers jobs.
    Open,
    /// It accepts jobs and offers none.
    Paused,
    /// It waits for its sessions to end.
    Draining,
    /// It is shut down.
    Closed,
}

impl Phase {
    pub(super) const fn is_leaving(self) -> bool {
        matches!(self, Self::Draining | Self::Closed)
    }
}

/// An agent, as the caller sees it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentInfo {
    /// Its client id.
    pub client_id: ClientId,
    /// Its display name.
    pub name: String,
    /// Its skills.
    pub skills: Vec<Skill>,
    /// The payloads that its translations say they make.
    pub target_payloads: BTreeMap<Skill, Vec<PayloadRequirement>>,
    /// Whether its control stream is open.
    pub is_available: bool,
    /// Whether the caller has paused it.
    pub is_paused: bool,
    /// Whether it is disconnected when its sessions have ended.
    pub is_draining: bool,
    /// Its proposals and sessions that have not ended.
    pub load: usize,
}

/// A job, as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its name.
    pub id: JobId,
    /// The skill that it requires.
    pub skill: Skill,
    /// The label of the caller.
    pub label: Option<String>,
    /// Its stage.
    pub stage: JobStage,
    /// The offer or session that it is in.
    pub session: Option<SessionId>,
    /// The agent that it is offered to or runs on.
    pub agent: Option<ClientId>,
    /// How often an agent has accepted it.
    pub attempts: u32,
    /// How many agents refused it since all were asked last.
    pub refusals: usize,
    /// Events that its reader has not read.
    pub unread_events: usize,
    /// Bytes of these events.
    pub unread_bytes: usize,
    /// Whether its stream is paused because its reader does not keep up.
    pub is_held_up: bool,
}

/// The stage of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JobStage {
    /// It is being stored, and not accepted before it is.
    Storing,
    /// It waits for an agent.
    Waiting,
    /// It is offered to an agent.
    Offered,
    /// An agent accepted it, and the caller prepares it.
    Preparing,
    /// An agent may open its stream.
    Ready,
    /// It runs.
    Running,
    /// It runs, but its connection was lost and its agent has not come back.
    Cut,
    /// It has ended, and its end is being stored.
    Ending,
}

/// The counts of a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Registered agents.
    pub agents: usize,
    /// The number of agents whose control stream is open.
    pub available_agents: usize,
    /// Jobs whose end was not reported.
    pub jobs: usize,
    /// Those of them that wait for an agent.
    pub waiting_jobs: usize,
    /// Bytes of the payloads of jobs that have not ended.
    pub payload_bytes: usize,
    /// Sessions whose stream or offer is not over.
    pub sessions: usize,
}

/// The whole state of a hub, read-only. It copies only what is asked for.
///
/// ```
/// use uap_hub_proto::role::hub::{Config, Hub, Job, JobStage};
/// # use uap_hub_proto::ubos_common::time::{Mono, Now, Timestamp};
/// # let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// # use uap_hub_proto::ubos_common::id::IdSource;
/// let mut hub = Hub::new(Config::default(), IdSource::seeded(1))?;
/// hub.submit(now, Job::test("sum", vec![]))?;
/// assert_eq!(hub.view().counts().waiting_jobs, 1);
/// assert!(hub.view().jobs().all(|job| job.stage == JobStage::Waiting));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a Hub);

impl<'a> View<'a> {
    /// The phase of the hub.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.0.phase
    }

    /// The figures.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let hub = self.0;
        Counts {
            agents: hub.fleet.len(),
            available_agents: hub.fleet.listening(),
            jobs: hub.queue.len(),
            waiting_jobs: hub.queue.waiting_count(),
            payload_bytes: hub.queue.bytes(),
            sessions: hub.sessions.len(),
        }
    }

    /// The registered agents, ordered by client id.
    pub fn agents(&self) -> impl Iterator<Item = AgentInfo> + use<'a> {
        self.0.fleet.iter().map(|(id, agent)| agent_info(id, agent))
    }

    /// One agent.
    #[must_use]
    pub fn agent(&self, id: &ClientId) -> Option<AgentInfo> {
        let agent = self.0.fleet.get(id.as_str())?;
        Some(agent_info(id, agent))
    }

    /// The first agent, by client id, that listens and has this client id or display name. Anybody who may register chooses a
    /// display name, so it proves nothing. Copies nothing of registrations.
    #[must_use]
    pub fn listening_agent(&self, name: &str) -> Option<ClientId> {
        let found = self.0.fleet.iter().find(|(id, agent)| {
            agent.listen.is_some() && (id.as_str() == name || agent.name == name)
        });
        found.map(|(id, _)| id.clone())
    }

    /// The jobs whose end was not reported, ordered by id.
    pub fn jobs(&self) -> impl Iterator<Item = JobInfo> + use<'a> {
        let hub = self.0;
        hub.queue.iter().map(|(id, entry)| hub.job_info(id, entry))
    }

    /// One job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<JobInfo> {
        Some(self.0.job_info(id, self.0.queue.get(id)?))
    }
}

impl Hub {
    /// The whole state, read-only.
    #[must_use]
    pub const fn view(&self) -> View<'_> {
        View(self)
    }

    fn job_info(&self, id: JobId, entry: &Entry) -> JobInfo {
        let session = entry.session();
        let found = session.and_then(|session| self.sessions.get(session));
        let stream: Option<StreamId> = found.and_then(|found| found.stage.stream());
        JobInfo {
            id,
            skill: entry.job.skill.clone(),
            label: entry.job.label.as_deref().map(str::to_owned),
            stage: match (&entry.stage, found.map(|found| &found.stage)) {
                (Stage::Storing, _) => JobStage::Storing,
                (Stage::Ending(_), _) => JobStage::Ending,
                (Stage::Session(_), Some(SessionStage::Proposed)) => JobStage::Offered,
                (Stage::Session(_), Some(SessionStage::Preparing)) => JobStage::Preparing,
                (Stage::Session(_), Some(SessionStage::Ready)) => JobStage::Ready,
                (Stage::Session(_), Some(SessionStage::Open { stream: None, .. })) => JobStage::Cut,
                (Stage::Session(_), Some(_)) => JobStage::Running,
                (Stage::Session(_) | Stage::Waiting, _) => JobStage::Waiting,
            },
            session: found.map(|found| found.id.clone()),
            agent: found.map(|found| found.agent.clone()),
            attempts: entry.attempts,
            refusals: entry.refused.len(),
            unread_events: entry.unread.events,
            unread_bytes: entry.unread.bytes,
            is_held_up: stream.is_some_and(|stream| self.streams.is_paused(stream)),
        }
    }
}

fn agent_info(id: &ClientId, agent: &Agent) -> AgentInfo {
    AgentInfo {
        client_id: id.clone(),
        name: agent.name.clone(),
        skills: agent.skills.keys().cloned().collect(),
        target_payloads: (agent.skills.iter())
            .filter(|(_, requirements)| !requirements.targets.is_empty())
            .map(|(skill, requirements)| (skill.clone(), requirements.targets.to_vec()))
            .collect(),
        is_available: agent.listen.is_some(),
        is_paused: agent.is_paused,
        is_draining: agent.is_draining,
        load: agent.sessions.len(),
    }
}
