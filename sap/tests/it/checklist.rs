//! The kits are proved, and the checklist judges exchanges.

use sap::learning::Signal;
use serde_json::{Value, json};
use ubos_conformance::sap::{
    Line, Recording, Vector, checklist, checklist_kit, vector_kit, vectors,
};
use ubos_conformance::{Expectations, Report, Validity, Verdict};

use crate::learning::pair;
use crate::samples::{result, task, with};

// spec: SAP-12-1
#[test]
fn kits_are_proved() {
    checklist_kit()
        .prove()
        .unwrap_or_else(|errors| panic!("{errors:#?}"));
    let kit = vector_kit();
    kit.prove().unwrap_or_else(|errors| panic!("{errors:#?}"));
    for vector in vectors() {
        assert!(
            kit.cases()
                .iter()
                .any(|case| case.clause() == vector.clause),
            "{}",
            vector.name
        );
    }
    // A validator that accepts everything fails where a message has to be refused.
    let gullible = |_: &Vector| Some(Validity::Valid);
    let report = kit.run(&Expectations::new(), |_| Ok(Box::new(gullible)));
    assert!(report.failed() > 20, "{report}");
}

fn verdicts(report: &Report) -> Vec<&'static str> {
    report
        .outcomes()
        .iter()
        .map(|outcome| outcome.verdict.as_str())
        .collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

// spec: SAP-12-1
#[test]
fn what_is_not_at_hand_is_not_judged() {
    assert_eq!(
        verdicts(&checklist(&Recording::new())),
        ["not applicable"; 7]
    );
    let exchange = Recording::new()
        .task(&bytes(&task()))
        .result(&bytes(&result()));
    let mut wanted = ["pass"; 7];
    wanted[5] = "not applicable";
    assert_eq!(verdicts(&checklist(&exchange)), wanted);
    let report = checklist(&exchange.clone().signal_log([]));
    let Verdict::Fail { place, seen } = &report.outcomes()[5].verdict else {
        panic!("{report}")
    };
    assert!(
        place.contains("SUCCEEDED") && seen == "0 signals for 1 results",
        "{place}: {seen}"
    );
    let (task, result) = pair(7, &[], &[]);
    let signal = Signal::of_result(&task, None, &result).unwrap();
    let exchange = Recording::new()
        .task(&task.encode())
        .result(&result.encode());
    assert_eq!(
        verdicts(&checklist(&exchange.clone().signal_log([&signal]))),
        ["pass"; 7]
    );
    assert_eq!(
        checklist(&exchange.signal_log([&signal, &signal])).failed(),
        1
    );
}

// spec: SAP-12-1
#[test]
fn each_way_to_break_the_cache_policy_is_found() {
    let policy = |policy: Value| with(task(), "/constitutionalContext/cachePolicy", Some(policy));
    let hit = |age: u64| {
        let cache = json!({"hit": true, "cacheKey": "0".repeat(64), "ageSec": age});
        with(result(), "/constitutionalEvidence/cache", Some(cache))
    };
    let seen = |task: &Value, result: &Value, has_log: bool| {
        let exchange = Recording::new().task(&bytes(task)).result(&bytes(result));
        let exchange = if has_log {
            exchange.with(Line::CacheLog)
        } else {
            exchange
        };
        match &checklist(&exchange).outcomes()[4].verdict {
            Verdict::Fail { seen, .. } => seen.clone(),
            other => other.as_str().to_owned(),
        }
    };
    let failed = |code: &str| {
        let failed = with(result(), "/status", Some(json!("FAILED")));
        with(
            failed,
            "/error",
            Some(json!({"code": code, "message": "m"})),
        )
    };
    let prefer = policy(json!({"mode": "prefer", "maxAgeSec": 60}));
    let only = policy(json!({"mode": "only"}));
    let bypass = policy(json!({"mode": "bypass"}));
    let none = with(task(), "/constitutionalContext/cachePolicy", None);
    let bare = with(
        result(),
        "/constitutionalEvidence/cache",
        Some(json!({"hit": true})),
    );
    for (task, result, has_log, wanted) in [
        (&prefer, &hit(59), false, "pass"),
        (&prefer, &hit(60), false, "60 s old"),
        (&prefer, &hit(59), true, "no record"),
        (&prefer, &result(), false, "pass"),
        (&prefer, &result(), true, "lacks"),
        (&prefer, &failed("CACHE_MISS"), false, "may be computed"),
        (&prefer, &bare, false, "without its key"),
        (&only, &result(), false, "only the cache"),
        (&only, &failed("CACHE_MISS"), false, "pass"),
        (&only, &failed("TIMEOUT"), false, "pass"),
        (&bypass, &hit(1), false, "not used"),
        (&none, &hit(1), false, "not used"),
        (&bypass, &result(), true, "pass"),
    ] {
        let seen = seen(task, result, has_log);
        assert!(seen.contains(wanted), "{seen:?} where {wanted:?} is wanted");
    }
}

// spec: SAP-12-1, SAP-5-5
#[test]
fn a_result_out_of_place_breaks_correlation() {
    let exchange = Recording::new()
        .result(&bytes(&result()))
        .task(&bytes(&task()));
    let report = checklist(&exchange);
    assert!(report.outcomes()[6].verdict.is_fail(), "{report}");
}
