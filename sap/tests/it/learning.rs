//! Signals, what they teach, and what they leave alone.

use futures::executor::block_on;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use sap::Psi;
use sap::alignment::{Policy as _, Rules, Subject};
use sap::cache::{DropMembers, Keys, WholePayload};
use sap::learning::{
    Aggregate, Artifact, ArtifactKind, Bounds, Feedback, Heuristics, Learner, Librarian, Publisher,
    Rating, Signal, SignalKey, SignalSink as _, Support, Window,
};
use sap::transcript::{Head, Proof, Verdict};
use sap::validate::Options;
use sap::{
    Alignment, BoxFuture, ConstitutionalContext, PressureLevel, RiskTolerance, Status, StoreError,
    Task, TaskResult,
};
use serde_json::{Value, json};
use ubos_common::json::{Limits, RawBuf, RawObject};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use crate::samples::{read_result, read_task, result, task, with};

/// A task of number `n` of one of five issuers and its result, with changes.
pub(crate) fn pair(
    n: u64,
    on_task: &[(&str, Value)],
    on_result: &[(&str, Value)],
) -> (Task, TaskResult) {
    let id = json!(format!("00000000-0000-0000-0000-{n:012}"));
    let issuer = ("/issuer/agentId", json!(format!("A-{}", n % 5)));
    let on_task: Vec<_> = [issuer]
        .into_iter()
        .chain(on_task.iter().cloned())
        .collect();
    let change = |message: Value, changes: &[(&str, Value)]| {
        let message = with(message, "/taskId", Some(id.clone()));
        changes.iter().fold(message, |m, (pointer, value)| {
            with(m, pointer, Some(value.clone()))
        })
    };
    let options = Options::from(Profile::Lenient);
    let task = read_task(&change(task(), &on_task), &options).unwrap().0;
    let result = read_result(&change(result(), on_result), &options)
        .unwrap()
        .0;
    (task, result)
}

fn signal(n: u64, on_task: &[(&str, Value)], on_result: &[(&str, Value)]) -> Signal {
    let (task, result) = pair(n, on_task, on_result);
    let fingerprint = Keys::of(&task, &WholePayload).unwrap().fingerprint;
    Signal::of_result(&task, Some(fingerprint), &result).unwrap()
}

const PRESSURE: &str = "/constitutionalEvidence/pressureReadings/strategic_pause";

/// A decision under pressure that went well or broke the principle.
pub(crate) fn decision(n: u64, psi: f64, is_good: bool) -> Signal {
    let mut changes = vec![(PRESSURE, json!(psi))];
    if !is_good {
        let violation =
            json!([{"principle": "strategic_pause", "severity": "high", "evidence": "e"}]);
        changes.push(("/constitutionalEvidence/violations", violation));
        changes.push(("/constitutionalEvidence/alignment", json!("ESCALATE")));
        changes.push(("/status", json!("ESCALATED")));
    }
    signal(n, &[], &changes)
}

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

pub(crate) fn learned(signals: impl IntoIterator<Item = Signal>) -> (Aggregate, Heuristics) {
    let learner = Mutex::<Aggregate>::default();
    signals
        .into_iter()
        .for_each(|signal| learner.emit(signal).unwrap());
    let proof = Proof {
        records: 7,
        head: Head::from("head".to_owned()),
        verdict: Verdict::Intact,
    };
    let aggregate = learner.into_inner().unwrap();
    let heuristics = Heuristics::derive(&aggregate, Support::default(), Some(&proof));
    (aggregate, heuristics)
}

/// Good up to 40 PSI, bad above, with one of each on the wrong side.
fn decisions() -> impl Iterator<Item = Signal> {
    (0..20).map(|n| {
        let psi = 4.0 * n as f64 + 1.0;
        decision(n, psi, (psi < 41.5) != (n == 2 || n == 18))
    })
}

