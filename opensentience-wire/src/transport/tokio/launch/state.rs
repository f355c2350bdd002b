//! What a launch needs, and why it fails.

use core::time::Duration;
use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::Arc;

use ubos_common::os::{Clock, OsError};

use super::super::audit::Listeners;
use super::logs::Captured;
use crate::error::ConfigError;
use crate::ledger::Ledger;
use crate::manifest::Manifest;
use crate::role::core::Config;

/// Why an agent is not launched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The manifest is another agent's.
    #[error("the manifest is that of {manifest}, the agent is {agent}")]
    OtherManifest {
        /// The agent of the manifest.
        manifest: String,
        /// The agent that was to be launched.
        agent: String,
    },
    /// The agent of a router is that of a manifest, and its launcher is bound to none.
    #[error(
        "the launcher of {agent} is not bound to its manifest: `Launcher::with_manifest` does that"
    )]
    Unbound {
        /// The agent.
        agent: String,
    },
    /// The launcher of a router's agent is another agent's.
    #[error("the launcher is that of {launcher}, the router wants {agent}")]
    OtherLauncher {
        /// The agent of the launcher.
        launcher: String,
        /// The agent that the router wants.
        agent: String,
    },
    /// No randomness for the token.
    #[error(transparent)]
    Random(#[from] OsError),
    /// The socket cannot be made.
    #[error("the socket cannot be made")]
    Socket(#[source] std::io::Error),
    /// The socket's path is longer than a socket's may be; set another folder for temporary files.
    #[error("the socket's path has {bytes} bytes, fewer than {limit} are allowed")]
    PathTooLong {
        /// Bytes of the path.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The program cannot be started.
    #[error("{program} cannot be started")]
    Spawn {
        /// Its path.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The program ended before it was connected. [`Launcher::output`] has what it wrote.
    #[error("the agent ended before it was connected: {0}")]
    Ended(ExitStatus),
    /// The agent did not connect in time, or failed the handshake.
    #[error("the agent did not complete the handshake")]
    Handshake,
}

impl LaunchError {
    /// The error and its cause in one line. Nothing of it is the agent's own text.
    pub(super) fn line(&self) -> String {
        match core::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}

/// Launches one agent: a fresh socket and token, a process with an environment of its own, a handshake.
///
/// Spec: OpenSentience 5
#[derive(Debug)]
pub struct Launcher {
    pub(super) agent_id: String,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) envs: Vec<(OsString, OsString)>,
    pub(super) manifest_hash: Option<String>,
    /// How much of the agent may be used, and who it is.
    pub(super) manifest: Option<Box<Manifest>>,
    /// A router has the agent of a manifest, and launches no other.
    pub(super) wanted_manifest: Option<Arc<Manifest>>,
    /// The agent that a router launches, and what is kept for it.
    pub(super) router_agent: Option<(String, Ledger)>,
    /// All connections of an agent have one clock.
    pub(super) clock: Clock,
    pub(super) config: Config,
    pub(super) listeners: Listeners,
    pub(super) stop_timeout: Duration,
    pub(super) output: Captured,
}
