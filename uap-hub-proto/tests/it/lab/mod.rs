//! A hub and its fleet in the lab: connections that break, agents that leave, and a hub that crashes.

mod wiring;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use uap_hub_proto::{
    capability::Skill,
    id::JobId,
    role::{
        agent::{self, FleetAgent},
        hub::{self, Hub, JobEvent, Outcome, Record, Verdict},
    },
};
use ubos_common::{
    id::IdSource,
    testing::{CrashPoint, Faults, Lab, LinkKind, NodeId},
};

use self::wiring::{AgentWiring, Event, HubWiring, Kept, LINES, Running, SharedWires, Wires, job};

/// Steps of the lab in one run; more means that something goes round in circles.
const MAX_STEPS: usize = 50_000;

struct Fleet {
    lab: Lab<Event>,
    hub: NodeId<Hub>,
    agents: Vec<NodeId<FleetAgent>>,
    wires: SharedWires,
    faults: Faults,
    jobs: Vec<JobId>,
    running: Running,
    steps: usize,
}

impl Fleet {
    fn new(
        seed: u64,
        agents: usize,
        config: &hub::Config,
        kept: Option<Rc<RefCell<Kept>>>,
        crash: &CrashPoint,
    ) -> Self {
        Self::with(seed, agents, config, kept, crash, false)
    }

    /// As [`new`](Self::new); with `resume` all agents do that, and not every second.
    fn with(
        seed: u64,
        agents: usize,
        config: &hub::Config,
        kept: Option<Rc<RefCell<Kept>>>,
        crash: &CrashPoint,
        resume: bool,
    ) -> Self {
        let wires = Rc::new(RefCell::new(Wires::default()));
        wires.borrow_mut().links = vec![[None; 2]; agents];
        let mut lab = Lab::new(seed);
        let hub = Hub::new(config.clone(), IdSource::seeded(seed)).unwrap();
        let world = HubWiring::new(wires.clone(), config.clone(), kept, crash.clone());
        let hub = lab.add(hub, world);
        let running = Running::default();
        let agents = (0..agents).map(|number| {
            let config = agent::Config::default()
                .with_capabilities(vec![Skill::test("t").into()])
                .with_max_sessions(3)
                .with_resume(resume || number % 2 == 1)
                .with_longest_retry(Duration::from_secs(2))
                .with_resume_limit(Duration::from_secs(86_400));
            let draw = seed * 10 + number as u64;
            let mut agent = FleetAgent::new(config, IdSource::seeded(draw)).unwrap();
            agent.start(lab.now());
            let world = AgentWiring::new(wires.clone(), number, running.clone(), draw);
            lab.add(agent, world)
        });
        let agents = agents.collect();
        let latency = Duration::ZERO..=Duration::from_millis(50);
        Self {
            lab,
            hub,
            agents,
            wires,
            faults: Faults::none().with_latency(latency).with_sever(20),
            jobs: Vec::new(),
            running,
            steps: 0,
        }
    }

    /// Connects whatever is not connected; a hub that is down cannot be reached.
    fn connect(&mut self) {
        if !self.lab.is_up(self.hub) {
            return;
        }
        let mut wires = self.wires.borrow_mut();
        for (links, agent) in wires.links.iter_mut().zip(&self.agents) {
            for link in links.iter_mut().filter(|link| link.is_none()) {
                let faults = self.faults.clone();
                *link = Some(
                    self.lab
                        .connect(self.hub, *agent, LinkKind::Messages, faults),
                );
            }
        }
    }

    /// Lets one thing happen; false at rest.
    fn step(&mut self) -> bool {
        self.connect();
        self.steps += 1;
        assert!(self.steps < MAX_STEPS, "the lab comes to no rest");
        self.lab.step().is_some()
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.lab.now().mono.saturating_add(span);
        while self.lab.now().mono < end && self.step() {}
    }

    fn submit(&mut self) -> JobId {
        let job = self.lab.with(self.hub, |hub, now| hub.submit(now, job()));
        let job = job.unwrap();
        self.jobs.push(job);
        job
    }

