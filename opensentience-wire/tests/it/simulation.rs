//! A core with its router and three agents, thousands of days long: streams are split, severed and slow, readers pause, agents
//! crash and come again, the calendar jumps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use opensentience_wire::error::{ErrorCode, ErrorObject};
use opensentience_wire::limits::Limits;
use opensentience_wire::message::{Channel, Health, SemVer};
use opensentience_wire::role::agent::{self, AgentConnection, Chunk};
use opensentience_wire::role::core::{self, CallRequest, CoreConnection};
use opensentience_wire::role::router::{self, Ended, Quota, RestartPolicy, RouteId, Router};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Grant, SessionToken};
use serde_json::json;
use ubos_common::id::IdSource;
use ubos_common::testing::legacy::{Action, Lab, Node};
use ubos_common::testing::{Faults, LinkId, LinkKind};
use ubos_common::time::{Mono, Now};

use crate::kit::{object, spec};

const AGENTS: usize = 3;
const PLACES: usize = 2;

fn name(agent: usize) -> String {
    format!("com.example.a{agent}")
}

fn token(agent: usize, launch: u64) -> SessionToken {
    let mut bytes = [7; 32];
    bytes[0] = u8::try_from(agent).unwrap();
    bytes[1] = launch.to_le_bytes()[0];
    SessionToken::from_random(bytes)
}

/// What the run is judged by.
#[derive(Debug)]
enum Seen {
    Ended(RouteId, String),
    /// A call left for an agent that is not well, or not there.
    SentAmiss(&'static str),
    Chunk {
        link: LinkId,
        call: CallId,
        seq: u64,
    },
    Completed {
        correlation: Option<String>,
    },
}

struct Hub {
    router: Router,
    conns: BTreeMap<LinkId, (usize, CoreConnection)>,
    calls: BTreeMap<(LinkId, CallId), RouteId>,
    launches: Vec<usize>,
    out: VecDeque<Action<Seen>>,
    now: Now,
    paused: bool,
}

impl Hub {
    fn link_of(&self, agent: &str) -> Option<LinkId> {
        let mine = |(_, (n, _)): &(&LinkId, &(usize, CoreConnection))| name(*n) == agent;
        self.conns.iter().rev().find(mine).map(|(link, _)| *link)
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
        let Some((agent, conn)) = self.conns.get_mut(&link) else {
            return false;
        };
        let (agent, Some(output)) = (*agent, conn.poll_output()) else {
            return false;
        };
        let now = self.now;
        let tools = conn.tools().cloned().collect::<Vec<_>>();
        match output {
            core::Output::Transmit(bytes) => self.out.push_back(Action::Send(link, bytes)),
            core::Output::Close(_) => {
                self.out.push_back(Action::Close(link));
                self.conns.remove(&link);
                let ended = Ended::Failed;
                self.router.handle_input(
                    now,
                    router::Input::AgentDown {
                        agent: name(agent),
                        ended,
                    },
                );
            }
            core::Output::Event(event) => self.on_event(link, agent, event, tools),
            _ => {}
        }
        true
    }

