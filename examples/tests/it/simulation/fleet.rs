//! The fleet session: a durable hub and one agent of its fleet.
//!
//! The connection between them carries messages whole and in order, and breaks with the hub's process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use uap_hub_proto::capability::Skill;
use uap_hub_proto::id::{JobId, SessionId, StreamId};
use uap_hub_proto::role::Rpc;
use uap_hub_proto::role::agent::{self, FleetAgent};
use uap_hub_proto::role::hub::{self, Hub, Job, JobEvent, Record, Verdict};
use uap_hub_proto::status::{Code, Status};
use uap_hub_proto::wire::{AgentRegistration, Payload, TestResult};
use ubos_common::id::IdSource;
use ubos_common::testing::{
    Actions, Arrival, CrashPoint, Faults, Lab, LinkId, LinkKind, NodeId, Wiring,
};
use ubos_common::time::Now;

use super::{DOWN, Event, Ledger};

/// What is on the connection: the link carries indices into this list, so that messages need no encoding.
#[derive(Clone, Default)]
struct Connection {
    link: Rc<Cell<Option<LinkId>>>,
    packets: Rc<RefCell<Vec<Option<Packet>>>>,
}

enum Packet {
    Register(u64, AgentRegistration),
    Registered(u64, Result<String, String>),
    Open(StreamId, Rpc, String),
    ToHub(StreamId, agent::Outbound),
    ToAgent(StreamId, hub::Outbound),
    HalfClose(StreamId),
    Reset(StreamId),
    End(StreamId, Status),
}

impl Connection {
    fn send<A>(&self, packet: Packet, actions: &mut Actions<Event, A>) {
        if let Some(link) = self.link.get() {
            let mut packets = self.packets.borrow_mut();
            actions.send(link, packets.len().to_be_bytes());
            packets.push(Some(packet));
        }
    }

    fn take(&self, bytes: &[u8]) -> Packet {
        let index = usize::from_be_bytes(bytes.try_into().unwrap());
        self.packets.borrow_mut()[index].take().unwrap()
    }
}

pub(super) struct Ends {
    hub: NodeId<Hub>,
    agent: NodeId<FleetAgent>,
    connection: Connection,
    job: JobId,
    disk: Disk,
}

type Disk = Rc<RefCell<BTreeMap<JobId, Vec<Record>>>>;

fn new_hub(seed: u64) -> Hub {
    // A job may run again where its hub died under it.
    let config = hub::Config::default()
        .with_durable(true)
        .with_max_attempts(2);
    Hub::new(config, IdSource::seeded(seed)).unwrap()
}

pub(super) fn add(lab: &mut Lab<Event>, seed: u64, crash: &CrashPoint, ledger: &Ledger) -> Ends {
    let connection = Connection::default();
    let disk = Disk::default();
    let hub_world = HubWorld {
        connection: connection.clone(),
        disk: disk.clone(),
        crash: crash.clone(),
        ledger: ledger.clone(),
        lives: seed,
        replies: Vec::new(),
    };
    let hub = lab.add(new_hub(seed), hub_world);
    let config = agent::Config::default().with_capabilities(vec![Skill::test("t").into()]);
    let mut agent = FleetAgent::new(config, IdSource::seeded(5)).unwrap();
    agent.start(lab.now());
    let agent_world = AgentWorld {
        connection: connection.clone(),
        registering: None,
        open: Vec::new(),
        running: Vec::new(),
        ledger: ledger.clone(),
    };
    let agent = lab.add(agent, agent_world);
    let ends = Ends {
        hub,
        agent,
        connection,
        job: IdSource::seeded(6).next_id(),
        disk,
    };
    reconnect(lab, &ends);
    ends
}

/// Connects both processes anew, after the hub has started.
pub(super) fn reconnect(lab: &mut Lab<Event>, ends: &Ends) {
    let latency = Duration::from_millis(5);
    let faults = Faults::none().with_latency(latency..=latency);
    let link = lab.connect(ends.hub, ends.agent, LinkKind::Messages, faults);
    ends.connection.link.set(Some(link));
}

