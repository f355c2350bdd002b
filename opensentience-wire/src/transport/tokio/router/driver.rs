//! The driver of a [`Router`]: one task, and one for each agent and call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use ubos_common::os::Clock;

use super::super::audit::AuditSink;
use super::super::call::{CallDriver, Change, Link, RunningCall};
use super::super::handle::Caller;
use super::super::io::Alarm;
use super::agents::{self, AgentEvent, RunningAgent};
use super::state::{MakeLauncher, ToolRouterBuilder, View};
use crate::error::ConfigError;
use crate::role::core::CallRequest;
use crate::role::router::{Ended, Input, Output, Refused, RouteId, Router};

/// What handles ask of the driver.
pub(super) enum Command {
    Call(
        Box<CallRequest>,
        Arc<Cancels>,
        oneshot::Sender<Result<RunningCall<RouteId>, Refused>>,
    ),
    Stop(Box<str>),
    Shutdown,
}

/// An agent that is connected.
struct Live {
    caller: Caller,
    stop: Arc<Notify>,
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
    router: Router,
    clock: Clock,
    alarm: Alarm,
    launchers: BTreeMap<Arc<str>, MakeLauncher>,
    audit: AuditSink,
    live: HashMap<Arc<str>, Live>,
    /// The calls whose callers wait for their ends.
    slots: HashMap<RouteId, Arc<CallDriver>>,
    /// How to cancel the calls that were sent.
    sent: HashMap<RouteId, Arc<Notify>>,
    /// At most one for each call, and one for each agent.
    tasks: JoinSet<AgentEvent>,
    /// At most one for each agent.
    launching: JoinSet<AgentEvent>,
    events_tx: mpsc::Sender<AgentEvent>,
    events: mpsc::Receiver<AgentEvent>,
    view: watch::Sender<Arc<View>>,
    /// Agents whose first launch is not over; `ready` becomes true when none is left.
    starting: BTreeSet<Arc<str>>,
    ready: watch::Sender<bool>,
    closing: bool,
}

