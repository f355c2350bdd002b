//! Rankings as agents come, change and go.

use super::{
    super::{policy::Spread, ranking::MAX_SHAPES},
    *,
};
use crate::{
    capability::skills,
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

fn order(fleet: &mut Fleet) -> String {
    fleet.rank(&Skill::test(SKILL), &Shape::of(&[]));
    let mut passed_over = BTreeSet::new();
    let mut order = String::new();
    while let Some(id) = fleet.choose(&Skill::test(SKILL), &Shape::of(&[]), &passed_over) {
        order.push_str(id.as_str());
        passed_over.insert(id.clone());
    }
    order
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
    assert!(fleet.by_skill.is_empty() && fleet.by_order.is_empty() && fleet.listening == 0);
    assert_eq!(fleet.rankings.kept(), (0, 0));
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
    assert_eq!(full.present(&Skill::test(SKILL), &Shape::of(&[])), 3);
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
    let need = Shape::of(&[Payload::new("need")]);
    let skill = Skill::test(SKILL);
    fleet.rank(&skill, &need);
    let mut passed_over: BTreeSet<ClientId> = ["c".into()].into();
    assert_eq!(
        fleet
            .choose(&skill, &need, &passed_over)
            .map(ClientId::as_str),
        Some("b")
    );
    passed_over.insert("b".into());
    assert_eq!(
        fleet
            .choose(&skill, &need, &passed_over)
            .map(ClientId::as_str),
        Some("d")
    );
    fleet.set_paused(&"d".into(), true, false);
    assert_eq!(
        fleet
            .choose(&skill, &need, &passed_over)
            .map(ClientId::as_str),
        Some("a")
    );
    assert_eq!(
        (
            fleet.present(&skill, &need),
            fleet.present(&skill, &Shape::of(&[]))
        ),
        (3, 3)
    );
}

#[test]
fn rankings_are_bounded_and_made_again() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let skill = Skill::test(SKILL);
    let shape = |n: usize| Shape::of(&[Payload::new(n.to_string())]);
    for n in 0..=MAX_SHAPES {
        fleet.rank(&skill, &shape(n));
        fleet.rank(&skill, &shape(1));
    }
    assert_eq!(fleet.rankings.kept(), (MAX_SHAPES, 1), "all look at one");
    assert!(
        fleet.ranking(&skill, &shape(0)).is_none(),
        "not used for longest"
    );
    fleet.set_paused(&"c".into(), true, false);
    fleet.rank(&skill, &shape(0));
    for n in [0, 1, MAX_SHAPES] {
        let first = fleet.choose(&skill, &shape(n), &BTreeSet::new());
        assert_eq!(
            (first.unwrap().as_str(), fleet.present(&skill, &shape(n))),
            ("b", 2)
        );
    }
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
fn shapes_share_a_ranking_while_the_same_agents_can_do_them() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let skill = Skill::test(SKILL);
    let shapes = ["1", "2", "3"].map(|kind| Shape::of(&[Payload::new(kind)]));
    let members = |fleet: &mut Fleet| {
        shapes.each_ref().map(|shape| {
            fleet.rank(&skill, shape);
            let ranking = fleet.ranking(&skill, shape).unwrap();
            let ranked = ranking.ranked().map(ClientId::as_str).collect::<String>();
            (ranked, ranking.len(), fleet.present(&skill, shape))
        })
    };
    let all = ("cba".to_owned(), 3, 3);
    assert_eq!(members(&mut fleet), [all.clone(), all.clone(), all.clone()]);
    assert_eq!(fleet.rankings.kept(), (4, 1));
    join(&mut fleet, "d", Some("2"));
    let more = ("cbad".to_owned(), 4, 4);
    assert_eq!(members(&mut fleet), [all.clone(), more, all.clone()]);
    assert_eq!(fleet.rankings.kept(), (4, 2));
    let session = session(1);
    fleet.add_session(&"c".into(), session);
    let all = ("bac".to_owned(), 3, 3);
    let more = ("badc".to_owned(), 4, 4);
    assert_eq!(members(&mut fleet), [all.clone(), more, all.clone()]);
    fleet.remove(&"d".into());
    assert_eq!(members(&mut fleet), [all.clone(), all.clone(), all.clone()]);
    assert_eq!(fleet.rankings.kept(), (4, 1), "they are equal again");
    fleet.remove_session(at(30), &"c".into(), session);
    fleet.set_paused(&"a".into(), true, false);
    let rest = ("bc".to_owned(), 3, 2);
    assert_eq!(members(&mut fleet), [rest.clone(), rest.clone(), rest]);
}

// spec: HUB-3-6
#[test]
fn an_agent_that_would_split_one_ranking_too_many_has_its_shape_forgotten() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let skill = Skill::test(SKILL);
    let shape = |kind: &str| Shape::of(&[Payload::new(kind)]);
    let equal = ["one", "two"].map(shape);
    for n in 0..MAX_RANKINGS - 1 {
        join(&mut fleet, &format!("n{n}"), Some(&n.to_string()));
        for shape in [&shape(&n.to_string()), &equal[0], &equal[1]] {
            fleet.rank(&skill, shape);
        }
    }
    let (shapes, rankings) = fleet.rankings.kept();
    assert_eq!(rankings, MAX_RANKINGS);
    join(&mut fleet, "d", Some("one"));
    assert_eq!(fleet.rankings.kept(), (shapes - 1, MAX_RANKINGS));
    assert!(fleet.ranking(&skill, &equal[0]).is_none());
    assert_eq!(fleet.present(&skill, &equal[1]), 3);
    fleet.rank(&skill, &equal[0]);
    assert_eq!(fleet.present(&skill, &equal[0]), 4);
    fleet.rankings.kept();
}

// spec: HUB-3-6
#[test]
fn rankings_are_bounded_however_much_agents_differ() {
    let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
    let skill = Skill::test(SKILL);
    let shape = |n: usize| Shape::of(&[Payload::new(n.to_string())]);
    for n in 0..MAX_RANKINGS + 9 {
        join(&mut fleet, &format!("n{n}"), Some(&n.to_string()));
        fleet.rank(&skill, &shape(n));
    }
    // What was not used for longest goes one by one, and not all at once.
    assert_eq!(fleet.rankings.kept(), (MAX_RANKINGS, MAX_RANKINGS));
    for n in 0..MAX_RANKINGS + 9 {
        fleet.rank(&skill, &shape(n));
        assert_eq!(fleet.present(&skill, &shape(n)), 4, "{n}");
        let asked = ["a", "b", "c"].map(ClientId::from).into();
        let own = fleet.choose(&skill, &shape(n), &asked).unwrap();
        assert_eq!(own.as_str(), format!("n{n}"));
    }
    for n in 0..MAX_RANKINGS + 9 {
        fleet.remove(&format!("n{n}").as_str().into());
    }
    assert!(fleet.rankings.kept().1 <= 1);
    let kept: usize = fleet
        .agents
        .values()
        .map(|agent| agent.rankings.len())
        .sum();
    assert!(kept <= 3 * 2 * MAX_RANKINGS, "{kept}");
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
