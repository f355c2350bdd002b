//! Ten thousand agents and their hub, an hour of their time, in one process.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    time::Duration,
};

use uap_hub_proto::{
    capability::Skill,
    id::{JobId, SessionId, StreamId},
    role::{
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

const AGENTS: usize = 10_000;
const JOBS: usize = 30_000;

/// Something that will happen.
enum Coming {
    HubTimer,
    Timer(usize),
    ToHub(StreamId, hub::Inbound),
    HalfClose(StreamId),
    Reset(StreamId),
    ToAgent(usize, StreamId, agent::Inbound),
    End(usize, StreamId, Status),
    Done(usize, SessionId),
    Crash(usize),
    Submit,
}

struct Fleet {
    now: Now,
    hub: Hub,
    /// Each with the number of its life.
    agents: Vec<(FleetAgent, u64)>,
    /// When each is woken next.
    woken: Vec<Mono>,
    coming: BinaryHeap<Reverse<(Mono, u64)>>,
    what: HashMap<u64, Coming>,
    count: u64,
    /// Streams by whose they are, and back.
    here: HashMap<StreamId, (usize, u64, StreamId)>,
    there: HashMap<(usize, u64, StreamId), StreamId>,
    running: HashMap<SessionId, usize>,
    random: IdSource,
    ends: BTreeMap<JobId, Verdict>,
    requeued: usize,
    /// When the hub is woken next.
    armed: Mono,
    most_running: usize,
}

impl Fleet {
    fn new() -> Self {
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let config = hub::Config::default()
            .with_max_agents(AGENTS + 200)
            .with_max_jobs(JOBS)
            .with_max_attempts(10)
            .with_max_sessions_per_agent(2)
            .with_wait_limit(Duration::from_secs(100_000));
        let mut fleet = Self {
            now,
            hub: Hub::new(config, IdSource::seeded(1)).unwrap(),
            agents: Vec::new(),
            woken: vec![Mono::MAX; AGENTS],
            coming: BinaryHeap::new(),
            what: HashMap::new(),
            count: 0,
            here: HashMap::new(),
            there: HashMap::new(),
            running: HashMap::new(),
            random: IdSource::seeded(1),
            ends: BTreeMap::new(),
            requeued: 0,
            armed: Mono::MAX,
            most_running: 0,
        };
        for n in 0..AGENTS {
            let agent = fleet.agent();
            fleet.agents.push((agent, 0));
            fleet.drain_agent(n);
        }
        fleet
    }

    fn agent(&self) -> FleetAgent {
        let config = agent::Config::default()
            .with_capabilities(vec![Skill::test("t").into()])
            .with_max_sessions(2);
        let mut agent = FleetAgent::new(config, IdSource::seeded(1)).unwrap();
        agent.start(self.now);
        agent
    }

    fn within(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap();
        Duration::from_nanos(self.random.bits() % most)
    }

    fn later(&mut self, span: Duration, what: Coming) {
        self.at(self.now.mono.saturating_add(span), what);
    }

    fn at(&mut self, at: Mono, what: Coming) {
        self.count += 1;
        self.coming.push(Reverse((at, self.count)));
        self.what.insert(self.count, what);
    }

    /// On the way for a while, always the same, so that order is kept.
    fn send(&mut self, what: Coming) {
        self.later(Duration::from_millis(5), what);
    }

    fn run(&mut self) {
        while let Some(Reverse((at, number))) = self.coming.pop() {
            self.now = self.now.plus(at.saturating_since(self.now.mono));
            let what = self.what.remove(&number).unwrap();
            self.happen(what);
            if self.ends.len() == JOBS {
                return;
            }
        }
    }

    fn happen(&mut self, what: Coming) {
        let now = self.now;
        match what {
            Coming::HubTimer => {
                self.armed = Mono::MAX;
                self.hub.handle_timeout(now);
                self.drain_hub();
            }
            Coming::Timer(n) => {
                self.woken[n] = Mono::MAX;
                self.agents[n].0.handle_timeout(now);
                self.drain_agent(n);
            }
            Coming::ToHub(stream, message) => self.tell(hub::Input::Message { stream, message }),
            Coming::HalfClose(stream) => self.tell(hub::Input::HalfClosed { stream }),
            Coming::Reset(stream) => {
                let reason = "crashed".into();
                self.tell(hub::Input::Reset { stream, reason });
            }
            Coming::ToAgent(n, stream, message) => {
                self.tell_agent(n, agent::Input::Message { stream, message })
            }
            Coming::End(n, stream, status) => {
                self.tell_agent(n, agent::Input::Ended { stream, status })
            }
            Coming::Done(n, session) => {
                if self.running.get(&session) == Some(&n) {
                    self.running.remove(&session);
                    let result = TestResult::completed("done").into();
                    self.agents[n].0.finish(now, &session, result).unwrap();
                    self.drain_agent(n);
                }
            }
            Coming::Crash(n) => self.crash(n),
            Coming::Submit => {
                let job = Job::test("t", vec![Payload::new("p")]);
                self.hub.submit(now, job).unwrap();
                self.drain_hub();
            }
        }
    }

    fn tell(&mut self, input: hub::Input<'_>) {
        self.hub.handle_input(self.now, input).unwrap();
        self.drain_hub();
    }

    fn tell_agent(&mut self, n: usize, input: agent::Input) {
        self.agents[n].0.handle_input(self.now, input).unwrap();
        self.drain_agent(n);
    }

    /// An agent dies, its streams break, and a new one starts in its place.
    fn crash(&mut self, n: usize) {
        let life = self.agents[n].1;
        let mut streams: Vec<_> = self
            .there
            .iter()
            .filter(|((m, at, _), _)| (*m, *at) == (n, life))
            .collect();
        streams.sort_unstable();
        let streams: Vec<_> = streams.into_iter().map(|(_, stream)| *stream).collect();
        for stream in streams {
            self.send(Coming::Reset(stream));
        }
        self.running.retain(|_, agent| *agent != n);
        self.agents[n] = (self.agent(), life + 1);
        self.drain_agent(n);
    }

    fn drain_hub(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            match output {
                hub::Output::Send { stream, message } => {
                    let message = match message {
                        hub::Outbound::Listen(message) => agent::Inbound::Listen(message),
                        hub::Outbound::Test(message) => agent::Inbound::Test(message),
                        hub::Outbound::Translation(message) => agent::Inbound::Translation(message),
                    };
                    if let Some((n, local)) = self.local(stream) {
                        self.send(Coming::ToAgent(n, local, message));
                    }
                }
                hub::Output::End { stream, status } => {
                    if let Some((n, local)) = self.local(stream) {
                        self.send(Coming::End(n, local, status));
                    }
                }
                hub::Output::Event(hub::Event::Job { job, event }) => match event {
                    JobEvent::Ended(outcome) => {
                        assert_eq!(self.ends.insert(job, outcome.verdict), None);
                    }
                    JobEvent::Requeued { .. } => self.requeued += 1,
                    _ => {}
                },
                _ => {}
            }
        }
        if let Some(at) = self.hub.poll_timeout()
            && at < self.armed
        {
            self.armed = at;
            self.at(at, Coming::HubTimer);
        }
    }

    /// Whose a stream is, unless that one died.
    fn local(&self, stream: StreamId) -> Option<(usize, StreamId)> {
        let (n, life, local) = *self.here.get(&stream)?;
        (self.agents[n].1 == life).then_some((n, local))
    }

    fn drain_agent(&mut self, n: usize) {
        while let Some(output) = self.agents[n].0.poll_output() {
            self.agent_says(n, output);
        }
        if let Some(at) = self.agents[n].0.poll_timeout()
            && at < self.woken[n]
        {
            self.woken[n] = at;
            self.at(at, Coming::Timer(n));
        }
    }

    fn agent_says(&mut self, n: usize, output: agent::Output) {
        use agent::Output::{Drop, HalfClose, Open, Register, Run, Send, Stop};
        let life = self.agents[n].1;
        let global = |fleet: &Self, stream| fleet.there[&(n, life, stream)];
        match output {
            Register {
                attempt,
                registration,
            } => {
                let client_id = self.hub.register(self.now, registration).unwrap().client_id;
                self.drain_hub();
                let input = agent::Input::Registered { attempt, client_id };
                self.agents[n].0.handle_input(self.now, input).unwrap();
            }
            Open {
                stream, rpc, key, ..
            } => {
                self.count += 1;
                let id = StreamId(self.count);
                self.here.insert(id, (n, life, stream));
                self.there.insert((n, life, stream), id);
                let key = Some(&*key);
                self.tell(hub::Input::Opened {
                    stream: id,
                    rpc,
                    key,
                    identity: None,
                    resume: None,
                });
            }
            Send { stream, message } => {
                let message = match message {
                    agent::Outbound::Listen(message) => hub::Inbound::Listen(message),
                    agent::Outbound::Test(message) => hub::Inbound::Test(message),
                    agent::Outbound::Translation(message) => hub::Inbound::Translation(message),
                };
                self.send(Coming::ToHub(global(self, stream), message));
            }
            HalfClose { stream } => self.send(Coming::HalfClose(global(self, stream))),
            Drop { stream } => self.send(Coming::Reset(global(self, stream))),
            Run { session, .. } => {
                self.running.insert(session.clone(), n);
                self.most_running = self.most_running.max(self.running.len());
                let takes = Duration::from_secs(1) + self.within(Duration::from_secs(600));
                self.later(takes, Coming::Done(n, session));
            }
            Stop { session } => drop(self.running.remove(&session)),
            _ => {}
        }
    }
}

// spec: HUB-4-5, HUB-3-4, HUB-3-6, HUB-5-1
#[test]
fn ten_thousand_agents_do_all_jobs_though_some_crash() {
    let mut fleet = Fleet::new();
    for _ in 0..JOBS {
        let when = fleet.within(Duration::from_secs(300));
        fleet.later(when, Coming::Submit);
    }
    for _ in 0..200 {
        let n = usize::try_from(fleet.random.bits() % AGENTS as u64).unwrap();
        let when = fleet.within(Duration::from_secs(600));
        fleet.later(when, Coming::Crash(n));
    }
    fleet.run();
    let done = fleet
        .ends
        .values()
        .filter(|end| **end == Verdict::Completed);
    assert_eq!(done.count(), JOBS);
    assert!(fleet.requeued > 0, "some ran where it crashed");
    assert!(fleet.most_running > AGENTS, "{}", fleet.most_running);
    assert_eq!(fleet.hub.view().counts().jobs, 0);
    assert!(fleet.hub.view().agents().all(|agent| agent.load == 0));
}
