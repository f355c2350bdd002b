//! A core with its router and three agents, thousands of days long: streams are split, severed and slow, readers pause, agents
//! crash and come again, launches fail, agents are stopped, added and replaced, the calendar jumps.
//!
//! The hub drives the machines as the transport does: schemas are compiled apart, an agent's connection ends before its process,
//! and one that was replaced goes on with its calls alone.

mod hub;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use opensentience_wire::SessionToken;
use opensentience_wire::message::{Channel, SemVer};
use opensentience_wire::role::agent::{self, AgentConnection, Chunk};
use opensentience_wire::role::core::CallRequest;
use opensentience_wire::role::router::RouteId;
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{ErrorCode, ErrorObject};
use serde_json::json;
use ubos_common::id::IdSource;
use ubos_common::machine::Machine;
use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, NodeId, Wiring};
use ubos_common::time::{Mono, Now};

use hub::{Hub, HubWire};

use crate::kit::{RequestExt as _, object, spec};

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
    /// What the router was told of an agent, or the hub did for a connection.
    Told(&'static str),
}

/// What a hub or a worker wants done.
enum Out {
    Send(LinkId, Vec<u8>),
    Close(LinkId),
    Record(Seen),
    /// The process dies.
    Die,
}

impl Out {
    fn perform<A>(self, actions: &mut Actions<Seen, A>) {
        match self {
            Self::Send(link, bytes) => actions.send(link, bytes),
            Self::Close(link) => actions.close(link),
            Self::Record(seen) => actions.event(seen),
            Self::Die => actions.crash(Duration::ZERO),
        }
    }
}

/// What arrived on a link: bytes, or its end.
struct Arrived<'a>(LinkId, Input<'a>);