    fn on_event(
        &mut self,
        link: LinkId,
        agent: usize,
        event: core::Event,
        tools: Vec<opensentience_wire::message::ToolSpec>,
    ) {
        let now = self.now;
        let agent = name(agent);
        let input = match event {
            core::Event::Connected { .. } => router::Input::AgentUp { agent, tools },
            core::Event::ToolsChanged => router::Input::Tools { agent, tools },
            core::Event::Health(health) => router::Input::Health { agent, health },
            core::Event::Ended(id, outcome) => match self.calls.remove(&(link, id)) {
                Some(route) => router::Input::Ended { route, outcome },
                None => return,
            },
            core::Event::Stream(call, chunk) => {
                self.out.push_back(Action::Event(Seen::Chunk {
                    link,
                    call,
                    seq: chunk.seq,
                }));
                return;
            }
            core::Event::Audit(audit) if audit.name.as_str() == "tool.call_completed" => {
                let correlation = audit.correlation_id.clone();
                self.out
                    .push_back(Action::Event(Seen::Completed { correlation }));
                return;
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
            } => {
                if self
                    .router
                    .health(&agent)
                    .is_none_or(|health| *health == Health::Unhealthy)
                {
                    self.out
                        .push_back(Action::Event(Seen::SentAmiss("an agent that is not well")));
                }
                let link = self.link_of(&agent);
                let Some((_, conn)) = link.and_then(|link| self.conns.get_mut(&link)) else {
                    self.out
                        .push_back(Action::Event(Seen::SentAmiss("an agent that is not there")));
                    return;
                };
                match conn.call_tool(now, *request) {
                    Ok(id) => drop(self.calls.insert((link.unwrap(), id), route)),
                    Err(error) => self
                        .router
                        .handle_input(now, router::Input::NotSent { route, error }),
                }
            }
            router::Output::Cancel { route, .. } => {
                let call = self
                    .calls
                    .iter()
                    .find(|(_, own)| **own == route)
                    .map(|(call, _)| call.clone());
                if let Some((link, id)) = call
                    && let Some((_, conn)) = self.conns.get_mut(&link)
                {
                    conn.cancel(now, &id, None).unwrap();
                }
            }
            router::Output::Ended { route, outcome } => {
                let code = outcome
                    .error
                    .as_ref()
                    .map_or("succeeded", |error| error.code.as_str());
                self.out
                    .push_back(Action::Event(Seen::Ended(route, code.to_owned())));
            }
            router::Output::Launch { agent, .. } => {
                self.launches
                    .push((0..AGENTS).find(|n| name(*n) == *agent).unwrap());
            }
            router::Output::Stop { agent } => {
                if let Some((_, conn)) = self
                    .link_of(&agent)
                    .and_then(|link| self.conns.get_mut(&link))
                {
                    let _ = conn.handle_input(now, Input::Eof);
                }
            }
            _ => {}
        }
    }
}

/// An agent whose tool gives pieces of output at moments drawn by chance, then an end; or does not come back.
struct Worker {
    link: LinkId,
    conn: AgentConnection,
    chance: IdSource,
    due: Vec<(Mono, CallId, u64)>,
    now: Now,
    paused: bool,
}

impl Worker {
    fn run(&mut self, now: Now) {
        self.now = now;
        let (ready, rest): (Vec<_>, _) = self.due.drain(..).partition(|(at, ..)| *at <= now.mono);
        self.due = rest;
        for (_, id, steps) in ready {
            if steps > 0 {
                let _ = self
                    .conn
                    .stream(now, &id, Chunk::text(Channel::Stdout, "tick"));
                self.later(id, steps - 1);
            } else {
                let result = match self.chance.bits() % 4 {
                    0 => Err(ErrorObject::of(ErrorCode::ToolFailed, "no luck")),
                    1 => Err(ErrorObject::of(ErrorCode::ToolBusy, "later")),
                    _ => Ok(object(&json!({"done": true}))),
                };
                let _ = self.conn.finish(now, &id, result);
            }
        }
    }

    fn later(&mut self, id: CallId, steps: u64) {
        let span = Duration::from_millis(self.chance.bits() % 400);
        self.due
            .push((self.now.mono.saturating_add(span), id, steps));
    }
}

enum Peer {
    Hub(Box<Hub>),
    Worker(Box<Worker>),
    /// A process that is not running.
    Dead,
}

impl Node for Peer {
    type Event = Seen;

    fn receive(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        match self {
            Self::Hub(hub) => {
                hub.now = now;
                if let Some((_, conn)) = hub.conns.get_mut(&link) {
                    let _ = conn.handle_input(now, Input::Bytes(bytes));
                }
            }
            Self::Worker(worker) if worker.link == link => {
                worker.now = now;
                let _ = worker.conn.handle_input(now, Input::Bytes(bytes));
            }
            _ => {}
        }
    }

    fn broken(&mut self, now: Now, link: LinkId) {
        match self {
            Self::Hub(hub) => {
                hub.now = now;
                if let Some((_, conn)) = hub.conns.get_mut(&link) {
                    let _ = conn.handle_input(now, Input::Eof);
                }
            }
            Self::Worker(worker) if worker.link == link => {
                drop(worker.conn.handle_input(now, Input::Eof))
            }
            _ => {}
        }
    }

    fn timeout(&mut self, now: Now) {
        match self {
            Self::Hub(hub) => {
                hub.now = now;
                hub.router.handle_timeout(now);
                for (_, conn) in hub.conns.values_mut() {
                    conn.handle_timeout(now);
                }
            }
            Self::Worker(worker) => {
                worker.conn.handle_timeout(now);
                worker.run(now);
            }
            Self::Dead => {}
        }
    }

    fn next_timeout(&self) -> Option<Mono> {
        match self {
            Self::Hub(hub) => {
                let conns = hub
                    .conns
                    .values()
                    .filter_map(|(_, conn)| conn.poll_timeout());
                conns.chain(hub.router.poll_timeout()).min()
            }
            Self::Worker(worker) => {
                let due = worker.due.iter().map(|(at, ..)| *at);
                due.chain(worker.conn.poll_timeout()).min()
            }
            Self::Dead => None,
        }
    }

