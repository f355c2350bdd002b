//! What a router is made of, and what it shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::audit::AuditSink;
use super::super::launch::Launcher;
use crate::message::{Health, ToolSpec};
use crate::role::router::Config;

/// Makes the launcher for each launch of an agent.
pub(super) type MakeLauncher = Arc<dyn Fn() -> Launcher + Send + Sync>;

/// What is there to be called, as it was a moment ago.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct View {
    /// The tools of all agents that are connected, by id.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// How the agents are that are connected, by id.
    pub agents: BTreeMap<Arc<str>, Health>,
}

/// Puts a [`ToolRouter`](super::ToolRouter) together.
pub struct ToolRouterBuilder {
    pub(super) config: Config,
    pub(super) launchers: BTreeMap<Arc<str>, MakeLauncher>,
    pub(super) audit: AuditSink,
}