// spec: SAP-7-2
#[test]
fn thresholds_are_refined_with_their_evidence() {
    let (_, heuristics) = learned(decisions());
    let threshold = &heuristics.thresholds[0];
    assert_eq!(threshold.capability.as_str(), "consult.align");
    assert_eq!(threshold.territory.as_deref(), Some("EUFM"));
    assert_eq!(threshold.principle, "strategic_pause");
    assert_eq!(threshold.level, PressureLevel::Consulted);
    assert_eq!(threshold.psi, 41.0);
    assert_eq!(
        (threshold.evidence.count.signals, threshold.evidence.against),
        (18, 2)
    );
    assert_eq!(threshold.evidence.count.samples.len(), 8);
    assert_eq!(threshold.evidence.learned_from.as_ref().unwrap().records, 7);
    // Principles that nothing happened to have none.
    assert_eq!(heuristics.thresholds.len(), 1);
    // Where nothing parts good from bad, nothing is learned.
    let noise = (0..20).map(|n| decision(n, 50.0, n % 2 == 0));
    assert!(learned(noise).1.thresholds.is_empty());
    // An operator's word counts like an outcome.
    let good = (0..6).map(|n| decision(n, 10.0 + n as f64, true));
    let blamed = good.flat_map(|said| {
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.approved = Some(false);
        [Signal::of_operator(&said, Timestamp::EPOCH, feedback)]
    });
    assert_eq!(learned(blamed).1.thresholds[0].psi, -1.0);
}

// spec: SAP-7-2, SAP-7-4
#[test]
fn what_is_learned_changes_later_verdicts_alone() {
    let (_, mut heuristics) = learned(decisions());
    let before = Rules::default()
        .threshold("strategic_pause", PressureLevel::Consulted, 90.0)
        .forbid("strategic_pause", "never")
        .forbid("blueprint_thinking", "always");
    let unapproved = before.clone().learned(Arc::new(heuristics.clone()));
    let free = Rules::default().learned(Arc::new(heuristics.clone()));
    let ada: sap::AgentId = "ada".parse().unwrap();
    let thresholds = core::mem::take(&mut heuristics.thresholds).into_iter();
    heuristics.thresholds = thresholds
        .map(|threshold| threshold.approved(ada.clone()))
        .collect();
    let after = before.clone().learned(Arc::new(heuristics));
    let (mut task, _) = pair(1, &[], &[]);
    let context = &mut task.constitutional_context;
    context
        .pressure
        .as_mut()
        .unwrap()
        .insert("strategic_pause".into(), Psi::try_from(42.0).unwrap());
    let verdict = |rules: &Rules, task: &Task, output: &str| {
        let output = RawBuf::parse(output).unwrap();
        let mut subject = Subject::admission(&task.target.capability, &task.constitutional_context);
        subject.output = Some(output.as_raw());
        rules.assess(&subject).alignment
    };
    assert_eq!(verdict(&before, &task, "1"), Alignment::Valid);
    // An operator's bound stays until an operator has approved another; where there is none, what is learned holds.
    assert_eq!(verdict(&unapproved, &task, "1"), Alignment::Valid);
    assert_eq!(verdict(&free, &task, "1"), Alignment::NonConstitutional);
    assert_eq!(verdict(&after, &task, "1"), Alignment::NonConstitutional);
    // A principle that was found broken binds where the task does not name it.
    let context = &mut task.constitutional_context;
    context.pressure = None;
    context.principles = Some(vec!["blueprint_thinking".into()]);
    assert_eq!(verdict(&before, &task, "\"never\""), Alignment::Valid);
    assert_eq!(
        verdict(&after, &task, "\"never\""),
        Alignment::NonConstitutional
    );
    // One that was always kept does not.
    task.constitutional_context.principles = Some(vec!["other".into()]);
    assert_eq!(verdict(&after, &task, "\"always\""), Alignment::Valid);
    // In another territory nothing was learned.
    task.constitutional_context.territory = Some("elsewhere".into());
    assert_eq!(verdict(&after, &task, "\"never\""), Alignment::Valid);
}

// spec: SAP-7-2
#[test]
fn the_catalogue_counts_what_checks_found() {
    let (aggregate, heuristics) = learned(decisions());
    let filed = published(&aggregate, &heuristics, &mut Publisher::default());
    let playbook: Value = filed[0].body.deserialize().unwrap();
    let named = playbook["catalogue"].as_array().unwrap().iter();
    let named: Vec<_> = named.map(|entry| entry["principle"].as_str()).collect();
    assert!(named.contains(&Some("strategic_pause")), "{playbook}");
    let entry = heuristics
        .catalogue
        .iter()
        .find(|e| e.principle == "strategic_pause")
        .unwrap();
    assert_eq!((entry.severities.len(), entry.severities["high"]), (1, 9));
    let checked = heuristics
        .catalogue
        .iter()
        .find(|e| e.principle == "blueprint_thinking")
        .unwrap();
    assert_eq!(
        (checked.statuses["PASS"], checked.evidence.count.signals),
        (20, 20)
    );
    assert!(checked.severities.is_empty());
}

