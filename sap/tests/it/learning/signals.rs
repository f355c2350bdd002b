//! What a signal says, and what is counted of many.

use proptest::prelude::*;
use sap::alignment::{Policy as _, Rules, Subject};
use sap::learning::{
    Aggregate, Bounds, Feedback, Heuristics, Learner, Rating, Signal, SignalKey, Support, Window,
};
use sap::{ConstitutionalContext, PressureLevel, RiskTolerance, Status};
use serde_json::json;
use ubos_common::json::{Limits, RawBuf, RawObject};
use ubos_common::time::Timestamp;

use super::{PRESSURE, computed, decision, pair, signal};

// spec: SAP-7-1, SAP-7-6
#[test]
fn results_and_operators_speak_under_one_key() {
    let actions = json!([{"action": "ask"}]);
    let said = signal(1, &[], &[("/nextActions", actions)]);
    let again = ubos_common::json::decode::<Signal>(
        &ubos_common::json::to_vec(&said),
        &Limits::default(),
        Default::default(),
    );
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")).0, said);
    let mut aggregate = Aggregate::default();
    assert!(aggregate.insert(&said).unwrap());
    let opinions = [
        (Some(5), None),
        (Some(3), None),
        (Some(2), None),
        (Some(5), Some(false)),
    ];
    for (stars, approved) in opinions {
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.rating = stars.map(|stars: u8| Rating::try_from(stars).unwrap());
        feedback.approved = approved;
        feedback.notes = Some("cite the register".into());
        aggregate
            .insert(&Signal::of_operator(&said, Timestamp::EPOCH, feedback))
            .unwrap();
    }
    let tally = aggregate.tally(&SignalKey::from(&said)).unwrap();
    assert_eq!((&aggregate).into_iter().count(), 1);
    assert_eq!((tally.ids.len(), tally.hits), (5, 0));
    // Who says the same later says it anew.
    let said_at = |at| Signal::of_operator(&said, at, Feedback::new("ada".parse().unwrap())).id;
    let later = Timestamp::EPOCH.saturating_add(std::time::Duration::from_secs(1));
    assert_ne!(said_at(Timestamp::EPOCH), said_at(later));
    // Logs hold it, so it is the same for ever.
    assert_eq!(
        said_at(later).to_string(),
        "068a70936537bff485d66942f72d3690f5c7a16fff2f4a5db80a09139bfae79a"
    );
    assert_eq!((tally.praise.signals, tally.blame.signals), (1, 2));
    assert_eq!(tally.notes["cite the register"].signals, 4);
    assert_eq!(
        tally.checks[&("blueprint_thinking".into(), "PASS".into())].signals,
        1
    );
}

// spec: SAP-7-6
#[test]
fn each_partial_or_last_result_is_a_signal_and_a_hit_is_marked() {
    for status in Status::WORDS {
        let (task, result) = pair(1, &[], &[("/status", json!(status))]);
        let is_signal = !matches!(*status, "QUEUED" | "RUNNING");
        assert_eq!(
            Signal::of_result(&task, None, &result).is_some(),
            is_signal,
            "{status}"
        );
    }
    let hit = signal(
        2,
        &[],
        &[("/constitutionalEvidence/cache/hit", json!(true))],
    );
    assert_eq!((hit.cache_hit, &hit.observed), (Some(true), &None));
    let mut aggregate = Aggregate::default();
    aggregate.insert(&hit).unwrap();
    let tally = aggregate.tally(&SignalKey::from(&hit)).unwrap();
    // What it says was said when its record was computed.
    assert_eq!(
        (tally.hits, tally.checks.len(), tally.metrics.len()),
        (1, 0, 0)
    );
    assert_eq!(tally.statuses[&Status::Succeeded], 1);
    // Members of a payload are told apart up to 64.
    let is_observed = |members: u64| {
        let payload = (0..members).map(|n| (n.to_string(), json!(n))).collect();
        computed(1, payload, json!(1)).observed.is_some()
    };
    assert_eq!([64, 65].map(is_observed), [true, false]);
}

