//! A hub and a fleet wired in memory, in virtual time: every message goes through its encoded bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message;
use uap_hub_proto::{
    capability::Skill,
    id::{JobId, SessionId, StreamId},
    role::{
        Rpc,
        agent::{self, FleetAgent},
        hub::{self, Hub, Job, JobEvent, Verdict},
    },
    status::Status,
    wire::{Payload, TestResult},
};
use ubos_common::{
    id::IdSource,
    time::{Mono, Now, Timestamp},
};

/// A stream as its agent names it.
type Local = (usize, StreamId);

/// Something on the way.
enum Packet {
    ToHub(StreamId, hub::Inbound),
    HalfClose(StreamId),
    Reset(StreamId),
    ToAgent(Local, agent::Inbound),
    End(Local, Status),
}

struct World {
    now: Now,
    hub: Hub,
    agents: Vec<Option<FleetAgent>>,
    wire: VecDeque<Packet>,
    streams: BTreeMap<Local, StreamId>,
    opened: u64,
    /// Handlers that run: agent, session, when they finish.
    handlers: Vec<(usize, SessionId, Mono)>,
    events: Vec<(JobId, JobEvent)>,
    random: IdSource,
    is_up: bool,
}

impl World {
    fn new(agents: usize, seed: u64) -> Self {
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let hub = Hub::new(hub::Config::default(), IdSource::seeded(seed)).unwrap();
        let agents = (0..agents).map(|_| {
            let config = agent::Config::default()
                .with_capabilities(vec![Skill::test("t").into()])
                .with_max_sessions(2);
            let mut agent = FleetAgent::new(config, IdSource::seeded(1)).unwrap();
            agent.start(now);
            Some(agent)
        });
        Self {
            now,
            hub,
            agents: agents.collect(),
            wire: VecDeque::new(),
            streams: BTreeMap::new(),
            opened: 0,
            handlers: Vec::new(),
            events: Vec::new(),
            random: IdSource::seeded(seed),
            is_up: true,
        }
    }

    /// Runs until nothing moves, then lets time pass to the next timeout, up to `span` in all.
    fn run(&mut self, span: Duration) {
        let end = self.now.mono.saturating_add(span);
        loop {
            self.settle();
            let next = (self.hub.poll_timeout().into_iter())
                .chain(
                    self.agents
                        .iter()
                        .flatten()
                        .filter_map(FleetAgent::poll_timeout),
                )
                .chain(self.handlers.iter().map(|(_, _, at)| *at))
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.plus(next.saturating_since(self.now.mono));
            self.hub.handle_timeout(self.now);
            for agent in self.agents.iter_mut().flatten() {
                agent.handle_timeout(self.now);
            }
            let (due, rest) = std::mem::take(&mut self.handlers)
                .into_iter()
                .partition(|(_, _, at)| *at <= next);
            self.handlers = rest;
            for (n, session, _) in Vec::from_iter::<Vec<_>>(due) {
                if let Some(agent) = &mut self.agents[n] {
                    agent
                        .finish(self.now, &session, TestResult::completed("done").into())
                        .unwrap();
                }
            }
        }
        self.now = self.now.plus(end.saturating_since(self.now.mono));
    }

    fn settle(&mut self) {
        loop {
            self.drain();
            let Some(packet) = self.wire.pop_front() else {
                return;
            };
            match packet {
                Packet::ToHub(stream, message) => {
                    self.tell_hub(hub::Input::Message { stream, message })
                }
                Packet::HalfClose(stream) => self.tell_hub(hub::Input::HalfClosed { stream }),
                Packet::Reset(stream) => self.tell_hub(hub::Input::Reset {
                    stream,
                    reason: "gone".into(),
                }),
                Packet::ToAgent((n, stream), message) => {
                    self.tell_agent(n, agent::Input::Message { stream, message })
                }
                Packet::End((n, stream), status) => {
                    self.tell_agent(n, agent::Input::Ended { stream, status })
                }
            }
        }
    }

    fn tell_hub(&mut self, input: hub::Input<'_>) {
        if self.is_up {
            self.hub.handle_input(self.now, input).unwrap();
        }
    }

    fn tell_agent(&mut self, n: usize, input: agent::Input) {
        if let Some(agent) = &mut self.agents[n] {
            agent.handle_input(self.now, input).unwrap();
        }
    }