pub(crate) fn computed(n: u64, payload: Value, output: Value) -> Signal {
    signal(n, &[("/payload", payload)], &[("/output", output)])
}

// spec: SAP-7-2
#[test]
fn the_catalogue_leaves_out_what_too_few_signals_say() {
    let broken = |signals: u64| learned((0..signals).map(|n| decision(n, 4.0, false))).1;
    assert_eq!(broken(4).catalogue, []);
    assert!(!broken(5).catalogue.is_empty());
}

// spec: SAP-7-2
#[test]
fn members_that_outcomes_do_not_depend_on_are_suggested() {
    let asked = |n: u64| {
        computed(
            n,
            json!({"q": n % 2, "askedAt": n, "trace": n * 7}),
            json!({"a": n % 2}),
        )
    };
    let (_, heuristics) = learned((0..10).map(asked));
    // Both differ every time, so neither can be judged alone.
    assert!(heuristics.essences.is_empty());
    let asked = |n: u64| {
        computed(
            n,
            json!({"q": n % 2, "askedAt": n / 2, "trace": n / 6}),
            json!({"a": n % 2}),
        )
    };
    let (aggregate, heuristics) = learned((0..12).map(asked));
    let filed = published(&aggregate, &heuristics, &mut Publisher::default());
    let playbook: Value = filed[0].body.deserialize().unwrap();
    assert_eq!(playbook["essence"]["capability"], "consult.align");
    assert_eq!(playbook["essence"]["drop"], json!(["askedAt"]));
    let [suggestion] = &heuristics.essences[..] else {
        panic!("{:?}", heuristics.essences)
    };
    assert_eq!(suggestion.drop, ["askedAt"]);
    let evidence = &playbook["essence"]["evidence"];
    assert_eq!(evidence["signals"], suggestion.evidence.count.signals);
    assert!(
        suggestion.evidence.count.signals >= 5 && !suggestion.evidence.count.samples.is_empty()
    );
    let task = |asked_at: u64| {
        pair(
            1,
            &[("/payload", json!({"q": 1, "askedAt": asked_at, "trace": 0}))],
            &[],
        )
        .0
    };
    let names = suggestion.drop.iter().map(String::as_str);
    let extractor = DropMembers::approved("ada".parse().unwrap(), names);
    let keys = |n| Keys::of(&task(n), &extractor).unwrap();
    assert_eq!(keys(1), keys(2));
    assert_ne!(keys(1), Keys::of(&task(1), &WholePayload).unwrap());
    // One outcome that differs is enough against it.
    let other = computed(
        50,
        json!({"q": 1, "askedAt": 50, "trace": 0}),
        json!({"a": 0}),
    );
    let asked = (0..12).map(asked).chain([other]);
    assert!(learned(asked).1.essences.is_empty());
}

// spec: SAP-7-2
#[test]
fn of_two_members_that_say_the_same_one_stays() {
    // Each has the kind and something else; the outcome is the kind.
    let asked = |n: u64| {
        let (kind, left, right) = (n % 2, n / 2 % 3, n / 6 % 3);
        let payload = json!({"left": [kind, left], "right": [kind, right]});
        computed(n, payload, json!(kind))
    };
    let [suggestion] = &learned((0..18).map(asked)).1.essences[..] else {
        panic!("one of them can be left out");
    };
    assert_eq!(suggestion.drop, ["left"]);
    // Of more outcomes is known that they stayed the same while the other one differed.
    let asked = |n: u64| {
        let (kind, right) = (n % 2, n / 2 % 9);
        let payload = json!({"left": [kind, n / 18 % 2], "right": [kind, right]});
        computed(n, payload, json!(kind))
    };
    let suggested = learned((0..36).filter(|n| n % 18 < 6 || *n < 18).map(asked)).1;
    assert_eq!(suggested.essences[0].drop, ["right"]);
}

// spec: SAP-7-2
#[test]
fn members_that_can_be_left_out_are_named_in_order() {
    // Of more outcomes is known that they stayed the same while `z` differed.
    let asked = |n: u64| {
        let a = if n < 12 { n / 2 % 2 } else { 2 };
        computed(n, json!({"q": n % 2, "a": a, "z": n / 4}), json!(n % 2))
    };
    let suggested = learned((0..20).map(asked)).1;
    assert_eq!(suggested.essences[0].drop, ["a", "z"]);
}

