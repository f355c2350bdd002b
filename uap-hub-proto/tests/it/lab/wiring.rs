//! What a connection between a hub and an agent carries, and the two ends of it.
//!
//! Each agent has two links: one for `Register` and `Listen`, one for its sessions. A link keeps the order, as a
//! gRPC stream does; between the two links messages overtake each other.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use uap_hub_proto::{
    id::{JobId, SessionId, StreamId},
    role::{
        Resume, Rpc,
        agent::{self, FleetAgent},
        hub::{self, Hub, Job, JobEvent, Record},
    },
    status::{Code, Status},
    wire::{AgentRegistration, Payload, Severity, Telemetry, TestResult},
};
use ubos_common::{
    id::IdSource,
    testing::{Actions, Arrival, CrashPoint, LinkId, Wiring},
    time::Now,
    trace_context::TraceContext,
};

use crate::world::{to_agent, to_hub};

/// What the hub's caller sees: the events of all jobs.
pub(super) type Event = (JobId, JobEvent);

/// What links carry is kept here; the bytes on a link are an index.
#[derive(Default)]
pub(super) struct Wires {
    /// The open links of each agent: control and sessions.
    pub(super) links: Vec<[Option<LinkId>; 2]>,
    packets: Vec<Packet>,
}

pub(super) type SharedWires = Rc<RefCell<Wires>>;

/// A job, and the place in a trace that it comes from.
pub(super) fn job() -> Job {
    Job::test("t", vec![Payload::new("p")]).with_trace(place())
}

fn place() -> TraceContext {
    TraceContext::new([1; 16], [2; 8]).unwrap()
}

#[derive(Clone)]
enum Packet {
    Register(u64, AgentRegistration),
    Registered(u64, Result<String, String>),
    Open(StreamId, Rpc, String, Option<Resume>),
    ToHub(StreamId, hub::Inbound),
    /// A message, behind what the answer of its call carries.
    ToAgent(StreamId, Option<TraceContext>, agent::Inbound),
    HalfClose(StreamId),
    Reset(StreamId),
    End(StreamId, Status),
}

fn send<A>(wires: &SharedWires, link: LinkId, packet: Packet, actions: &mut Actions<Event, A>) {
    let packets = &mut wires.borrow_mut().packets;
    actions.send(link, packets.len().to_be_bytes());
    packets.push(packet);
}

fn received(wires: &SharedWires, bytes: &[u8]) -> Packet {
    let index = usize::from_be_bytes(bytes.try_into().unwrap());
    wires.borrow().packets[index].clone()
}

fn disconnected(wires: &SharedWires, link: LinkId) {
    for open in wires.borrow_mut().links.iter_mut().flatten() {
        open.take_if(|open| *open == link);
    }
}

/// Takes out the streams of a broken link.
fn lost(streams: &mut BTreeMap<StreamId, LinkId>, link: LinkId) -> Vec<StreamId> {
    let lost = streams.iter().filter(|(_, on)| **on == link);
    let lost: Vec<_> = lost.map(|(stream, _)| *stream).collect();
    streams.retain(|_, on| *on != link);
    lost
}

/// What a hub and its caller keep over a crash.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) records: BTreeMap<JobId, Vec<Record>>,
    reported: BTreeSet<JobId>,
    pub(super) lives: u64,
}

pub(super) struct HubWiring {
    wires: SharedWires,
    config: hub::Config,
    /// The records, if the hub is durable.
    kept: Option<Rc<RefCell<Kept>>>,
    crash: CrashPoint,
    streams: BTreeMap<StreamId, LinkId>,
    /// What the answers of calls are to carry.
    traces: BTreeMap<StreamId, TraceContext>,
    /// Sent with the hub's event of the registration.
    replies: Vec<(LinkId, Packet)>,
}

/// Lines that each handler writes to its log.
pub(super) const LINES: u64 = 8;

/// How long a hub is down after a crash.
const DOWN: Duration = Duration::from_millis(700);

