//! Calls over many agents.
//!
//! A [`Router`] knows which agent offers which tool, how each agent is, who may call what, and how much at once; it remembers
//! the results of calls with an idempotency key, and says when an agent is to be launched again. It holds no connection: its
//! driver has a [`CoreConnection`](super::core::CoreConnection) for each agent, tells the router what happens there, and
//! carries out what the router wants. Permissions are the router's here, so connections behind it grant `tool:invoke:*`.
//!
//! ```text
//! call() ── admitted ──> Send ──────────────────────> Ended, exactly once
//!    │         │ key is known: joins or repeats ─────────^
//!    └ refused: nothing is sent, and the audit has why
//! ```
//!
//! ```
//! use opensentience_wire::message::ToolSpec;
//! use opensentience_wire::role::core::CallRequest;
//! use opensentience_wire::role::router::{Config, Input, Output, Router};
//! use opensentience_wire::ubos_common::json::RawObject;
//! use opensentience_wire::ubos_common::time::{Mono, Now, Timestamp};
//!
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! let mut router = Router::new(Config::default())?;
//! let mut echo = ToolSpec::local("echo", "gives its input back", RawObject::empty());
//! echo.tool_id = "com.example.a/echo".into();
//! let agent = "com.example.a".to_owned();
//! router.handle_input(now, Input::AgentUp { agent, tools: vec![echo.into()] });
//!
//! let route = router.call(now, CallRequest::new("com.example.a/echo", RawObject::empty()))?;
//! let sent = core::iter::from_fn(|| router.poll_output()).find_map(|output| match output {
//!     Output::Send { route, agent, .. } => Some((route, agent)),
//!     _ => None,
//! });
//! assert_eq!(sent, Some((route, "com.example.a".into())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Spec: OpenSentience 4.2 to 4.5

mod absent;
mod admission;
mod agents;
mod config;
#[cfg(test)]
mod counted;
mod entries;
mod ledgers;
mod policy;
mod quota;
mod restart;
mod state;

use core::convert::Infallible;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::machine::{Machine, Outbox, Timers};
use ubos_common::time::{Mono, Now};

pub use config::{Config, Quota};
pub use policy::AgentPolicy;
pub use quota::Refused;
pub use restart::{Ended, RestartPolicy};
pub use state::{Input, Output, RouteId, Router};

use super::core::{CallRequest, Outcome};
use super::idempotency::{Key, Memory, Turn};
use crate::audit::{AuditEvent, AuditName};
use crate::error::{CommandError, ConfigError, ErrorCode, ErrorObject};
use crate::message::{Health, Status, ToolSpec};
use crate::trace::{debug, trace};
use absent::Absent;
use ledgers::Ledgers;
use quota::Meters;
use state::{About, Route, Timer};

