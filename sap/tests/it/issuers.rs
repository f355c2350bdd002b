//! No issuer has something learned by himself, however much he sends.

use core::num::{NonZeroU64, NonZeroUsize};
use core::time::Duration;

use futures::executor::block_on;
use sap::learning::{
    Aggregate, Bounds, Feedback, Heuristics, Learner, Publisher, Signal, SignalKey,
    SignalSink as _, Support, Trial, TrialState, Window,
};
use sap::{PressureLevel, Status};
use serde_json::{Value, json};
use ubos_common::json;
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use crate::learned::suggestion;
use crate::learning::{Shelf, decision, pair};

/// What an issuer has brought about, or nobody knows who.
fn of(issuer: Option<&str>, signal: Signal) -> Signal {
    let mut signal = signal;
    signal.issuer = issuer.map(|issuer| (&issuer.parse::<sap::AgentId>().unwrap()).into());
    signal
}

fn one() -> Support {
    Support::default().with_issuers(NonZeroU64::MIN)
}

fn gathered(signals: impl IntoIterator<Item = Signal>) -> Aggregate {
    let mut aggregate = Aggregate::default();
    for signal in signals {
        assert!(aggregate.insert(&signal).unwrap());
    }
    aggregate
}

/// How much of each kind is learned: essences, thresholds, principles, playbooks, punch-cards.
fn learned(aggregate: &Aggregate, support: Support) -> [usize; 5] {
    let heuristics = Heuristics::derive(aggregate, support, None);
    let shelf = Shelf::default();
    let mut publisher = Publisher::default();
    let now = Timestamp::EPOCH;
    let filed = publisher.publish(now, aggregate, &heuristics, support, &shelf);
    let filed = block_on(filed).unwrap();
    let cards = filed
        .iter()
        .filter(|artifact| artifact.fingerprint.is_some());
    let cards = cards.count();
    [
        heuristics.essences.len(),
        heuristics.thresholds.len(),
        heuristics.catalogue.len(),
        filed.len() - cards,
        cards,
    ]
}

/// An outcome that does not depend on when it was asked for.
fn asked(n: u64) -> Signal {
    let payload = json!({"text": "hello", "asked": n});
    crate::learning::computed(n, payload, json!("fine"))
}

/// One issuer says something 200 times. It is learned once others say it, too: twice is too little of what is wanted, and
/// three times is enough.
fn brought(signal: impl Fn(u64) -> Signal, kind: usize) {
    let flood = || (0..200).map(|n| of(Some("A-flood"), signal(n)));
    let others = |count: u64| (0..count).map(|n| of(Some("A-other"), signal(2_000 + n)));
    let nobodys = |count: u64| (0..count).map(|n| of(None, signal(3_000 + n)));
    let is_learned = |signals: Vec<Signal>, support| learned(&gathered(signals), support)[kind] > 0;
    let several = Support::default();
    assert!(!is_learned(flood().collect(), several));
    assert!(!is_learned(flood().chain(others(2)).collect(), several));
    assert!(is_learned(flood().chain(others(3)).collect(), several));
    // Those of whom nobody knows the issuer are together one.
    assert!(!is_learned(nobodys(200).collect(), several));
    assert!(is_learned(nobodys(200).chain(others(3)).collect(), several));
    // With two issuers wanted three are no fewer; with three wanted two are too few.
    let three = several.with_issuers(NonZeroU64::new(3).unwrap());
    assert!(!is_learned(flood().chain(others(200)).collect(), three));
    let all = flood().chain(others(200)).chain(nobodys(2));
    assert!(is_learned(all.collect(), three));
    // Who has a single issuer says so.
    assert!(is_learned(flood().take(5).collect(), one()));
    assert!(!is_learned(flood().take(4).collect(), one()));
}

// spec: SAP-7-2
#[test]
fn no_issuer_has_a_threshold_proposed_by_himself() {
    brought(|n| decision(n, 50.0, false), 1);
}

// spec: SAP-7-2
#[test]
fn no_issuer_has_a_principle_proposed_by_himself() {
    brought(|n| decision(n, 50.0, true), 2);
}

// spec: SAP-7-3
#[test]
fn no_issuer_has_a_playbook_or_a_punch_card_written_by_himself() {
    brought(|n| decision(n, 50.0, true), 3);
    brought(|n| decision(n, 50.0, true), 4);
}

