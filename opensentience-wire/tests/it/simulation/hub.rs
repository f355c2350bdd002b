//! A core's process: the router and a connection for each agent, driven as the transport drives them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use opensentience_wire::message::Health;
use opensentience_wire::role::core::{self, CoreConnection, SchemaCheck};
use opensentience_wire::role::router::{self, Ended, Quota, RestartPolicy, RouteId, Router};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Grant, Limits, SessionToken};
use ubos_common::id::IdSource;
use ubos_common::machine::Machine;
use ubos_common::testing::{Actions, Arrival, LinkId, Wiring};
use ubos_common::time::{Mono, Now, Timestamp};

use super::{AGENTS, Arrived, Out, PLACES, Seen, arrived, name};

pub(super) const CHECKED: &str = "schemas checked";
pub(super) const DISCONNECTED: &str = "agent disconnected";
pub(super) const DOWN: &str = "agent down";
pub(super) const LAUNCH_FAILED: &str = "launch failed";
pub(super) const REPLACED: &str = "agent replaced";
pub(super) const STOPPED: &str = "agent stopped";
pub(super) const STOPPING: &str = "agent stopping";

/// A connection, from its launch to its end.
struct Conn {
    agent: usize,
    machine: CoreConnection,
}

/// What happens after a while.
enum Later {
    /// The schemas of a registration are compiled.
    Checked(LinkId, SchemaCheck),
    /// The process of a connection that has ended is reaped.
    Reaped(LinkId, usize, Ended),
}

pub(super) struct Hub {
    pub(super) router: Router,
    conns: BTreeMap<LinkId, Conn>,
    /// The connection that is called by the id of its agent, until its process is reaped.
    current: BTreeMap<usize, LinkId>,
    launching: BTreeMap<usize, LinkId>,
    /// Agents that were stopped.
    unwanted: BTreeSet<usize>,
    /// Connections that were asked to end: the transport tells nothing of them before their processes have ended.
    asked: BTreeSet<LinkId>,
    calls: BTreeMap<(LinkId, CallId), RouteId>,
    /// What is to be launched.
    pub(super) launches: Vec<usize>,
    later: Vec<(Mono, Later)>,
    chance: IdSource,
    out: VecDeque<Out>,
    pub(super) now: Now,
    pub(super) paused: bool,
}

impl Hub {
    pub(super) fn new(chance: IdSource) -> Self {
        let quota = Quota::default()
            .with_rate(50, Duration::from_secs(1))
            .with_concurrent(5);
        let config = router::Config::default()
            .with_restart(RestartPolicy::Always)
            .with_agent_quota(quota)
            .with_max_agents(AGENTS)
            .with_max_calls(12);
        Self {
            router: Router::new(config).unwrap(),
            conns: BTreeMap::new(),
            current: BTreeMap::new(),
            launching: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            asked: BTreeSet::new(),
            calls: BTreeMap::new(),
            launches: (0..AGENTS).collect(),
            later: Vec::new(),
            chance,
            out: VecDeque::new(),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            paused: false,
        }
    }

    /// Everything has come to rest.
    pub(super) fn rest(&self) {
        assert_eq!((self.router.running_calls(), self.calls.len()), (0, 0));
        assert!(self.conns.len() <= AGENTS, "connections pile up");
        let mut conns = self.conns.values();
        assert!(conns.all(|conn| conn.machine.pending_calls() == 0));
    }

    /// A process was started, which will connect.
    pub(super) fn launch(
        &mut self,
        now: Now,
        agent: usize,
        link: LinkId,
        token: SessionToken,
        seed: u64,
    ) {
        let limits = Limits::default()
            .with_max_inflight_requests(PLACES)
            .with_max_queued_calls(2);
        let grant = Grant::new(now.mono, token, &name(agent));
        let config = core::Config::default()
            .with_limits(limits)
            .with_schemas_apart(true);
        let ids = IdSource::seeded(seed);
        let machine = CoreConnection::new(now, config, ids, Some(grant)).unwrap();
        self.conns.insert(link, Conn { agent, machine });
        self.launching.insert(agent, link);
    }

    /// A process could not be started, or did not connect.
    pub(super) fn launch_failed(&mut self, now: Now, agent: usize) {
        // Nobody is told of one that was to take another's place, or is not wanted any more.
        if !self.current.contains_key(&agent) && !self.unwanted.contains(&agent) {
            let agent = name(agent);
            self.tell(now, LAUNCH_FAILED, router::Input::LaunchFailed { agent });
        }
    }

    /// An agent is not wanted any more.
    pub(super) fn stop(&mut self, now: Now, agent: usize) {
        if !self.unwanted.insert(agent) {
            return;
        }
        self.router.clear_policy(&name(agent));
        self.launches.retain(|launch| *launch != agent);
        if let Some(link) = self.launching.remove(&agent) {
            self.hang_up(now, link);
        }
        let id = name(agent);
        match self.current.get(&agent).copied() {
            Some(link) => {
                self.tell(now, STOPPING, router::Input::AgentStopping { agent: id });
                self.goodbye(now, link);
            }
            None => self.tell(now, STOPPED, router::Input::AgentStopped { agent: id }),
        }
    }

