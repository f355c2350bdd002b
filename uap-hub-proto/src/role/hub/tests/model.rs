//! Every order of events in a fleet of two agents and two jobs.
//!
//! A state of hub and agents is reached by replaying the acts that lead to it; a state that was seen before is not
//! gone on from. What the agents may do is more than ours do: they answer late, twice and for each other, they
//! open streams twice, break off, and come back, by their old name or as somebody new. From every state on, a fleet
//! that behaves must bring both jobs to their end.
//!
//! Where sessions are resumed their reports are numbered. What a cut took on its way, in either direction, the agent sends
//! again; whatever happens, the caller is told the reports of a session in their order, each once.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::*;

const AGENTS: usize = 2;
const JOBS: usize = 2;

/// What can happen; offers are named by the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// An agent accepts an offer, its own or another's, whatever became of it.
    Accept(usize, usize),
    Refuse(usize),
    Open(usize),
    /// Its stream is opened, and the connection is lost before the job comes.
    OpenCut(usize),
    /// An agent makes a report, and sends it where its stream is open.
    Report(usize),
    /// An agent makes a report that is lost with the connection.
    ReportCut(usize),
    Finish(usize),
    Close(usize),
    Break(usize),
    /// The connection of its stream is lost.
    Cut(usize),
    /// Its stream is opened again, whether or not the hub has seen the end of the last one.
    Resume(usize),
    /// An opening of its stream comes that was made before the last one.
    Late(usize),
    Leave(usize),
    /// An agent listens by the id that it had, whether or not the hub has seen that it was away, or has forgotten it since.
    Return(usize),
    Join(usize),
    Tick,
}

/// How far an agent is with an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Asked,
    Accepted,
    Told,
    Open,
    Finished,
    /// Refused or over.
    Past,
}

#[derive(Debug)]
struct Offer {
    session: String,
    agent: usize,
    job: usize,
    step: Step,
    stream: Option<StreamId>,
    /// How often its stream was opened.
    opened: u64,
    /// How often the agent got the job.
    inits: usize,
    /// Reports that the agent made, that it was told the hub has, and that the caller was told, each of them in order.
    made: u64,
    acknowledged: u64,
    told: u64,
    /// The last that was made is the result.
    has_result: bool,
}

/// The most faults.
#[derive(Clone, Copy, Debug, Hash)]
struct Budget {
    losses: usize,
    strays: usize,
    ticks: usize,
    /// Reports beside those that begin and end a session.
    reports: usize,
}