    /// The end of each job, after the lab has come to rest: exactly one, and no event after it.
    fn ends(&mut self) -> BTreeMap<JobId, Outcome> {
        while self.step() {}
        let mut ends = BTreeMap::new();
        for (_, _, (job, event)) in self.lab.events() {
            assert!(!ends.contains_key(job), "{event:?} after the end of {job}");
            if let JobEvent::Ended(outcome) = event {
                ends.insert(*job, outcome.clone());
            }
        }
        for job in &self.jobs {
            assert!(ends.contains_key(job), "{job} has no end");
        }
        assert_eq!(ends.len(), self.jobs.len());
        let hub = self.lab.machine(self.hub);
        assert_eq!(
            (hub.view().counts().jobs, hub.view().counts().sessions),
            (0, 0)
        );
        assert!(hub.view().agents().all(|agent| agent.load == 0));
        assert!(self.running.borrow().is_empty(), "a handler still runs");
        ends
    }

    /// How often an agent was sent the job.
    fn starts(&self, job: JobId) -> usize {
        let events = self.lab.events().iter().map(|(_, _, event)| event);
        let started =
            |(of, event): &&Event| *of == job && matches!(event, JobEvent::Started { .. });
        events.filter(started).count()
    }
}

// spec: HUB-3-4, HUB-5-1, HUB-5-4
#[test]
fn every_job_ends_once_over_connections_that_break() {
    let mut requeued = 0;
    for seed in 0..60 {
        let attempts = if seed % 2 == 0 { 1 } else { 1000 };
        let config = hub::Config::default()
            .with_max_attempts(attempts)
            .with_resume_grace(Duration::from_secs(seed % 3 * 2));
        let mut fleet = Fleet::new(seed, 3, &config, None, &CrashPoint::never());
        let jobs: Vec<_> = (0..12).map(|_| fleet.submit()).collect();
        let ends = fleet.ends();
        for job in jobs {
            let starts = fleet.starts(job);
            requeued += starts.saturating_sub(1);
            match ends[&job].verdict {
                Verdict::Completed => assert!(starts >= 1),
                Verdict::Failed => assert!(attempts == 1, "{:?}", ends[&job]),
                other => panic!("{seed}: {other:?}"),
            }
            assert!(
                starts <= attempts as usize,
                "{seed}: {job} has {starts} starts"
            );
        }
    }
    assert!(requeued > 50, "{requeued}");
}

/// A fleet whose sessions outlive cuts: three agents and as many jobs as they can run at once.
fn resuming(seed: u64, faults: Faults) -> Fleet {
    let config = hub::Config::default().with_resume_grace(Duration::from_secs(86_400));
    let mut fleet = Fleet::with(seed, 3, &config, None, &CrashPoint::never(), true);
    fleet.faults = faults.with_latency(Duration::ZERO..=Duration::from_millis(50));
    for _ in 0..9 {
        fleet.submit();
    }
    fleet
}

/// Checks that each job was started once and completed, and that each of its lines came once, in order. Returns how
/// often sessions were cut.
fn check_resumed(fleet: &mut Fleet) -> usize {
    let ends = fleet.ends();
    let events: Vec<_> = fleet.lab.events().iter().map(|(_, _, it)| it).collect();
    for job in &fleet.jobs {
        assert_eq!(ends[job].verdict, Verdict::Completed, "{:?}", ends[job]);
        assert_eq!(fleet.starts(*job), 1);
        let own = events.iter().filter(|(of, _)| of == job);
        let lines = own.filter_map(|(_, event)| match event {
            JobEvent::Telemetry { telemetry, .. } => Some(telemetry.message.clone()),
            _ => None,
        });
        let wanted: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
        assert_eq!(lines.collect::<Vec<_>>(), wanted);
    }
    let cuts = events
        .iter()
        .filter(|(_, event)| matches!(event, JobEvent::Cut { .. }));
    cuts.count()
}

