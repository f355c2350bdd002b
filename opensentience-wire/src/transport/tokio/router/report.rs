//! What the tasks beside the driver report, and what it tells them.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::watch;

use super::super::handle::CoreHandle;
use super::super::launch::Captured;
use super::source::AddError;
use crate::error::CommandError;
use crate::message::{Health, SharedTools};
use crate::role::core::Outcome;
use crate::role::router::{Ended, RouteId};

/// Tells the launches of an agent apart.
pub(super) type LaunchId = u64;

/// What a task reports to the router.
pub(super) enum Report {
    Agent(Arc<str>, LaunchId, AgentEvent),
    Called(RouteId, Result<Box<Outcome>, CommandError>),
}

/// What happens to an agent.
pub(super) enum AgentEvent {
    /// It is connected, and has registered where it has to; or what was launched of it has ended.
    Launched(Result<Box<RunningAgent>, AddError>),
    Tools(SharedTools),
    Health(Health),
    /// Its connection has ended, and its process is being waited for.
    Disconnected,
    Down(Ended),
}

/// What the router wants of an agent that is connected.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Run,
    /// It is replaced: its calls may go on for so long.
    Drain(Duration),
    Stop,
}

/// An agent that was launched.
pub(super) struct RunningAgent {
    pub(super) handle: CoreHandle,
    pub(super) exit: Captured,
    pub(super) health: watch::Receiver<Health>,
}
