//! What placing a job costs: steps, not time. Requirements that are held against jobs, MIME types that are compared, agents
//! and ranks that are looked at.

use super::{
    super::{fleet::MAX_ASKED, placement::MAX_SEARCHED, shapes},
    *,
};
use crate::{
    capability::steps::{CHECKS, STEPS},
    wire::{Payload, PayloadRequirement, TestCapability, capability::Format},
};

/// A capability for tests `t` with payloads that may be there, each of some MIME types.
fn taking(payloads: &[(String, bool, Vec<String>)]) -> Capability {
    let requirement =
        |(kind, is_required, mime_types): &(String, bool, Vec<String>)| PayloadRequirement {
            r#type: kind.clone(),
            is_required: *is_required,
            is_repeatable: true,
            accepted_mime_types: mime_types.clone(),
        };
    let format = Some(Format::Test(TestCapability {
        r#type: "t".into(),
        payloads: payloads.iter().map(requirement).collect(),
    }));
    Capability { format }
}

/// A capability for tests `t` whose file is plain text, or of a type of its own.
fn takes(n: usize) -> Capability {
    let mime_types = vec![format!("application/x-{n}"), "Text/Plain; q=1".into()];
    taking(&[("script".into(), true, mime_types)])
}

/// As much as a registration may ask for: 256 payload types, most of them of many MIME types.
fn takes_much(n: usize) -> Capability {
    let mime_types = |kind: usize| (0..63).map(|m| format!("m/{n}-{kind}-{m}")).collect();
    let kinds = (0..255).map(|kind| (kind.to_string(), false, mime_types(kind)));
    let script = vec!["text/plain".into()];
    let own = std::iter::once(("script".to_owned(), false, script));
    taking(&kinds.chain(own).collect::<Vec<_>>())
}

fn script() -> Vec<Payload> {
    vec![Payload::file("script", "s", "text/plain", "x")]
}

/// A job of a shape that no other number has.
fn odd(n: usize) -> Vec<Payload> {
    vec![
        script().remove(0),
        Payload::file(format!("odd-{n}"), "o", format!("o/{n}"), "x"),
    ]
}

/// How often requirements were held against jobs, and all steps, while something was done.
fn cost<T>(what: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = (CHECKS.get(), STEPS.get());
    let made = what();
    (made, CHECKS.get() - before.0, STEPS.get() - before.1)
}

fn submit(rig: &mut Rig, payloads: Vec<Payload>) {
    rig.hub.submit(rig.now, Job::test("t", payloads)).unwrap();
    rig.drain();
}

fn checks_of(rig: &mut Rig, payloads: Vec<Payload>) -> usize {
    cost(|| submit(rig, payloads)).1
}

/// Many agents that listen, with room for as many jobs as it takes.
fn fleet(count: usize, capability: impl Fn(usize) -> Capability) -> Rig {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(1000));
    for n in 0..count {
        let agent = rig.register(vec![capability(n)]);
        rig.open(Rpc::Listen, Some(&agent));
    }
    rig
}

// spec: HUB-3-6
#[test]
fn different_agents_are_checked_once_a_kind_of_job() {
    let mut rig = fleet(100, takes);
    assert_eq!(checks_of(&mut rig, script()), 100);
    assert_eq!(checks_of(&mut rig, script()), 0, "they are ranked");
    assert_eq!(checks_of(&mut rig, vec![]), 100, "another kind of job");
    assert_eq!(checks_of(&mut rig, script()), 0);
    let busy = |rig: &Rig| {
        rig.hub
            .view()
            .agents()
            .filter(|agent| agent.load == 1)
            .count()
    };
    assert_eq!(busy(&rig), 3);
}