    /// An agent that was stopped is wanted again, while what it was may still be ending.
    pub(super) fn add(&mut self, agent: usize) {
        if self.unwanted.remove(&agent) {
            self.launches.push(agent);
        }
    }

    /// Another process is to take an agent's place.
    pub(super) fn replace(&mut self, agent: usize) {
        let may = self.current.contains_key(&agent) && !self.unwanted.contains(&agent);
        if may && !self.is_launching(agent) {
            self.launches.push(agent);
        }
    }

    fn is_launching(&self, agent: usize) -> bool {
        self.launching.contains_key(&agent) || self.launches.contains(&agent)
    }

    fn tell(&mut self, now: Now, what: &'static str, input: router::Input) {
        self.out.push_back(Out::Record(Seen::Told(what)));
        self.router.handle_input(now, input);
    }

    fn after(&mut self, most_ms: u64, later: Later) {
        let span = Duration::from_millis(self.chance.bits() % most_ms);
        self.later.push((self.now.mono.saturating_add(span), later));
    }

    fn goodbye(&mut self, now: Now, link: LinkId) {
        if let Some(conn) = self.conns.get_mut(&link) {
            self.asked.insert(link);
            // One that has said it already says it once.
            drop(conn.machine.goodbye(now, "not wanted any more", None));
        }
    }

    fn hang_up(&mut self, now: Now, link: LinkId) {
        if let Some(conn) = self.conns.get_mut(&link) {
            drop(conn.machine.handle_input(now, Input::Eof));
        }
    }

    /// Carries out what connections and router want, until neither wants anything.
    fn pump(&mut self) {
        loop {
            let links: Vec<LinkId> = self.conns.keys().copied().collect();
            let mut moved = false;
            for link in links {
                moved |= self.pump_conn(link);
            }
            while let Some(output) = self.router.poll_output() {
                moved = true;
                self.on_router(output);
            }
            if !moved {
                return;
            }
        }
    }

    fn pump_conn(&mut self, link: LinkId) -> bool {
        let Some(conn) = self.conns.get_mut(&link) else {
            return false;
        };
        let (agent, Some(output)) = (conn.agent, conn.machine.poll_output()) else {
            return false;
        };
        match output {
            core::Output::Transmit(bytes) => self.out.push_back(Out::Send(link, bytes)),
            core::Output::CheckSchemas(check) => self.after(50, Later::Checked(link, check)),
            core::Output::Close(_) => self.on_closed(link, agent),
            core::Output::Event(event) => self.on_event(link, agent, event),
            _ => {}
        }
        true
    }

    fn on_closed(&mut self, link: LinkId, agent: usize) {
        self.out.push_back(Out::Close(link));
        self.conns.remove(&link);
        let now = self.now;
        if self.launching.get(&agent) == Some(&link) {
            self.launching.remove(&agent);
            self.launch_failed(now, agent);
        } else if self.current.get(&agent) == Some(&link) {
            let ended = match self.chance.bits() % 2 {
                _ if self.asked.contains(&link) => Ended::Asked,
                0 => Ended::Well,
                _ => Ended::Failed,
            };
            if ended != Ended::Asked {
                let agent = name(agent);
                self.tell(
                    now,
                    DISCONNECTED,
                    router::Input::AgentDisconnected { agent },
                );
            }
            self.after(400, Later::Reaped(link, agent, ended));
        }
    }

    fn reaped(&mut self, link: LinkId, agent: usize, ended: Ended) {
        // One that was replaced has nothing to say.
        if self.current.get(&agent) != Some(&link) {
            return;
        }
        self.current.remove(&agent);
        let is_unwanted = self.unwanted.contains(&agent);
        let ended = if is_unwanted { Ended::Asked } else { ended };
        let (now, id) = (self.now, name(agent));
        let agent = id.clone();
        self.tell(now, DOWN, router::Input::AgentDown { agent, ended });
        if is_unwanted {
            self.tell(now, STOPPED, router::Input::AgentStopped { agent: id });
        }
    }

    /// An agent is connected. Another of its id goes on with the calls that run.
    fn connected(&mut self, link: LinkId, agent: usize) {
        self.launching.remove(&agent);
        if let Some(before) = self.current.insert(agent, link) {
            self.out.push_back(Out::Record(Seen::Told(REPLACED)));
            self.goodbye(self.now, before);
        }
    }