impl HubWiring {
    pub(super) const fn new(
        wires: SharedWires,
        config: hub::Config,
        kept: Option<Rc<RefCell<Kept>>>,
        crash: CrashPoint,
    ) -> Self {
        Self {
            wires,
            config,
            kept,
            crash,
            streams: BTreeMap::new(),
            traces: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    /// Hands an event of a job to the caller, and checks that what it relies on is stored.
    fn report(&self, job: JobId, event: JobEvent, actions: &mut Actions<Event, JobId>) {
        if let Some(kept) = &self.kept {
            let mut kept = kept.borrow_mut();
            let stored = kept
                .records
                .get(&job)
                .map(Vec::as_slice)
                .unwrap_or_default();
            match &event {
                JobEvent::Ended(outcome) => {
                    assert_eq!(stored.last(), Some(&Record::Ended(outcome.clone())));
                    kept.reported.insert(job);
                }
                _ => assert!(!stored.is_empty(), "{event:?} of a job that is not stored"),
            }
        }
        actions.event((job, event));
    }
}

impl Wiring<Hub> for HubWiring {
    type Event = Event;
    type Answer = JobId;

    fn deliver(&mut self, hub: &mut Hub, now: Now, arrival: Arrival<'_, JobId>) {
        let (link, packet) = match arrival {
            Arrival::Bytes(link, bytes) => (link, received(&self.wires, bytes)),
            Arrival::Answer(job) => return hub.stored(now, job, Ok(())).unwrap(),
            Arrival::Broken(link) => {
                disconnected(&self.wires, link);
                for stream in lost(&mut self.streams, link) {
                    let reason = "the connection broke".to_owned();
                    let lost = hub::Input::Lost { stream, reason };
                    hub.handle_input(now, lost).unwrap();
                }
                return;
            }
            other => panic!("{other:?}"),
        };
        let key;
        let input = match packet {
            Packet::Register(attempt, registration) => {
                let answer = hub.register(now, registration);
                let answer = answer.map(|it| it.client_id).map_err(|err| err.to_string());
                let reply = Packet::Registered(attempt, answer);
                return self.replies.push((link, reply));
            }
            Packet::Open(stream, rpc, name, resume) => {
                self.streams.insert(stream, link);
                key = name;
                let key = Some(key.as_str());
                hub::Input::Opened {
                    stream,
                    rpc,
                    key,
                    identity: None,
                    resume,
                }
            }
            Packet::ToHub(stream, message) => hub::Input::Message { stream, message },
            Packet::HalfClose(stream) => hub::Input::HalfClosed { stream },
            Packet::Reset(stream) => {
                self.streams.remove(&stream);
                let reason = "the agent dropped the call".to_owned();
                hub::Input::Reset { stream, reason }
            }
            _ => panic!("the hub received a packet for an agent"),
        };
        hub.handle_input(now, input).unwrap();
    }

    fn perform(
        &mut self,
        _: &mut Hub,
        _: Now,
        output: hub::Output,
        actions: &mut Actions<Event, JobId>,
    ) {
        for (link, reply) in std::mem::take(&mut self.replies) {
            send(&self.wires, link, reply, actions);
        }
        match output {
            hub::Output::Trace { stream, trace } => {
                self.traces.insert(stream, trace);
            }
            hub::Output::Send { stream, message } => {
                if let Some(link) = self.streams.get(&stream) {
                    let trace = self.traces.remove(&stream);
                    let packet = Packet::ToAgent(stream, trace, to_agent(&message));
                    send(&self.wires, *link, packet, actions);
                }
            }
            hub::Output::End { stream, status } => {
                if let Some(link) = self.streams.remove(&stream) {
                    send(&self.wires, link, Packet::End(stream, status), actions);
                }
            }
            hub::Output::Store { job, record } => {
                // The process dies before the record is stored, or after it and before the hub knows.
                if self.crash.is_now() {
                    return actions.crash(DOWN);
                }
                let mut kept = self.kept.as_ref().unwrap().borrow_mut();
                kept.records.entry(job).or_default().push(record);
                if self.crash.is_now() {
                    return actions.crash(DOWN);
                }
                actions.answer(Duration::from_millis(2), job);
            }
            hub::Output::Event(hub::Event::Job { job, event }) => self.report(job, event, actions),
            _ => {}
        }
    }

    fn restart(&mut self, now: Now, actions: &mut Actions<Event, JobId>) -> Option<Hub> {
        self.streams.clear();
        self.traces.clear();
        self.replies.clear();
        let kept = self.kept.clone().unwrap();
        kept.borrow_mut().lives += 1;
        let ids = IdSource::seeded(1000 + kept.borrow().lives);
        let mut hub = Hub::new(self.config.clone(), ids).unwrap();
        let records = kept.borrow().records.clone();
        for (job, records) in records {
            match &records[..] {
                [Record::Accepted(accepted)] => hub.restore(now, job, accepted.clone()).unwrap(),
                [Record::Accepted(_), Record::Ended(outcome)] => {
                    if !kept.borrow().reported.contains(&job) {
                        self.report(job, JobEvent::Ended(outcome.clone()), actions);
                    }
                }
                other => panic!("{job} is stored as {other:?}"),
            }
        }
        Some(hub)
    }
}

/// The sessions whose handler runs, with the number of their agent.
pub(super) type Running = Rc<RefCell<BTreeSet<(usize, SessionId)>>>;

pub(super) struct AgentWiring {
    wires: SharedWires,
    number: usize,
    registering: Option<(u64, LinkId)>,
    streams: BTreeMap<StreamId, LinkId>,
    running: Running,
    /// Draws how long handlers run.
    random: IdSource,
}

pub(super) enum Answer {
    /// `Register` found no connection.
    Unregistered(u64),
    /// A call found no connection.
    Unopened(StreamId),
    /// The handler of a session writes a line of its log.
    Line(SessionId, u64),
    /// It returns.
    Finished(SessionId),
}

impl AgentWiring {
    pub(super) const fn new(
        wires: SharedWires,
        number: usize,
        running: Running,
        seed: u64,
    ) -> Self {
        Self {
            wires,
            number,
            registering: None,
            streams: BTreeMap::new(),
            running,
            random: IdSource::seeded(seed),
        }
    }

    /// The hub's name for a call of this agent.
    fn at_hub(&self, stream: StreamId) -> StreamId {
        StreamId((self.number as u64) << 32 | stream.0)
    }

    const fn local(stream: StreamId) -> StreamId {
        StreamId(stream.0 & 0xffff_ffff)
    }

    fn link(&self, rpc: Rpc) -> Option<LinkId> {
        let links = self.wires.borrow().links[self.number];
        links[usize::from(rpc != Rpc::Listen)]
    }

    fn is_running(&self, session: &SessionId) -> bool {
        let running = self.running.borrow();
        running.contains(&(self.number, session.clone()))
    }

    fn stop(&self, session: &SessionId) -> bool {
        let mut running = self.running.borrow_mut();
        running.remove(&(self.number, session.clone()))
    }

    /// All inputs that an arrival means.
    fn inputs(&mut self, arrival: Arrival<'_, Answer>) -> Vec<agent::Input> {
        let ended = |stream, status| agent::Input::Ended { stream, status };
        let broken = |stream| agent::Input::Broken {
            stream,
            status: Status::new(Code::Unavailable, "no connection"),
        };
        let failed = |attempt| agent::Input::RegisterFailed {
            attempt,
            reason: "no connection".into(),
        };
        match arrival {
            Arrival::Bytes(_, bytes) => vec![match received(&self.wires, bytes) {
                Packet::Registered(attempt, answer) => {
                    self.registering = None;
                    match answer {
                        Ok(client_id) => agent::Input::Registered { attempt, client_id },
                        Err(_) => failed(attempt),
                    }
                }
                Packet::ToAgent(stream, trace, message) => {
                    let stream = Self::local(stream);
                    let trace = trace.map(|trace| agent::Input::Trace { stream, trace });
                    let message = agent::Input::Message { stream, message };
                    return trace.into_iter().chain([message]).collect();
                }
                Packet::End(stream, status) => {
                    self.streams.remove(&Self::local(stream));
                    ended(Self::local(stream), status)
                }
                _ => panic!("an agent received a packet for the hub"),
            }],
            Arrival::Broken(link) => {
                disconnected(&self.wires, link);
                let attempt = self.registering.take_if(|(_, on)| *on == link);
                let attempt = attempt.map(|(attempt, _)| failed(attempt));
                let streams = lost(&mut self.streams, link).into_iter();
                let ends = streams.map(broken);
                attempt.into_iter().chain(ends).collect()
            }
            Arrival::Answer(Answer::Unregistered(attempt)) => vec![failed(attempt)],
            Arrival::Answer(Answer::Unopened(stream)) => vec![broken(stream)],
            _ => Vec::new(),
        }
    }
}

impl Wiring<FleetAgent> for AgentWiring {
    type Event = Event;
    type Answer = Answer;

    fn deliver(&mut self, agent: &mut FleetAgent, now: Now, arrival: Arrival<'_, Answer>) {
        match &arrival {
            Arrival::Answer(Answer::Line(session, number)) => {
                let line = Telemetry::new(Severity::Info, number.to_string());
                if self.is_running(session) {
                    agent.telemetry(now, session, line).unwrap();
                }
                return;
            }
            Arrival::Answer(Answer::Finished(session)) => {
                if self.stop(session) {
                    let result = TestResult::completed("done");
                    agent.finish(now, session, result.into()).unwrap();
                }
                return;
            }
            _ => {}
        }
        for input in self.inputs(arrival) {
            if !agent.is_closed() {
                agent.handle_input(now, input).unwrap();
            }
        }
    }

    fn perform(
        &mut self,
        _: &mut FleetAgent,
        _: Now,
        output: agent::Output,
        actions: &mut Actions<Event, Answer>,
    ) {
        use agent::Output::{Drop, HalfClose, Open, Register, Run, Send, Stop};
        let (stream, packet) = match output {
            Register {
                attempt,
                registration,
            } => {
                let Some(link) = self.link(Rpc::Listen) else {
                    return actions.answer(Duration::ZERO, Answer::Unregistered(attempt));
                };
                self.registering = Some((attempt, link));
                let packet = Packet::Register(attempt, registration);
                return send(&self.wires, link, packet, actions);
            }
            Open {
                stream,
                rpc,
                key,
                resume,
                ..
            } => {
                let Some(link) = self.link(rpc) else {
                    return actions.answer(Duration::ZERO, Answer::Unopened(stream));
                };
                self.streams.insert(stream, link);
                (stream, Packet::Open(self.at_hub(stream), rpc, key, resume))
            }
            Send { stream, message } => {
                let packet = Packet::ToHub(self.at_hub(stream), to_hub(&message));
                (stream, packet)
            }
            HalfClose { stream } => (stream, Packet::HalfClose(self.at_hub(stream))),
            Drop { stream } => (stream, Packet::Reset(self.at_hub(stream))),
            Run { session, trace, .. } => {
                assert_eq!(trace, Some(place()), "whatever broke before");
                let mut running = self.running.borrow_mut();
                running.insert((self.number, session.clone()));
                let takes = Duration::from_millis(self.random.bits() % 2000);
                for number in 0..LINES {
                    let at = takes * u32::try_from(number).unwrap() / 10;
                    actions.answer(at, Answer::Line(session.clone(), number));
                }
                return actions.answer(takes, Answer::Finished(session));
            }
            Stop { session } => {
                assert!(self.stop(&session), "{session} does not run");
                return;
            }
            _ => return,
        };
        let dropped = matches!(packet, Packet::Reset(_));
        if let Some(link) = self.streams.get(&stream) {
            send(&self.wires, *link, packet, actions);
        }
        if dropped {
            self.streams.remove(&stream);
        }
    }
}