impl Driver {
    pub(super) fn new(
        builder: ToolRouterBuilder,
        view: watch::Sender<Arc<View>>,
        ready: watch::Sender<bool>,
    ) -> Result<Self, ConfigError> {
        let clock = Clock::start();
        let (events_tx, events) = mpsc::channel(64);
        let mut driver = Self {
            router: Router::new(builder.config)?,
            clock,
            alarm: Alarm::new(clock),
            starting: builder.launchers.keys().cloned().collect(),
            launchers: builder.launchers,
            audit: builder.audit,
            live: HashMap::new(),
            slots: HashMap::new(),
            sent: HashMap::new(),
            tasks: JoinSet::new(),
            launching: JoinSet::new(),
            events_tx,
            events,
            view,
            ready,
            closing: false,
        };
        for agent in driver.launchers.keys().cloned().collect::<Vec<_>>() {
            driver.launch(&agent);
        }
        Ok(driver)
    }

    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut cancels: mpsc::UnboundedReceiver<RouteId>,
    ) {
        loop {
            self.drain();
            if self.starting.is_empty() && !*self.ready.borrow() {
                self.ready.send_replace(true);
            }
            if self.closing && self.tasks.is_empty() && self.launching.is_empty() {
                return;
            }
            let timer = self.alarm.ring(self.router.poll_timeout());
            tokio::select! {
                command = commands.recv(), if !self.closing => self.on_command(command),
                Some(route) = cancels.recv() => {
                    // A call that has ended needs no cancel.
                    let _ = self.router.cancel(route);
                }
                Some(event) = self.events.recv() => self.on_agent_event(event),
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(event) = ended {
                        self.on_agent_event(event);
                    }
                }
                Some(ended) = self.launching.join_next() => {
                    if let Ok(event) = ended {
                        self.on_agent_event(event);
                    }
                }
                () = timer => self.router.handle_timeout(self.clock.now()),
            }
        }
    }

    fn on_command(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Call(request, cancels, reply)) => {
                let taken = self.router.call(self.clock.now(), *request);
                let call = taken.map(|route| {
                    let (call, slot) = RunningCall::new(route, cancels);
                    self.slots.insert(route, Arc::new(slot));
                    call
                });
                // The caller may be gone; then the call is dropped, which cancels it.
                drop(reply.send(call));
            }
            Some(Command::Stop(agent)) => {
                self.launchers.remove(&*agent);
                self.stop(&agent);
            }
            Some(Command::Shutdown) | None => {
                self.closing = true;
                // A launch that is not over has no calls to end; its process is killed with it.
                self.launching.abort_all();
                for live in self.live.values() {
                    live.stop.notify_one();
                }
            }
        }
    }

    fn on_agent_event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Launched(agent, Ok(running)) => self.on_launched(&agent, *running),
            AgentEvent::Launched(agent, Err(_)) => {
                self.starting.remove(&agent);
                // One that never came up is known to the router all the same, for it is to be launched again.
                let tools = Vec::new();
                self.input(Input::AgentUp {
                    agent: agent.to_string(),
                    tools,
                });
                self.down(&agent, Ended::Failed);
            }
            AgentEvent::Tools(agent, tools) => {
                let (agent, tools) = (agent.to_string(), tools.to_vec());
                self.input(Input::Tools { agent, tools });
            }
            AgentEvent::Disconnected(agent) => {
                let agent = agent.to_string();
                self.input(Input::AgentDisconnected { agent });
            }
            AgentEvent::Health(agent, health) => {
                let agent = agent.to_string();
                self.input(Input::Health { agent, health });
            }
            AgentEvent::Down(agent, ended) => {
                self.live.remove(&agent);
                self.down(&agent, ended);
            }
            AgentEvent::Called(route, result) => {
                self.sent.remove(&route);
                self.input(match result {
                    Ok(outcome) => Input::Ended { route, outcome },
                    Err(error) => Input::NotSent { route, error },
                });
                // Agents and tools are what they were.
                return;
            }
        }
        self.show();
    }

    fn on_launched(&mut self, agent: &Arc<str>, running: RunningAgent) {
        self.starting.remove(agent);
        let stop = Arc::new(Notify::new());
        let tools = running.handle.tools().to_vec();
        let live = Live {
            caller: running.handle.caller.clone(),
            stop: Arc::clone(&stop),
        };
        let unwanted = self.closing || !self.launchers.contains_key(agent);
        if unwanted {
            stop.notify_one();
        }
        self.live.insert(Arc::clone(agent), live);
        let events = self.events_tx.clone();
        let keeping = agents::keep(Arc::clone(agent), running, stop, events);
        self.tasks.spawn(keeping);
        let agent = agent.to_string();
        self.input(Input::AgentUp { agent, tools });
    }

    fn down(&mut self, agent: &Arc<str>, ended: Ended) {
        let wanted = self.launchers.contains_key(agent) && !self.closing;
        let ended = if wanted { ended } else { Ended::Asked };
        let agent = agent.to_string();
        self.input(Input::AgentDown { agent, ended });
    }

    fn input(&mut self, input: Input) {
        self.router.handle_input(self.clock.now(), input);
    }

    /// Carries out what the router wants.
    fn drain(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                Output::Send {
                    route,
                    agent,
                    request,
                } => self.send(route, &agent, *request),
                Output::Cancel { route, .. } => {
                    if let Some(cancel) = self.sent.get(&route) {
                        cancel.notify_one();
                    }
                }
                Output::Ended { route, outcome } => {
                    if let Some(slot) = self.slots.remove(&route)
                        && let (_, Some(reader)) = slot.end(*outcome)
                    {
                        reader.wake();
                    }
                }
                Output::Launch { agent, .. } => self.launch(&agent),
                Output::Stop { agent } => self.stop(&agent),
                Output::Audit(event) => self.audit.take(*event),
            }
        }
    }

    fn send(&mut self, route: RouteId, agent: &str, request: CallRequest) {
        let Some(live) = self.live.get(agent) else {
            let error = crate::error::CommandError::Closing;
            return self.input(Input::NotSent { route, error });
        };
        let cancel = Arc::new(Notify::new());
        self.sent.insert(route, Arc::clone(&cancel));
        let slot = self.slots.get(&route).map(Arc::clone);
        let caller = live.caller.clone();
        self.tasks
            .spawn(agents::call(route, caller, request, slot, cancel));
    }

    fn launch(&mut self, agent: &Arc<str>) {
        if self.closing {
            return;
        }
        let Some(make_launcher) = self.launchers.get(agent) else {
            return;
        };
        let mut launcher = make_launcher().with_audit(self.audit.clone());
        // The router alone checks permissions.
        launcher.map_config(|config| {
            config
                .with_agent_grant("tool:invoke:*")
                .with_directives(false)
        });
        self.launching
            .spawn(agents::launch(Arc::clone(agent), launcher));
    }

    fn stop(&self, agent: &str) {
        if let Some(live) = self.live.get(agent) {
            live.stop.notify_one();
        }
    }

    fn show(&self) {
        let up = |agent: &Arc<str>| {
            let health = self.router.health(agent)?;
            Some((Arc::clone(agent), health.clone()))
        };
        let agents: BTreeMap<_, _> = self.live.keys().filter_map(up).collect();
        self.view.send_if_modified(|shown| {
            // Declarations are shared: the same one is the same pointer.
            let same_tools = self
                .router
                .tools()
                .map(Arc::as_ptr)
                .eq(shown.tools.iter().map(Arc::as_ptr));
            let is_other = !same_tools || shown.agents != agents;
            if is_other {
                let tools = match same_tools {
                    true => Arc::clone(&shown.tools),
                    false => self.router.tools().cloned().collect(),
                };
                *shown = Arc::new(View { tools, agents });
            }
            is_other
        });
    }
}
