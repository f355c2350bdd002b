//! What fades, what is tried before it is believed, and what outlives the process.

use core::time::Duration;
use std::sync::Mutex;

use proptest::prelude::*;
use sap::learning::{
    AdoptError, Bounds, EssenceSuggestion, Feedback, Heuristics, Learner, Publisher, Signal,
    SignalSink as _, Support, Trial, TrialState, Window,
};
use sap::{Alignment, ErrorCode, Status};
use serde_json::{Value, json};
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Timestamp;

use crate::learning::{computed, decision, learned, published};

const DAY: u64 = 86_400;

/// The same signal, said on a day.
fn on(day: u64, mut signal: Signal) -> Signal {
    signal.at = at(day).into();
    signal
}

fn at(day: u64) -> Timestamp {
    Timestamp::EPOCH.saturating_add(Duration::from_secs(day * DAY))
}

fn days(periods: u32, half_life: Option<u64>) -> Window {
    Window::default()
        .with_period(Duration::from_secs(DAY))
        .with_periods(periods)
        .with_half_life(half_life.map(|days| Duration::from_secs(days * DAY)))
}

fn learner(window: Window) -> Learner {
    Learner::new(window, Bounds::default()).unwrap()
}

// spec: SAP-7-2
#[test]
fn what_was_said_long_ago_weighs_less() {
    // Up to day 9 all above 20 PSI went wrong; since then all up to 60 went well.
    let before = (0..20).map(|n| on(n / 2, decision(n, 4.0 * n as f64 + 1.0, n < 5)));
    let after = (0..20).map(|n| on(30 + n / 2, decision(100 + n, 4.0 * n as f64 + 1.0, n < 15)));
    let signals: Vec<Signal> = before.chain(after).collect();
    let bound = |window: Window| {
        let mut learner = learner(window);
        signals
            .iter()
            .for_each(|s| assert!(learner.insert(s).unwrap()));
        let known = learner.gather(at(39));
        let heuristics = Heuristics::derive(&known, Support::default(), None);
        let [threshold] = &heuristics.thresholds[..] else {
            panic!("{:?}", heuristics.thresholds)
        };
        (threshold.psi, threshold.evidence.count.clone())
    };
    // All weigh the same: the lower of two bounds that are as good.
    let (psi, count) = bound(days(90, None));
    assert_eq!((psi, count.signals, count.weight), (17.0, 30, 30_000));
    let (psi, count) = bound(days(90, Some(10)));
    assert_eq!((psi, count.signals), (57.0, 30));
    assert!(count.weight < 20_000, "{}", count.weight);
    // What fades enough says nothing any more, though it still counts.
    let mut faded = learner(days(90, Some(1)));
    signals
        .iter()
        .for_each(|s| assert!(faded.insert(s).unwrap()));
    let known = faded.gather(at(60));
    assert!(
        Heuristics::derive(&known, Support::default(), None)
            .thresholds
            .is_empty()
    );
    assert_eq!((&known).into_iter().count(), 1);
    // By default half is left after 28 days.
    let mut learner = learner(Window::default());
    assert!(learner.insert(&on(0, decision(1, 10.0, true))).unwrap());
    let known = learner.gather(at(28));
    let (_, tally) = (&known).into_iter().next().unwrap();
    assert!(tally.checks.values().all(|count| count.weight == 500));
}