#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Vec<Artifact>>, bool);

impl Librarian for Shelf {
    fn file<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async {
            if self.1 {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from("closed").into());
            }
            self.0.lock().unwrap().push(artifact.clone());
            Ok(())
        })
    }
}

// spec: SAP-7-3
#[test]
fn new_knowledge_is_filed_once_with_digest_and_sources() {
    let (aggregate, mut heuristics) = learned(decisions());
    let threshold = heuristics.thresholds.remove(0);
    let samples: Vec<_> = threshold.evidence.count.samples.iter().copied().collect();
    let threshold = threshold.approved("ada".parse().unwrap());
    heuristics.thresholds.push(threshold);
    let (shelf, mut publisher) = (Shelf::default(), Publisher::default());
    let mut publish = |aggregate: &Aggregate, heuristics: &Heuristics, shelf: &Shelf| {
        block_on(publisher.publish(
            Timestamp::EPOCH,
            aggregate,
            heuristics,
            Support::default(),
            shelf,
        ))
    };
    assert!(publish(&aggregate, &heuristics, &Shelf(Mutex::default(), true)).is_err());
    let filed = publish(&aggregate, &heuristics, &shelf).unwrap();
    let kinds: Vec<&ArtifactKind> = filed.iter().map(|artifact| &artifact.kind).collect();
    assert_eq!(kinds, [&ArtifactKind::Playbook, &ArtifactKind::PunchCard]);
    for artifact in &filed {
        let known: Vec<_> = decisions().map(|signal| signal.id).collect();
        assert_eq!(artifact.sources.len(), 20);
        assert!(artifact.sources.iter().all(|id| known.contains(id)));
    }
    let body: Value = filed[0].body.deserialize().unwrap();
    assert_eq!(body["signals"], 20);
    let wanted = json!([{
        "principle": "strategic_pause",
        "pressureLevel": "consulted",
        "psi": 41.0,
        "evidence": {
            "signals": 18,
            "weight": 18_000,
            "issuers": 5,
            "against": 2,
            "samples": samples.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "learnedFrom": {"records": 7, "head": "head"},
        },
        "approvedBy": "ada",
    }]);
    assert_eq!(body["thresholds"], wanted);
    // Nothing new: nothing is filed. Something new: the same kinds, with other digests.
    assert!(publish(&aggregate, &heuristics, &shelf).unwrap().is_empty());
    let (more, learned) = learned(decisions().chain([decision(77, 3.0, true)]));
    let renewed = publish(&more, &learned, &shelf).unwrap();
    assert_eq!(renewed.len(), 2);
    assert_ne!(renewed[0].digest, filed[0].digest);
    assert_eq!(shelf.0.lock().unwrap().len(), 4);
}

