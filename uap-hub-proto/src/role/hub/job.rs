//! A job, and how it ended.

use std::{sync::Arc, time::Duration};

use ubos_common::trace_context::TraceContext;

use crate::{capability::Skill, id::ClientId, message::JobResult, state::State, wire::Payload};

/// A job to be run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// The skill that it requires.
    pub skill: Skill,
    /// Its payloads, sent in this order.
    pub payloads: Vec<Payload>,
    /// The one agent that may run it; `None` for any.
    pub agent: Option<ClientId>,
    /// Its group: groups of one priority take turns. At most 1 KiB; `None` is a group, too.
    pub group: Option<Arc<str>>,
    /// The priority: jobs of a higher one always come first; 0 by default.
    pub priority: i8,
    /// How long it may wait for an agent, each time that it waits; `None` for the hub's `wait_limit`.
    pub wait_limit: Option<Duration>,
    /// The time limit from submission to end; `None` for no limit.
    pub time_limit: Option<Duration>,
    /// How often it may be started if agents are lost; `None` for the hub's `max_attempts`.
    pub max_attempts: Option<u32>,
    /// A label of the caller, stored with the job.
    pub label: Option<Arc<str>>,
    /// The place in a distributed trace that it is submitted from; its agent is told.
    pub trace: Option<TraceContext>,
}

impl Job {
    /// A job that requires a skill.
    #[must_use]
    pub const fn new(skill: Skill, payloads: Vec<Payload>) -> Self {
        Self {
            skill,
            payloads,
            agent: None,
            group: None,
            priority: 0,
            wait_limit: None,
            time_limit: None,
            max_attempts: None,
            label: None,
            trace: None,
        }
    }

    /// A test of a type.
    #[must_use]
    pub fn test(name: &str, payloads: Vec<Payload>) -> Self {
        Self::new(Skill::test(name), payloads)
    }

    /// A translation to a format.
    #[must_use]
    pub fn translation(name: &str, payloads: Vec<Payload>) -> Self {
        Self::new(Skill::translation(name), payloads)
    }

    /// Restricts the job to one agent; it ends [`Verdict::Refused`] if that agent refuses.
    #[must_use]
    pub fn with_agent(mut self, agent: ClientId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Sets the group; groups take turns.
    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets the priority; jobs of a higher one come first.
    #[must_use]
    pub const fn with_priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets how long the job may wait for an agent.
    #[must_use]
    pub const fn with_wait_limit(mut self, limit: Duration) -> Self {
        self.wait_limit = Some(limit);
        self
    }

    /// Sets the time limit, waiting included; beyond it the job ends [`Verdict::TimedOut`].
    #[must_use]
    pub const fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets how often the job may be started if agents are lost.
    #[must_use]
    pub const fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the caller's label.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the place in a distributed trace that the job is submitted from. It goes to the agent as metadata of the answer to
    /// the session's call (`traceparent`, `tracestate`), and over a queue in headers.
    ///
    /// ```
    /// use uap_hub_proto::{role::hub::Job, ubos_common::trace_context::TraceContext};
    ///
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let trace = TraceContext::read(parent, []).ok_or("no place in a trace")?;
    /// let job = Job::test("sum", vec![]).with_trace(trace);
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The end in one word.
    pub verdict: Verdict,
    /// The end in words for people: the agent's, or the hub's where the hub ended it. Beside a result the first 1,024 bytes of
    /// them: [`JobResult::message`] has all of the result's.
    pub message: String,
    /// The result of the agent, if it sent one.
    pub result: Option<JobResult>,
    /// The agent that ran it, if one did.
    pub agent: Option<ClientId>,
    /// Why a durable hub could not store this end: it may run the job again after a restart.
    pub store_error: Option<Box<str>>,
}

impl Outcome {
    /// An outcome without result and agent.
    pub(crate) fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Self {
            verdict,
            message: message.into(),
            result: None,
            agent: None,
            store_error: None,
        }
    }
}

/// The verdict on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The agent reported success.
    Completed,
    /// It failed, or its agent or stream was lost.
    Failed,
    /// The agent reported that the job is invalid.
    Invalid,
    /// The caller or the end of the hub cancelled it.
    Cancelled,
    /// The one agent that it was meant for refused it.
    Refused,
    /// No agent took it in time.
    Unplaced,
    /// It was not over within its [`time_limit`](Job::time_limit).
    TimedOut,
    /// A durable hub shut down before the end of the job. The job is stored, and runs after a restart.
    Kept,
}

impl Verdict {
    /// Of a terminal state; anything else is a failure.
    pub(super) const fn of(state: State) -> Self {
        match state {
            State::Completed => Self::Completed,
            State::Invalid => Self::Invalid,
            State::Failed | State::Acknowledged | State::Running => Self::Failed,
        }
    }
}