// spec: SAP-7-5
#[test]
fn what_is_older_than_the_window_is_forgotten_and_leaves_room() {
    let window = days(10, None);
    let bounds = Bounds::default().with_max_signals(3);
    let mut learner = Learner::new(window, bounds).unwrap();
    let said = |day: u64| on(day, decision(day, 10.0, true));
    assert!(learner.insert(&said(1)).unwrap() && learner.insert(&said(2)).unwrap());
    assert!(learner.insert(&said(10)).unwrap());
    // The bounds hold for all periods together, and what is held stays.
    let full = learner.insert(&said(3)).unwrap_err();
    assert_eq!(full.to_string(), "signals at their limit of 3");
    assert!(!learner.insert(&said(2)).unwrap());
    let count = |learner: &mut Learner, day: u64| {
        let known = learner.gather(at(day));
        let (_, tally) = (&known).into_iter().next().unwrap();
        (tally.ids.len(), known.refused())
    };
    assert_eq!(count(&mut learner, 10), (3, 1));
    assert_eq!(window.begins(at(10)), at(1));
    assert_eq!(Window::default().begins(at(91)), at(7));
    assert_eq!(count(&mut learner, 11), (2, 1));
    assert!(learner.insert(&said(11)).unwrap());
    assert_eq!((count(&mut learner, 11), learner.refused()), ((3, 1), 1));
    // A clock that was set back loses nothing, and what is of the future weighs no more than what is new.
    assert_eq!(count(&mut learner, 9), (3, 1));
    let keys = Bounds::default().with_max_keys(1);
    let mut keys = Learner::new(window, keys).unwrap();
    assert!(keys.insert(&said(1)).unwrap());
    assert!(keys.insert(&said(2)).unwrap());
    let bytes = Bounds::default().with_max_bytes(10);
    let mut bytes = Learner::new(window, bytes).unwrap();
    assert!(bytes.insert(&said(1)).unwrap());
    assert!(bytes.insert(&said(2)).is_err());
    for wrong in [
        days(0, None),
        days(1, Some(0)),
        days(1, None).with_period(Duration::from_millis(999)),
    ] {
        assert!(Learner::new(wrong, Bounds::default()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    // spec: SAP-7-5
    #[test]
    fn the_order_in_which_days_are_told_does_not_matter(
        (one, other) in proptest::collection::vec((0_u64..12, 0_u64..9, 0_u8..100, any::<bool>()), 0..30)
            .prop_flat_map(|decisions| (Just(decisions.clone()), Just(decisions).prop_shuffle())),
    ) {
        let gathered = |decisions: &[(u64, u64, u8, bool)]| {
            let mut learner = learner(days(6, Some(2)));
            for (n, day, psi, is_good) in decisions {
                learner.insert(&on(*day, decision(*n, f64::from(*psi), *is_good))).unwrap();
            }
            learner.gather(at(8))
        };
        let (one, other) = (gathered(&one), gathered(&other));
        prop_assert_eq!(Heuristics::derive(&one, Support::of(2), None), Heuristics::derive(&other, Support::of(2), None));
        prop_assert_eq!(one, other);
    }
}

// spec: SAP-7-1
#[test]
fn what_two_days_say_is_put_together() {
    let learner = Mutex::new(learner(days(10, None)));
    let tell = |signal: Signal| learner.emit(signal).unwrap();
    for day in [1, 2] {
        let mut said = on(day, decision(day, 10.0, true));
        let metrics = format!(r#"{{"latencyMs":{}}}"#, day * 100);
        said.metrics = RawObject::new(RawBuf::parse(&metrics).unwrap());
        let action = RawBuf::parse(r#"{"action":"ask"}"#).unwrap();
        said.next_actions = Some(vec![RawObject::new(action).unwrap()]);
        said.violations = decision(day, 10.0, false).violations;
        tell(said.clone());
        let mut hit = on(day, decision(day + 10, 10.0, true));
        hit.cache_hit = Some(true);
        tell(hit);
        let later = at(day).saturating_add(Duration::from_secs(1));
        for (at, is_good) in [(at(day), true), (later, false)] {
            let mut opinion = Feedback::new("ada".parse().unwrap());
            opinion.approved = Some(is_good);
            // The one is as long as may be, the other is too long.
            opinion.notes = Some("x".repeat(if is_good { 1_024 } else { 1_025 }));
            tell(Signal::of_operator(&said, at, opinion));
        }
    }
    let known = learner.lock().unwrap().gather(at(2));
    let (_, tally) = (&known).into_iter().next().unwrap();
    let metric = tally.metrics["latencyMs"];
    assert_eq!(
        (metric.count, metric.min, metric.max, metric.mean),
        (2, 100.0, 200.0, 150.0)
    );
    assert_eq!(
        (tally.statuses[&Status::Succeeded], tally.ids.len()),
        (4, 8)
    );
    let (hits, valid) = (tally.hits, tally.alignments[&Alignment::Valid]);
    let actions: Vec<_> = tally.actions.values().map(|(_, count)| count).collect();
    assert_eq!((hits, valid), (2, 4));
    assert_eq!(actions.iter().map(|c| c.signals).collect::<Vec<_>>(), [2]);
    assert_eq!((actions[0].weight, actions[0].issuers()), (2_000, 2));
    assert_eq!((tally.praise.signals, tally.blame.signals), (2, 2));
    let broken: Vec<_> = tally.violations.values().map(|c| c.signals).collect();
    assert_eq!(broken, [2]);
    let notes: Vec<_> = tally.notes.values().map(|c| c.signals).collect();
    assert_eq!((notes, tally.left_out), (vec![2], 2));
    let kept = ("blueprint_thinking".to_owned(), "PASS".to_owned());
    assert_eq!(tally.checks[&kept].signals, 2);
}

// spec: SAP-7-2, SAP-7-3, SAP-7-5
#[test]
fn what_each_of_several_days_says_too_seldom_is_enough_together() {
    let asked = |n: u64| {
        let payload = json!({"text": "hello", "asked": n});
        on(n, computed(n, payload, json!("fine")))
    };
    let mut learner = learner(days(10, None));
    for n in 1..7 {
        learner.insert(&asked(n)).unwrap();
    }
    let mut known = learner.gather(at(7));
    let heuristics = Heuristics::derive(&known, Support::default(), None);
    assert_eq!(heuristics.essences[0].drop, ["asked"]);
    let filed = published(&known, &heuristics, &mut Publisher::default());
    assert_eq!(filed.len(), 1, "a playbook");
    assert!(!known.insert(&asked(1)).unwrap(), "it counts once");
}

/// To leave `asked` out, as signals suggest it.
pub(crate) fn suggestion() -> EssenceSuggestion {
    let asked = |n: u64| computed(n, json!({"text": "hello", "asked": n}), json!("fine"));
    let (_, heuristics) = learned((0..6).map(asked));
    let [suggestion] = &heuristics.essences[..] else {
        panic!("{:?}", heuristics.essences)
    };
    assert_eq!(suggestion.drop, ["asked"]);
    suggestion.clone()
}

fn tried(n: u64, text: &str, asked: u64, output: &str) -> Signal {
    let payload = json!({"text": text, "asked": asked});
    on(2, computed(n, payload, json!(output)))
}

// spec: SAP-7-2
#[test]
fn a_suggestion_is_adopted_after_enough_outcomes_of_its_own() {
    let trial = Trial::new(suggestion(), at(2)).with_wanted(2);
    let ada: sap::AgentId = "ada".parse().unwrap();
    let adopt = || trial.adopt(ada.clone());
    let tell = |signal: Signal| trial.emit(signal).unwrap();
    // What was known before the trial is what is compared with, and no evidence for it.
    tell(on(1, tried(1, "a", 1, "fine")));
    tell(on(1, tried(2, "a", 2, "fine")));
    assert_eq!(trial.state(), TrialState::Open { agreed: 0 });
    // The same payload again says nothing about what is left out of it; nor does another essence.
    tell(tried(3, "a", 2, "fine"));
    tell(tried(4, "b", 1, "bad"));
    assert_eq!(trial.state(), TrialState::Open { agreed: 0 });
    tell(tried(5, "a", 3, "fine"));
    let (agreed, wanted) = (1, 2);
    assert_eq!(adopt(), Err(AdoptError::NotProven { agreed, wanted }));
    // What another capability says is another matter, and so is a hit.
    let mut other = tried(6, "a", 4, "fine");
    other.capability = "consult.other".parse().unwrap();
    tell(other);
    let mut hit = tried(7, "a", 4, "fine");
    hit.observed = None;
    tell(hit);
    assert_eq!(trial.state(), TrialState::Open { agreed: 1 });
    tell(tried(8, "b", 2, "bad"));
    assert_eq!(trial.state(), TrialState::Proven);
    // Nobody has what would leave it out before somebody answers for it.
    assert_eq!(trial.adopted(), None);
    adopt().unwrap();
    trial.adopt("bea".parse().unwrap()).unwrap();
    let operator = ada.clone();
    assert_eq!(trial.state(), TrialState::Adopted { operator });
    assert_eq!(trial.adopted().unwrap().approved_by(), &ada);
    // One outcome that differs is the end, whenever it comes.
    let (one, differs) = (tried(4, "b", 1, "bad"), tried(9, "b", 3, "good"));
    tell(differs.clone());
    let outcomes = [one.id, differs.id];
    assert_eq!(trial.state(), TrialState::Refuted { outcomes });
    tell(tried(10, "b", 4, "worse"));
    assert_eq!(trial.state(), TrialState::Refuted { outcomes });
    assert_eq!(adopt(), Err(AdoptError::Refuted));
    assert_eq!(trial.adopted(), None);
}

// spec: SAP-7-2
#[test]
fn an_outcome_that_was_not_given_out_differs_from_one_that_was() {
    let end = |code: Option<&str>, status: Status| {
        let mut changes = vec![
            ("/status", json!(status.as_str())),
            ("/output", Value::Null),
        ];
        if let Some(code) = code {
            changes.push(("/error", json!({"code": code, "message": "no"})));
        }
        let (task, result) = crate::learning::pair(
            1,
            &[("/payload", json!({"text": "a", "asked": 9}))],
            &changes,
        );
        on(2, Signal::of_result(&task, None, &result).unwrap())
    };
    let state = |signal: Signal| {
        let trial = Trial::new(suggestion(), at(2));
        trial.emit(tried(2, "a", 1, "fine")).unwrap();
        trial.emit(signal).unwrap();
        trial.state()
    };
    let refuted = |signal: Signal| matches!(state(signal), TrialState::Refuted { .. });
    assert!(refuted(end(Some("NON_CONSTITUTIONAL"), Status::Failed)));
    assert!(refuted(end(Some("UNPROCESSABLE"), Status::Failed)));
    assert!(refuted(end(None, Status::Escalated)));
    // What says nothing of the payload is passed over.
    for code in ["TIMEOUT", "RATE_LIMIT", "INTERNAL", "CACHE_MISS"] {
        assert_eq!(
            state(end(Some(code), Status::Failed)),
            TrialState::Open { agreed: 0 }
        );
    }
    assert_eq!(
        state(end(None, Status::Cancelled)),
        TrialState::Open { agreed: 0 }
    );
    let mut stopped = end(None, Status::Escalated);
    assert!(stopped.observed.is_some());
    // The pressure of the task stopped it, and not its payload.
    let violation =
        json!([{"principle": "p", "severity": "medium", "evidence": "above the bound: 50 PSI"}]);
    let (task, result) = crate::learning::pair(
        1,
        &[],
        &[
            ("/status", json!("ESCALATED")),
            ("/constitutionalEvidence/violations", violation),
        ],
    );
    stopped = Signal::of_result(&task, None, &result).unwrap();
    assert_eq!(stopped.observed, None);
    assert_eq!(result.error_code(), None::<&ErrorCode>);
    // A part is not the outcome.
    assert_eq!(end(None, Status::Partial).observed, None);
}

/// Else a bound would hold for tasks that do not name its principle, by its own doing.
// spec: SAP-7-2
#[test]
fn what_a_threshold_stopped_is_not_found_broken() {
    let stopped = |number: u64, principle: &str, evidence: &str| {
        let violation =
            json!([{"principle": principle, "severity": "medium", "evidence": evidence}]);
        let check = json!([{"principle": "p", "status": "FAIL", "notes": "broken"}]);
        let (task, result) = crate::learning::pair(
            number,
            &[],
            &[
                ("/status", json!("ESCALATED")),
                ("/constitutionalEvidence/violations", violation),
                ("/constitutionalEvidence/policyChecks", check),
            ],
        );
        Signal::of_result(&task, None, &result).unwrap()
    };
    for (principle, evidence, is_broken) in [
        ("p", "above the bound: 50 PSI", false),
        ("q", "above the bound: 50 PSI", true),
        ("p", "it says so", true),
    ] {
        let signals = (1..=6).map(|number| stopped(number, principle, evidence));
        let catalogue = learned(signals).1.catalogue;
        let found = catalogue.iter().any(|entry| entry.principle == "p");
        assert_eq!(found, is_broken, "{catalogue:?}");
    }
}

// spec: SAP-7-2
#[test]
fn what_a_trial_remembers_is_bounded() {
    let trial = Trial::new(suggestion(), at(2)).with_wanted(1_000);
    // Of one essence 64 payloads are told apart.
    for n in 0..80 {
        trial.emit(tried(n, "a", n, "fine")).unwrap();
    }
    assert_eq!(trial.state(), TrialState::Open { agreed: 63 });
    // The oldest essence is forgotten where there are more than 10,000.
    for n in 0..10_000_u64 {
        let mut signal = tried(1, "a", 1, "fine");
        signal.territory = Some(n.to_string());
        trial.emit(signal).unwrap();
    }
    let mut known = tried(1, "a", 2, "fine");
    known.territory = Some("0".into());
    trial.emit(known).unwrap();
    assert_eq!(trial.state(), TrialState::Open { agreed: 64 });
    trial.emit(tried(1, "a", 99, "other")).unwrap();
    assert_eq!(trial.state(), TrialState::Open { agreed: 64 });
}

#[cfg(feature = "driver")]
mod with_a_processor {
    use core::num::NonZeroU64;

    use super::*;
    use crate::processor::{Jumping, Log, processor, result, run, text};
    use crate::samples::{task, with};
    use sap::cache::{Caching, WholePayload};
    use sap::learning::SignalSink;
    use sap::processor::{Context, Outcome, Processor};
    use sap::store::MemoryCache;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A moderation: what it says depends on the text alone, as far as its author knows.
    struct Desk {
        processor: Processor,
        clock: Jumping,
        trial: Arc<Trial>,
        runs: Arc<AtomicUsize>,
        asked: Mutex<u64>,
    }

    impl Desk {
        fn new(suggestion: EssenceSuggestion, wanted: u64, one_in: u64) -> Self {
            let clock = Jumping::new();
            let trial = Trial::new(suggestion, Timestamp::EPOCH)
                .with_wanted(wanted)
                // All its tasks are of one issuer.
                .with_issuers(NonZeroU64::MIN)
                .with_one_in(NonZeroU64::new(one_in).unwrap());
            let (trial, runs) = (Arc::new(trial), Arc::new(AtomicUsize::new(0)));
            let counter = Arc::clone(&runs);
            let moderate = move |cx: Context| {
                counter.fetch_add(1, Ordering::SeqCst);
                let payload: BTreeMap<String, Value> = cx.task.payload.deserialize().unwrap();
                let is_bad = payload["text"].as_str().unwrap().contains("bomb");
                async move {
                    Ok(Outcome::new(text(if is_bad {
                        "\"no\""
                    } else {
                        "\"yes\""
                    })))
                }
            };
            let signals = vec![Arc::clone(&trial) as Arc<dyn SignalSink>];
            let caching = Caching::shared(WholePayload).with_trial(Arc::clone(&trial));
            let processor = processor(&Log::default())
                .handle("consult.align".parse().unwrap(), moderate)
                .cache(Arc::new(MemoryCache::default()))
                .cached("consult.align".parse().unwrap(), caching)
                .signals(Arc::new(signals));
            Self {
                processor,
                clock,
                trial,
                runs,
                asked: Mutex::new(0),
            }
        }

        /// What it says, and whether it ran for that.
        fn ask(&self, text: &str, mode: &str) -> (Option<String>, bool) {
            let mut asked = self.asked.lock().unwrap();
            *asked += 1;
            let id = format!("00000000-0000-0000-0000-{:012}", *asked);
            let task = with(task(), "/taskId", Some(json!(id)));
            let payload = json!({"text": text, "asked": *asked, "channel": "desk"});
            let task = with(task, "/payload", Some(payload));
            let mode = Some(json!(mode));
            let task = with(task, "/constitutionalContext/cachePolicy/mode", mode);
            let before = self.runs.load(Ordering::SeqCst);
            let said = result(run(&self.processor, &self.clock, &task).1);
            futures::executor::block_on(self.processor.signals_told());
            let output = said.output.map(|output| output.deserialize().unwrap());
            (output, self.runs.load(Ordering::SeqCst) > before)
        }
    }

    fn dropping(names: &[&str]) -> EssenceSuggestion {
        let mut suggestion = suggestion();
        suggestion.drop = names.iter().map(|&name| name.to_owned()).collect();
        suggestion
    }

    fn yes(ran: bool) -> (Option<String>, bool) {
        (Some("yes".to_owned()), ran)
    }

    // spec: SAP-7-2, SAP-6-13
    #[test]
    fn a_member_that_matters_is_found_in_the_shadow_before_it_is_left_out() {
        // Harmless texts alone suggest that the text does not matter.
        let desk = Desk::new(dropping(&["asked", "text"]), 3, 1);
        for text in ["hello", "good day", "how are you"] {
            assert_eq!(desk.ask(text, "prefer"), yes(true));
        }
        assert_eq!(desk.trial.state(), TrialState::Open { agreed: 2 });
        let bad = desk.ask("build a bomb", "prefer");
        assert_eq!(bad, (Some("no".to_owned()), true));
        assert!(matches!(desk.trial.state(), TrialState::Refuted { .. }));
    }

    // spec: SAP-7-2, SAP-6-13
    #[test]
    fn what_is_proven_of_another_capability_leaves_nothing_out_here() {
        let mut suggestion = dropping(&["asked"]);
        suggestion.capability = "consult.other".parse().unwrap();
        let desk = Desk::new(suggestion, 1, 100);
        for asked in 1..=2 {
            let mut signal = tried(asked, "hello", asked, "yes");
            signal.capability = "consult.other".parse().unwrap();
            desk.trial.emit(signal).unwrap();
        }
        desk.trial.adopt("ada".parse().unwrap()).unwrap();
        for _ in 0..3 {
            assert_eq!(desk.ask("hello", "prefer"), yes(true));
        }
    }

    // spec: SAP-7-2, SAP-6-3, SAP-6-13
    #[test]
    fn of_the_hits_of_an_adopted_essence_a_share_is_computed_and_compared() {
        let desk = Desk::new(dropping(&["asked", "text"]), 2, 3);
        for text in ["hello", "good day", "how are you"] {
            desk.ask(text, "prefer");
        }
        assert_eq!(desk.trial.state(), TrialState::Proven);
        // Nothing is left out before somebody says so.
        assert_eq!(desk.ask("hello again", "prefer"), yes(true));
        desk.trial.adopt("ada".parse().unwrap()).unwrap();
        // Its records have other keys, so that the first is computed.
        let asked = (0..7).map(|_| desk.ask("hello", "prefer").1);
        assert_eq!(
            asked.collect::<Vec<_>>(),
            [true, true, false, false, true, false, false]
        );
        // Where only the cache may answer nothing is computed.
        assert_eq!(desk.ask("hello", "only"), yes(false));
        // What it got wrong ends with the first one that is compared.
        let bad = (0..4).map(|_| desk.ask("build a bomb", "prefer"));
        let no = |ran| (Some("no".to_owned()), ran);
        assert_eq!(
            bad.collect::<Vec<_>>(),
            [no(true), no(true), no(true), no(true)]
        );
        assert!(matches!(desk.trial.state(), TrialState::Refuted { .. }));
        assert_eq!(desk.ask("hello", "only").0, None);
    }
}