    fn drain(&mut self) {
        for n in 0..self.agents.len() {
            while let Some(output) = self.agents[n].as_mut().and_then(FleetAgent::poll_output) {
                self.agent_says(n, output);
            }
        }
        while let Some(output) = self.hub.poll_output() {
            match output {
                hub::Output::Send { stream, message } => {
                    let local = self.local(stream);
                    self.wire
                        .extend(local.map(|local| Packet::ToAgent(local, to_agent(&message))));
                }
                hub::Output::End { stream, status } => {
                    let local = self.local(stream);
                    self.wire
                        .extend(local.map(|local| Packet::End(local, status)));
                }
                hub::Output::Event(hub::Event::Job { job, event }) => {
                    self.events.push((job, event))
                }
                _ => {}
            }
        }
    }

    fn local(&self, stream: StreamId) -> Option<Local> {
        self.streams
            .iter()
            .find(|(_, global)| **global == stream)
            .map(|(local, _)| *local)
    }

    fn agent_says(&mut self, n: usize, output: agent::Output) {
        use agent::Output::{Drop, HalfClose, Open, Register, Run, Send, Stop};
        match output {
            Register {
                attempt,
                registration,
            } => {
                let answer = if self.is_up {
                    self.hub.register(self.now, registration).ok()
                } else {
                    None
                };
                let input = match answer {
                    Some(answer) => agent::Input::Registered {
                        attempt,
                        client_id: answer.client_id,
                    },
                    None => agent::Input::RegisterFailed {
                        attempt,
                        reason: "down".into(),
                    },
                };
                self.tell_agent(n, input);
            }
            Open {
                stream,
                rpc,
                key,
                resume,
                ..
            } => {
                self.opened += 1;
                let global = StreamId(self.opened);
                self.streams.insert((n, stream), global);
                self.tell_hub(hub::Input::Opened {
                    stream: global,
                    rpc,
                    key: Some(&key),
                    identity: None,
                    resume,
                });
            }
            Send { stream, message } => {
                let stream = self.streams[&(n, stream)];
                self.wire.push_back(Packet::ToHub(stream, to_hub(&message)));
            }
            HalfClose { stream } => self
                .wire
                .push_back(Packet::HalfClose(self.streams[&(n, stream)])),
            Drop { stream } => self
                .wire
                .push_back(Packet::Reset(self.streams[&(n, stream)])),
            Run {
                session, payloads, ..
            } => {
                assert_eq!(payloads, [Payload::new("p")]);
                let takes = Duration::from_millis(self.random.bits() % 5000);
                self.handlers
                    .push((n, session, self.now.mono.saturating_add(takes)));
            }
            Stop { session } => self.handlers.retain(|(_, running, _)| *running != session),
            _ => {}
        }
    }

    fn submit(&mut self) -> JobId {
        self.hub
            .submit(self.now, Job::test("t", vec![Payload::new("p")]))
            .unwrap()
    }

    /// Takes an agent away in the middle of everything.
    fn kill(&mut self, n: usize) {
        self.agents[n] = None;
        self.handlers.retain(|(agent, _, _)| *agent != n);
        let streams: Vec<_> = self
            .streams
            .iter()
            .filter(|((agent, _), _)| *agent == n)
            .map(|(_, s)| *s)
            .collect();
        self.wire.extend(streams.into_iter().map(Packet::Reset));
    }

    /// How each job ended; each exactly once, with nothing after it.
    fn ends(&self) -> BTreeMap<JobId, Verdict> {
        let mut ends = BTreeMap::new();
        for (job, event) in &self.events {
            assert!(!ends.contains_key(job), "{event:?} after the end of {job}");
            if let JobEvent::Ended(outcome) = event {
                ends.insert(*job, outcome.verdict);
            }
        }
        ends
    }
}

/// The message of a hub, as its agent decodes it.
pub(crate) fn to_agent(message: &hub::Outbound) -> agent::Inbound {
    match message {
        hub::Outbound::Listen(message) => agent::Inbound::Listen(recode(message)),
        hub::Outbound::Test(message) => agent::Inbound::Test(recode(message)),
        hub::Outbound::Translation(message) => agent::Inbound::Translation(recode(message)),
    }
}

/// The message of an agent, as its hub decodes it.
pub(crate) fn to_hub(message: &agent::Outbound) -> hub::Inbound {
    match message {
        agent::Outbound::Listen(message) => hub::Inbound::Listen(recode(message)),
        agent::Outbound::Test(message) => hub::Inbound::Test(recode(message)),
        agent::Outbound::Translation(message) => hub::Inbound::Translation(recode(message)),
    }
}