#[cfg(feature = "log")]
// spec: SAP-7-4
#[test]
fn learning_leaves_the_cache_file_a_prefix_of_itself() {
    use sap::cache::{CacheRecord, CacheStore as _};
    use sap::store::{FileCache, FileTranscript};
    use sap::transcript::{Entry, EntryKind, Transcript as _};
    use ubos_common::log::{Config, LogId};

    let folder = tempfile::tempdir().unwrap();
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([7; 16]))
            .with_segment_bytes(1 << 16)
    };
    let transcript = FileTranscript::open(folder.path().join("log"), config()).unwrap();
    let cache = FileCache::open(folder.path().join("cache"), config()).unwrap();
    let store = |n: u64, keys: Keys| {
        let output = RawBuf::parse(&n.to_string()).unwrap();
        let record = CacheRecord::new(
            keys.key,
            Timestamp::EPOCH.into(),
            "a".parse().unwrap(),
            Alignment::Valid,
            output,
            vec![],
            keys.fingerprint,
            "2.0".into(),
        );
        block_on(cache.put(&record)).unwrap();
        record
    };
    // What was written: behind it the log reserves room, which is zeros.
    let bytes = || {
        let files = std::fs::read_dir(folder.path().join("cache")).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        let is_segment = |file: &std::path::PathBuf| file.extension().is_some_and(|e| e == "seg");
        let mut bytes = std::fs::read(files.find(is_segment).unwrap()).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
        bytes
    };
    let learner = Mutex::<Aggregate>::default();
    let mut records = Vec::new();
    for n in 0..12 {
        let payload = (
            "/payload",
            json!({"q": n % 2, "askedAt": n / 2, "trace": 0}),
        );
        let (task, result) = pair(n, &[payload], &[("/output", json!(n % 2))]);
        let entry = Entry::of(EntryKind::Task, Timestamp::EPOCH, &task).unwrap();
        block_on(transcript.record(&entry)).unwrap();
        let keys = Keys::of(&task, &WholePayload).unwrap();
        records.push(store(n, keys));
        learner
            .emit(Signal::of_result(&task, Some(keys.fingerprint), &result).unwrap())
            .unwrap();
    }
    let (before, proof) = (bytes(), transcript.verify(None).unwrap());
    let heuristics = Heuristics::derive(
        &learner.into_inner().unwrap(),
        Support::default(),
        Some(&proof),
    );
    assert_eq!(
        heuristics.essences[0].evidence.learned_from,
        Some(proof.clone())
    );
    assert_eq!(bytes(), before);
    // Later writes go behind what is there, under other keys; the earlier records answer as before.
    let names = heuristics.essences[0].drop.iter().map(String::as_str);
    let extractor = DropMembers::approved("ada".parse().unwrap(), names);
    let (task, _) = pair(
        99,
        &[("/payload", json!({"q": 1, "askedAt": 99, "trace": 0}))],
        &[],
    );
    store(99, Keys::of(&task, &extractor).unwrap());
    let after = bytes();
    assert!(after.starts_with(&before) && after.len() > before.len());
    for record in records {
        assert_eq!(
            block_on(cache.find(&record.cache_key)).unwrap().record,
            Some(record)
        );
    }
    assert_eq!(
        transcript.verify(Some(&proof.head)).unwrap().verdict,
        Verdict::Intact
    );
}