// spec: SAP-7-2
#[test]
fn a_constraint_that_is_named_as_a_principle_teaches_nothing_of_it() {
    let rules = Rules::default().forbid("strategic_pause", "burn");
    let taught = |constraint: &str| {
        let mut context = ConstitutionalContext::new(PressureLevel::Deliberated);
        context.constraints = Some(vec![constraint.into()]);
        context.risk_tolerance = Some(RiskTolerance::High);
        let capability = "a.b".parse().unwrap();
        let output = RawBuf::parse("\"fine\"").unwrap();
        let mut subject = Subject::admission(&capability, &context);
        subject.output = Some(output.as_raw());
        let verdict = rules.assess(&subject);
        assert_eq!(verdict.violations.len(), 1, "nobody can check it");
        let mut signal = signal(1, &[], &[(PRESSURE, json!(0))]);
        signal.violations = Some(verdict.violations);
        let mut aggregate = Aggregate::default();
        aggregate.insert(&signal).unwrap();
        let tally = aggregate.tally(&SignalKey::from(&signal)).unwrap();
        let bad = tally.readings.values().map(|readings| readings.bad.len());
        (tally.violations.len(), bad.sum::<usize>())
    };
    assert_eq!(taught("strategic_pause"), (0, 0));
    assert_eq!(taught("be kind"), (0, 0));
}