/// What a timer is about.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum About<'a> {
    Agent(&'static str, Option<&'a str>, Option<usize>),
    Job(&'static str, Option<usize>),
    Offer(usize, usize, Step),
    Hub(&'static str),
}

struct Model {
    rig: Rig,
    jobs: Vec<JobId>,
    listens: [Option<StreamId>; AGENTS],
    /// By which each may come back.
    ids: [Option<String>; AGENTS],
    offers: Vec<Offer>,
    /// The offer that each job is assigned to, and whether it has ended.
    assigned: [Option<usize>; JOBS],
    ended: [bool; JOBS],
    /// Whether the hub and the agents resume sessions.
    resumes: bool,
    budget: Budget,
}

impl Model {
    fn new(config: Config, budget: Budget) -> Self {
        let resumes = !config.resume_grace.is_zero();
        let mut rig = Rig::with(config);
        let jobs = (0..JOBS).map(|_| rig.submit()).collect();
        let mut model = Self {
            rig,
            jobs,
            listens: [None; AGENTS],
            ids: Default::default(),
            offers: Vec::new(),
            assigned: [None; JOBS],
            ended: [false; JOBS],
            resumes,
            budget,
        };
        (0..AGENTS).for_each(|agent| model.act(Act::Join(agent)));
        model
    }

    /// The state behind the acts and one more. What holds was checked behind each of them when it was the last.
    fn replay(config: &dyn Fn() -> Config, budget: Budget, acts: &[Act], last: Act) -> Self {
        let mut model = Self::new(config(), budget);
        acts.iter().for_each(|act| model.happens(*act));
        model.act(last);
        model
    }

    /// What may happen next.
    fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        for (n, offer) in self.offers.iter().enumerate() {
            let listens = self.listens[offer.agent].is_some();
            match offer.step {
                Step::Asked if listens => {
                    acts.extend([Act::Accept(offer.agent, n), Act::Refuse(n)])
                }
                Step::Told => acts.push(Act::Open(n)),
                Step::Open if offer.stream.is_none() => acts.push(Act::Resume(n)),
                Step::Finished if offer.stream.is_none() => acts.push(Act::Resume(n)),
                Step::Open => acts.push(Act::Finish(n)),
                Step::Finished => acts.push(Act::Close(n)),
                _ => {}
            }
            if self.resumes {
                self.cuts_and_reports(n, &mut acts);
            }
            if self.budget.strays > 0 {
                let answered = offer.step != Step::Asked;
                for agent in 0..AGENTS {
                    if self.listens[agent].is_some() && (agent != offer.agent || answered) {
                        acts.push(Act::Accept(agent, n));
                    }
                }
                if offer.step != Step::Told {
                    acts.push(Act::Open(n));
                }
            }
            if self.budget.losses > 0 && offer.stream.is_some() {
                acts.push(Act::Break(n));
            }
        }
        for agent in 0..AGENTS {
            let may_lose = self.budget.losses > 0;
            let may_return = self.resumes && self.ids[agent].is_some();
            match self.listens[agent] {
                None if may_return => acts.extend([Act::Return(agent), Act::Join(agent)]),
                None => acts.push(Act::Join(agent)),
                Some(_) if may_lose && may_return => {
                    acts.extend([Act::Leave(agent), Act::Return(agent)]);
                }
                Some(_) if may_lose => acts.push(Act::Leave(agent)),
                Some(_) => {}
            }
        }
        if self.budget.ticks > 0 && self.rig.hub.poll_timeout().is_some() {
            acts.push(Act::Tick);
        }
        acts
    }

    /// What may happen to a session that can be resumed.
    fn cuts_and_reports(&self, n: usize, acts: &mut Vec<Act>) {
        let (offer, budget) = (&self.offers[n], &self.budget);
        let runs = offer.step == Step::Open && offer.inits > 0;
        if budget.losses > 0 && offer.step == Step::Told {
            acts.push(Act::OpenCut(n));
        }
        if budget.losses > 0 && offer.stream.is_some() {
            acts.extend([Act::Cut(n), Act::Resume(n)]);
        }
        if runs && offer.stream.is_none() {
            acts.push(Act::Finish(n));
        }
        if runs && budget.reports > 0 {
            acts.push(Act::Report(n));
            if budget.losses > 0 && offer.stream.is_some() {
                acts.push(Act::ReportCut(n));
            }
        }
        if budget.strays > 0 && offer.opened > 0 {
            acts.push(Act::Late(n));
        }
    }

    /// Something happens, and what holds is checked.
    fn act(&mut self, act: Act) {
        self.happens(act);
        self.check();
    }

    fn happens(&mut self, act: Act) {
        match act {
            Act::Accept(agent, n) => self.accept(agent, n),
            Act::Refuse(n) => {
                self.offers[n].step = Step::Past;
                let listen = self.listens[self.offers[n].agent].unwrap();
                self.rig
                    .answer(listen, &self.offers[n].session.clone(), false);
            }
            Act::Open(n) => self.open(n),
            Act::Break(n) => {
                self.budget.losses -= 1;
                self.offers[n].step = Step::Past;
                let stream = self.offers[n].stream.take().unwrap();
                self.rig.reset(stream);
            }
            Act::Leave(agent) => {
                self.budget.losses -= 1;
                let listen = self.listens[agent].take().unwrap();
                self.rig.reset(listen);
            }
            Act::Return(agent) => self.come_back(agent),
            Act::Join(agent) => self.join(agent),
            Act::Tick => {
                self.budget.ticks = self.budget.ticks.saturating_sub(1);
                let next = self.rig.hub.poll_timeout().unwrap();
                let span = next.saturating_since(self.rig.now.mono);
                self.rig.pass(span);
            }
            _ => self.act_in_session(act),
        }
        self.hear();
    }

    /// What can happen to a session whose stream was opened.
    fn act_in_session(&mut self, act: Act) {
        match act {
            Act::OpenCut(n) => {
                self.open(n);
                let opened = self.offers[n].stream;
                let came = |output: &Output| !matches!(output, Output::Send { stream, .. } if Some(*stream) == opened);
                self.rig.said.retain(came);
                self.cut(n);
            }
            Act::Report(n) => {
                self.budget.reports -= 1;
                self.report(n);
            }
            Act::ReportCut(n) => {
                self.budget.reports -= 1;
                self.offers[n].made += 1;
                self.cut(n);
            }
            Act::Finish(n) => {
                self.offers[n].step = Step::Finished;
                self.offers[n].has_result = true;
                self.report(n);
            }
            Act::Close(n) => {
                let stream = self.offers[n].stream.unwrap();
                self.rig.half_close(stream);
            }
            Act::Cut(n) => self.cut(n),
            Act::Resume(n) => self.resume(n),
            Act::Late(n) => {
                self.budget.strays -= 1;
                let session = self.offers[n].session.clone();
                let resume = Some(Resume::Reports(self.offers[n].opened));
                let late = self.rig.open_as(Rpc::Execute, Some(&session), resume);
                let found = self.rig.hub.sessions.named(&session);
                let current = found.and_then(|found| found.stage.stream());
                assert_ne!(
                    current,
                    Some(late),
                    "what was opened before takes nothing over"
                );
            }
            other => panic!("{other:?} is of no session"),
        }
    }

    fn accept(&mut self, agent: usize, n: usize) {
        let offer = &mut self.offers[n];
        if agent == offer.agent && offer.step == Step::Asked {
            offer.step = Step::Accepted;
        } else {
            self.budget.strays -= 1;
        }
        let (listen, session) = (self.listens[agent].unwrap(), offer.session.clone());
        self.rig.answer(listen, &session, true);
    }

    fn open(&mut self, n: usize) {
        let session = self.offers[n].session.clone();
        let resume = self.resumes.then_some(Resume::Job(1));
        let stream = self.rig.open_as(Rpc::Execute, Some(&session), resume);
        let found = self.rig.hub.sessions.named(&session);
        let is_stray = self.offers[n].step != Step::Told;
        if is_stray {
            self.budget.strays -= 1;
        }
        // An agent that forgot a session while it was away may still open it: the hub has not forgotten.
        let is_open = found.is_some_and(|found| found.stage.stream() == Some(stream));
        if !is_stray || is_open {
            self.offers[n].stream = Some(stream);
            self.offers[n].opened = 1;
            self.offers[n].step = Step::Open;
            // That it is there, before it has the job.
            if self.resumes && self.offers[n].made == 0 {
                self.report(n);
            }
        }
    }

    fn cut(&mut self, n: usize) {
        self.budget.losses -= 1;
        let stream = self.offers[n].stream.take().unwrap();
        self.rig.lose(stream);
    }

    /// Makes the next report; without a stream it waits for one.
    fn report(&mut self, n: usize) {
        let offer = &mut self.offers[n];
        offer.made += 1;
        let number = offer.made;
        if self.offers[n].stream.is_some() {
            self.send_report(n, number);
        }
    }

    fn send_report(&mut self, n: usize, number: u64) {
        let offer = &self.offers[n];
        let stream = offer.stream.unwrap();
        let is_result = offer.has_result && number == offer.made;
        self.rig.number = self.resumes.then_some(number);
        let words = number.to_string();
        self.rig.say(
            stream,
            match is_result {
                true => test_response::Event::Result(TestResult::completed(words)),
                false => test_response::Event::Telemetry(Telemetry::new(Severity::Info, words)),
            },
        );
    }

    /// The stream is opened again, and what the agent does not know to have come is sent again.
    fn resume(&mut self, n: usize) {
        let offer = &mut self.offers[n];
        if offer.stream.is_some() {
            self.budget.losses -= 1;
        }
        offer.opened += 1;
        let resume = match offer.inits {
            0 => Resume::Job(offer.opened),
            _ => Resume::Reports(offer.opened),
        };
        let (session, kept) = (offer.session.clone(), offer.acknowledged + 1..=offer.made);
        let stream = self.rig.open_as(Rpc::Execute, Some(&session), Some(resume));
        self.offers[n].stream = Some(stream);
        kept.for_each(|number| self.send_report(n, number));
    }

    /// The agent listens again, by its old id; if the hub has forgotten it, as somebody new after that.
    fn come_back(&mut self, agent: usize) {
        if self.listens[agent].is_some() {
            self.budget.losses -= 1;
        }
        let id = self.ids[agent].clone().unwrap();
        self.listens[agent] = Some(StreamId(self.rig.streams + 1));
        self.rig.open(Rpc::Listen, Some(&id));
    }

    /// An agent that is away registers anew and forgets its offers; running sessions go on.
    fn join(&mut self, agent: usize) {
        for offer in self.offers.iter_mut().filter(|offer| offer.agent == agent) {
            if matches!(offer.step, Step::Asked | Step::Accepted | Step::Told) {
                offer.step = Step::Past;
            }
        }
        let capabilities = vec![Skill::test("t").into()];
        let registration = AgentRegistration {
            display_name: agent.to_string(),
            capabilities,
        };
        let answer = self.rig.hub.register(self.rig.now, registration);
        let id = answer.unwrap().client_id;
        // Offers come at once, and must be attributed to this agent.
        self.listens[agent] = Some(StreamId(self.rig.streams + 1));
        self.rig.open(Rpc::Listen, Some(&id));
        self.ids[agent] = Some(id);
    }

    /// Takes the hub's outputs, and compares them with those that are allowed.
    fn hear(&mut self) {
        let mut offered = None;
        for output in self.rig.take() {
            match output {
                Output::Event(Event::Job { job, event }) => {
                    let job = self.jobs.iter().position(|id| *id == job).unwrap();
                    assert!(!self.ended[job], "news after the end: {event:?}");
                    match event {
                        JobEvent::Offered { .. } => offered = Some(job),
                        JobEvent::Ready { session } => {
                            let n = self.named(session.as_str());
                            assert_eq!(self.assigned[job].replace(n), None, "assigned twice");
                        }
                        JobEvent::Requeued { .. } => {
                            assert!(self.assigned[job].take().is_some());
                        }
                        JobEvent::Telemetry { telemetry, .. } => {
                            self.tell(job, &telemetry.message);
                        }
                        JobEvent::Ended(outcome) => {
                            if self.resumes && outcome.result.is_some() {
                                self.tell(job, &outcome.message);
                            }
                            self.ended[job] = true;
                            self.assigned[job] = None;
                        }
                        _ => {}
                    }
                }
                Output::Send { stream, message } => self.told(stream, message, offered),
                Output::End { stream, .. } => self.closed(stream),
                _ => {}
            }
        }
    }

    /// The caller is told a report of a job's session.
    fn tell(&mut self, job: usize, number: &str) {
        let offer = &mut self.offers[self.assigned[job].unwrap()];
        offer.told += 1;
        assert_eq!(number, offer.told.to_string(), "each report once, in order");
    }

    fn named(&self, session: &str) -> usize {
        let is = |offer: &Offer| offer.session == session;
        self.offers.iter().position(is).unwrap()
    }

    fn told(&mut self, stream: StreamId, message: Outbound, offered: Option<usize>) {
        let is_of = |offer: &&mut Offer| offer.stream == Some(stream);
        if let Outbound::Test(init) = &message
            && let Some(number) = init.acknowledged
            && let Some(offer) = self.offers.iter_mut().find(is_of)
        {
            assert!(number <= offer.made, "it has what was made");
            offer.acknowledged = number;
        }
        if matches!(&message, Outbound::Test(init) if init.test_type.is_empty()) {
            return;
        }
        let Outbound::Listen(message) = message else {
            // A stream that was opened twice gets no message, so this is the right one.
            return match self.offers.iter_mut().find(is_of) {
                Some(offer) => {
                    offer.inits += 1;
                    assert_eq!(offer.inits, 1, "the job is sent once");
                }
                None => {
                    let mut told = self.offers.iter_mut();
                    let offer = told.find(|offer| offer.step == Step::Told).unwrap();
                    offer.inits += 1;
                }
            };
        };
        let agent = self
            .listens
            .iter()
            .position(|listen| *listen == Some(stream));
        let agent = agent.expect("nothing is said to who does not listen");
        match message.event.unwrap() {
            listen_response::Event::SessionProposal(proposal) => {
                self.proposed(agent, proposal.session_id, offered);
            }
            listen_response::Event::SessionReady(ready) => {
                let n = self.named(&ready.session_id);
                let offer = &mut self.offers[n];
                let may_be_told = matches!(offer.step, Step::Accepted | Step::Told);
                assert!(offer.agent == agent && may_be_told, "{offer:?}");
                offer.step = Step::Told;
            }
        }
    }

    /// An agent is asked, or asked again on another control stream.
    fn proposed(&mut self, agent: usize, session: String, offered: Option<usize>) {
        if let Some(again) = self.offers.iter().find(|offer| offer.session == session) {
            assert_eq!((again.agent, again.step), (agent, Step::Asked));
            return;
        }
        self.offers.push(Offer {
            session,
            agent,
            job: offered.unwrap(),
            step: Step::Asked,
            stream: None,
            opened: 0,
            inits: 0,
            made: 0,
            acknowledged: 0,
            told: 0,
            has_result: false,
        });
    }

    fn closed(&mut self, stream: StreamId) {
        for (listen, id) in self.listens.iter_mut().zip(&mut self.ids) {
            if *listen == Some(stream) {
                // The hub does not know it any more.
                (*listen, *id) = (None, None);
            }
        }
        for offer in &mut self.offers {
            if offer.stream == Some(stream) {
                (offer.stream, offer.step) = (None, Step::Past);
            }
        }
    }

    /// What holds in every state.
    fn check(&self) {
        let hub = &self.rig.hub;
        for (n, job) in self.jobs.iter().enumerate() {
            let here = hub.queue.get(*job);
            assert_eq!(
                here.is_none(),
                self.ended[n],
                "a job that has not ended is here"
            );
            if let Some(session) = here.and_then(queue::Entry::session) {
                let found = hub.sessions.get(session).unwrap();
                assert_eq!(found.job, *job);
            }
        }
        let mut live = [0; JOBS];
        for id in hub
            .sessions
            .in_stage(|stage| !matches!(stage, Stage::Over { .. }))
        {
            let found = hub.sessions.get(id).unwrap();
            live[self.jobs.iter().position(|job| *job == found.job).unwrap()] += 1;
            let agent = hub.fleet.get(found.agent.as_str()).unwrap();
            assert!(agent.sessions.contains(&id), "both tables know of it");
        }
        assert!(
            live.iter().all(|count| *count <= 1),
            "a job is with one agent at a time"
        );
        let load: usize = hub.view().agents().map(|agent| agent.load).sum();
        assert_eq!(load, live.iter().sum::<usize>());
    }

    /// Has everybody behave until nothing is left to do.
    fn finish(&mut self) {
        self.budget = Budget {
            losses: 0,
            strays: 0,
            ticks: 0,
            reports: 0,
        };
        for _ in 0..200 {
            let mut acts = self.acts();
            // The agent accepts.
            acts.retain(|act| !matches!(act, Act::Refuse(_)));
            match acts.first() {
                Some(act) => self.act(*act),
                None if self.rig.hub.sessions.is_empty() && self.ended == [true; JOBS] => break,
                None => self.act(Act::Tick),
            }
        }
        let counts = self.rig.hub.view().counts();
        let left = (counts.jobs, counts.sessions, counts.payload_bytes);
        assert_eq!(left, (0, 0, 0), "both sides agree at rest");
        assert!(self.offers.iter().all(|offer| offer.stream.is_none()));
        assert_eq!(self.ended, [true; JOBS], "no job is lost");
    }

    /// The timers, by what they are about: an agent and its room, a job, or an offer.
    fn timers(&self) -> Vec<(Duration, About<'_>)> {
        let hub = &self.rig.hub;
        let agent_of = |id: &ClientId| hub.fleet.get(id.as_str());
        let name_of = |id: &ClientId| agent_of(id).map(|agent| agent.name.as_str());
        let number_of = |job: &JobId| self.jobs.iter().position(|id| id == job);
        let about = |timer: &Timer| match timer {
            Timer::Unheard(agent) => About::Agent("unheard", name_of(agent), None),
            Timer::Cool(agent) => {
                let room = agent_of(agent).map(|agent| agent.room);
                About::Agent("cool", name_of(agent), room)
            }
            Timer::Session(id) => {
                let id = &hub.sessions.get(*id).unwrap().id;
                let offer = &self.offers[self.named(id.as_str())];
                About::Offer(offer.agent, offer.job, offer.step)
            }
            Timer::Retry(job) => About::Job("retry", number_of(job)),
            Timer::Wait(job) | Timer::Limit(job) => About::Job("wait", number_of(job)),
            Timer::Fewer => About::Hub("fewer"),
            Timer::Drain => About::Hub("drain"),
            Timer::Store => About::Hub("store"),
        };
        let timers = hub.timers.iter();
        timers
            .map(|(at, timer)| (at.saturating_since(self.rig.now.mono), about(timer)))
            .collect()
    }

    /// How far the reports of an offer are, on both sides.
    fn progress(&self, offer: &Offer) -> (usize, [u64; 4], bool) {
        let session = self.rig.hub.sessions.named(&offer.session);
        let received = session.and_then(|session| session.reports);
        let received = received.map_or(0, |reports| reports.received);
        let numbers = [offer.made, offer.acknowledged, offer.told, received];
        (offer.inits, numbers, offer.has_result)
    }

    /// The state, whatever its ids are and however it was reached.
    fn fingerprint(&self) -> u64 {
        let hub = &self.rig.hub;
        let mut hasher = DefaultHasher::new();
        let next = hub.fleet.first_free(&Skill::test("t"));
        let agent_of = |id: &ClientId| hub.fleet.get(id.as_str()).map(|agent| agent.name.as_str());
        for (n, id) in self.jobs.iter().enumerate() {
            let Some(entry) = hub.queue.get(*id) else {
                (n, "ended").hash(&mut hasher);
                continue;
            };
            let refused: std::collections::BTreeSet<_> =
                entry.refused.iter().map(agent_of).collect();
            let session = entry.session().and_then(|key| hub.sessions.get(key));
            let session = session.map(|session| self.named(session.id.as_str()));
            let offer = session.map(|n| self.offers[n].agent);
            (n, refused, entry.rounds, entry.attempts, offer).hash(&mut hasher);
        }
        // Offers that are past are alike but for whose they were and whether the hub knows them.
        let mut offers: Vec<_> = self
            .offers
            .iter()
            .map(|offer| {
                let session = hub.sessions.named(&offer.session);
                let stage = session.map(|found| match found.stage {
                    Stage::Proposed => 0,
                    Stage::Preparing => 1,
                    Stage::Ready => 2,
                    Stage::Open { .. } => 3,
                    Stage::Over { .. } => 4,
                });
                (
                    offer.agent,
                    offer.job,
                    offer.step,
                    stage,
                    offer.stream.is_some(),
                    self.progress(offer),
                )
            })
            .collect();
        offers.sort_unstable();
        offers.dedup();
        offers.hash(&mut hasher);
        let mut timers = self.timers();
        timers.sort_unstable();
        (
            timers,
            self.listens.map(|listen| listen.is_some()),
            self.ids
                .each_ref()
                .map(|id| id.as_ref().map(|id| hub.fleet.get(id).is_some())),
            self.budget,
        )
            .hash(&mut hasher);
        next.and_then(agent_of).hash(&mut hasher);
        hasher.finish()
    }
}