// spec: SAP-7-2
#[test]
fn a_threshold_does_not_learn_of_what_it_has_stopped_itself() {
    let bound = Rules::default().threshold("strategic_pause", PressureLevel::Consulted, 50.0);
    let stopped = |rules: &Rules, n: u64, psi: f64| {
        let mut signal = decision(n, psi, true);
        let (mut task, _) = pair(n, &[], &[]);
        let context = &mut task.constitutional_context;
        context.pressure_level = PressureLevel::Consulted;
        let pressure = Psi::try_from(psi).unwrap();
        context.pressure = Some([("strategic_pause".to_owned(), pressure)].into());
        let verdict = rules.assess(&Subject::admission(&task.target.capability, context));
        if verdict.alignment != Alignment::Valid {
            signal.alignment = Some(verdict.alignment);
            signal.status = Some(Status::Escalated);
            signal.violations = Some(verdict.violations);
        }
        signal
    };
    // Good below, stopped above: nobody knows what would have come of those.
    let own = (0..40).map(|n| stopped(&bound, n, 2.0 * n as f64 + 1.0));
    assert!(learned(own).1.thresholds.is_empty());
    // What another rule has found counts, under pressure too.
    let other = (0..40).map(|n| {
        let mut signal = stopped(&bound, n, 2.0 * n as f64 + 1.0);
        for violation in signal.violations.iter_mut().flatten() {
            violation.evidence = Some("the output contains what it may not".to_owned());
        }
        signal
    });
    assert_eq!(learned(other).1.thresholds[0].psi, 49.0);
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

pub(crate) fn published(
    aggregate: &Aggregate,
    heuristics: &Heuristics,
    by: &mut Publisher,
) -> Vec<Artifact> {
    let (now, shelf) = (Timestamp::EPOCH, Shelf::default());
    let support = Support::default();
    block_on(by.publish(now, aggregate, heuristics, support, &shelf)).unwrap()
}

// spec: SAP-7-3
#[test]
fn a_playbook_says_first_what_most_say() {
    for [often, rare] in [["a", "b"], ["b", "a"]] {
        let said = (0..8).flat_map(|n| {
            let word = if n < 6 { often } else { rare };
            let actions = json!([{"action": word}]);
            let said = signal(n, &[], &[("/nextActions", actions)]);
            let mut feedback = Feedback::new("ada".parse().unwrap());
            feedback.notes = Some(word.into());
            let noted = Signal::of_operator(&said, Timestamp::EPOCH, feedback);
            [said, noted]
        });
        let (aggregate, heuristics) = learned(said);
        let filed = published(&aggregate, &heuristics, &mut Publisher::default());
        let playbook: Value = filed[0].body.deserialize().unwrap();
        let actions = json!([{"action": often}, {"action": rare}]);
        assert_eq!(playbook["nextActions"], actions);
        assert_eq!(playbook["notes"], json!([often, rare]));
    }
}

// spec: SAP-7-3
#[test]
fn of_two_subjects_that_say_the_same_each_has_its_pieces() {
    let payload = |n: u64| ("/payload", json!({"n": n}));
    let said = (0..24).map(|n| {
        let mut said = signal(n, &[payload(n / 12)], &[]);
        said.policy_checks = None;
        if n % 2 == 0 {
            said.capability = "consult.other".parse().unwrap();
        }
        said
    });
    let (aggregate, heuristics) = learned(said);
    let filed = published(&aggregate, &heuristics, &mut Publisher::default());
    let is_card = |artifact: &&Artifact| artifact.kind == ArtifactKind::PunchCard;
    let cards: Vec<_> = filed.iter().filter(is_card).collect();
    assert_eq!((cards.len(), filed.len()), (4, 6));
    assert!(cards.iter().all(|card| card.body == cards[0].body));
}

// spec: SAP-7-3, SAP-7-5
#[test]
fn as_many_pieces_are_remembered_as_may_be() {
    let (aggregate, heuristics) = learned(decisions());
    // The greatest digests: what is forgotten first is what was filed last.
    for (known, renewed) in [(99_998, 0), (100_000, 2)] {
        let before = (0..known).map(|n| format!("{}{n:08x}", "f".repeat(56)).parse().unwrap());
        let mut publisher: Publisher = before.collect();
        let mut again = || published(&aggregate, &heuristics, &mut publisher).len();
        assert_eq!((again(), again()), (2, renewed));
    }
}

// spec: SAP-7-3
#[test]
fn an_artifact_says_what_is_known_of_its_own_subject() {
    let of = |territory: &'static str, n: u64| {
        let place = "/constitutionalContext/territory";
        signal(n, &[(place, json!(territory))], &[])
    };
    let mut signals: Vec<Signal> = (0..6).map(|n| of("here", n)).collect();
    signals.extend((10..16).map(|n| of("there", n)));
    let mut other = of("here", 20);
    other.capability = "consult.other".parse().unwrap();
    signals.push(other);
    let feedback = |approved: bool| {
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.approved = Some(approved);
        Signal::of_operator(&signals[0], Timestamp::EPOCH, feedback)
    };
    let spoken = [feedback(true), feedback(false)];
    let mut hit = of("here", 30);
    hit.cache_hit = Some(true);
    let all = signals.iter().chain(&spoken).chain([&hit]).cloned();
    let (aggregate, heuristics) = learned(all);
    let (shelf, mut publisher) = (Shelf::default(), Publisher::default());
    let publish = publisher.publish(
        Timestamp::EPOCH,
        &aggregate,
        &heuristics,
        Support::default(),
        &shelf,
    );
    // There may be much to publish, so that it gives way.
    let mut publish: BoxFuture<'_, _> = Box::pin(publish);
    let mut waking = core::task::Context::from_waker(core::task::Waker::noop());
    assert!(publish.as_mut().poll(&mut waking).is_pending());
    let filed = block_on(publish).unwrap();
    let about = |kind: ArtifactKind, territory: &str| {
        let of = |artifact: &&Artifact| {
            artifact.kind == kind && artifact.territory.as_deref() == Some(territory)
        };
        filed.iter().find(of).unwrap()
    };
    assert_eq!(filed.len(), 4);
    // What another capability or territory says is no source.
    assert_eq!(
        about(ArtifactKind::Playbook, "here").sources.len(),
        6 + 2 + 1
    );
    assert_eq!(about(ArtifactKind::Playbook, "there").sources.len(), 6);
    let card: Value = about(ArtifactKind::PunchCard, "here")
        .body
        .deserialize()
        .unwrap();
    let wanted = json!({
        "signals": 9,
        "cacheHits": 1,
        "statuses": {"SUCCEEDED": 7},
        "alignments": {"VALID": 7},
        "violations": {},
        "metrics": {"latencyMs": 842.0, "tokensIn": 2100.0, "tokensOut": 600.0},
        "praise": 1,
        "blame": 1,
    });
    assert_eq!(card, wanted);
}
