//! How an orchestrator works.

use std::sync::Arc;

use crate::check;
use crate::registry::AgentRecord;
use crate::role::Authorizer;
use crate::runner;
use crate::v1;

/// How an [`Orchestrator`](super::Orchestrator) works.
#[derive(Clone, Debug)]
pub struct OrchestratorConfig {
    pub(super) run: runner::Config,
    pub(super) spawning: bool,
    pub(super) formatters: Vec<String>,
    pub(super) max_shared_bytes: usize,
    pub(super) check: check::Config,
    pub(super) overrule: bool,
    pub(super) sender: Option<v1::Id>,
    pub(super) authorizer: Option<Arc<dyn Authorizer>>,
    pub(super) requester: Option<String>,
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            run: runner::Config::default(),
            spawning: false,
            formatters: Vec::new(),
            max_shared_bytes: 262_144,
            check: check::Config::default(),
            overrule: false,
            sender: None,
            authorizer: None,
            requester: None,
        }
    }
}

impl OrchestratorConfig {
    /// Sets how many bytes of earlier outputs a delegated message carries in `ctx.results`: 256 KiB by default. The newest
    /// outputs are taken; 0 sends none.
    #[must_use]
    pub const fn with_max_shared_bytes(mut self, bytes: usize) -> Self {
        self.max_shared_bytes = bytes;
        self
    }

    /// Sets the sender of messages of 1.0. Without one it is the recipient of the request.
    #[must_use]
    pub fn with_sender(mut self, sender: v1::Id) -> Self {
        self.sender = Some(sender);
        self
    }

    /// Sets who decides what a sender may ask for. Without one everything is allowed.
    #[must_use]
    pub fn with_authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// Sets who sent the message, as the host knows it. Without it the authorizer sees the sender that a message of 1.0 names
    /// itself, which is not proved.
    #[must_use]
    pub fn with_requester(mut self, requester: &str) -> Self {
        self.requester = Some(requester.to_owned());
        self
    }

    /// Sets what the check of a plan takes for too much.
    #[must_use]
    pub const fn with_check(mut self, check: check::Config) -> Self {
        self.check = check;
        self
    }

    /// Sets whether a plan runs in spite of the MUST findings of its check. Off by default: it is refused before anything
    /// is spawned or delegated. A plan that ran names them in [`Outcome::overruled`](runner::Outcome::overruled) and in its
    /// answer.
    #[must_use]
    pub const fn with_overruling(mut self, on: bool) -> Self {
        self.overrule = on;
        self
    }

    /// Sets how plans run.
    #[must_use]
    pub fn with_run(mut self, run: runner::Config) -> Self {
        self.run = run;
        self
    }

    /// Sets whether missing agents are spawned. Off by default: a gap is answered with its error.
    #[must_use]
    pub const fn with_spawning(mut self, on: bool) -> Self {
        self.spawning = on;
        self
    }

    /// Adds an agent that may answer in prose, besides those tagged `formatter` or `interface`.
    #[must_use]
    pub fn with_formatter(mut self, agent: &str) -> Self {
        self.formatters.push(agent.to_owned());
        self
    }

    pub(super) fn may_write_prose(&self, agent: &AgentRecord) -> bool {
        let tagged = |tag: &String| matches!(tag.as_str(), "formatter" | "interface");
        self.formatters.contains(&agent.agent_name) || agent.tags.iter().flatten().any(tagged)
    }
}