    fn on_event(&mut self, link: LinkId, agent: usize, event: core::Event) {
        if matches!(event, core::Event::Connected { .. }) {
            self.connected(link, agent);
        }
        let is_current = self.current.get(&agent) == Some(&link);
        let tools = || {
            let conn = &self.conns[&link].machine;
            conn.tools().cloned().collect()
        };
        let (now, agent) = (self.now, name(agent));
        let input = match event {
            core::Event::Connected { .. } => router::Input::AgentUp {
                agent,
                tools: tools(),
            },
            core::Event::ToolsChanged if is_current => router::Input::Tools {
                agent,
                tools: tools(),
            },
            core::Event::Health(health) if is_current => router::Input::Health { agent, health },
            core::Event::Ended(id, outcome) => match self.calls.remove(&(link, id)) {
                Some(route) => router::Input::Ended { route, outcome },
                None => return,
            },
            core::Event::Stream(call, chunk) => {
                let seq = chunk.seq;
                let seen = Seen::Chunk { link, call, seq };
                return self.out.push_back(Out::Record(seen));
            }
            core::Event::Audit(audit) if audit.name.as_str() == "tool.call_completed" => {
                let correlation = audit.correlation_id.clone();
                let seen = Seen::Completed { correlation };
                return self.out.push_back(Out::Record(seen));
            }
            _ => return,
        };
        self.router.handle_input(now, input);
    }

    fn on_router(&mut self, output: router::Output) {
        let now = self.now;
        match output {
            router::Output::Send {
                route,
                agent,
                request,
            } => self.send(route, &agent, *request),
            router::Output::Cancel { route, .. } => {
                let mut calls = self.calls.iter();
                let call = calls.find(|(_, own)| **own == route);
                if let Some(((link, id), _)) = call
                    && let Some(conn) = self.conns.get_mut(link)
                {
                    conn.machine.cancel(now, id, None).unwrap();
                }
            }
            router::Output::Ended { route, outcome } => {
                let code = outcome.error.as_ref();
                let code = code.map_or("succeeded", |error| error.code.as_str());
                let seen = Seen::Ended(route, code.to_owned());
                self.out.push_back(Out::Record(seen));
            }
            router::Output::Launch { agent, .. } => {
                let agent = number(&agent);
                if !self.is_launching(agent) && !self.unwanted.contains(&agent) {
                    self.launches.push(agent);
                }
            }
            router::Output::Stop { agent } => {
                if let Some(link) = self.current.get(&number(&agent)) {
                    self.goodbye(now, *link);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, route: RouteId, agent: &str, request: core::CallRequest) {
        let health = self.router.health(agent);
        if health.is_none_or(|health| *health == Health::Unhealthy) {
            let amiss = Seen::SentAmiss("an agent that is not well");
            self.out.push_back(Out::Record(amiss));
        }
        let link = self.current.get(&number(agent)).copied();
        let conn = link.and_then(|link| Some((link, self.conns.get_mut(&link)?)));
        let Some((link, conn)) = conn else {
            let amiss = Seen::SentAmiss("an agent that is not there");
            return self.out.push_back(Out::Record(amiss));
        };
        match conn.machine.call_tool(self.now, request) {
            Ok(id) => drop(self.calls.insert((link, id), route)),
            Err(error) => {
                let refused = router::Input::NotSent { route, error };
                self.router.handle_input(self.now, refused);
            }
        }
    }
}

fn number(agent: &str) -> usize {
    (0..AGENTS).find(|n| name(*n) == agent).unwrap()
}

impl Machine for Hub {
    type Input<'a> = Arrived<'a>;
    type Output = Out;
    type Error = Infallible;

    fn handle_input(
        &mut self,
        now: Now,
        Arrived(link, input): Arrived<'_>,
    ) -> Result<(), Self::Error> {
        self.now = now;
        if let Some(conn) = self.conns.get_mut(&link) {
            drop(conn.machine.handle_input(now, input));
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        let is_due = |(at, _): &mut (Mono, Later)| *at <= now.mono;
        for (_, later) in self.later.extract_if(.., is_due).collect::<Vec<_>>() {
            match later {
                Later::Checked(link, check) => {
                    self.out.push_back(Out::Record(Seen::Told(CHECKED)));
                    if let Some(conn) = self.conns.get_mut(&link) {
                        drop(conn.machine.take_verdicts(now, check.run()));
                    }
                }
                Later::Reaped(link, agent, ended) => self.reaped(link, agent, ended),
            }
        }
        self.router.handle_timeout(now);
        for conn in self.conns.values_mut() {
            conn.machine.handle_timeout(now);
        }
    }

    fn poll_output(&mut self) -> Option<Out> {
        self.pump();
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let conns = self.conns.values();
        let conns = conns.filter_map(|conn| conn.machine.poll_timeout());
        let later = self.later.iter().map(|(at, _)| *at);
        conns.chain(later).chain(self.router.poll_timeout()).min()
    }

    fn accepts_input(&self) -> bool {
        !self.paused
    }

    fn is_closed(&self) -> bool {
        false
    }
}

pub(super) struct HubWire;

impl Wiring<Hub> for HubWire {
    type Event = Seen;
    type Answer = ();

    fn deliver(&mut self, hub: &mut Hub, now: Now, arrival: Arrival<'_, ()>) {
        if let Some(arrived) = arrived(arrival) {
            let Ok(()) = hub.handle_input(now, arrived);
        }
    }

    fn perform(&mut self, _: &mut Hub, _: Now, out: Out, actions: &mut Actions<Seen, ()>) {
        out.perform(actions);
    }
}
