//! Rankings as agents come, change and go.

use super::{
    super::{policy::Spread, shapes::MAX_SHAPES},
    *,
};
use crate::{
    capability::{skills, steps::CHECKS},
    wire::{
        AgentRegistration, Capability, Payload, PayloadRequirement, TestCapability,
        capability::Format,
    },
};

const SKILL: &str = "x";

fn at(nanos: u64) -> Mono {
    Mono::from_nanos(nanos)
}

/// The skill, with a payload that it requires.
fn needing(kind: Option<&str>) -> Skills {
    let payload = |kind: &str| PayloadRequirement {
        r#type: kind.into(),
        is_required: true,
        ..PayloadRequirement::default()
    };
    let format = Some(Format::Test(TestCapability {
        r#type: SKILL.into(),
        payloads: kind.map(payload).into_iter().collect(),
    }));
    skills(AgentRegistration {
        display_name: String::new(),
        capabilities: vec![Capability { format }],
    })
    .unwrap()
}

/// Agents a, b and c, of which c has been idle longest.
fn fleet(placement: Arc<dyn Placement>) -> Fleet {
    let mut fleet = Fleet::new(placement, 2);
    for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
        let id = ClientId::from(id);
        let registered = Registered {
            skills: needing(None),
            ..Registered::default()
        };
        fleet.register(at(0), id.clone(), registered);
        assert_eq!(order(&mut fleet).len(), n, "offered before it listens");
        fleet.listen(at(10 - n as u64), &id, StreamId(n as u64));
    }
    fleet
}

fn session(number: u64) -> SessionKey {
    SessionKey::numbered(number)
}

fn work(fleet: &mut Fleet, shape: &Shape) -> Work {
    fleet.rank(&Skill::test(SKILL), shape).unwrap()
}

fn order(fleet: &mut Fleet) -> String {
    let mut order = String::new();
    let Some(work) = fleet.rank(&Skill::test(SKILL), &Shape::of(&[])) else {
        return order;
    };
    let mut passed_over = BTreeSet::new();
    while let Some(id) = fleet.choose(work, &passed_over) {
        order.push_str(id.as_str());
        passed_over.insert(id.clone());
    }
    order
}

/// How many shapes the skill tells apart.
fn known(fleet: &Fleet) -> usize {
    let key = fleet.by_skill[&Skill::test(SKILL)].ranking.unwrap();
    fleet.rankings.get(key).unwrap().known()
}

// spec: HUB-3-6
#[test]
fn least_loaded_then_longest_idle_comes_first() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    assert_eq!(order(&mut fleet), "cba");
    let session = session(1);
    fleet.add_session(&"c".into(), session);
    assert_eq!(order(&mut fleet), "bac");
    fleet.remove_session(at(20), &"c".into(), session);
    assert_eq!(order(&mut fleet), "bac");
    fleet.remove(&"b".into());
    assert_eq!(order(&mut fleet), "ac");
    assert!(!fleet.by_skill.contains_key(&Skill::translation(SKILL)));
    fleet.remove(&"a".into());
    fleet.remove(&"c".into());
    assert!(fleet.by_skill.is_empty() && fleet.rankings.is_empty() && fleet.listening == 0);
}

// spec: HUB-3-6
#[test]
fn the_other_placements_take_turns_and_fill_up() {
    let mut turns = fleet(Arc::new(Spread::LongestIdle));
    turns.add_session(&"c".into(), session(1));
    assert_eq!(order(&mut turns), "cba", "load is not looked at");
    turns.remove_session(at(20), &"c".into(), session(1));
    assert_eq!(order(&mut turns), "bac");
    let mut full = fleet(Arc::new(Spread::MostLoaded));
    full.add_session(&"b".into(), session(1));
    assert_eq!(order(&mut full), "bac");
    full.add_session(&"b".into(), session(2));
    assert_eq!(order(&mut full), "ac", "no more than it may have");
    let any = work(&mut full, &Shape::of(&[]));
    assert_eq!(full.present(any), 3);
}

// spec: HUB-3-2
#[test]
fn agents_of_many_profiles_are_ranked_together() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let registered = Registered {
        skills: needing(Some("need")),
        ..Registered::default()
    };
    fleet.register(at(0), "d".into(), registered);
    fleet.listen(at(9), &"d".into(), StreamId(9));
    assert_eq!(order(&mut fleet), "cba");
    let need = work(&mut fleet, &Shape::of(&[Payload::new("need")]));
    let first = |fleet: &Fleet, passed_over: &BTreeSet<ClientId>| {
        let first = fleet.choose(need, passed_over);
        first.map(|id| id.as_str().to_owned()).unwrap()
    };
    let mut passed_over: BTreeSet<ClientId> = ["c".into()].into();
    assert_eq!(first(&fleet, &passed_over), "b");
    passed_over.insert("b".into());
    assert_eq!(first(&fleet, &passed_over), "d");
    fleet.set_paused(&"d".into(), true, false);
    assert_eq!(first(&fleet, &passed_over), "a");
    let any = work(&mut fleet, &Shape::of(&[]));
    assert_eq!((fleet.present(need), fleet.present(any)), (3, 3));
}