// spec: SAP-7-2
#[test]
fn no_issuer_has_an_essence_proposed_by_himself() {
    // Of a key 16 observations are held: each is under a payload, and so a key, of its own.
    brought(asked, 0);
    // What two issuers have asked alike is no one issuer's.
    let both = (0..5).flat_map(|n| {
        let mut other = of(Some("A-other"), asked(n));
        other.id = asked(9_000 + n).id;
        [of(Some("A-flood"), asked(n)), other]
    });
    assert_eq!(learned(&gathered(both), Support::default())[0], 1);
}

// spec: SAP-7-2
#[test]
fn an_issuer_moves_a_threshold_no_more_than_all_others_do() {
    // Up to 60 PSI all is well, above it nothing is, as ten issuers say.
    let honest = |n: u64| {
        let issuer = format!("A-{}", n % 10);
        of(
            Some(&issuer),
            decision(n, 4.0 * (n % 20) as f64 + 1.0, n % 20 < 15),
        )
    };
    // One says that 2 PSI are too much, more often than all others speak of what is above.
    let flood = (0..200).map(|n| of(Some("A-flood"), decision(5_000 + n, 2.0, false)));
    let aggregate = gathered((0..200).map(honest).chain(flood));
    let bound = |support| Heuristics::derive(&aggregate, support, None).thresholds[0].psi;
    assert_eq!(bound(one()), 1.0);
    assert_eq!(
        bound(Support::default().with_issuers(NonZeroU64::new(4).unwrap())),
        57.0
    );
}

// spec: SAP-7-2
#[test]
fn what_an_operator_says_counts_whole() {
    let blamed = (0..5).map(|n| {
        let said = decision(n, 50.0, true);
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.approved = Some(false);
        let signal = Signal::of_operator(&said, Timestamp::EPOCH, feedback);
        assert_eq!(signal.issuer, None);
        signal
    });
    assert!(learned(&gathered(blamed), Support::default())[1] > 0);
}

// spec: SAP-7-2
#[test]
fn no_issuer_proves_a_trial_by_himself() {
    let state = |issuers: u64, signals: &[(Option<&str>, u64)]| {
        let since = Timestamp::EPOCH;
        let trial = Trial::new(suggestion(), since)
            .with_wanted(5)
            .with_issuers(NonZeroU64::new(issuers).unwrap());
        for (issuer, n) in signals {
            trial.emit(of(*issuer, asked(*n))).unwrap();
        }
        trial.state()
    };
    let (flood, other) = (Some("A-flood"), Some("A-other"));
    let mut signals: Vec<_> = (0..40).map(|n| (flood, n)).collect();
    // Three of five, rounded up.
    assert_eq!(state(2, &signals), TrialState::Open { agreed: 3 });
    assert_eq!(state(1, &signals), TrialState::Proven);
    let nobodys: Vec<_> = (0..40).map(|n| (None, n)).collect();
    assert_eq!(state(2, &nobodys), TrialState::Open { agreed: 3 });
    // What he has asked in vain is left to others.
    signals.push((other, 39));
    assert_eq!(state(2, &signals), TrialState::Open { agreed: 4 });
    signals.push((other, 38));
    assert_eq!(state(2, &signals), TrialState::Proven);
}

// spec: SAP-7-5
#[test]
fn of_many_issuers_the_further_ones_count_as_one() {
    let said = |n: u64| of(Some(&format!("A-{n}")), decision(n, 50.0, false));
    let known = |max: usize, count: u64| {
        let mut aggregate = Aggregate::new(Bounds::default().with_max_issuers(max));
        for n in 0..count {
            aggregate.insert(&said(n)).unwrap();
        }
        let key = SignalKey::from(&said(0));
        let readings = &aggregate.tally(&key).unwrap().readings;
        let readings = &readings[&("strategic_pause".to_owned(), PressureLevel::Consulted)];
        let issuers = readings.bad[&50].issuers();
        (issuers, learned(&aggregate, Support::default())[1])
    };
    assert_eq!(known(64, 5), (5, 1));
    assert_eq!(known(64, 70), (65, 1));
    // One of the first and 2.5 of the others.
    assert_eq!(known(1, 70), (2, 0));
    assert_eq!(known(3, 70), (4, 1));
    // They take room that is counted.
    let taken = |max: usize, is_observed: bool| {
        let bounds = Bounds::default()
            .with_max_issuers(max)
            .with_max_bytes(10_000);
        let mut aggregate = Aggregate::new(bounds);
        let said = (0..200).map(|n| {
            let mut said = said(n);
            (said.violations, said.policy_checks, said.metrics) = (None, None, None);
            // Who said it, and what came of the payload, or of the pressure.
            match is_observed {
                true => said.pressure_readings = None,
                false => said.observed = None,
            }
            said
        });
        said.take_while(|said| aggregate.insert(said).is_ok())
            .count()
    };
    for is_observed in [true, false] {
        assert!(taken(64, is_observed) < taken(0, is_observed));
    }
}

