//! What many signals teach: thresholds, the catalogue, members that can be left out.

use std::sync::Arc;

use sap::Psi;
use sap::alignment::{Policy as _, Rules, Subject};
use sap::cache::{DropMembers, Keys, WholePayload};
use sap::learning::{Feedback, Publisher, Signal};
use sap::{Alignment, PressureLevel, Status, Task};
use serde_json::{Value, json};
use ubos_common::json::RawBuf;
use ubos_common::time::Timestamp;

use super::{computed, decision, decisions, learned, pair, published};

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
