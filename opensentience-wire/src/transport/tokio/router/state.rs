//! What the driver of a router holds, and what handles ask of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use ubos_common::os::Clock;

use super::super::audit::AuditSink;
use super::super::call::{CallDriver, Change, Link, RunningCall};
use super::super::io::Alarm;
use super::connected::Connected;
use super::report::{LaunchId, Report};
use super::source::{AddError, AgentSource};
use super::view::View;
use crate::role::core::CallRequest;
use crate::role::router::{Refused, RouteId, Router};

/// What handles ask of the driver.
pub(super) enum Command {
    Call(
        Box<CallRequest>,
        Arc<Cancels>,
        oneshot::Sender<Result<RunningCall<RouteId>, Refused>>,
    ),
    Add(Box<AgentSource>, Mode, AddReply),
    Stop(Box<str>),
    Shutdown,
}

/// Whether an agent comes anew or in the place of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Add,
    Replace,
}

pub(super) type AddReply = oneshot::Sender<Result<(), AddError>>;

/// A launch that is not over.
pub(super) struct Launching {
    pub(super) launch: LaunchId,
    /// Ends it where this is dropped.
    pub(super) _wanted: oneshot::Sender<()>,
    /// What is to take the place of the agent's source, and who waits for it.
    pub(super) change: Option<(Box<AgentSource>, AddReply)>,
}

/// How calls are cancelled. At most one cancel for each call that was taken waits.
#[derive(Debug)]
pub(super) struct Cancels(pub(super) mpsc::UnboundedSender<RouteId>);

impl Link<RouteId> for Cancels {
    fn cancel(&self, id: &RouteId) {
        // A driver that is gone has ended the call already.
        let _ = self.0.send(*id);
    }

    /// The task of the call waits for room by itself.
    fn on_change(&self, _: Change) {}
}

pub(super) struct Driver {
    pub(super) router: Router,
    pub(super) clock: Clock,
    pub(super) alarm: Alarm,
    pub(super) max_agents: usize,
    /// The agents that are wanted; none where the router is closing.
    pub(super) sources: BTreeMap<Arc<str>, AgentSource>,
    pub(super) audit: AuditSink,
    pub(super) connected: Connected,
    /// The calls whose callers wait for their ends.
    pub(super) slots: HashMap<RouteId, Arc<CallDriver>>,
    /// At most one for each call, and one for each agent that is connected.
    pub(super) tasks: JoinSet<Report>,
    /// The tasks of `launching`, and of those that were given up.
    pub(super) launches: JoinSet<Report>,
    /// At most one for each agent.
    pub(super) launching: HashMap<Arc<str>, Launching>,
    pub(super) last_launch: LaunchId,
    pub(super) reports_tx: mpsc::Sender<Report>,
    pub(super) reports: mpsc::Receiver<Report>,
    pub(super) view: watch::Sender<Arc<View>>,
    /// Agents whose first launch is not over; `ready` becomes true when none is left.
    pub(super) starting: BTreeSet<Arc<str>>,
    pub(super) ready: watch::Sender<bool>,
    pub(super) closing: bool,
}