// spec: SAP-7-5
#[test]
fn no_issuer_stops_the_learning_of_others_by_sending_much() {
    let said = |issuer: Option<&str>, n: u64| of(issuer, decision(n, 50.0, false));
    let taken = |bounds: Bounds, issuer: Option<&str>| {
        let mut aggregate = Aggregate::new(bounds);
        let signals = (0..100).map(|n| said(issuer, n));
        let taken = signals.filter(|signal| aggregate.insert(signal).is_ok());
        (taken.count(), aggregate)
    };
    let bounds = Bounds::default().with_max_signals(9);
    let (whole, half) = (NonZeroUsize::MIN, NonZeroUsize::new(2).unwrap());
    for issuer in [Some("A-flood"), None] {
        let (count, mut aggregate) = taken(bounds, issuer);
        // Half of them, rounded up.
        assert_eq!((count, aggregate.refused()), (5, 95));
        let refused = aggregate.insert(&said(issuer, 500)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "signals of one issuer at their limit of 5"
        );
        assert!(aggregate.insert(&said(Some("A-other"), 501)).unwrap());
        // A single issuer may have all.
        assert_eq!(taken(bounds.with_issuer_parts(whole), issuer).0, 9);
    }
    let bytes = |parts: NonZeroUsize| {
        let bounds = Bounds::default().with_max_bytes(20_000);
        taken(bounds.with_issuer_parts(parts), Some("A-flood"))
    };
    let (of_half, mut aggregate) = bytes(half);
    let of_all = bytes(whole).0;
    assert!(0 < of_half && of_half < of_all && of_all < 100);
    assert!(aggregate.insert(&said(Some("A-other"), 501)).unwrap());
    // Over all periods of a learner it is the same, and what an operator says is nobody's part.
    let window = Window::default().with_period(Duration::from_secs(1));
    let mut learner = Learner::new(window, bounds).unwrap();
    let later = |n: u64| {
        let mut signal = said(Some("A-flood"), n);
        let at = signal.at.timestamp();
        signal.at = at.saturating_add(Duration::from_secs(n % 3)).into();
        signal
    };
    let taken = (0..100).filter(|n| learner.insert(&later(*n)).is_ok());
    assert_eq!(taken.count(), 5);
    let feedback = Feedback::new("ada".parse().unwrap());
    let about = said(Some("A-flood"), 7);
    let operators = Signal::of_operator(&about, Timestamp::EPOCH, feedback);
    assert!(learner.insert(&operators).unwrap());
    assert!(learner.insert(&said(Some("A-other"), 501)).unwrap());
}

// spec: SAP-7-1
#[test]
fn a_signal_names_its_issuer_by_a_digest_and_an_older_one_names_none() {
    let by = |issuer: &str| {
        let (task, result) = pair(1, &[("/issuer/agentId", json!(issuer))], &[]);
        Signal::of_result(&task, None, &result).unwrap()
    };
    let long = "A".repeat(200);
    let signal = by(&long);
    assert_ne!(signal.issuer, by("A-other").issuer);
    let mut written: Value = serde_json::from_slice(&json::to_vec(&signal)).unwrap();
    assert_eq!(written["issuer"].as_str().map(str::len), Some(64));
    assert!(!written.to_string().contains(&long));
    let read = |written: &Value| {
        let text = written.to_string();
        let limits = json::Limits::default();
        json::decode::<Signal>(text.as_bytes(), &limits, Profile::Strict)
            .unwrap()
            .0
    };
    assert_eq!(read(&written), signal);
    written.as_object_mut().unwrap().remove("issuer");
    let older = read(&written);
    assert_eq!(
        (older.issuer, older.status),
        (None, Some(Status::Succeeded))
    );
}