#[test]
fn an_agent_that_never_listened_costs_nothing() {
    let mut rig = Rig::new();
    for n in 0..100 {
        rig.register(vec![takes(n)]);
    }
    assert_eq!(checks_of(&mut rig, script()), 0);
    let (agent, checks, _) = cost(|| rig.register(vec![takes(100)]));
    assert_eq!(checks, 0);
    rig.open(Rpc::Listen, Some(&agent));
    assert_eq!(
        rig.hub.view().counts().waiting_jobs,
        0,
        "it is offered the job"
    );
}

// spec: HUB-3-6
#[test]
fn ten_thousand_different_agents_cost_a_job_a_look_at_some() {
    let count = 10_000;
    let mut config = Config::default().with_max_pending_agents(count);
    config = config.with_max_sessions_per_agent(1000);
    let mut rig = Rig::with(config);
    // Those in front of the last cannot do it.
    for n in 0..count {
        let kind = if n == count - 1 { "script" } else { "other" };
        let payloads = [(
            kind.to_owned(),
            true,
            vec![format!("m/{n}"), "text/plain".into()],
        )];
        let agent = rig.register(vec![taking(&payloads)]);
        rig.open(Rpc::Listen, Some(&agent));
    }
    let (_, checks, _) = cost(|| submit(&mut rig, script()));
    assert_eq!(checks, count);
    let (_, checks, steps) = cost(|| submit(&mut rig, script()));
    assert_eq!(checks, 0);
    assert!(steps < 500, "{steps}");
}

// spec: HUB-3-6
#[test]
fn requirements_beside_what_a_job_has_cost_it_nothing() {
    let mut rig = fleet(50, takes_much);
    let (_, checks, steps) = cost(|| submit(&mut rig, script()));
    assert_eq!(checks, 50);
    assert!(steps < 50 * 4, "{steps}");
    assert_eq!(rig.hub.view().counts().waiting_jobs, 0);
    // And they cost what waits nothing either.
    let ((), checks, steps) = cost(|| {
        let agent = rig.register(vec![takes_much(50)]);
        rig.open(Rpc::Listen, Some(&agent));
    });
    assert_eq!(checks, 1, "one shape is known");
    assert!(steps < 10, "{steps}");
}

// spec: HUB-3-6
#[test]
fn jobs_each_of_another_shape_cost_one_look_at_each_agent() {
    let agents = 50;
    let mut rig = fleet(agents, takes_much);
    for n in 0..shapes::MAX_SHAPES + 100 {
        let (_, checks, steps) = cost(|| submit(&mut rig, odd(n)));
        assert_eq!(checks, agents);
        assert!(steps < agents * 5, "{steps}");
    }
    assert_eq!(rig.hub.view().counts().waiting_jobs, 0);
    // Whoever comes now is held against the shapes that are kept, and against none that is gone.
    let (_, checks, _) = cost(|| {
        let agent = rig.register(vec![takes(0)]);
        rig.open(Rpc::Listen, Some(&agent));
    });
    assert_eq!(checks, shapes::MAX_SHAPES);
}

// spec: HUB-3-6
#[test]
fn jobs_that_wait_cost_nothing_while_nobody_has_room() {
    let mut rig = Rig::with(Config::default().with_max_sessions_per_agent(1));
    let agents: Vec<_> = (0..20)
        .map(|n| {
            let agent = rig.register(vec![takes(n)]);
            rig.open(Rpc::Listen, Some(&agent));
            submit(&mut rig, script());
            agent
        })
        .collect();
    let (_, checks, steps) = cost(|| (0..500).for_each(|n| submit(&mut rig, odd(n))));
    assert_eq!((checks, steps), (0, 0));
    // One that gets free looks at each line, once.
    let (job, _) = (rig.hub.view().jobs())
        .find_map(|job| {
            Some((
                job.id,
                job.agent.filter(|agent| agent.as_str() == agents[0])?,
            ))
        })
        .unwrap();
    let (_, checks, _) = cost(|| rig.hub.cancel(rig.now, job).unwrap());
    assert_eq!(checks, 500);
    assert_eq!(rig.hub.view().counts().waiting_jobs, 499);
}

