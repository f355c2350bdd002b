//! Placements of the caller's.

use super::*;

/// A group's jobs on one agent, and agents of odd names first for tests of type `odd`.
#[derive(Debug)]
struct Grouped;

impl Placement for Grouped {
    fn rank(&self, agent: &Candidate<'_>, skill: &Skill) -> [u64; 2] {
        let is_odd = agent.name.len() % 2 == 1;
        let is_wanted = is_odd == (skill.name() == "odd");
        [u64::from(!is_wanted), agent.load as u64]
    }

    fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        job.group.as_deref()
    }
}

fn rig() -> Rig {
    Rig::with(
        Config::default()
            .with_placement(Grouped)
            .with_max_sessions_per_agent(2),
    )
}

fn agent(rig: &mut Rig, name: &str) -> StreamId {
    let registration = AgentRegistration {
        display_name: name.into(),
        capabilities: vec![Skill::test("t").into(), Skill::test("odd").into()],
    };
    let agent = rig.hub.register(rig.now, registration).unwrap().client_id;
    rig.open(Rpc::Listen, Some(&agent))
}

/// The agent that is asked for a job, and the session.
fn asked(rig: &mut Rig, job: Job) -> (StreamId, String) {
    rig.take();
    rig.hub.submit(rig.now, job).unwrap();
    rig.proposals().pop().unwrap()
}

fn grouped() -> Job {
    Job::test("t", vec![]).with_group("g")
}

// spec: HUB-3-6
#[test]
fn a_rank_may_depend_on_the_skill() {
    let mut rig = rig();
    let (odd, even) = (agent(&mut rig, "a"), agent(&mut rig, "bb"));
    assert_eq!(asked(&mut rig, Job::test("t", vec![])).0, even);
    assert_eq!(asked(&mut rig, Job::test("odd", vec![])).0, odd);
    assert_eq!(asked(&mut rig, Job::test("t", vec![])).0, even);
    assert_eq!(
        asked(&mut rig, Job::test("t", vec![])).0,
        odd,
        "the other is full"
    );
}

// spec: HUB-3-6
#[test]
fn jobs_of_one_key_go_to_one_agent() {
    let mut rig = rig();
    let (first, second) = (agent(&mut rig, "bb"), agent(&mut rig, "cc"));
    let (home, session) = asked(&mut rig, grouped());
    assert_eq!(home, first);
    rig.answer(home, &session, true);
    let (again, session) = asked(&mut rig, grouped());
    assert_eq!(again, first, "although the other has less to do");
    assert_eq!(asked(&mut rig, Job::test("t", vec![])).0, second);
    // The home is full. What the other accepts makes it the new home.
    rig.answer(home, &session, true);
    let (other, session) = asked(&mut rig, grouped());
    assert_eq!(other, second);
    rig.answer(other, &session, true);
    let running = rig.open(Rpc::Execute, Some(&session));
    rig.result(running, State::Completed);
    rig.half_close(running);
    assert_eq!(asked(&mut rig, grouped()).0, second);
}

/// Jobs of one label on one agent.
#[derive(Debug)]
struct Labelled;

impl Placement for Labelled {
    fn rank(&self, agent: &Candidate<'_>, _: &Skill) -> [u64; 2] {
        [agent.load as u64, 0]
    }

    fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        job.label.as_deref()
    }
}

// spec: HUB-3-6
#[test]
fn the_key_of_a_job_may_be_its_label() {
    let mut rig = Rig::with(Config::default().with_placement(Labelled));
    let (first, second) = (agent(&mut rig, "a"), agent(&mut rig, "b"));
    let labelled = |label: &str| Job::test("t", vec![]).with_label(label);
    let (home, session) = asked(&mut rig, labelled("x"));
    assert_eq!(home, first);
    rig.answer(home, &session, true);
    assert_eq!(
        asked(&mut rig, labelled("y")).0,
        second,
        "it has less to do"
    );
    assert_eq!(
        asked(&mut rig, labelled("y")).0,
        first,
        "nobody accepted one"
    );
    assert_eq!(
        asked(&mut rig, labelled("x")).0,
        first,
        "although it has more"
    );
}

// spec: HUB-3-2
#[test]
fn a_home_that_cannot_take_the_job_is_passed_over() {
    let mut rig = rig();
    let (first, second) = (agent(&mut rig, "bb"), agent(&mut rig, "cc"));
    let (home, session) = asked(&mut rig, grouped());
    rig.answer(home, &session, true);
    let only = rig.register(vec![Skill::test("only").into()]);
    let only = rig.open(Rpc::Listen, Some(&only));
    let job = Job::test("only", vec![]).with_group("g");
    assert_eq!(asked(&mut rig, job).0, only, "the home has not the skill");
    rig.half_close(first);
    assert_eq!(asked(&mut rig, grouped()).0, second, "the home is gone");
}

/// A placement with a fault for some agents and some jobs.
#[derive(Debug)]
struct Faulty;

impl Placement for Faulty {
    fn rank(&self, agent: &Candidate<'_>, _: &Skill) -> [u64; 2] {
        assert_ne!(agent.name, "bad");
        [agent.load as u64, 0]
    }

    fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        assert_ne!(job.group.as_deref(), Some("bad"));
        job.group.as_deref()
    }
}

// spec: HUB-3-6
#[test]
fn a_placement_that_panics_ranks_its_agent_last_and_the_hub_goes_on() {
    let config = Config::default().with_placement(Faulty);
    let mut rig = Rig::with(config.with_max_sessions_per_agent(2));
    let (bad, good) = (agent(&mut rig, "bad"), agent(&mut rig, "good"));
    let job = || Job::test("t", vec![]);
    assert_eq!(asked(&mut rig, job()).0, good);
    let (home, session) = asked(&mut rig, job().with_group("bad"));
    assert_eq!(home, good, "it is placed without a key");
    rig.answer(home, &session, true);
    let (last, session) = asked(&mut rig, job().with_group("g"));
    assert_eq!(last, bad, "it is asked when no other has room");
    rig.answer(last, &session, true);
    let running = rig.open(Rpc::Execute, Some(&session));
    rig.result(running, State::Completed);
    rig.half_close(running);
    assert_eq!(
        asked(&mut rig, job().with_group("g")).0,
        bad,
        "its key holds"
    );
}