/// Submits the job, once: a plan that asks again waits for the same job, and a hub that was down hears of it when it
/// is up.
pub(super) fn submit(lab: &mut Lab<Event>, ends: &mut Ends) {
    for _ in 0..1_000 {
        if lab.is_up(ends.hub) {
            break;
        }
        lab.step();
    }
    if ends.disk.borrow().contains_key(&ends.job) {
        return;
    }
    lab.with(ends.hub, |hub, now| {
        let job = Job::test("t", vec![Payload::new("p")]);
        // A hub that holds the job already refuses it as a double.
        let _ = hub.submit_as(now, ends.job, job);
    });
}

struct HubWorld {
    connection: Connection,
    disk: Disk,
    crash: CrashPoint,
    ledger: Ledger,
    lives: u64,
    replies: Vec<Packet>,
}

impl HubWorld {
    fn ended(&self, outcome: &hub::Outcome, actions: &mut Actions<Event, JobId>) {
        assert_eq!(outcome.verdict, Verdict::Completed, "{outcome:?}");
        self.ledger.borrow_mut().job_ends += 1;
        actions.event(Event::Done("JOB", r#""done by the fleet""#.to_owned()));
    }
}

impl Wiring<Hub> for HubWorld {
    type Event = Event;
    type Answer = JobId;

    fn deliver(&mut self, hub: &mut Hub, now: Now, arrival: Arrival<'_, JobId>) {
        let packet = match arrival {
            Arrival::Bytes(_, bytes) => self.connection.take(bytes),
            Arrival::Answer(job) => return hub.stored(now, job, Ok(())).unwrap(),
            _ => return,
        };
        let input = match packet {
            Packet::Register(attempt, registration) => {
                let answer = hub.register(now, registration);
                let answer = answer.map(|it| it.client_id).map_err(|err| err.to_string());
                // Sent with the hub's event of this registration.
                self.replies.push(Packet::Registered(attempt, answer));
                return;
            }
            Packet::Open(stream, rpc, key) => {
                let key = Some(&*key);
                return hub
                    .handle_input(
                        now,
                        hub::Input::Opened {
                            stream,
                            rpc,
                            key,
                            identity: None,
                            resume: None,
                        },
                    )
                    .unwrap();
            }
            Packet::ToHub(stream, message) => hub::Input::Message {
                stream,
                message: match message {
                    agent::Outbound::Listen(message) => hub::Inbound::Listen(message),
                    agent::Outbound::Test(message) => hub::Inbound::Test(message),
                    agent::Outbound::Translation(message) => hub::Inbound::Translation(message),
                },
            },
            Packet::HalfClose(stream) => hub::Input::HalfClosed { stream },
            Packet::Reset(stream) => hub::Input::Reset {
                stream,
                reason: "reset".into(),
            },
            _ => panic!("a packet for the agent came to the hub"),
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
        for reply in std::mem::take(&mut self.replies) {
            self.connection.send(reply, actions);
        }
        match output {
            hub::Output::Send { stream, message } => {
                let packet = Packet::ToAgent(stream, message);
                self.connection.send(packet, actions);
            }
            hub::Output::End { stream, status } => {
                self.connection.send(Packet::End(stream, status), actions);
            }
            hub::Output::Store { job, record } => {
                self.disk.borrow_mut().entry(job).or_default().push(record);
                if self.crash.is_now() {
                    return actions.crash(DOWN);
                }
                actions.answer(Duration::from_millis(2), job);
            }
            hub::Output::Event(hub::Event::Job {
                event: JobEvent::Ended(outcome),
                ..
            }) => self.ended(&outcome, actions),
            _ => {}
        }
    }

    fn restart(&mut self, now: Now, actions: &mut Actions<Event, JobId>) -> Option<Hub> {
        self.lives += 1_000;
        let mut hub = new_hub(self.lives);
        for (job, records) in &*self.disk.borrow() {
            match &records[..] {
                [.., Record::Ended(outcome)] => self.ended(outcome, actions),
                [Record::Accepted(accepted)] => {
                    hub.restore(now, *job, accepted.clone()).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        actions.event(Event::HubStarted);
        Some(hub)
    }
}

struct AgentWorld {
    connection: Connection,
    registering: Option<u64>,
    open: Vec<StreamId>,
    running: Vec<SessionId>,
    ledger: Ledger,
}

enum AgentAnswer {
    NoConnection(u64),
    Finished(SessionId),
}

impl AgentWorld {
    /// Everything on the connection is lost.
    fn broken(&mut self, agent: &mut FleetAgent, now: Now) {
        self.connection.link.set(None);
        if let Some(attempt) = self.registering.take() {
            let reason = "the connection broke".to_owned();
            let failed = agent::Input::RegisterFailed { attempt, reason };
            agent.handle_input(now, failed).unwrap();
        }
        for stream in std::mem::take(&mut self.open) {
            let status = Status::new(Code::Unavailable, "the connection broke");
            let ended = agent::Input::Ended { stream, status };
            agent.handle_input(now, ended).unwrap();
        }
    }

    fn receive(&mut self, agent: &mut FleetAgent, now: Now, packet: Packet) {
        let input = match packet {
            Packet::Registered(attempt, answer) => {
                self.registering = None;
                match answer {
                    Ok(client_id) => agent::Input::Registered { attempt, client_id },
                    Err(reason) => agent::Input::RegisterFailed { attempt, reason },
                }
            }
            Packet::ToAgent(stream, message) => agent::Input::Message {
                stream,
                message: match message {
                    hub::Outbound::Listen(message) => agent::Inbound::Listen(message),
                    hub::Outbound::Test(message) => agent::Inbound::Test(message),
                    hub::Outbound::Translation(message) => agent::Inbound::Translation(message),
                },
            },
            Packet::End(stream, status) => {
                self.open.retain(|open| *open != stream);
                agent::Input::Ended { stream, status }
            }
            _ => panic!("a packet for the hub came to the agent"),
        };
        agent.handle_input(now, input).unwrap();
    }
}

impl Wiring<FleetAgent> for AgentWorld {
    type Event = Event;
    type Answer = AgentAnswer;

    fn deliver(&mut self, agent: &mut FleetAgent, now: Now, arrival: Arrival<'_, AgentAnswer>) {
        match arrival {
            Arrival::Bytes(_, bytes) => {
                let packet = self.connection.take(bytes);
                self.receive(agent, now, packet);
            }
            Arrival::Answer(AgentAnswer::NoConnection(attempt)) => {
                let reason = "no connection".to_owned();
                let failed = agent::Input::RegisterFailed { attempt, reason };
                agent.handle_input(now, failed).unwrap();
            }
            Arrival::Answer(AgentAnswer::Finished(session)) => {
                if self.running.contains(&session) {
                    self.running.retain(|running| *running != session);
                    let result = TestResult::completed("done");
                    agent.finish(now, &session, result.into()).unwrap();
                }
            }
            _ => self.broken(agent, now),
        }
    }

    fn perform(
        &mut self,
        _: &mut FleetAgent,
        _: Now,
        output: agent::Output,
        actions: &mut Actions<Event, AgentAnswer>,
    ) {
        use agent::Output::{Drop, HalfClose, Open, Register, Run, Send, Stop};
        let packet = match output {
            Register {
                attempt,
                registration,
            } => {
                if self.connection.link.get().is_none() {
                    let answer = AgentAnswer::NoConnection(attempt);
                    return actions.answer(Duration::from_millis(10), answer);
                }
                self.registering = Some(attempt);
                Packet::Register(attempt, registration)
            }
            Open {
                stream, rpc, key, ..
            } => {
                self.open.push(stream);
                Packet::Open(stream, rpc, key)
            }
            Send { stream, message } => Packet::ToHub(stream, message),
            HalfClose { stream } => Packet::HalfClose(stream),
            Drop { stream } => {
                self.open.retain(|open| *open != stream);
                Packet::Reset(stream)
            }
            Run { session, .. } => {
                self.ledger.borrow_mut().sessions += 1;
                self.running.push(session.clone());
                return actions.answer(Duration::from_millis(400), AgentAnswer::Finished(session));
            }
            Stop { session } => {
                return self.running.retain(|running| *running != session);
            }
            _ => return,
        };
        self.connection.send(packet, actions);
    }
}