    fn accepts(&self, _: LinkId) -> bool {
        match self {
            Self::Hub(hub) => !hub.paused,
            Self::Worker(worker) => !worker.paused,
            Self::Dead => true,
        }
    }

    fn poll(&mut self) -> Option<Action<Seen>> {
        match self {
            Self::Hub(hub) => {
                hub.pump();
                hub.out.pop_front()
            }
            Self::Worker(worker) => loop {
                match worker.conn.poll_output()? {
                    agent::Output::Transmit(bytes) => {
                        return Some(Action::Send(worker.link, bytes));
                    }
                    agent::Output::Call(call) => {
                        let steps = worker.chance.bits() % 3;
                        worker.later(call.call_id, steps);
                    }
                    agent::Output::Close(_) => return Some(Action::Close(worker.link)),
                    agent::Output::Event(agent::Event::Welcomed { .. }) => {
                        let tools = vec![spec("echo"), spec("write")];
                        worker.conn.register(worker.now, tools, false).unwrap();
                    }
                    _ => {}
                }
            },
            Self::Dead => None,
        }
    }
}

struct Day {
    lab: Lab<Peer>,
    chance: IdSource,
    faults: Faults,
    launches: u64,
    links: Vec<LinkId>,
    made: BTreeSet<RouteId>,
    most_running: usize,
}

impl Day {
    fn new(seed: u64, faults: Faults) -> Self {
        let quota = Quota::default()
            .with_rate(50, Duration::from_secs(1))
            .with_concurrent(5);
        let config = router::Config::default()
            .with_restart(RestartPolicy::Always)
            .with_agent_quota(quota)
            .with_bounds(AGENTS, 12);
        let hub = Hub {
            router: Router::new(config).unwrap(),
            conns: BTreeMap::new(),
            calls: BTreeMap::new(),
            launches: (0..AGENTS).collect(),
            out: VecDeque::new(),
            now: Now::new(Mono::ZERO, ubos_common::time::Timestamp::EPOCH),
            paused: false,
        };
        let dead = (0..AGENTS).map(|_| Peer::Dead);
        let mut day = Self {
            lab: Lab::new(seed, std::iter::once(Peer::Hub(Box::new(hub))).chain(dead)),
            chance: IdSource::seeded(seed),
            faults,
            launches: 0,
            links: Vec::new(),
            made: BTreeSet::new(),
            most_running: 0,
        };
        day.launch();
        day
    }

    fn hub<R>(&mut self, act: impl FnOnce(&mut Hub, Now) -> R) -> R {
        self.lab.with(0, |peer, now| match peer {
            Peer::Hub(hub) => {
                hub.now = now;
                act(hub, now)
            }
            _ => unreachable!(),
        })
    }

    /// Launches what is to be launched: a new process, a new token, a new connection.
    fn launch(&mut self) {
        for agent in self.hub(|hub, _| std::mem::take(&mut hub.launches)) {
            self.launches += 1;
            let (launch, seed) = (self.launches, self.chance.bits());
            let link = self
                .lab
                .connect(0, agent + 1, LinkKind::Stream, self.faults.clone());
            self.links.push(link);
            self.hub(|hub, now| {
                let limits = Limits::default()
                    .with_max_inflight_requests(PLACES)
                    .with_max_queued_calls(2);
                let grant = Grant::new(now.mono, token(agent, launch), &name(agent));
                let config = core::Config::default().with_limits(limits);
                let conn =
                    CoreConnection::new(now, config, IdSource::seeded(seed), Some(grant)).unwrap();
                hub.conns.insert(link, (agent, conn));
            });
            self.lab.with(agent + 1, |peer, now| {
                let config = agent::Config::new(
                    name(agent),
                    SemVer::parse("1.0.0").unwrap(),
                    token(agent, launch),
                );
                let conn = AgentConnection::new(now, config, IdSource::seeded(seed ^ 1)).unwrap();
                let chance = IdSource::seeded(seed ^ 2);
                *peer = Peer::Worker(Box::new(Worker {
                    link,
                    conn,
                    chance,
                    due: Vec::new(),
                    now,
                    paused: false,
                }));
            });
        }
    }

    /// Something happens.
    fn act(&mut self) {
        let bits = self.chance.bits();
        let agent = usize::try_from(bits >> 32).unwrap() % AGENTS;
        match bits % 16 {
            0 => {
                // A crash: the process is gone, and with it its end of the stream.
                self.lab.with(agent + 1, |peer, _| *peer = Peer::Dead);
                let last = self.hub(|hub, _| hub.link_of(&name(agent)));
                if let Some(link) = last {
                    self.lab.sever(link);
                }
            }
            1 => self
                .lab
                .jump_wall(if bits & 1024 == 0 { -7_200 } else { 7_200 }),
            2 => self.pause(agent, true),
            3 | 4 => self.pause(agent, false),
            5 => self.hub(|hub, _| hub.paused = true),
            6 | 7 => self.hub(|hub, _| hub.paused = false),
            8 => {
                let some = self.made.iter().next_back().copied();
                if let Some(route) = some {
                    self.hub(|hub, _| drop(hub.router.cancel(route)));
                }
            }
            _ => self.call(agent, bits),
        }
    }

