//! An MCP server as an agent: its tools under any core.
//!
//! | MCP | OpenSentience |
//! |---|---|
//! | a tool, its input schema, its annotations | a registered tool; one that is not marked read-only has side effects |
//! | the list of tools changes | the tools are registered anew |
//! | arguments | the input, as it is written |
//! | `traceparent` and `tracestate` in `_meta` of the call | the call's place in a trace: [`IncomingCall::trace`], or what [`Bridge::with_trace_of`] finds by its ids |
//! | the result, whole | the output, as it is written: `content`, `structuredContent`, `_meta`, … |
//! | a result marked as an error | `tool.failed` with its text |
//! | progress | pieces of output on the channel `status` |
//! | the request is cancelled | the call is cancelled, late, or its core is gone |
//! | the connection ends | the agent ends |
//!
//! What has no counterpart is in [`Bridge::not_carried`]: resources, prompts and the like, tools that run only as tasks, and
//! tools whose names no tool of an agent may have, which get another.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use opensentience_wire::transport::mcp::Bridge;
//!
//! let mut server = tokio::process::Command::new("some-mcp-server");
//! server.arg("--stdio");
//! let bridge = Bridge::launch(server).await?;
//! for loss in bridge.not_carried() {
//!     eprintln!("{loss}");
//! }
//! bridge.serve_from_env().await?;
//! # Ok(())
//! # }
//! ```

mod call;
mod lines;
mod server;
mod tools;

use core::fmt;
use core::time::Duration;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;

use rmcp::ServiceExt as _;
use rmcp::service::{RoleClient, RunningService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};
use ubos_common::trace_context::TraceContext;

use super::tokio::{Agent, ServeError};
use crate::role::CloseReason;
use crate::role::agent::{Config, IncomingCall};
use lines::Lines;
pub use server::{BridgeError, NotCarried};
use server::{Listener, OnChange};

/// How long a server may take to say who it is and what it offers.
const START: Duration = Duration::from_secs(30);

/// A session with an MCP server, ready to be served as an agent.
pub struct Bridge {
    service: RunningService<RoleClient, Listener>,
    agent: Agent,
    not_carried: Vec<NotCarried>,
    list_timeout: Duration,
    on_change: OnChange,
    child: Option<Child>,
}

