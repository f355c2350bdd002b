//! What is said to an orchestrator, what it wants, and how it works.

use std::sync::Arc;

use crate::message::Message;
use crate::registry::AgentRecord;
use crate::reply::Reply;
use crate::runner::{self, Cause, Ticket};

/// How an orchestrator works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrchestratorConfig {
    /// How plans are run.
    pub run: runner::Config,
    /// Whether somebody spawns what is missing; without one a gap is answered with its error.
    pub spawns: bool,
    /// The names of agents that write for a person, besides those tagged `formatter` or `interface`.
    pub speakers: Vec<String>,
    /// Bytes of earlier outputs that a delegated message carries in `ctx.results`; the newest are taken.
    pub max_shared_bytes: usize,
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            run: runner::Config::default(),
            spawns: false,
            speakers: Vec::new(),
            max_shared_bytes: 262_144,
        }
    }
}

impl OrchestratorConfig {
    /// Sets how many bytes of earlier outputs a delegated message carries.
    #[must_use]
    pub const fn with_max_shared_bytes(mut self, bytes: usize) -> Self {
        self.max_shared_bytes = bytes;
        self
    }

    /// Sets how plans are run.
    #[must_use]
    pub fn with_run(mut self, run: runner::Config) -> Self {
        self.run = run;
        self
    }

    /// Has what is missing spawned.
    #[must_use]
    pub const fn spawning(mut self) -> Self {
        self.spawns = true;
        self
    }

    /// Adds an agent that writes for a person.
    #[must_use]
    pub fn with_speaker(mut self, agent: &str) -> Self {
        self.speakers.push(agent.to_owned());
        self
    }

    pub(super) fn speaks(&self, agent: &AgentRecord) -> bool {
        let tagged = |tag: &String| matches!(tag.as_str(), "formatter" | "interface");
        self.speakers.contains(&agent.agent_name) || agent.tags.iter().flatten().any(tagged)
    }
}

/// What is said to an orchestrator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Said {
    /// An agent answered: the bytes as they came.
    Answer {
        /// Which question.
        ticket: Ticket,
        /// The answer.
        bytes: Vec<u8>,
    },
    /// An agent could not be reached, or said nothing.
    Failed {
        /// Which question.
        ticket: Ticket,
        /// Why.
        cause: Cause,
    },
    /// An agent is alive.
    Progress {
        /// Which question.
        ticket: Ticket,
    },
    /// The spawning service answered.
    Spawned(Box<Reply>),
    /// The message is called off.
    Cancel,
}

/// A question to an agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ask {
    /// Which attempt at which step.
    pub ticket: Ticket,
    /// Whom.
    pub agent: Arc<AgentRecord>,
    /// What: a message with the one act, raw unless the agent writes for a person.
    pub message: Message,
}

/// What an orchestrator wants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Wanted {
    /// Ask an agent, and say its answer.
    Ask(Box<Ask>),
    /// The question is void; its answer is not waited for.
    Stop {
        /// Which question.
        ticket: Ticket,
    },
    /// Have an agent made, and say the service's answer.
    Spawn(Box<Message>),
    /// Answer the sender: it is the end.
    Finish(Box<Finished>),
}

/// The answer to the sender.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finished {
    /// A message or another answer of the protocol.
    Reply(Reply),
    /// Prose, where the message asked for it and the last step wrote it.
    Prose(String),
}

/// Why something said is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrchestratorError {
    /// The answer was given.
    #[error("the message is answered")]
    Finished,
    /// Nobody was asked that.
    #[error("nothing was asked that this answers")]
    NotAsked,
}
