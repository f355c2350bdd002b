//! How an orchestrator works.

use std::sync::Arc;

use crate::check;
use crate::registry::AgentRecord;
use crate::role::Authorizer;
use crate::runner;
use crate::v1;

ubos_common::config! {
    /// How an [`Orchestrator`](super::Orchestrator) works.
    OrchestratorConfig {
        /// Sets how plans run.
        with_run: run: runner::Config = runner::Config::default(),
        /// Sets what the check of a plan takes for too much.
        with_check: check: check::Config = check::Config::default(),
        /// Sets whether a plan runs in spite of the MUST findings of its check. Off by default: it is refused before anything
        /// is spawned or delegated. A plan that ran names them in [`Outcome::overruled`](runner::Outcome::overruled) and in
        /// its answer.
        with_overruling: overrule: bool = false,
        /// Sets whether missing agents are spawned. Off by default: a gap is answered with its error.
        with_spawning: spawning: bool = false,
        /// Sets how many bytes of earlier outputs a delegated message carries in `ctx.results`: 256 KiB by default. The newest
        /// outputs are taken; 0 sends none.
        with_max_shared_bytes: max_shared_bytes: usize = 262_144,
    }
    into {
        /// Sets the sender of messages of 1.0. Without one it is the recipient of the request.
        with_sender: sender: Option<v1::Id> = None,
    }
    also {
        formatters: Vec<String> = Vec::new(),
        authorizer: Option<Arc<dyn Authorizer>> = None,
        requester: Option<String> = None,
    }
}

impl OrchestratorConfig {
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