// spec: HUB-3-6
#[test]
fn agents_that_come_and_go_in_turn_cost_others_nothing() {
    let mut rig = fleet(500, takes);
    let shapes = 100;
    (0..shapes).for_each(|n| submit(&mut rig, odd(n)));
    for n in 0..500 {
        // Each takes some of what the others take.
        let mime_types = (0..shapes).filter(|shape| (shape + n) % 3 == 0);
        let payloads = mime_types.map(|shape| (format!("odd-{shape}"), false, vec!["x/y".into()]));
        let capability = taking(&payloads.collect::<Vec<_>>());
        let (agent, ..) = cost(|| rig.register(vec![capability]));
        let (stream, checks, steps) = cost(|| rig.open(Rpc::Listen, Some(&agent)));
        assert_eq!(checks, shapes);
        assert!(steps < 8 * shapes, "{steps}");
        let (_, checks, steps) = cost(|| {
            rig.hub
                .handle_input(rig.now, Input::HalfClosed { stream })
                .unwrap();
            rig.drain();
        });
        assert_eq!((checks, steps), (0, 1));
        assert_eq!(
            checks_of(&mut rig, odd(n % shapes)),
            0,
            "no shape was forgotten"
        );
    }
}

// spec: HUB-3-6
#[test]
fn to_say_why_a_job_waits_costs_a_look_at_some_agents_and_no_shape_its_place() {
    let count = 4 * MAX_ASKED;
    let mut rig = fleet(count, takes);
    // Jobs that nobody can do, of more shapes than are known.
    let lacks = |n: usize| vec![Payload::new(format!("odd-{n}"))];
    let jobs: Vec<_> = (0..=shapes::MAX_SHAPES)
        .map(|n| {
            let job = rig.hub.submit(rig.now, Job::test("t", lacks(n)));
            rig.drain();
            job.unwrap()
        })
        .collect();
    let ask = |rig: &Rig, job: &JobId| rig.hub.why_waiting(*job).unwrap();
    for job in &jobs {
        let (_, checks, steps) = cost(|| ask(&rig, job));
        assert!(checks <= MAX_ASKED, "{checks}");
        assert!(steps <= 4 * MAX_ASKED, "{steps}");
    }
    let missing = r#"64: a payload of type "script" is missing; 192 were not asked"#;
    let begin = r#"agents that offer test type "t": 256"#;
    let unknown = ask(&rig, &jobs[0]);
    assert_eq!(
        unknown,
        format!("{begin}; of 64 that were asked 0 take these payloads: {missing}")
    );
    let known = ask(&rig, jobs.last().unwrap());
    assert_eq!(
        known,
        format!("{begin}, of which 0 take these payloads: {missing}")
    );
    let ((), checks, _) = cost(|| {
        (1..=shapes::MAX_SHAPES).for_each(|n| submit(&mut rig, lacks(n)));
    });
    assert_eq!(checks, 0, "all are known but the first");
}

// spec: HUB-3-6
#[test]
fn shapes_of_one_skill_take_no_place_of_another() {
    let mut rig = fleet(10, takes);
    let other = rig.register(vec![Skill::test("other").into()]);
    rig.open(Rpc::Listen, Some(&other));
    assert_eq!(checks_of(&mut rig, script()), 10);
    for n in 0..4 * shapes::MAX_SHAPES {
        let job = Job::test("other", odd(n));
        let (_, checks, _) = cost(|| rig.hub.submit(rig.now, job).unwrap());
        assert!(checks <= 1);
        rig.drain();
    }
    assert_eq!(checks_of(&mut rig, script()), 0);
}