fn recode<M: Message + Default + PartialEq>(message: &M) -> M {
    let decoded = M::decode(message.encode_to_vec().as_slice()).unwrap();
    assert!(decoded == *message);
    decoded
}

// spec: HUB-4-5, HUB-3-4, HUB-3-6
#[test]
fn a_fleet_does_all_jobs_and_both_sides_agree_at_rest() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let jobs: Vec<_> = (0..60).map(|_| world.submit()).collect();
        world.run(Duration::from_secs(590));
        let ends = world.ends();
        assert!(
            jobs.iter()
                .all(|job| ends.get(job) == Some(&Verdict::Completed)),
            "{seed}: {ends:?}"
        );
        assert!(
            world
                .hub
                .view()
                .agents()
                .all(|agent| agent.is_available && agent.load == 0)
        );
        assert!(world.handlers.is_empty() && world.hub.view().counts().jobs == 0);
    }
}

// spec: HUB-5-1, HUB-3-4
#[test]
fn agents_killed_at_any_moment_lose_only_what_they_ran() {
    for seed in 0..50 {
        let mut world = World::new(3, seed);
        let jobs: Vec<_> = (0..20).map(|_| world.submit()).collect();
        world.run(Duration::from_millis(seed * 150));
        world.kill(0);
        world.run(Duration::from_secs(590));
        let ends = world.ends();
        assert_eq!(ends.len(), jobs.len());
        let failed = ends
            .values()
            .filter(|verdict| **verdict != Verdict::Completed)
            .count();
        assert!(
            failed <= 2,
            "no more than the killed agent could run: {failed}"
        );
        assert_eq!(world.hub.view().agents().count(), 2);
    }
}

// spec: HUB-5-2, HUB-5-3
#[test]
fn agents_come_back_to_a_hub_that_was_away() {
    let mut world = World::new(2, 1);
    world.run(Duration::from_secs(5));
    world.hub.shutdown(world.now, Duration::ZERO);
    world.settle();
    world.is_up = false;
    world.streams.clear();
    world.run(Duration::from_secs(100));
    world.hub = Hub::new(hub::Config::default(), IdSource::seeded(7)).unwrap();
    world.is_up = true;
    world.run(Duration::from_secs(60));
    assert_eq!(world.hub.view().counts().available_agents, 2);
    let job = world.submit();
    world.run(Duration::from_secs(10));
    assert_eq!(world.ends()[&job], Verdict::Completed);
}

/// Random bytes that decode, in any order, on streams opened with any key.
#[test]
fn no_order_of_inputs_panics_or_loses_a_job() {
    for seed in 0..300 {
        let mut random = IdSource::seeded(seed);
        let mut world = World::new(1, seed);
        let jobs: Vec<_> = (0..5).map(|_| world.submit()).collect();
        let mut sessions = vec!["JOB-x".to_owned()];
        for _ in 0..60 {
            world.run(Duration::from_millis(random.bits() % 3000));
            sessions.extend(world.events.iter().filter_map(|(_, event)| match event {
                JobEvent::Offered { session, .. } => Some(session.to_string()),
                _ => None,
            }));
            let mut pick = |most: usize| usize::try_from(random.bits() % most as u64).unwrap();
            let stream = StreamId(pick(12) as u64);
            let key = sessions[pick(sessions.len())].clone();
            let input = match pick(5) {
                0 => hub::Input::Opened {
                    stream: StreamId(1000 + random.bits() % 9999),
                    rpc: Rpc::Execute,
                    key: Some(&key),
                    identity: None,
                    resume: None,
                },
                1 => hub::Input::HalfClosed { stream },
                2 => hub::Input::Reset {
                    stream,
                    reason: "noise".into(),
                },
                _ => {
                    let bytes: Vec<u8> = (0..pick(12))
                        .map(|_| [8, 18, 1, 2, 3, 34, 0, 26, 10][pick(9)])
                        .collect();
                    let Ok(message) = Message::decode(bytes.as_slice()) else {
                        continue;
                    };
                    hub::Input::Message {
                        stream,
                        message: hub::Inbound::Test(message),
                    }
                }
            };
            // A stream name used twice is refused, and may be.
            let _ = world.hub.handle_input(world.now, input);
        }
        world.run(Duration::from_secs(1000));
        assert_eq!(world.ends().len(), jobs.len());
        assert_eq!(world.hub.view().counts().jobs, 0);
        assert!(world.hub.view().agents().all(|agent| agent.load == 0));
    }
}
