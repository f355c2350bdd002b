//! The driver of a [`Router`]: one task, and one for each agent and call.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use ubos_common::os::Clock;

use super::super::call::RunningCall;
use super::super::io::Alarm;
use super::agents;
use super::connected::Connected;
use super::report::{AgentEvent, LaunchId, Report};
use super::source::ToolRouterBuilder;
use super::state::{Command, Driver, Launching};
use super::view::{AgentView, View};
use crate::error::{CommandError, ConfigError, ErrorCode, ErrorObject};
use crate::role::core::{CallRequest, Outcome};
use crate::role::router::{Ended, Input, Output, RouteId, Router};

impl Driver {
    pub(super) fn new(
        mut builder: ToolRouterBuilder,
        view: watch::Sender<Arc<View>>,
        ready: watch::Sender<bool>,
    ) -> Result<Self, ConfigError> {
        let clock = Clock::start();
        let (reports_tx, reports) = mpsc::channel(64);
        let max_agents = builder.config.max_agents;
        builder.refuse_policies(clock.now());
        let mut router = Router::new(builder.config)?;
        for (agent, source) in &builder.sources {
            router.set_policy(agent, source.policy.clone())?;
        }
        let mut driver = Self {
            router,
            clock,
            alarm: Alarm::new(clock),
            max_agents,
            starting: builder.sources.keys().cloned().collect(),
            sources: builder.sources,
            audit: builder.audit,
            connected: Connected::default(),
            slots: HashMap::new(),
            tasks: JoinSet::new(),
            launches: JoinSet::new(),
            launching: HashMap::new(),
            last_launch: 0,
            reports_tx,
            reports,
            view,
            ready,
            closing: false,
        };
        for agent in driver.sources.keys().cloned().collect::<Vec<_>>() {
            driver.launch_again(&agent);
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
            if self.closing && self.tasks.is_empty() && self.launches.is_empty() {
                return;
            }
            let timer = self.alarm.ring(self.router.poll_timeout());
            tokio::select! {
                command = commands.recv(), if !self.closing => self.on_command(command),
                Some(route) = cancels.recv() => {
                    // A call that has ended needs no cancel.
                    let _ = self.router.cancel(self.clock.now(), route);
                }
                Some(report) = self.reports.recv() => self.on_report(report),
                // None fails: a panic has its report, and nobody stops a task.
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(report) = ended {
                        self.on_report(report);
                    }
                }
                Some(ended) = self.launches.join_next() => {
                    if let Ok(report) = ended {
                        self.on_report(report);
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
                    let (call, slot) = RunningCall::routed(route, cancels);
                    self.slots.insert(route, Arc::new(slot));
                    call
                });
                // The caller may be gone; then the call is dropped, which cancels it.
                drop(reply.send(call));
            }
            Some(Command::Add(source, mode, reply)) => match self.may_add(&source, mode) {
                Ok(()) => self.add(source, reply),
                // Who asked may be gone.
                Err(error) => drop(reply.send(Err(error))),
            },
            Some(Command::Stop(agent)) => {
                self.sources.remove(&*agent);
                self.router.clear_policy(&agent);
                self.give_up_launch(&agent);
                self.connected.stop(&agent);
                let (is_connected, stopped) =
                    (self.connected.get(&agent).is_some(), agent.to_string());
                self.input(match is_connected {
                    // Its process may take long to end.
                    true => Input::AgentStopping { agent: stopped },
                    // It waits for a launch that is not wanted any more.
                    false => Input::AgentStopped { agent: stopped },
                });
                self.show(&agent.into());
            }
            Some(Command::Shutdown) | None => {
                self.closing = true;
                // Nobody is wanted any more, so nobody is launched again.
                self.sources.clear();
                // A launch that is not over has no calls to end; its process is killed with it.
                for agent in self.launching.keys().cloned().collect::<Vec<_>>() {
                    self.give_up_launch(&agent);
                }
                // Nobody can call any more, nor look.
                self.connected.stop_all();
            }
        }
    }

    fn on_report(&mut self, report: Report) {
        let (agent, launch, event) = match report {
            Report::Called(route, result) => {
                self.connected.called(route);
                return self.input(match result {
                    Ok(outcome) => Input::Ended { route, outcome },
                    Err(error) => Input::NotSent { route, error },
                });
            }
            Report::Agent(agent, launch, event) => (agent, launch, event),
        };
        match event {
            AgentEvent::Launched(result) => {
                let is_awaited = |launching: &Launching| launching.launch == launch;
                // What was launched without being wanted any more has ended.
                if self.launching.get(&agent).is_some_and(is_awaited) {
                    self.on_launched(&agent, result);
                }
            }
            AgentEvent::Down(ended) => {
                // Its connection has ended its calls; what became of them comes first.
                while let Some(called) = self.tasks.try_join_next() {
                    if let Ok(called) = called {
                        self.on_report(called);
                    }
                }
                self.on_down(&agent, launch, ended);
            }
            event if self.connected.is_current(&agent, launch) => {
                self.on_event(agent.to_string(), event);
            }
            _ => {}
        }
        self.show(&agent);
    }

    fn on_event(&mut self, agent: String, event: AgentEvent) {
        match event {
            AgentEvent::Tools(tools) => {
                let tools = tools.to_vec();
                self.input(Input::Tools { agent, tools });
            }
            AgentEvent::Disconnected => self.input(Input::AgentDisconnected { agent }),
            AgentEvent::Health(health) => self.input(Input::Health { agent, health }),
            AgentEvent::Launched(_) | AgentEvent::Down(_) => {}
        }
    }

    fn on_down(&mut self, agent: &Arc<str>, launch: LaunchId, ended: Ended) {
        if self.connected.remove(agent, launch) {
            self.down(agent, ended);
        }
    }

    pub(super) fn down(&mut self, agent: &Arc<str>, ended: Ended) {
        let wanted = self.sources.contains_key(agent);
        let ended = if wanted { ended } else { Ended::Asked };
        let agent = agent.to_string();
        self.input(Input::AgentDown {
            agent: agent.clone(),
            ended,
        });
        if !wanted {
            // It may have been unwell, and is launched again by nobody.
            self.input(Input::AgentStopped { agent });
        }
    }

    pub(super) fn input(&mut self, input: Input) {
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
                Output::Cancel { route, .. } => self.connected.cancel(route),
                Output::Ended { route, outcome } => {
                    if let Some(slot) = self.slots.remove(&route)
                        && let (_, Some(reader)) = slot.end(outcome)
                    {
                        reader.wake();
                    }
                }
                Output::Launch { agent, .. } => self.launch_again(&agent),
                Output::Stop { agent } => {
                    self.connected.stop_current(&agent);
                    self.show(&agent);
                }
                Output::Audit(mut event) => {
                    self.connected.leave_out_tokens(&mut event);
                    self.audit.take(*event);
                }
            }
        }
    }

    fn send(&mut self, route: RouteId, agent: &Arc<str>, request: CallRequest) {
        let Some((caller, cancel)) = self.connected.send(route, agent) else {
            let error = CommandError::Closing;
            return self.input(Input::NotSent { route, error });
        };
        let slot = self.slots.get(&route).map(Arc::clone);
        let call = agents::call(route, caller, request, slot, cancel);
        self.tasks.spawn(agents::unless_panicked(call, move || {
            let error = ErrorObject::of(ErrorCode::ToolInternal, "the task of the call panicked");
            let ended = Outcome::failed(error.noticed_by("core.router"));
            Report::Called(route, Ok(Box::new(ended)))
        }));
    }

    /// Shows what has become of an agent.
    fn show(&mut self, agent: &Arc<str>) {
        let is_connected = self.connected.get(agent).is_some();
        let ledger = self.router.ledger(agent);
        let health = self.router.health(agent).filter(|_| is_connected);
        let now = health.map(|health| AgentView {
            health: health.clone(),
            tools: self.router.tools_of(agent).cloned().collect(),
            ledger,
        });
        self.view
            .send_if_modified(|shown| View::show(shown, agent, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Status, ToolSpec};
    use crate::role::router::Config;
    use crate::transport::tokio::ToolRouter;
    use ubos_common::json::RawObject;

    // What the task of a call has said is in the set alone, and comes once.
    #[tokio::test]
    async fn a_call_ends_as_it_did_though_an_agent_goes_down_at_the_same_time() {
        let (view, _) = watch::channel(Arc::default());
        let (ready, _) = watch::channel(false);
        let builder = ToolRouter::builder(Config::default());
        let mut driver = Driver::new(builder, view, ready).unwrap();
        let mut tool = ToolSpec::local("t", "of a test", RawObject::empty());
        tool.tool_id = "a/t".into();
        let (agent, tools) = ("a".to_owned(), vec![Arc::new(tool)]);
        driver.input(Input::AgentUp { agent, tools });
        let request = CallRequest::new("a/t", RawObject::empty());
        let route = driver.router.call(driver.clock.now(), request).unwrap();
        let outcome = Box::new(Outcome::canceled("enough"));
        driver
            .tasks
            .spawn(core::future::ready(Report::Called(route, Ok(outcome))));
        tokio::task::yield_now().await;
        let down = AgentEvent::Down(Ended::Failed);
        driver.on_report(Report::Agent("b".into(), 1, down));
        let mut outputs = core::iter::from_fn(|| driver.router.poll_output());
        let end = outputs.find_map(|output| match output {
            Output::Ended { route: it, outcome } if it == route => Some(outcome),
            _ => None,
        });
        assert_eq!(end.unwrap().status, Status::Canceled);
    }
}