/// Explores everything; gives how many states there are.
fn explore(config: &dyn Fn() -> Config, budget: Budget) -> usize {
    let mut seen = HashSet::new();
    let mut open = VecDeque::new();
    let mut reach = |path: Vec<Act>, mut model: Model, open: &mut VecDeque<_>| {
        if seen.insert(model.fingerprint()) {
            open.push_back((path, model.acts()));
            model.finish();
        }
        seen.len()
    };
    let mut states = reach(Vec::new(), Model::new(config(), budget), &mut open);
    while let Some((path, acts)) = open.pop_front() {
        for act in acts {
            let model = Model::replay(config, budget, &path, act);
            let path = path.iter().copied().chain([act]).collect();
            states = reach(path, model, &mut open);
        }
    }
    states
}

// spec: HUB-3-3, HUB-3-4, HUB-3-5, HUB-5-1
#[test]
fn no_order_of_events_loses_a_job_or_assigns_it_twice() {
    let config = || Config::default().with_max_sessions_per_agent(1);
    let states = [(1, 0, 1), (0, 1, 1), (0, 0, 2)].map(|(losses, strays, ticks)| {
        let budget = Budget {
            losses,
            strays,
            ticks,
            reports: 0,
        };
        explore(&config, budget)
    });
    assert!(states.iter().all(|count| *count > 100), "{states:?}");
}

// spec: HUB-3-4, HUB-5-1
#[test]
fn no_order_of_events_does_where_jobs_are_begun_again() {
    let config = || {
        Config::default()
            .with_max_attempts(2)
            .with_max_sessions_per_agent(1)
    };
    let budget = Budget {
        losses: 1,
        strays: 1,
        ticks: 0,
        reports: 0,
    };
    let states = explore(&config, budget);
    assert!(states > 1000, "{states}");
}

// spec: HUB-5-4
#[test]
fn no_order_of_cuts_loses_a_job_or_a_report_or_tells_one_twice() {
    let config = || {
        Config::default()
            .with_resume_grace(Duration::from_secs(60))
            .with_max_sessions_per_agent(1)
    };
    let budgets = [(2, 0, 0, 0), (1, 0, 0, 2), (1, 0, 1, 0), (1, 1, 0, 0)];
    let states = budgets.map(|(losses, strays, ticks, reports)| {
        let budget = Budget {
            losses,
            strays,
            ticks,
            reports,
        };
        explore(&config, budget)
    });
    assert!(states.iter().all(|count| *count > 500), "{states:?}");
}