impl Router {
    /// A router without agents.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            memory: Memory::new(config.max_remembered_calls, config.max_remembered_bytes),
            // Each running call may end at once.
            out: Outbox::new(config.max_calls.max(1024)),
            config,
            agents: BTreeMap::new(),
            tools: BTreeMap::new(),
            absent: Absent::default(),
            routes: BTreeMap::new(),
            places: BTreeMap::new(),
            policies: BTreeMap::new(),
            ledgers: Ledgers::default(),
            agent_meters: Meters::default(),
            policy_meters: Meters::default(),
            manifest_meters: Meters::default(),
            tool_meters: Meters::default(),
            last: 0,
            timers: Timers::new(),
        })
    }

    /// Takes what happened at an agent.
    pub fn handle_input(&mut self, now: Now, input: Input) {
        match input {
            Input::AgentUp { agent, tools } => self.on_up(now, &agent, tools),
            Input::Tools { agent, tools } => self.on_tools(now, &agent, tools),
            Input::Health { agent, health } => self.on_health(&agent, health),
            Input::AgentStopping { agent } => self.on_stopping(&agent),
            Input::AgentDisconnected { agent } => self.on_disconnected(&agent),
            Input::AgentStopped { agent } => self.on_stopped(&agent),
            Input::LaunchFailed { agent } => self.on_launch_failed(now, &agent),
            Input::AgentDown { agent, ended } => self.on_down(now, &agent, ended),
            Input::NotSent { route, error } => {
                let error = ErrorObject::of(ErrorCode::from(&error), error.to_string())
                    .noticed_by("core.router");
                // What nobody ran is no result of its key.
                self.on_ended(now, route, Outcome::failed(error), false);
            }
            Input::Ended { route, outcome } => self.on_ended(now, route, *outcome, true),
        }
    }

    /// Asks for the launches that are due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.timers.pop_due(now.mono) {
            match timer {
                Timer::Launch(agent) => {
                    trace!(%agent, "launch is due");
                    if let Some(entry) = self.agents.get_mut(&agent) {
                        let attempt = entry.supervision.attempt();
                        self.out.push(Output::Launch { agent, attempt });
                    }
                }
                Timer::Follower(route) => self.leave(now, route, late()),
            }
        }
    }

    /// Ends a call that waits for the end of another.
    fn leave(&mut self, now: Now, route: RouteId, outcome: Outcome) {
        let Some(entry) = self.routes.remove(&route) else {
            return;
        };
        self.forget_place(&entry.agent);
        self.timers.clear(&Timer::Follower(route));
        if let Some(key) = &entry.key {
            self.memory.leave(key, &route);
            self.stop_unwanted(key);
        }
        self.audit_end(
            now,
            &entry,
            &outcome,
            "it waited for another call of its key",
        );
        self.answer(route, outcome);
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`Router::handle_timeout`] is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// Whether more input is welcome.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    /// Never: a router has no end.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        false
    }

    /// The tools of all agents that are connected, by id.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values().map(|tool| &tool.spec)
    }

    /// The tools of an agent, by id; none where it is not connected.
    pub fn tools_of(&self, agent: &str) -> impl Iterator<Item = &Arc<ToolSpec>> {
        let ids = self.agents.get(agent).into_iter();
        let ids = ids.flat_map(|entry| entry.tools.iter());
        ids.filter_map(|id| Some(&self.tools.get(id)?.spec))
    }

    /// How an agent is; `None` where it is not connected.
    #[must_use]
    pub fn health(&self, agent: &str) -> Option<&Health> {
        self.agents
            .get(agent)
            .filter(|agent| agent.up)
            .map(|agent| &agent.health)
    }

    /// Calls that have not ended.
    #[must_use]
    pub fn running_calls(&self) -> usize {
        self.routes.values().filter(|route| !route.answered).count()
    }

    /// Calls a tool, wherever it is. Its end, whatever happens, is exactly one [`Output::Ended`].
    ///
    /// # Errors
    ///
    /// The call is refused, and nothing was sent: see [`Refused`].
    ///
    /// Spec: OpenSentience 4.3.1
    // impl: OSW-4.3-2, OSW-4.3-4, OSW-4.3-10
    pub fn call(&mut self, now: Now, mut request: CallRequest) -> Result<RouteId, Refused> {
        let agent = match self.admit(now, &request) {
            Ok(agent) => agent,
            Err(refused) => return Err(self.refuse(now, &request, refused)),
        };
        request.timeout = self.time_of(&agent, request.timeout);
        // One that is refused uses its number up.
        self.last += 1;
        let route = RouteId(self.last);
        let key = request.idempotency_key.as_deref();
        let key = key.map(|key| Key::new(request.caller.as_ref(), &request.tool_id, key));
        let Some(charge) = self.enter(&agent, key.as_ref(), &mut request) else {
            return Err(self.refuse(now, &request, Refused::Busy));
        };
        let mut entry = Route {
            agent: Arc::clone(&agent),
            tool: request.tool_id.as_str().into(),
            about: key.as_ref().map(|_| About::of(now.mono, &request)),
            key,
            charge,
            follows: false,
            answered: false,
        };
        let key = entry.key.as_ref();
        let turn = key.map(|key| self.memory.turn(key, &request.input, &route));
        match turn {
            None | Some(Turn::Run) => {}
            Some(Turn::Join) => {
                entry.follows = true;
                entry.charge.shrink_to(Route::bytes(&request, key));
            }
            Some(Turn::Repeat(outcome)) => {
                return self.repeat(now, route, &entry, &request, &outcome);
            }
            Some(Turn::Conflict) => return Err(self.refuse(now, &request, Refused::Conflict)),
            Some(Turn::Full) => return Err(self.refuse(now, &request, Refused::Busy)),
        }
        let follows = entry.follows;
        trace!(?route, %agent, tool = %request.tool_id, follows, "call routed");
        self.routes.insert(route, entry);
        self.count_place(&agent);
        match follows {
            true => self.follow(now, route, request.timeout),
            false => self.send(now, route, agent, request),
        }
        Ok(route)
    }

    /// Ends a call with the result of one of its key before.
    fn repeat(
        &mut self,
        now: Now,
        route: RouteId,
        entry: &Route,
        request: &CallRequest,
        outcome: &Outcome,
    ) -> Result<RouteId, Refused> {
        let copy = self.copy_of(&entry.agent, outcome);
        // There is no room for the result: nothing has happened yet.
        if copy.by_agent != outcome.by_agent {
            return Err(self.refuse(now, request, Refused::Busy));
        }
        let detail = "the result of a call of its key before";
        self.audit_end(now, entry, &copy, detail);
        self.answer(route, copy);
        Ok(route)
    }

    fn send(&mut self, now: Now, route: RouteId, agent: Arc<str>, mut request: CallRequest) {
        request.max_output_bytes = self.output_limit(&agent, &request.tool_id);
        self.take_place(now, &agent, &request, route);
        self.out.push(Output::Send {
            route,
            agent,
            request: Box::new(request),
        });
    }

    /// Waits for the end of another call, but no longer than the time of this one.
    fn follow(&mut self, now: Now, route: RouteId, span: Option<Duration>) {
        if let Some(span) = span {
            let at = now.mono.saturating_add(span);
            self.timers.set(Timer::Follower(route), at);
        }
    }

    /// Asks for a call's end. One that only waits for another ends at once; one whose end others wait for goes on for them.
    ///
    /// # Errors
    ///
    /// No such call is running.
    pub fn cancel(&mut self, now: Now, route: RouteId) -> Result<(), CommandError> {
        let entry = self.routes.get(&route).filter(|entry| !entry.answered);
        let entry = entry.ok_or(CommandError::NoSuchCall)?;
        let key = entry.key.clone();
        let agent = Arc::clone(&entry.agent);
        let waited_for = key
            .as_ref()
            .is_some_and(|key| self.memory.is_waited_for(key, &route));
        if entry.follows {
            self.leave(now, route, canceled());
        } else if waited_for {
            let outcome = canceled();
            if let Some(mut entry) = self.routes.remove(&route) {
                entry.answered = true;
                self.audit_end(now, &entry, &outcome, "others wait for what was sent");
                self.routes.insert(route, entry);
            }
            self.answer(route, outcome);
        } else {
            self.out.push(Output::Cancel { route, agent });
        }
        Ok(())
    }

    /// A call that went on for others alone is cancelled when none is left.
    fn stop_unwanted(&mut self, key: &Key) {
        let leads = |entry: &Route| entry.answered && entry.key.as_ref() == Some(key);
        let leader = self.routes.iter().find(|(_, entry)| leads(entry));
        let Some((route, agent)) = leader.map(|(route, entry)| (*route, Arc::clone(&entry.agent)))
        else {
            return;
        };
        if !self.memory.is_waited_for(key, &route) {
            self.out.push(Output::Cancel { route, agent });
        }
    }

    /// What was sent for a call has ended: so have those that waited for it.
    fn on_ended(&mut self, now: Now, route: RouteId, outcome: Outcome, was_sent: bool) {
        let Some(entry) = self.routes.remove(&route) else {
            return;
        };
        let outcome = self.within_quota(now, &entry, outcome);
        self.give_place_back(&entry, route);
        if let Some(key) = &entry.key {
            let lasting = outcome.status == Status::Succeeded
                || (outcome.status == Status::Failed
                    && outcome
                        .error
                        .as_ref()
                        .is_some_and(|error| error.retryable != Some(true)));
            let end = match lasting && was_sent {
                true => self.remembered(&entry, key, &outcome),
                false => None,
            };
            for follower in self.memory.end(key, &route, end) {
                if let Some(waited) = self.routes.remove(&follower) {
                    self.forget_place(&waited.agent);
                    self.timers.clear(&Timer::Follower(follower));
                    let copy = self.copy_of(&entry.agent, &outcome);
                    self.audit_end(now, &waited, &copy, "the result of another call of its key");
                    self.answer(follower, copy);
                }
            }
        }
        if !entry.answered {
            self.answer(route, outcome);
        }
        self.stop_if_unwell(&entry.agent);
    }

    fn answer(&mut self, route: RouteId, outcome: Outcome) {
        trace!(?route, status = %outcome.status, "call ended");
        self.out.push(Output::Ended {
            route,
            outcome: Box::new(outcome),
        });
    }

    /// Audits a refusal.
    fn refuse(&mut self, now: Now, request: &CallRequest, refused: Refused) -> Refused {
        debug!(tool = %request.tool_id, code = %ErrorCode::from(&refused), "call refused");
        self.audit_refusal(now, request, &refused);
        refused
    }

    fn note(&mut self, now: Now, agent: &str, name: AuditName, detail: &'static str) {
        let mut event = AuditEvent::of(name, now.wall).with_detail(detail);
        event.agent_id = Some(agent.to_owned());
        self.out.push(Output::Audit(Box::new(event)));
    }
}

/// The end of a call that was sent to nobody.
fn late() -> Outcome {
    let error = ErrorObject::of(ErrorCode::ToolTimeout, "no result in time");
    Outcome::failed(error.noticed_by("core.router"))
}

fn canceled() -> Outcome {
    Outcome::canceled("canceled")
}

impl Machine for Router {
    type Input<'a> = Input;
    type Output = Output;
    type Error = Infallible;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Infallible> {
        self.handle_input(now, input);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.poll_output()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.poll_timeout()
    }

    fn accepts_input(&self) -> bool {
        self.accepts_input()
    }

    fn is_closed(&self) -> bool {
        false
    }
}
