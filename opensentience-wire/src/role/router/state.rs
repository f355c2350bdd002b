//! What a router holds, what happens to it, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::machine::{Outbox, Timers};
use ubos_common::time::Mono;

use super::absent::Absent;
use super::config::Config;
use super::ledgers::Ledgers;
use super::policy::AgentPolicy;
use super::quota::Meters;
use super::restart::{Ended, Supervision};
use crate::audit::AuditEvent;
use crate::error::CommandError;
use crate::ledger::Charge;
use crate::message::{Caller, Health, ToolSpec};
use crate::role::core::{CallRequest, Outcome};
use crate::role::idempotency::{Key, Memory};

/// Names a call among those of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub(super) u64);

#[cfg(test)]
impl RouteId {
    pub(crate) const fn of(number: u64) -> Self {
        Self(number)
    }
}

/// What happens at the agents.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// An agent is connected. One that was up already is replaced: the calls that run at the one before end there, each by
    /// [`Ended`](Self::Ended).
    AgentUp {
        /// Its id.
        agent: String,
        /// Its tools.
        tools: Vec<Arc<ToolSpec>>,
    },
    /// An agent offers other tools now.
    Tools {
        /// Its id.
        agent: String,
        /// Its tools.
        tools: Vec<Arc<ToolSpec>>,
    },
    /// An agent's health changed.
    Health {
        /// Its id.
        agent: String,
        /// Its health.
        health: Health,
    },
    /// An agent is being ended: it gets no more calls, and its tools are gone. The calls that run go on.
    AgentStopping {
        /// Its id.
        agent: String,
    },
    /// An agent's connection has ended: its tools are gone, or expected back where it may be launched again. Each of its calls ends as
    /// its connection ended it, which may be with a result. How its process ends is told by [`AgentDown`](Self::AgentDown): calls that
    /// have no end by then end there.
    AgentDisconnected {
        /// Its id.
        agent: String,
    },
    /// An agent is not wanted any more: nothing of it is kept once it is gone, and it is not launched again.
    AgentStopped {
        /// Its id.
        agent: String,
    },
    /// A launch of an agent has failed: it was not connected, and may be launched again.
    LaunchFailed {
        /// Its id.
        agent: String,
    },
    /// An agent is gone: it may be launched again. If it was connected, that has ended.
    AgentDown {
        /// Its id.
        agent: String,
        /// How it ended.
        ended: Ended,
    },
    /// A connection refused to send a call, and audited that.
    NotSent {
        /// The call.
        route: RouteId,
        /// The reason.
        error: CommandError,
    },
    /// A call ended at its connection.
    Ended {
        /// The call.
        route: RouteId,
        /// The outcome.
        outcome: Box<Outcome>,
    },
}

/// What a router wants done, and reports.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Send a call on its agent's connection, and say how it ended.
    Send {
        /// The call.
        route: RouteId,
        /// Its agent.
        agent: Arc<str>,
        /// The request.
        request: Box<CallRequest>,
    },
    /// Cancel a call on its agent's connection; its end is still waited for.
    Cancel {
        /// The call.
        route: RouteId,
        /// Its agent.
        agent: Arc<str>,
    },
    /// A call has ended; there is exactly one for each.
    Ended {
        /// The call.
        route: RouteId,
        /// The outcome.
        outcome: Box<Outcome>,
    },
    /// Launch an agent again, with a new token.
    Launch {
        /// Which.
        agent: Arc<str>,
        /// Counts the launches since it last was well for a while.
        attempt: u32,
    },
    /// End an agent's process: it is unwell, none of its calls runs, and its policy wants another one. Its tools are expected back.
    Stop {
        /// Which.
        agent: Arc<str>,
    },
    /// A record for the audit.
    Audit(Box<AuditEvent>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    Launch(Arc<str>),
    /// The time of a call is over that waits for the end of another.
    Follower(RouteId),
}

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) up: bool,
    pub(super) health: Health,
    pub(super) tools: BTreeSet<Box<str>>,
    pub(super) routes: BTreeSet<RouteId>,
    pub(super) supervision: Supervision,
    /// It is being ended because it is unwell, and is to be launched again however well it says it is now.
    pub(super) stopping: bool,
}

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) agent: Arc<str>,
    pub(super) spec: Arc<ToolSpec>,
}

#[derive(Debug)]
pub(super) struct Route {
    pub(super) agent: Arc<str>,
    pub(super) tool: Box<str>,
    pub(super) key: Option<Key>,
    /// What a record says of its end, where its end may be made here.
    pub(super) about: Option<Box<About>>,
    /// What is kept of it here: its request goes to the connection with an entry of its own.
    pub(super) charge: Charge,
    /// It waits for the end of another call with its key, and nothing was sent for it.
    pub(super) follows: bool,
    /// The caller has its end; others still wait for what was sent.
    pub(super) answered: bool,
}

/// What a record says of a call that has a key: others may share what was sent for it, and its connection knows nothing of them.
#[derive(Debug)]
pub(super) struct About {
    pub(super) request_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
    pub(super) caller: Option<Caller>,
    pub(super) asked: Mono,
}

/// Calls over many agents. See the [module](super).
#[derive(Debug)]
pub struct Router {
    pub(super) config: Config,
    pub(super) agents: BTreeMap<Arc<str>, Agent>,
    pub(super) tools: BTreeMap<Box<str>, Tool>,
    pub(super) absent: Absent,
    pub(super) routes: BTreeMap<RouteId, Route>,
    /// How many routes each agent has, those of one that was replaced counted.
    pub(super) places: BTreeMap<Arc<str>, usize>,
    pub(super) policies: BTreeMap<Box<str>, AgentPolicy>,
    pub(super) ledgers: Ledgers,
    pub(super) agent_meters: Meters,
    /// What was used of the quotas of policies.
    pub(super) policy_meters: Meters,
    pub(super) manifest_meters: Meters,
    pub(super) tool_meters: Meters,
    pub(super) memory: Memory<RouteId, Outcome>,
    pub(super) last: u64,
    pub(super) timers: Timers<Timer>,
    pub(super) out: Outbox<Output>,
}