impl Bridge {
    /// Starts a server as a process that speaks on its standard input and output. It ends with the bridge; of the launch of
    /// this agent it learns nothing.
    ///
    /// # Errors
    ///
    /// See [`BridgeError`].
    // impl: OSW-5-1
    pub async fn launch(mut command: Command) -> Result<Self, BridgeError> {
        let set = command.as_std().get_envs();
        let set: Vec<_> = set.map(|(name, _)| name.to_owned()).collect();
        let inherited = std::env::vars_os().map(|(name, _)| name);
        let own = |name: &OsString| name.to_string_lossy().starts_with("OPENSENTIENCE_");
        for name in inherited.chain(set).filter(own) {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .map_err(BridgeError::Spawn)?;
        let (Some(input), Some(output)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(BridgeError::Spawn(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut bridge = Self::connect(tokio::io::join(input, output)).await?;
        bridge.child = Some(child);
        Ok(bridge)
    }

    /// Begins a session with a server over a stream of lines, such as a socket; [`tokio::io::join`] makes one of a reader and
    /// a writer.
    ///
    /// # Errors
    ///
    /// See [`BridgeError`].
    pub async fn connect<S>(stream: S) -> Result<Self, BridgeError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let start = async {
            let listener = Listener::default();
            let lines = Lines::new(stream, Arc::clone(&listener.calls));
            let service = listener.serve(lines).await;
            let service = service.map_err(|err| BridgeError::Initialize(Box::new(err)))?;
            let offered = tools::offered(service.peer(), service.service()).await?;
            Ok((service, offered))
        };
        let started = tokio::time::timeout(START, start).await;
        let (service, offered) = started.map_err(|_| BridgeError::Silent(START))??;
        let info = service.peer_info();
        let version = info.as_ref().and_then(|info| info.server_info.as_ref());
        let version = version.and_then(|server| server.version.parse().ok());
        let version = version.or_else(|| "0.0.0".parse().ok());
        let mut not_carried: Vec<_> = info
            .map(|info| tools::features(&info.capabilities))
            .unwrap_or_default();
        not_carried.extend(offered.not_carried);
        #[expect(clippy::expect_used, reason = "three numbers are a version")]
        let agent = Agent::new(version.expect("a version of its own"));
        let agent = offered
            .tools
            .into_iter()
            .fold(agent, |agent, tool| agent.offer(tool));
        Ok(Self {
            service,
            agent,
            not_carried,
            list_timeout: START,
            on_change: Box::new(drop),
            child: None,
        })
    }

    /// Sets how long the server may take to list its tools again after they have changed: 30 s by default.
    #[must_use]
    pub const fn with_list_timeout(mut self, span: Duration) -> Self {
        self.list_timeout = span;
        self
    }

    /// Sets who is told each time that the server's tools have changed: what of them is not passed on, or why those before
    /// stay.
    #[must_use]
    pub fn with_on_change(
        mut self,
        on_change: impl FnMut(Result<Vec<NotCarried>, BridgeError>) + Send + 'static,
    ) -> Self {
        self.on_change = Box::new(on_change);
        self
    }

    /// Sets how the place in a distributed trace of a call is found, by its ids for example, which are the only link that its
    /// message has. By default it is [`IncomingCall::trace`]. It goes in `_meta` of the request to the server; a call without
    /// one has none there.
    #[must_use]
    pub fn with_trace_of(
        self,
        trace_of: impl Fn(&IncomingCall) -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.service.service().trace_of.set(trace_of);
        self
    }

    /// What of the server is not passed on.
    #[must_use]
    pub fn not_carried(&self) -> &[NotCarried] {
        &self.not_carried
    }

    /// Serves the core that launched this process: as [`Agent::serve_from_env`].
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    #[cfg(unix)]
    pub async fn serve_from_env(self) -> Result<CloseReason, ServeError> {
        self.serve_by(Agent::serve_from_env).await
    }

    /// Serves a core over any stream: as [`Agent::serve`].
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn serve<S>(self, stream: S, config: Config) -> Result<CloseReason, ServeError>
    where
        S: AsyncRead + AsyncWrite,
    {
        self.serve_by(|agent| agent.serve(stream, config)).await
    }

    /// Serves, follows the server's tools, and ends when the server does.
    async fn serve_by<F>(self, serve: impl FnOnce(Agent) -> F) -> Result<CloseReason, ServeError>
    where
        F: Future<Output = Result<CloseReason, ServeError>>,
    {
        let Self {
            service,
            agent,
            list_timeout,
            mut on_change,
            child,
            ..
        } = self;
        let control = agent.control();
        let serving = serve(agent);
        let changed = Arc::clone(&service.service().changed);
        let peer = service.peer().clone();
        let listener = service.service().clone();
        let following = async {
            loop {
                changed.notified().await;
                // A server that cannot say what it has, or does not, keeps what it had until it says that this has changed again.
                let offering = tokio::time::timeout(list_timeout, tools::offered(&peer, &listener));
                let offered = match offering.await {
                    Err(_) => Err(BridgeError::Silent(list_timeout)),
                    Ok(Err(error)) => Err(error),
                    Ok(Ok(offered)) => {
                        let replaced = control.replace_tools(offered.tools).await;
                        replaced
                            .map(|()| offered.not_carried)
                            .map_err(BridgeError::Offer)
                    }
                };
                on_change(offered);
            }
        };
        let ending = async {
            // However it ended.
            let _ = service.waiting().await;
            control.shutdown().await;
            // The agent has still to end the calls that run.
            core::future::pending::<()>().await;
        };
        // The session ends with these, where they are dropped.
        let ended = tokio::select! {
            ended = serving => ended,
            () = following => Ok(CloseReason::Shutdown),
            () = ending => Ok(CloseReason::Shutdown),
        };
        if let Some(mut child) = child {
            // It sees the end of its input first; what is still there after that goes with the handle.
            let _ = tokio::time::timeout(Duration::from_secs(2), child.wait()).await;
        }
        ended
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bridge").field(&self.agent).finish()
    }
}
