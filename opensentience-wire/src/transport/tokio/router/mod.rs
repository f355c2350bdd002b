//! Many agents behind one handle: launched, watched, launched again, called by the id of a tool.

mod agents;
mod connected;
mod driver;
mod launches;
mod report;
mod source;
mod state;
mod view;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::audit::AuditSink;
use super::call::RunningCall;
use super::launch::Launcher;
use crate::error::ConfigError;
use crate::role::core::CallRequest;
use crate::role::router::{Config, Refused, RouteId};
pub use source::{AddError, AgentSource, ToolRouterBuilder};
use state::{Cancels, Command, Driver, Mode};
pub use view::{AgentView, View};

/// Commands that wait for the driver.
const COMMANDS: usize = 64;

/// Many agents behind one handle. Dropping it ends them all.
///
/// ```no_run
/// use opensentience_wire::role::core::CallRequest;
/// use opensentience_wire::role::router::{Config, RestartPolicy};
/// use opensentience_wire::transport::tokio::{Launcher, ToolRouter};
/// use opensentience_wire::ubos_common::json::RawObject;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::default().with_restart(RestartPolicy::OnFailure);
/// let router = ToolRouter::builder(config)
///     .agent("com.example.a", || Launcher::new("com.example.a", "/opt/agents/a"))
///     .agent("com.example.b", || Launcher::new("com.example.b", "/opt/agents/b"))
///     .start()?;
/// router.ready().await;
/// let call = router.call(CallRequest::new("com.example.b/echo", RawObject::empty())).await?;
/// println!("{:?}", call.result().await.status);
/// router.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ToolRouter {
    commands: mpsc::Sender<Command>,
    cancels: Arc<Cancels>,
    view: watch::Receiver<Arc<View>>,
    is_ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl ToolRouter {
    /// A router without agents yet.
    #[must_use]
    pub fn builder(config: Config) -> ToolRouterBuilder {
        ToolRouterBuilder {
            config,
            sources: BTreeMap::new(),
            audit: AuditSink::default(),
        }
    }

    /// Calls a tool, whichever agent has it.
    ///
    /// # Errors
    ///
    /// The call is refused, and nothing was sent: see [`Refused`].
    pub async fn call(&self, request: CallRequest) -> Result<RunningCall<RouteId>, Refused> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Call(Box::new(request), Arc::clone(&self.cancels), reply);
        // One that is not taken gets no answer.
        let _ = self.commands.send(command).await;
        answer.await.map_err(|_| Refused::Closing)?
    }

    /// Waits until each agent is connected, or has failed for the first time. Those that are connected can be called before.
    pub async fn ready(&self) {
        // A driver that is gone is found out by the first call.
        let _ = self.is_ready.clone().wait_for(|ready| *ready).await;
    }

    /// What is there to be called.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Waits until the view changes; `false` when the router has ended.
    pub async fn view_changed(&mut self) -> bool {
        self.view.changed().await.is_ok()
    }

    /// Adds an agent, and waits until it is connected and has registered, if only that it has no tools.
    ///
    /// # Errors
    ///
    /// See [`AddError`]; the agent is not there then, and is not launched again.
    pub async fn add(&self, agent: AgentSource) -> Result<(), AddError> {
        self.change(agent, Mode::Add).await
    }

    /// Puts an agent in the place of the one of its id: it is launched beside it, and takes the calls from the moment on that
    /// it is connected and has registered, which this waits for, if it is still connected then. The calls that run go on where they are, for as long as
    /// [`with_drain_time`](AgentSource::with_drain_time) says; the one before ends with the last of them.
    ///
    /// # Errors
    ///
    /// See [`AddError`]; the one before goes on then.
    pub async fn replace(&self, agent: AgentSource) -> Result<(), AddError> {
        self.change(agent, Mode::Replace).await
    }

    async fn change(&self, agent: AgentSource, mode: Mode) -> Result<(), AddError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Add(Box::new(agent), mode, reply);
        let _ = self.commands.send(command).await;
        answer.await.map_err(|_| AddError::Closing)?
    }

    /// Ends an agent for good: it is not launched again, whatever the policy. Its process may still live when this returns:
    /// [`shutdown`](Self::shutdown) waits for all processes.
    pub async fn stop(&self, agent: &str) {
        // A router that is gone has no agents.
        let _ = self.commands.send(Command::Stop(agent.into())).await;
    }

    /// Says goodbye to all agents, those that are being launched too, waits until their calls have ended or their drain times are
    /// over, and ends the processes.
    pub async fn shutdown(self) {
        let _ = self.commands.send(Command::Shutdown).await;
        // A driver that is gone has ended already.
        let _ = self.task.await;
    }
}

impl ToolRouterBuilder {
    /// Adds an agent without a policy of its own: see [`AgentSource::new`].
    #[must_use]
    pub fn agent(
        self,
        id: &str,
        make_launcher: impl Fn() -> Launcher + Send + Sync + 'static,
    ) -> Self {
        self.with_agent(AgentSource::new(id, make_launcher))
    }

    /// Adds an agent; the last of an id counts.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentSource) -> Self {
        self.sources.insert(Arc::clone(&agent.id), agent);
        self
    }

    /// Sets where audit records go: those of the router, of the launches and of the connections.
    #[must_use]
    pub fn with_audit(mut self, sink: impl Into<AuditSink>) -> Self {
        self.audit = sink.into();
        self
    }

    /// Launches the agents, all at once, and gives the handle: [`ready`](ToolRouter::ready) waits for them. An agent that fails
    /// is launched again as the policy says.
    ///
    /// # Errors
    ///
    /// A setting of the router is out of its range; nothing was launched. An agent whose policy is out of its range is recorded
    /// (`agent.run_crashed`) and not launched, and the others are.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[expect(clippy::disallowed_methods, reason = "the router is a task")]
    pub fn start(self) -> Result<ToolRouter, ConfigError> {
        let (commands, commands_rx) = mpsc::channel(COMMANDS);
        let (cancels, cancels_rx) = mpsc::unbounded_channel();
        let (view_tx, view) = watch::channel(Arc::default());
        let (ready, is_ready) = watch::channel(false);
        let driver = Driver::new(self, view_tx, ready)?;
        let task = tokio::spawn(driver.run(commands_rx, cancels_rx));
        Ok(ToolRouter {
            commands,
            cancels: Arc::new(Cancels(cancels)),
            view,
            is_ready,
            task,
        })
    }
}

impl fmt::Debug for ToolRouterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.sources.keys()).finish()
    }
}