/// An agent that needs a payload listens.
fn join(fleet: &mut Fleet, id: &str, needs: Option<&str>) {
    let registered = Registered {
        skills: needing(needs),
        ..Registered::default()
    };
    fleet.register(at(0), id.into(), registered);
    fleet.listen(at(20), &id.into(), StreamId(20));
}

// spec: HUB-3-6
#[test]
fn shapes_are_told_apart_as_agents_come_change_and_go() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let shapes = ["1", "2", "3"].map(|kind| Shape::of(&[Payload::new(kind)]));
    let members = |fleet: &mut Fleet| {
        shapes.each_ref().map(|shape| {
            let work = work(fleet, shape);
            known(fleet);
            let ranking = fleet.rankings.get(work.ranking).unwrap();
            let ranked = ranking.ranked(work.shape).map(ClientId::as_str);
            let counts = ranking.counts(work.shape);
            (ranked.collect::<String>(), counts.all, counts.present)
        })
    };
    let all = ("cba".to_owned(), 3, 3);
    assert_eq!(members(&mut fleet), [all.clone(), all.clone(), all.clone()]);
    join(&mut fleet, "d", Some("2"));
    let more = ("cbad".to_owned(), 4, 4);
    assert_eq!(members(&mut fleet), [all.clone(), more, all]);
    let session = session(1);
    fleet.add_session(&"c".into(), session);
    let all = ("bac".to_owned(), 3, 3);
    let more = ("badc".to_owned(), 4, 4);
    assert_eq!(members(&mut fleet), [all.clone(), more, all.clone()]);
    fleet.remove(&"d".into());
    assert_eq!(members(&mut fleet), [all.clone(), all.clone(), all.clone()]);
    fleet.remove_session(at(30), &"c".into(), session);
    fleet.set_paused(&"a".into(), true, false);
    let rest = [(); 3].map(|()| ("bc".to_owned(), 3, 2));
    assert_eq!(members(&mut fleet), rest);
    fleet.unlisten(&"a".into());
    assert_eq!(members(&mut fleet), rest, "it was paused");
}

// spec: HUB-3-6
#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn shapes_of_a_skill_are_bounded_and_made_again() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let shape = |n: usize| Shape::of(&[Payload::new(n.to_string())]);
    for n in 0..MAX_SHAPES + 9 {
        join(&mut fleet, &format!("n{n}"), Some(&n.to_string()));
        work(&mut fleet, &shape(n));
        // Jobs without payloads are known from the start.
        assert_eq!(known(&fleet), (n + 2).min(MAX_SHAPES));
    }
    let asked: BTreeSet<_> = ["a", "b", "c"].map(ClientId::from).into();
    for n in 0..MAX_SHAPES + 9 {
        let work = work(&mut fleet, &shape(n));
        assert_eq!(fleet.present(work), 4, "{n}");
        let own = fleet.choose(work, &asked).unwrap();
        assert_eq!(own.as_str(), format!("n{n}"));
    }
    for n in 0..MAX_SHAPES + 9 {
        fleet.remove(&format!("n{n}").as_str().into());
    }
    assert_eq!(known(&fleet), MAX_SHAPES);
    assert_eq!(order(&mut fleet), "cba");
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn the_shape_that_was_not_used_for_longest_goes() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let shape = |n: usize| Shape::of(&[Payload::new(n.to_string())]);
    let checks = |fleet: &mut Fleet, n: usize| {
        let before = CHECKS.get();
        work(fleet, &shape(n));
        CHECKS.get() - before
    };
    for n in 0..=MAX_SHAPES {
        assert_eq!(checks(&mut fleet, n), 3);
        work(&mut fleet, &shape(0));
    }
    assert_eq!((checks(&mut fleet, 0), checks(&mut fleet, 1)), (0, 3));
}

#[test]
fn shapes_of_a_skill_are_bounded_in_bytes() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let large = |n: usize| Shape::of(&[Payload::new(format!("{n}{}", "x".repeat(300_000)))]);
    // Jobs without payloads are known from the start.
    for (n, kept) in [2, 3, 4, 3, 3, 3].into_iter().enumerate() {
        let work = work(&mut fleet, &large(n));
        assert_eq!((known(&fleet), fleet.present(work)), (kept, 3));
    }
    let huge = Shape::of(&[Payload::new("x".repeat(3 << 20))]);
    let alone = work(&mut fleet, &huge);
    assert_eq!((known(&fleet), fleet.present(alone)), (1, 3));
    work(&mut fleet, &Shape::of(&[]));
    assert_eq!(known(&fleet), 1);
}

// spec: HUB-3-6
#[test]
fn why_a_job_is_not_placed_counts_each_agent_once() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let (job, shape) = (Job::test(SKILL, vec![]), Shape::of(&[]));
    fleet.unlisten(&"a".into());
    fleet.set_room(&"b".into(), 0);
    let why = fleet.why_unplaced(&job, &shape);
    assert!(why.ends_with(": 1 away, 1 without room"), "{why}");
}