// spec: HUB-5-4
#[test]
fn a_session_outlives_a_cut_at_any_step() {
    let mut cuts = 0;
    for step in 0.. {
        let mut fleet = resuming(7, Faults::none());
        let has_more = (0..step).all(|_| fleet.step());
        let links: Vec<_> = fleet
            .wires
            .borrow()
            .links
            .iter()
            .flatten()
            .flatten()
            .copied()
            .collect();
        links.into_iter().for_each(|link| fleet.lab.sever(link));
        cuts += check_resumed(&mut fleet);
        if !has_more {
            break;
        }
    }
    assert!(cuts > 500, "{cuts}");
}

// spec: HUB-5-4
#[test]
fn sessions_outlive_cuts_without_end() {
    let mut cuts = 0;
    for seed in 0..200 {
        let often = u16::try_from(10 + seed % 3 * 20).unwrap();
        cuts += check_resumed(&mut resuming(seed, Faults::none().with_sever(often)));
    }
    assert!(cuts > 1000, "{cuts}");
}

// spec: HUB-5-3
#[test]
fn an_agent_that_leaves_ends_its_sessions_first() {
    for seed in 0..40 {
        let config = hub::Config::default().with_max_attempts(1000);
        let mut fleet = Fleet::new(seed, 3, &config, None, &CrashPoint::never());
        for _ in 0..12 {
            fleet.submit();
        }
        fleet.run_for(Duration::from_millis(seed * 60));
        let leaving = fleet.agents[0];
        let drain = Duration::from_secs(5);
        fleet
            .lab
            .with(leaving, |agent, now| agent.shutdown(now, drain));
        let ends = fleet.ends();
        assert!(ends.values().all(|end| end.verdict == Verdict::Completed));
        assert!(fleet.lab.machine(leaving).is_closed());
        assert_eq!(fleet.lab.machine(fleet.hub).view().agents().count(), 2);
    }
}

// spec: HUB-6-1
#[test]
fn every_job_of_a_durable_hub_ends_once_for_every_crash() {
    let mut crashes = 0;
    for seed in 0..8 {
        CrashPoint::at_each(|crash| {
            let kept = Rc::new(RefCell::new(Kept::default()));
            let config = hub::Config::default()
                .with_durable(true)
                .with_max_attempts(1000);
            let mut fleet = Fleet::new(seed, 2, &config, Some(kept.clone()), crash);
            let ids = &mut IdSource::seeded(seed + 100);
            fleet.jobs = (0..4).map(|_| ids.next_id()).collect();
            let cancelled = fleet.jobs[3];
            let cancel_at = fleet.lab.now().mono.saturating_add(Duration::from_secs(1));
            loop {
                submit_unstored(&mut fleet, &kept);
                if !fleet.step() {
                    break;
                }
                if fleet.lab.now().mono >= cancel_at && fleet.lab.is_up(fleet.hub) {
                    // The job may be over, or not stored yet.
                    let _ = fleet
                        .lab
                        .with(fleet.hub, |hub, now| hub.cancel(now, cancelled));
                }
            }
            let ends = fleet.ends();
            for (job, outcome) in &ends {
                let stored = &kept.borrow().records[job];
                assert!(matches!(
                    &stored[..],
                    [Record::Accepted(_), Record::Ended(_)]
                ));
                assert!(
                    outcome.verdict == Verdict::Completed
                        || *job == cancelled && outcome.verdict == Verdict::Cancelled,
                    "{seed}: {outcome:?}"
                );
            }
            crashes += kept.borrow().lives;
        });
    }
    // Four jobs, two records each, a crash before and after each.
    assert_eq!(crashes, 8 * 16);
}

/// The caller submits a job again until it knows that it is stored.
fn submit_unstored(fleet: &mut Fleet, kept: &Rc<RefCell<Kept>>) {
    for job in fleet.jobs.clone() {
        if !fleet.lab.is_up(fleet.hub) || kept.borrow().records.contains_key(&job) {
            continue;
        }
        fleet.lab.with(fleet.hub, |hub, now| {
            if hub.view().job(job).is_none() {
                hub.submit_as(now, job, wiring::job()).unwrap();
            }
        });
    }
}