// spec: SAP-7-5
#[test]
fn at_a_bound_what_is_new_is_refused_and_counted() {
    let [a, b, c] = [1, 2, 3].map(|n| signal(n, &[("/payload", json!({"n": n}))], &[]));
    let mut keys = Aggregate::new(Bounds::default().with_max_keys(2));
    assert!(keys.insert(&a).is_ok() && keys.insert(&b).is_ok());
    // What is new counts for all payloads together, so that many different ones stop nobody from learning.
    assert!(keys.insert(&c).unwrap());
    let together = |signal: &Signal| {
        let mut key = SignalKey::from(signal);
        key.fingerprint = None;
        key
    };
    assert!(keys.tally(&SignalKey::from(&c)).is_none());
    assert_eq!(keys.tally(&together(&c)).unwrap().ids.len(), 1);
    let elsewhere = |n: u64| {
        let place = "/constitutionalContext/territory";
        let payload = ("/payload", json!({"n": n}));
        signal(n, &[payload, (place, json!(format!("t{n}")))], &[])
    };
    for n in 10..73 {
        assert!(keys.insert(&elsewhere(n)).unwrap());
    }
    let before = keys.clone();
    assert_eq!(
        keys.insert(&elsewhere(73)).unwrap_err().to_string(),
        "keys at their limit of 2"
    );
    assert_eq!((keys.refused(), (&keys).into_iter().count()), (1, 66));
    assert_eq!(
        (&keys).into_iter().collect::<Vec<_>>(),
        (&before).into_iter().collect::<Vec<_>>()
    );
    // One capability leaves room to others.
    let share = Bounds::default().with_max_capability_keys(1);
    let mut shared = Aggregate::new(share);
    assert!(shared.insert(&a).is_ok());
    assert!(shared.insert(&b).unwrap());
    assert!(shared.tally(&together(&b)).is_some());
    let other = [("/target/capability", json!("other.capability"))];
    assert!(shared.insert(&signal(4, &other, &[])).is_ok());
    // In all periods together, too.
    let mut learner = Learner::new(Window::default(), share).unwrap();
    assert!(learner.insert(&a).is_ok());
    let said_later = |n: u64, payload: u64| {
        let later = [("/reportedAt", json!("2025-10-20T10:15:26Z"))];
        signal(n, &[("/payload", json!({"n": payload}))], &later)
    };
    let later = said_later(5, 5);
    assert!(learner.insert(&later).unwrap());
    // And in what is gathered of them.
    let mut known = learner.gather(later.at.timestamp());
    assert!(known.insert(&c).unwrap());
    assert!(known.tally(&SignalKey::from(&c)).is_none());
    // A known key goes on counting.
    let more = signal(9, &[("/payload", json!({"n": 1}))], &[]);
    assert!(keys.insert(&more).unwrap());
    let mut signals = Aggregate::new(Bounds::default().with_max_signals(1));
    assert!(signals.insert(&a).is_ok() && signals.insert(&more).is_err());
    assert!(!signals.insert(&a).unwrap());
    let mut bytes = Aggregate::new(Bounds::default().with_max_bytes(10));
    assert!(bytes.insert(&a).is_ok() && bytes.insert(&b).is_err());
    let none = Aggregate::new(Bounds::default().with_max_bytes(0)).insert(&a);
    assert_eq!(none.unwrap_err().to_string(), "bytes at their limit of 0");
    let taken = |change: &dyn Fn(u64, &mut Signal)| {
        let mut aggregate = Aggregate::new(Bounds::default().with_max_bytes(50_000));
        let said = (0..1_000).map(|n| {
            let issuer = ("/issuer/agentId", json!(format!("A-{n}")));
            let mut said = signal(n, &[issuer], &[]);
            change(n, &mut said);
            said
        });
        let taken = said.take_while(|said| aggregate.insert(said).is_ok());
        taken.count()
    };
    let broken = decision(1, 4.0, false).violations;
    // What is found broken takes room for each issuer who says so.
    let breaking = taken(&|_, said| said.violations.clone_from(&broken));
    let usual = taken(&|_, _| {});
    assert!(breaking < usual && usual < taken(&|_, said| said.policy_checks = None));
    // A text takes room once, however often it is said, and each who says it takes some.
    let noting = |note: Option<String>, said: &mut Signal| {
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.notes = note;
        said.feedback = Some(feedback);
    };
    let note = |n: u64| Some(format!("{n:01000}"));
    let same = taken(&|_, said| noting(note(0), said));
    assert!(taken(&|n, said| noting(note(n), said)) < same);
    assert!(same < taken(&|_, said| noting(None, said)));
    let mut names = Aggregate::new(Bounds::default().with_max_names(1));
    names.insert(&a).unwrap();
    let tally = names.tally(&SignalKey::from(&a)).unwrap();
    // One of two checks, one of three readings, one of three metrics.
    assert_eq!((tally.checks.len(), tally.left_out), (1, 1 + 2 + 2));
    // What two periods leave out is counted together.
    let names = Bounds::default().with_max_names(1);
    let mut learner = Learner::new(Window::default(), names).unwrap();
    assert!(learner.insert(&a).unwrap() && learner.insert(&said_later(2, 1)).unwrap());
    let known = learner.gather(said_later(2, 1).at.timestamp());
    assert_eq!(known.tally(&SignalKey::from(&a)).unwrap().left_out, 10);
    // However short the capability is.
    let place = "/constitutionalContext/territory";
    let far = signal(1, &[(place, json!("x".repeat(1_025)))], &[]);
    assert!(Aggregate::default().insert(&far).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // spec: SAP-7-5
    #[test]
    fn the_order_of_signals_does_not_matter(
        (one, other) in proptest::collection::vec((0_u64..12, 0_u8..100, any::<bool>()), 0..30)
            .prop_flat_map(|decisions| (Just(decisions.clone()), Just(decisions).prop_shuffle())),
    ) {
        let gathered = |decisions: &[(u64, u8, bool)], times: usize| {
            let mut aggregate = Aggregate::default();
            for (n, psi, is_good) in decisions {
                let signal = decision(*n, f64::from(*psi) + 0.5, *is_good);
                for _ in 0..times {
                    aggregate.insert(&signal).unwrap();
                }
            }
            aggregate
        };
        let (one, other) = (gathered(&one, 1), gathered(&other, 2));
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(Heuristics::derive(&one, Support::of(2), None), Heuristics::derive(&other, Support::of(2), None));
    }
}

// spec: SAP-7-1, SAP-7-5
#[test]
fn of_numbers_the_mean_is_known_and_of_two_spellings_the_lesser() {
    let latency = |n: u64, ms: u64| signal(n, &[], &[("/metrics", json!({"latencyMs": ms}))]);
    let mut aggregate = Aggregate::default();
    for said in [latency(1, 842), latency(2, 158)] {
        aggregate.insert(&said).unwrap();
    }
    let metric = |aggregate: &Aggregate| {
        let (_, tally) = aggregate.into_iter().next().unwrap();
        let metric = tally.metrics["latencyMs"];
        [metric.min, metric.max, metric.mean]
    };
    assert_eq!(metric(&aggregate), [158.0, 842.0, 500.0]);
    let mut greatest = Aggregate::default();
    for (n, ms) in [(1, 1_000_000_000_000_000), (2, 1_000_000_000_000_001)] {
        greatest.insert(&latency(n, ms)).unwrap();
    }
    assert_eq!(metric(&greatest), [1e15; 3]);
    let spelled = |n: u64, text: &str| {
        let mut said = signal(n, &[], &[]);
        let action = RawObject::new(RawBuf::parse(text).unwrap());
        said.next_actions = Some(vec![action.unwrap()]);
        said
    };
    let spellings = [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#];
    for (first, second) in [(0, 1), (1, 0)] {
        let mut aggregate = Aggregate::default();
        aggregate.insert(&spelled(1, spellings[first])).unwrap();
        aggregate.insert(&spelled(2, spellings[second])).unwrap();
        let (_, tally) = (&aggregate).into_iter().next().unwrap();
        let actions: Vec<_> = tally.actions.values().collect();
        let [(action, count)] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!((action.as_str(), count.signals), (spellings[0], 2));
    }
}