fn arrived<A>(arrival: Arrival<'_, A>) -> Option<Arrived<'_>> {
    match arrival {
        Arrival::Bytes(link, bytes) => Some(Arrived(link, Input::Bytes(bytes))),
        Arrival::HalfClosed(link) | Arrival::Broken(link) => Some(Arrived(link, Input::Eof)),
        _ => None,
    }
}

/// An agent's process, whose tool gives pieces of output at moments drawn by chance, then an end. A process
/// that died does not come back: the hub launches another.
struct Worker {
    link: LinkId,
    conn: AgentConnection,
    chance: IdSource,
    due: Vec<(Mono, CallId, u64)>,
    now: Now,
    paused: bool,
    dies: bool,
}

impl Worker {
    fn run(&mut self, now: Now) {
        self.now = now;
        let (ready, rest): (Vec<_>, _) = self.due.drain(..).partition(|(at, ..)| *at <= now.mono);
        self.due = rest;
        for (_, id, steps) in ready {
            if steps > 0 {
                let chunk = Chunk::text(Channel::Stdout, "tick");
                drop(self.conn.stream(now, &id, chunk));
                self.later(id, steps - 1);
            } else {
                let result = match self.chance.bits() % 4 {
                    0 => Err(ErrorObject::of(ErrorCode::ToolFailed, "no luck")),
                    1 => Err(ErrorObject::of(ErrorCode::ToolBusy, "later")),
                    _ => Ok(object(&json!({"done": true}))),
                };
                drop(self.conn.finish(now, &id, result));
            }
        }
    }

    fn later(&mut self, id: CallId, steps: u64) {
        let span = Duration::from_millis(self.chance.bits() % 400);
        self.due
            .push((self.now.mono.saturating_add(span), id, steps));
    }
}

impl Machine for Worker {
    type Input<'a> = Arrived<'a>;
    type Output = Out;
    type Error = std::convert::Infallible;

    fn handle_input(
        &mut self,
        now: Now,
        Arrived(_, input): Arrived<'_>,
    ) -> Result<(), Self::Error> {
        self.now = now;
        drop(self.conn.handle_input(now, input));
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        self.conn.handle_timeout(now);
        self.run(now);
    }

    fn poll_output(&mut self) -> Option<Out> {
        if std::mem::take(&mut self.dies) {
            return Some(Out::Die);
        }
        loop {
            match self.conn.poll_output()? {
                agent::Output::Transmit(bytes) => return Some(Out::Send(self.link, bytes)),
                agent::Output::Call(call) => {
                    let steps = self.chance.bits() % 3;
                    self.later(call.call_id, steps);
                }
                agent::Output::Close(_) => return Some(Out::Close(self.link)),
                agent::Output::Event(agent::Event::Welcomed { .. }) => {
                    let tools = vec![spec("echo"), spec("write")];
                    self.conn.register(self.now, tools, false).unwrap();
                }
                _ => {}
            }
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let due = self.due.iter().map(|(at, ..)| *at);
        due.chain(self.conn.poll_timeout()).min()
    }

    fn accepts_input(&self) -> bool {
        !self.paused
    }

    fn is_closed(&self) -> bool {
        false
    }
}

struct WorkerWire;

impl Wiring<Worker> for WorkerWire {
    type Event = Seen;
    type Answer = ();

    fn deliver(&mut self, worker: &mut Worker, now: Now, arrival: Arrival<'_, ()>) {
        if let Some(arrived) = arrived(arrival) {
            let Ok(()) = worker.handle_input(now, arrived);
        }
    }

    fn perform(&mut self, _: &mut Worker, _: Now, out: Out, actions: &mut Actions<Seen, ()>) {
        out.perform(actions);
    }
}

struct Day {
    lab: Lab<Seen>,
    hub: NodeId<Hub>,
    /// The process that was launched last for each agent.
    workers: [Option<NodeId<Worker>>; AGENTS],
    chance: IdSource,
    faults: Faults,
    launches: u64,
    made: BTreeSet<RouteId>,
    most_running: usize,
}

impl Day {
    fn new(seed: u64, faults: Faults) -> Self {
        let hub = Hub::new(IdSource::seeded(seed ^ 3));
        let mut lab = Lab::new(seed);
        let hub = lab.add(hub, HubWire);
        let mut day = Self {
            lab,
            hub,
            workers: [None; AGENTS],
            chance: IdSource::seeded(seed),
            faults,
            launches: 0,
            made: BTreeSet::new(),
            most_running: 0,
        };
        day.launch();
        day
    }

    fn hub<R>(&mut self, act: impl FnOnce(&mut Hub, Now) -> R) -> R {
        self.lab.with(self.hub, |hub, now| {
            hub.now = now;
            act(hub, now)
        })
    }

    /// Gives the running process of an agent a command.
    fn worker(&mut self, agent: usize, act: impl FnOnce(&mut Worker)) {
        if let Some(worker) = self.workers[agent]
            && self.lab.is_up(worker)
        {
            self.lab.with(worker, |worker, _| act(worker));
        }
    }

    /// Launches what is to be launched: a new process, a new token, a new connection. Some launches fail.
    fn launch(&mut self) {
        for agent in self.hub(|hub, _| std::mem::take(&mut hub.launches)) {
            self.launches += 1;
            let (launch, seed) = (self.launches, self.chance.bits());
            if seed.is_multiple_of(8) {
                self.hub(|hub, now| hub.launch_failed(now, agent));
                continue;
            }
            let link = self.lab.next_link();
            self.hub(|hub, now| hub.launch(now, agent, link, token(agent, launch), seed));
            let now = self.lab.now();
            let version = "1.0.0".parse::<SemVer>().unwrap();
            let config = agent::Config::new(name(agent), version, token(agent, launch));
            let conn = AgentConnection::new(now, config, IdSource::seeded(seed ^ 1)).unwrap();
            let worker = Worker {
                link,
                conn,
                chance: IdSource::seeded(seed ^ 2),
                due: Vec::new(),
                now,
                paused: false,
                dies: false,
            };
            let worker = self.lab.add(worker, WorkerWire);
            let faults = self.faults.clone();
            self.lab.connect(self.hub, worker, LinkKind::Stream, faults);
            self.workers[agent] = Some(worker);
        }
    }

    /// Something happens.
    fn act(&mut self) {
        let bits = self.chance.bits();
        let agent = usize::try_from(bits >> 32).unwrap() % AGENTS;
        match bits % 20 {
            0 => self.worker(agent, |worker| worker.dies = true),
            1 => self
                .lab
                .jump_wall(if bits & 1024 == 0 { -7_200 } else { 7_200 }),
            2 => self.worker(agent, |worker| worker.paused = true),
            3 | 4 => self.worker(agent, |worker| worker.paused = false),
            5 => self.hub(|hub, _| hub.paused = true),
            6 | 7 => self.hub(|hub, _| hub.paused = false),
            8 => {
                let some = self.made.iter().next_back().copied();
                if let Some(route) = some {
                    self.hub(|hub, now| drop(hub.router.cancel(now, route)));
                }
            }
            9 => self.hub(|hub, now| hub.stop(now, agent)),
            10 => self.hub(|hub, _| hub.add(agent)),
            11 => self.hub(|hub, _| hub.replace(agent)),
            _ => self.call(agent, bits),
        }
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
        (0..AGENTS).for_each(|agent| self.worker(agent, |worker| worker.paused = false));
        (0..AGENTS).for_each(|agent| self.hub(|hub, _| hub.add(agent)));
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
                Seen::Told(what) => *codes.entry(what.to_owned()).or_default() += 1,
            }
        }
        let ended: BTreeSet<RouteId> = ends.into_keys().collect();
        assert_eq!(
            ended, self.made,
            "a call without an end, or an end without a call"
        );
        self.hub(|hub, _| hub.rest());
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
        hub::CHECKED,
        hub::DISCONNECTED,
        hub::DOWN,
        hub::LAUNCH_FAILED,
        hub::REPLACED,
        hub::STOPPED,
        hub::STOPPING,
    ] {
        assert!(codes.contains_key(code), "never seen: {code}: {codes:?}");
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
