//! What agents a router has.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::time::Now;

use super::super::audit::AuditSink;
use super::super::launch::{LaunchError, Launcher};
use crate::audit::{AuditEvent, AuditName};
use crate::error::ConfigError;
use crate::manifest::Manifest;
use crate::role::router::{AgentPolicy, Config};

/// Makes the launcher for each launch of an agent.
pub(super) type MakeLauncher = Arc<dyn Fn() -> Launcher + Send + Sync>;

/// How long the calls of an agent that is replaced may go on.
const DRAIN_TIME: Duration = Duration::from_secs(60);

/// An agent for a [`ToolRouter`](super::ToolRouter): what launches it, what it may do, how much of it may be used.
#[derive(Clone)]
pub struct AgentSource {
    pub(super) id: Arc<str>,
    pub(super) make_launcher: MakeLauncher,
    pub(super) policy: AgentPolicy,
    manifest: Option<Arc<Manifest>>,
    pub(super) drain_time: Duration,
}

impl AgentSource {
    /// An agent, and what makes the launcher for each of its launches.
    ///
    /// The router has its own permissions, and its records go to its own sink: it sets both at the launcher.
    #[must_use]
    pub fn new(id: &str, make_launcher: impl Fn() -> Launcher + Send + Sync + 'static) -> Self {
        Self {
            id: id.into(),
            make_launcher: Arc::new(make_launcher),
            policy: AgentPolicy::default(),
            manifest: None,
            drain_time: DRAIN_TIME,
        }
    }

    /// The agent of a manifest, with the policy that stands in it: who takes it approves the permissions that the agent asks
    /// for. Launchers are bound to the manifest with [`Launcher::with_manifest`]; one that is not launches nothing.
    #[must_use]
    pub fn of(
        manifest: &Manifest,
        make_launcher: impl Fn() -> Launcher + Send + Sync + 'static,
    ) -> Self {
        let mut agent = Self::new(manifest.agent_id(), make_launcher);
        agent.manifest = Some(Arc::new(manifest.clone()));
        agent.with_policy(AgentPolicy::default())
    }

    /// Sets what the agent may do, and how much of it may be used. The manifest of one that is [`of`](Self::of) a manifest binds
    /// beside that.
    #[must_use]
    pub fn with_policy(mut self, policy: AgentPolicy) -> Self {
        self.policy = match &self.manifest {
            Some(manifest) => policy.with_manifest(manifest),
            None => policy,
        };
        self
    }

    /// The manifest to which its launchers must be bound.
    pub(super) fn manifest(&self) -> Option<Arc<Manifest>> {
        self.manifest.clone()
    }

    /// Sets how long the calls that run may go on when it takes the place of another: 60 s by default.
    #[must_use]
    pub const fn with_drain_time(mut self, span: Duration) -> Self {
        self.drain_time = span;
        self
    }
}

impl fmt::Debug for AgentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSource")
            .field("id", &self.id)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Why an agent is not added or replaced. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// There is an agent of this id: replace it.
    #[error("the router has an agent {id} already")]
    Exists {
        /// Its id.
        id: Arc<str>,
    },
    /// There is no agent of this id: add it.
    #[error("the router has no agent {id}")]
    Unknown {
        /// The id.
        id: Arc<str>,
    },
    /// The agent is being added or replaced at the moment.
    #[error("the agent {id} is being added or replaced already")]
    InProgress {
        /// Its id.
        id: Arc<str>,
    },
    /// As many agents are there as the router takes.
    #[error("the router has {limit} agents, and takes no more")]
    TooMany {
        /// Agents allowed.
        limit: usize,
    },
    /// A setting of the policy is out of its range.
    #[error(transparent)]
    Policy(#[from] ConfigError),
    /// The agent could not be launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// What makes the agent's launchers panicked, or the launch itself.
    #[error("the function that makes the agent's launchers, or the launch, panicked")]
    Panicked,
    /// The agent was connected and did not register, not even that it has no tools.
    #[error("the agent did not register within {within:?}")]
    Unregistered {
        /// How long that was waited for: the launcher's time for a handshake.
        within: Duration,
    },
    /// The agent registered, and none of its tools can be used.
    #[error("all the tools that the agent registered were rejected")]
    ToolsRejected,
    /// The agent's connection ended before the agent could take its place.
    #[error("the agent's connection ended before it could be called")]
    Disconnected,
    /// It was stopped meanwhile, or the router is shutting down or gone.
    #[error("the agent was stopped, or the router is closing")]
    Closing,
}

/// Puts a [`ToolRouter`](super::ToolRouter) together.
pub struct ToolRouterBuilder {
    pub(super) config: Config,
    pub(super) sources: BTreeMap<Arc<str>, AgentSource>,
    pub(super) audit: AuditSink,
}

impl ToolRouterBuilder {
    /// Leaves out the agents whose policies are out of their range, and records why: the others are none the worse for it.
    pub(super) fn refuse_policies(&mut self, now: Now) {
        let audit = &self.audit;
        self.sources.retain(|agent, source| {
            let refused = source.policy.check().err();
            if let Some(error) = &refused {
                let mut event = AuditEvent::of(AuditName::RunCrashed, now.wall);
                event.detail = Some(error.to_string());
                event.agent_id = Some(agent.to_string());
                audit.take(event);
            }
            refused.is_none()
        });
    }
}