// spec: HUB-3-1
#[test]
fn refused_jobs_are_searched_some_at_a_time_when_an_agent_leaves() {
    let config = Config::default().with_max_sessions_per_agent(1);
    let mut rig = Rig::with(config.with_refusal_cooldown(Duration::from_millis(1)));
    let busy = rig.register(vec![takes(0)]);
    rig.open(Rpc::Listen, Some(&busy));
    submit(&mut rig, script());
    rig.proposals();
    let picky = rig.register(vec![takes(1)]);
    rig.open(Rpc::Listen, Some(&picky));
    // More than are told apart, so that each search holds both agents against the job.
    let jobs = shapes::MAX_SHAPES + MAX_SEARCHED;
    for n in 0..jobs {
        submit(&mut rig, odd(n));
        for (stream, session) in rig.proposals() {
            rig.answer(stream, &session, false);
        }
        rig.pass(Duration::from_millis(2));
    }
    let refused = |rig: &Rig| rig.hub.view().jobs().filter(|job| job.refusals > 0).count();
    assert_eq!(refused(&rig), jobs);
    // Of shapes that are known and of one that is not the same is said.
    let told = |job: &str| rig.hub.why_waiting(job.parse().unwrap()).unwrap();
    let ids = rig.hub.view().jobs().filter(|job| job.refusals > 0);
    let why: std::collections::BTreeSet<_> = ids.map(|job| told(&job.id.to_string())).collect();
    let begin = "agents that offer test type \"t\": 2, of which 2 take these payloads";
    let said = format!("{begin}: 1 without room; the last one asked said: no wish");
    assert_eq!(why.into_iter().collect::<Vec<_>>(), [said]);
    // A third that leaves again.
    let third = rig.register(vec![Skill::test("other").into()]);
    let third = rig.open(Rpc::Listen, Some(&third));
    rig.hub
        .handle_input(rig.now, Input::HalfClosed { stream: third })
        .unwrap();
    rig.drain();
    let mut searched = 0;
    for _ in 0..2 * jobs {
        let due = rig.hub.poll_timeout().unwrap();
        rig.now = rig.now.plus(due.saturating_since(rig.now.mono));
        let (_, checks, _) = cost(|| rig.hub.handle_timeout(rig.now));
        rig.drain();
        assert!(checks <= 3 * MAX_SEARCHED, "{checks}");
        searched += checks;
        if searched >= 2 * jobs {
            return;
        }
    }
    panic!("{searched} checks for {jobs} jobs");
}

// spec: HUB-3-6, HUB-5-4
#[test]
fn agents_that_are_away_cost_a_new_shape_one_look_each_and_nothing_when_they_return() {
    let count = 100;
    let config = Config::default().with_max_sessions_per_agent(1000);
    let mut rig = Rig::with(config.with_resume_grace(Duration::from_secs(60)));
    let fleet: Vec<_> = (0..count)
        .map(|n| {
            let agent = rig.register(vec![takes(n)]);
            let stream = rig.open(Rpc::Listen, Some(&agent));
            (agent, stream)
        })
        .collect();
    let away = |rig: &mut Rig, stream| {
        let reason = String::new();
        let lost = Input::Lost { stream, reason };
        rig.hub.handle_input(rig.now, lost).unwrap();
        rig.drain();
    };
    assert_eq!(checks_of(&mut rig, script()), count);
    let ((), checks, _) = cost(|| {
        let gone = &fleet[1..];
        gone.iter().for_each(|(_, stream)| away(&mut rig, *stream));
    });
    assert_eq!(checks, 0, "to leave costs nothing");
    assert_eq!(checks_of(&mut rig, script()), 0, "nor does a known shape");
    for n in 0..shapes::MAX_SHAPES {
        assert_eq!(checks_of(&mut rig, odd(n)), count, "a new one is noted");
    }
    // Agents that had left the index would be held against each of them.
    let ((), checks, _) = cost(|| {
        for (agent, _) in &fleet[1..] {
            rig.open(Rpc::Listen, Some(agent));
        }
    });
    assert_eq!(checks, 0, "to return costs nothing");
}