    fn pause(&mut self, agent: usize, paused: bool) {
        self.lab.with(agent + 1, |peer, _| {
            if let Peer::Worker(worker) = peer {
                worker.paused = paused;
            }
        });
    }

    fn call(&mut self, agent: usize, bits: u64) {
        let tool = if bits & 64 == 0 { "echo" } else { "write" };
        let mut request = CallRequest::new(format!("{}/{tool}", name(agent)), object(&json!({})))
            .with_timeout(Duration::from_millis(200 + bits % 3_000))
            .with_correlation_id("day");
        if bits & 128 == 0 {
            request.idempotency_key = Some(format!("k{}", bits % 3));
        }
        let made = self.hub(|hub, now| hub.router.call(now, request).ok());
        self.made.extend(made);
        let running = self.hub(|hub, _| hub.router.running_calls());
        self.most_running = self.most_running.max(running);
    }

    /// Lets everything come to rest, and looks at what was seen.
    fn judge(mut self) -> BTreeMap<String, usize> {
        self.hub(|hub, _| hub.paused = false);
        (0..AGENTS).for_each(|agent| self.pause(agent, false));
        for _ in 0..12 {
            self.lab.run_for(Duration::from_secs(1), 20_000);
            self.launch();
        }
        let mut ends = BTreeMap::new();
        let mut codes: BTreeMap<String, usize> = BTreeMap::new();
        let mut seqs: BTreeMap<(LinkId, CallId), u64> = BTreeMap::new();
        for (_, _, seen) in self.lab.take_events() {
            match seen {
                Seen::Ended(route, code) => {
                    assert!(
                        ends.insert(route, ()).is_none(),
                        "a call ended twice: {code}"
                    );
                    *codes.entry(code).or_default() += 1;
                }
                Seen::SentAmiss(why) => panic!("sent to {why}"),
                Seen::Chunk { link, call, seq } => {
                    let last = seqs.entry((link, call)).or_default();
                    assert_eq!(seq, *last + 1, "a gap in the stream");
                    *last = seq;
                }
                Seen::Completed { correlation } => assert_eq!(correlation.as_deref(), Some("day")),
            }
        }
        let ended: BTreeSet<RouteId> = ends.into_keys().collect();
        assert_eq!(
            ended, self.made,
            "a call without an end, or an end without a call"
        );
        self.hub(|hub, _| {
            assert_eq!((hub.router.running_calls(), hub.calls.len()), (0, 0));
            assert!(hub.conns.len() <= AGENTS, "connections pile up");
            assert!(
                hub.conns
                    .values()
                    .all(|(_, conn)| conn.pending_calls() == 0)
            );
        });
        assert!(self.most_running <= 12);
        codes
    }
}

/// One day; gives how the calls ended.
fn day(seed: u64, faults: Faults) -> BTreeMap<String, usize> {
    let mut day = Day::new(seed, faults);
    day.lab.run_for(Duration::from_millis(300), 5_000);
    for _ in 0..14 {
        day.act();
        let span = Duration::from_millis(day.chance.bits() % 250);
        day.lab.run_for(span, 5_000);
        day.launch();
    }
    day.judge()
}

/// So many seeds from `first` on; every way for a call to end is seen.
fn days(first: u64, count: u64, faults: &Faults) {
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for seed in first..first + count {
        for (code, times) in day(seed, faults.clone()) {
            *codes.entry(code).or_default() += times;
        }
    }
    for code in [
        "succeeded",
        "tool.failed",
        "tool.busy",
        "tool.timeout",
        "tool.canceled",
        "agent.disconnected",
    ] {
        assert!(codes.contains_key(code), "no call ended {code}: {codes:?}");
    }
}

// spec: OSW-2-8, OSW-4.3-5, OSW-4.3-7
#[test]
fn thousands_of_rough_days_hold_the_invariants() {
    days(0, 5_000, &Faults::rough());
}

// spec: OSW-4.5-2, OSW-4.5-3, OSW-4.5-5
#[test]
fn thousands_of_days_on_which_streams_break_hold_the_invariants() {
    days(5_000, 5_000, &Faults::rough().with_sever(10));
}
