//! The 1.0 profile: members, names, states, steps, graph.

use sacp::Graph;
use sacp::v1::{Code, Failure, Message, RetryStrategy, State};
use sacp::{OnError, OutFmt, Retry};
use serde_json::{Value, json};
use ubos_common::json::DecodeError;
use ubos_common::trace_context::TraceContext;
use ubos_common::violation::{Level, Profile, Report};

use crate::message::neighbours;

fn validate(text: &[u8]) -> Result<(Message, Report), DecodeError> {
    ubos_common::json::decode(text, &ubos_common::json::Limits::default(), Profile::Strict)
}

fn base() -> Value {
    json!({"proto_ver": "1.0.0", "msg_id": "m1", "ts": "2025-10-01T12:00:00Z", "sender": "planner", "g": "TRIP",
        "plan": [{"id": "a", "verb": "fetch", "tool": "T", "params": {}}], "state": "PENDING"})
}

/// The findings that refuse the base with a member set; `null` removes it.
fn refused(pointer: &str, value: Value) -> Vec<(String, String, String)> {
    findings(&with(pointer, value))
}

fn with(pointer: &str, value: Value) -> Value {
    let mut message = base();
    set(&mut message, pointer, value);
    message
}

fn set(message: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let object = message
        .pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap();
    if value.is_null() {
        object.remove(name);
    } else {
        object.insert(name.to_owned(), value);
    }
}

fn findings(message: &Value) -> Vec<(String, String, String)> {
    match validate(message.to_string().as_bytes()) {
        Ok(_) => Vec::new(),
        Err(DecodeError::Invalid(report)) => report
            .iter()
            .filter(|f| f.level == Level::Must)
            .map(|f| (f.pointer.clone(), f.code.to_string(), f.clause.to_string()))
            .collect(),
        Err(other) => panic!("{other}"),
    }
}

fn is_good(pointer: &str, value: Value) -> bool {
    let message = with(pointer, value);
    let text = message.to_string();
    let Ok(read) = Message::decode(text.as_bytes()) else {
        return false;
    };
    let again: Value = serde_json::from_slice(&read.encode()).unwrap();
    assert_eq!(again, message);
    true
}

fn one(pointer: &str, value: Value) -> (String, String, String) {
    let found = refused(pointer, value);
    assert_eq!(found.len(), 1, "{pointer}: {found:?}");
    found.into_iter().next().unwrap()
}

// spec: SACP1-4-1
#[test]
fn seven_members_are_required_and_no_unknown_one_is_taken() {
    for member in ["proto_ver", "msg_id", "ts", "sender", "g", "plan", "state"] {
        let (pointer, code, _) = one(&format!("/{member}"), Value::Null);
        assert_eq!((pointer, code.as_str()), (format!("/{member}"), "missing"));
    }
    for good in ["1.0.0", "1.0.7", "1.0.12"] {
        assert!(is_good("/proto_ver", json!(good)), "{good}");
    }
    for bad in [
        "1.1.0",
        "0.1",
        "2.0.0",
        "1.0",
        "1.0.",
        "1.0.07",
        "1.0.0-rc1",
    ] {
        assert_eq!(one("/proto_ver", json!(bad)).1, "bad_value", "{bad}");
    }
    assert!(is_good("/ts", json!("2025-10-01T12:00:00.25Z")));
    for bad in ["2025-10-01T12:00:00+02:00", "2025-10-01", "now", ""] {
        assert_eq!(one("/ts", json!(bad)).0, "/ts", "{bad}");
    }
    assert_eq!(one("/plan", json!([])).0, "/plan");
    assert_eq!(one("/subtask", json!({})).1, "unknown_member");
    assert_eq!(
        one("/plan/0/note", json!(1)),
        (
            "/plan/0/note".into(),
            "unknown_member".into(),
            "SACP1-6-1".into()
        )
    );
    assert_eq!(one("/test_mode", json!("yes")).0, "/test_mode");
    assert!(is_good("/test_mode", json!(true)));
    assert!(is_good("/ctx", json!({"n": 1})));
    assert_eq!(one("/out_fmt", json!("prose")).0, "/out_fmt");
}

// spec: SACP1-4-2
#[test]
fn names_have_an_alphabet_and_a_length() {
    for member in ["msg_id", "reply_to", "sender", "recipient"] {
        let pointer = format!("/{member}");
        assert!(is_good(&pointer, json!("aZ9._:-")));
        assert!(is_good(&pointer, json!("x".repeat(128))));
        for bad in ["", "a b", "é", &"x".repeat(129)] {
            assert_eq!(one(&pointer, json!(bad)).0, pointer);
        }
    }
    for member in ["id", "output_key"] {
        let pointer = format!("/plan/0/{member}");
        assert!(is_good(&pointer, json!("x".repeat(64))));
        for bad in ["", "a/b", &"x".repeat(65)] {
            assert_eq!(one(&pointer, json!(bad)).0, pointer);
        }
    }
    for (pointer, most) in [("/g", 128), ("/plan/0/verb", 64), ("/plan/0/tool", 64)] {
        assert!(is_good(pointer, json!("é ".repeat(most / 2))));
        assert!(is_good(pointer, json!("🦀".repeat(most))));
        for bad in [String::new(), "é".repeat(most + 1)] {
            assert_eq!(one(pointer, json!(bad)).0, pointer);
        }
    }
}

// spec: SACP1-4-3
#[test]
fn result_and_error_are_there_exactly_when_the_state_says() {
    let (result, error) = (
        json!({"outputs": {}}),
        json!({"code": "TIMEOUT", "message": "late"}),
    );
    for state in State::WORDS {
        for (has_result, has_error) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut message = with("/state", json!(state));
            if has_result {
                set(&mut message, "/result", result.clone());
            }
            if has_error {
                set(&mut message, "/error", error.clone());
            }
            let good = has_result == (*state == "DONE") && has_error == (*state == "FAILED");
            assert_eq!(findings(&message).is_empty(), good, "{message}");
        }
    }
    for (message, code) in [
        (with("/state", json!("DONE")), "missing"),
        (with("/result", result), "state_outcome"),
    ] {
        let found = findings(&message);
        assert_eq!((&*found[0].0, &*found[0].1), ("/result", code));
    }
}

// spec: SACP1-4-4
#[test]
fn extensions_are_named_and_traces_closed() {
    assert!(is_good("/ext", json!({"acme.Flag_1-x.y": {"deep": [1]}})));
    for bad in ["flag", "Acme.flag", "acme.", ".flag", "acme.fl ag"] {
        assert_eq!(one("/ext", json!({bad: 1})).1, "ext_name", "{bad}");
    }
    assert!(is_good(
        "/trace",
        json!({"trace_id": "t", "span_id": "s", "parent_span_id": "p", "attempt": 1, "metrics": {"latency_ms": 5,
            "queue_ms": 0, "tool_calls": 1, "tokens_in": 2, "tokens_out": 3, "cost_usd": 0.25}})
    ));
    for (pointer, trace) in [
        ("/trace/attempt", json!({"attempt": 0})),
        ("/trace/attempt", json!({"attempt": 1.5})),
        ("/trace/more", json!({"more": 1})),
        ("/trace/metrics/more", json!({"metrics": {"more": 1}})),
        (
            "/trace/metrics/tokens_in",
            json!({"metrics": {"tokens_in": 1.5}}),
        ),
        (
            "/trace/metrics/cost_usd",
            json!({"metrics": {"cost_usd": "1"}}),
        ),
    ] {
        assert_eq!(one("/trace", trace).0, pointer);
    }
}

// spec: SACP1-5-1
#[test]
fn every_pair_of_states_is_a_move_or_refused_with_both() {
    let words = [
        "PENDING",
        "ACCEPTED",
        "IN_PROGRESS",
        "WAITING",
        "DONE",
        "FAILED",
        "CANCELLED",
    ];
    assert_eq!(State::WORDS, words);
    let moves: [(&str, &[&str]); 4] = [
        ("PENDING", &["ACCEPTED", "FAILED", "CANCELLED"]),
        ("ACCEPTED", &["IN_PROGRESS", "FAILED", "CANCELLED"]),
        ("IN_PROGRESS", &["WAITING", "DONE", "FAILED", "CANCELLED"]),
        ("WAITING", &["IN_PROGRESS", "FAILED", "CANCELLED"]),
    ];
    for from in words {
        for to in words {
            let allowed = from == to
                || moves
                    .iter()
                    .any(|(f, to_all)| *f == from && to_all.contains(&to));
            let mut state = State::from(from);
            match state.advance(State::from(to)) {
                Ok(()) => assert!(allowed && state.as_str() == to, "{from} {to}"),
                Err(refused) => {
                    assert!(!allowed && state.as_str() == from, "{from} {to}");
                    let failure = Failure::from(&refused);
                    assert_eq!(*failure.code, Code::InvalidStateTransition);
                    let details = failure.details.unwrap();
                    assert_eq!(
                        details.as_str(),
                        format!(r#"{{"from":"{from}","to":"{to}"}}"#)
                    );
                }
            }
        }
    }
}

// spec: SACP1-6-1
#[test]
fn steps_have_ranges_and_closed_words() {
    for member in ["id", "verb", "tool", "params"] {
        assert_eq!(one(&format!("/plan/0/{member}"), Value::Null).1, "missing");
    }
    for (member, good, bad) in [
        (
            "timeout_ms",
            vec![json!(1), json!(3_600_000)],
            vec![json!(0), json!(3_600_001), json!(1.5), json!("1")],
        ),
        (
            "retry",
            vec![
                json!({"max_attempts": 1}),
                json!({"max_attempts": 10, "backoff_ms": 0, "strategy": "fixed"}),
                json!({"max_attempts": 2, "backoff_ms": 600_000, "strategy": "exponential"}),
            ],
            vec![
                json!({}),
                json!({"max_attempts": 0}),
                json!({"max_attempts": 11}),
                json!({"max_attempts": 1, "backoff_ms": 600_001}),
                json!({"max_attempts": 1, "strategy": "linear"}),
                json!({"max_attempts": 1, "jitter": true}),
            ],
        ),
        (
            "on_error",
            vec![json!("fail_fast"), json!("continue")],
            vec![json!("retry"), json!("fallback")],
        ),
        ("params", vec![json!({"subtask": 7})], vec![json!([])]),
        ("depends_on", vec![json!([])], vec![json!("a"), json!([1])]),
    ] {
        let pointer = format!("/plan/0/{member}");
        for value in good {
            assert!(is_good(&pointer, value.clone()), "{pointer} {value}");
        }
        for value in bad {
            assert_eq!(
                refused(&pointer, value.clone()).len(),
                1,
                "{pointer} {value}"
            );
        }
    }
    assert_eq!(
        one("/plan/0/on_error", json!("fallback")).0,
        "/plan/0/fallback_step"
    );
    let mut idle = base();
    idle["plan"] = plan(&[("a", json!({"fallback_step": "b"})), ("b", json!({}))]);
    let (_, report) = validate(idle.to_string().as_bytes()).unwrap();
    let finding = report.iter().next().unwrap();
    assert_eq!(
        (finding.pointer.as_str(), finding.level),
        ("/plan/0/fallback_step", Level::Advice)
    );
}

// spec: SACP1-4-1, SACP1-6-1
#[test]
fn every_word_of_a_closed_list_is_taken_and_no_neighbour() {
    for (pointer, words) in [
        ("/out_fmt", OutFmt::WORDS),
        ("/state", State::WORDS),
        ("/plan/0/on_error", sacp::v1::OnError::WORDS),
        ("/plan/0/retry/strategy", RetryStrategy::WORDS),
    ] {
        let retry = json!({"retry": {"max_attempts": 2}});
        let steps = plan(&[("a", retry), ("b", json!({}))]);
        let said = |word: &str| {
            let mut message = with("/plan", steps.clone());
            set(&mut message, pointer, json!(word));
            match word {
                "DONE" => set(&mut message, "/result", json!({"outputs": {}})),
                "FAILED" => message["error"] = json!({"code": "TIMEOUT", "message": "late"}),
                "fallback" => set(&mut message, "/plan/0/fallback_step", json!("b")),
                _ => {}
            }
            message
        };
        for word in words {
            let read = Message::decode(said(word).to_string().as_bytes()).unwrap();
            let written: Value = serde_json::from_slice(&read.encode()).unwrap();
            assert_eq!(written, said(word));
            for bad in neighbours(word) {
                let found = findings(&said(&bad));
                assert_eq!(found.len(), 1, "{pointer} = {bad:?}: {found:?}");
                assert_eq!(found[0].0, pointer);
            }
        }
    }
}

fn plan(steps: &[(&str, Value)]) -> Value {
    let step = |(id, more): &(&str, Value)| {
        let mut step = json!({"id": id, "verb": "do", "tool": "T", "params": {}});
        step.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        step
    };
    steps.iter().map(step).collect()
}

fn plan_findings(steps: &[(&str, Value)]) -> Vec<(String, String)> {
    let found = refused("/plan", plan(steps));
    found
        .into_iter()
        .map(|(pointer, code, _)| (pointer, code))
        .collect()
}

// spec: SACP1-6-2
#[test]
fn steps_make_a_graph() {
    let on = |names: &[&str]| json!({"depends_on": names});
    let falls = |name: &str| json!({"on_error": "fallback", "fallback_step": name});
    let key = |name: &str| json!({"output_key": name});
    let none = json!({});
    for (steps, pointer, code) in [
        (
            vec![("a", none.clone()), ("a", none.clone())],
            "/plan/1/id",
            "duplicate_id",
        ),
        (
            vec![("a", on(&["x"]))],
            "/plan/0/depends_on",
            "unknown_step",
        ),
        (
            vec![("a", on(&["a"]))],
            "/plan/0/depends_on",
            "self_dependency",
        ),
        (
            vec![("a", falls("x"))],
            "/plan/0/fallback_step",
            "unknown_step",
        ),
        (
            vec![("a", falls("a"))],
            "/plan/0/fallback_step",
            "self_fallback",
        ),
        (
            vec![("a", falls("c")), ("b", falls("c")), ("c", none.clone())],
            "/plan/1/fallback_step",
            "shared_fallback",
        ),
        (
            vec![("a", key("k")), ("b", key("k"))],
            "/plan/1/output_key",
            "duplicate_output_key",
        ),
        (
            vec![("a", on(&["b"])), ("b", on(&["a"]))],
            "/plan/0/depends_on",
            "cycle",
        ),
        (
            vec![("a", falls("b")), ("b", falls("a"))],
            "/plan/0/depends_on",
            "cycle",
        ),
        (
            vec![("a", falls("f")), ("d", on(&["a"])), ("f", on(&["d"]))],
            "/plan/1/depends_on",
            "cycle",
        ),
    ] {
        assert_eq!(
            plan_findings(&steps),
            [(pointer.into(), code.into())],
            "{steps:?}"
        );
    }
    let mut first = falls("b");
    first["output_key"] = json!("k");
    assert!(plan_findings(&[("a", first), ("b", key("k")), ("c", on(&["a"]))]).is_empty());
    let message = with(
        "/plan",
        plan(&[
            ("x", on(&["c"])),
            ("a", on(&["c"])),
            ("b", on(&["a"])),
            ("c", on(&["b"])),
        ]),
    );
    let Err(DecodeError::Invalid(report)) = validate(message.to_string().as_bytes()) else {
        panic!("taken")
    };
    let finding = report.iter().next().unwrap();
    assert_eq!(
        finding.message,
        "a cycle: a waits for c waits for b waits for a"
    );
}

#[test]
fn a_long_chain_is_no_cycle_and_needs_no_stack() {
    let steps: Vec<Value> = (0..9_999)
        .map(|n| json!({"id": format!("s{n}"), "verb": "do", "tool": "T", "params": {}, "depends_on": if n < 9_998 { vec![format!("s{}", n + 1)] } else { vec![] }}))
        .collect();
    let message =
        Message::decode(with("/plan", Value::Array(steps)).to_string().as_bytes()).unwrap();
    assert_eq!(Graph::from(&message).step(1).unwrap().after[..], [2]);
}

// spec: SACP1-7-1
#[test]
fn a_plan_has_ten_thousand_steps_and_no_more() {
    let steps = |count: usize| {
        let step = |n| json!({"id": format!("s{n}"), "verb": "v", "tool": "T", "params": {}});
        with("/plan", (0..count).map(step).collect())
    };
    assert_eq!(findings(&steps(10_000)), []);
    let [(pointer, code, clause)] = &findings(&steps(10_003))[..] else {
        panic!("told once");
    };
    assert_eq!(
        (&**pointer, &**code, &**clause),
        ("/plan/10000", "too_many_steps", "SACP1-6-2")
    );
}

#[test]
fn results_and_errors_have_their_form() {
    let done = |result: Value| {
        let mut message = with("/state", json!("DONE"));
        set(&mut message, "/result", result);
        findings(&message)
    };
    assert!(done(json!({"outputs": {"k": [1]}, "summary": "good", "step_results": {"a": {"status": "DONE"}}})).is_empty());
    assert_eq!(done(json!({"summary": "good"}))[0].0, "/result/outputs");
    let failed = |error: Value| {
        let mut message = with("/state", json!("FAILED"));
        set(&mut message, "/error", error);
        message
    };
    for good in [
        json!({"code": "TIMEOUT", "message": "late", "step_id": "a", "retryable": true, "details": {"ms": 5}}),
        json!({"code": "X_9", "message": "é".repeat(1024)}),
    ] {
        assert!(findings(&failed(good)).is_empty());
    }
    for (bad, pointer) in [
        (json!({"message": "late"}), "/error/code"),
        (json!({"code": "late", "message": "late"}), "/error/code"),
        (
            json!({"code": "X".repeat(65), "message": "late"}),
            "/error/code",
        ),
        (json!({"code": "TIMEOUT", "message": ""}), "/error/message"),
        (
            json!({"code": "TIMEOUT", "message": "x".repeat(1025)}),
            "/error/message",
        ),
        (
            json!({"code": "TIMEOUT", "message": "x", "details": []}),
            "/error/details",
        ),
        (
            json!({"code": "TIMEOUT", "message": "x", "retryable": 1}),
            "/error/retryable",
        ),
    ] {
        assert_eq!(findings(&failed(bad))[0].0, pointer);
    }
    let other = failed(json!({"code": "DISK_FULL", "message": "x"})).to_string();
    let (message, report) = validate(other.as_bytes()).unwrap();
    assert_eq!(report.iter().next().unwrap().code, "unlisted_code");
    assert!(message.error.as_ref().unwrap().retryable.is_none());
    assert_eq!(Code::WORDS.len(), 12);
    assert_eq!(
        Failure::of(Code::Timeout, "").message.as_ref() as &str,
        "TIMEOUT"
    );
}

#[test]
fn the_steps_become_a_graph() {
    let text = with(
        "/plan",
        plan(&[
            (
                "late",
                json!({"depends_on": ["early", "other"], "timeout_ms": 5, "output_key": "k"}),
            ),
            (
                "early",
                json!({"on_error": "fallback", "fallback_step": "spare", "retry": {"max_attempts": 3, "backoff_ms": 7, "strategy": "exponential"}}),
            ),
            ("other", json!({"on_error": "continue"})),
            ("spare", json!({})),
        ]),
    );
    let graph = Graph::from(&Message::decode(text.to_string().as_bytes()).unwrap());
    let [late, early, other, spare] = graph.steps() else {
        panic!()
    };
    assert_eq!(
        (late.id.as_str(), &late.after[..], late.pointer.as_str()),
        ("late", &[2, 3][..], "/plan/0")
    );
    assert_eq!(late.policy.timeout.unwrap().as_millis(), 5);
    assert_eq!(late.policy.output_key.as_deref(), Some("k"));
    assert_eq!(early.policy.on_error, Some(OnError::Fallback(4)));
    let retry = early.policy.retry.unwrap();
    assert_eq!(
        retry,
        Retry::exponential(3, std::time::Duration::from_millis(7))
    );
    assert_eq!(other.policy.on_error, Some(OnError::Continue));
    assert_eq!(
        (
            spare.policy.replaces,
            spare.policy.retry.unwrap().max_attempts
        ),
        (Some(2), 1)
    );
    assert_eq!(spare.policy.on_error, Some(OnError::FailFast));
}

// spec: SACP1-7-1, SACP1-4-4
#[test]
fn outcomes_and_traces_are_closed_and_within_bounds() {
    let refused = |message: Value| {
        let text = message.to_string();
        Message::decode(text.as_bytes()).is_err()
    };
    let with = |name: &str, state: &str, value: Value| {
        let mut message = json!({"proto_ver": "1.0.0", "msg_id": "m", "ts": "2025-10-01T12:00:00Z", "sender": "s",
            "g": "G", "plan": [{"id": "a", "verb": "v", "tool": "T", "params": {}}], "state": state});
        message[name] = value;
        message
    };
    let done = |value: Value| with("result", "DONE", value);
    let failed = |value: Value| with("error", "FAILED", value);
    let traced = |value: Value| with("trace", "PENDING", value);
    for good in [
        done(json!({"outputs": {}, "summary": "s", "step_results": {"a": {}}})),
        failed(json!({"code": "TIMEOUT", "message": "late"})),
        traced(json!({"trace_id": "t-1", "metrics": {"cost_usd": 0, "tokens_in": 10.0}})),
    ] {
        assert!(!refused(good.clone()), "{good}");
    }
    for bad in [
        done(json!({"outputs": {}, "more": 1})),
        done(json!({"outputs": {}, "summary": ""})),
        done(json!({"outputs": {}, "step_results": [{"step_id": "a"}]})),
        failed(json!({"code": "TIMEOUT", "message": "late", "more": 1})),
        traced(json!({"trace_id": ""})),
        traced(json!({"trace_id": "a b"})),
        traced(json!({"span_id": "x".repeat(129)})),
        traced(json!({"metrics": {"cost_usd": -0.01}})),
        traced(json!({"metrics": {"tokens_in": 10.5}})),
    ] {
        assert!(refused(bad.clone()), "{bad}");
    }
}

// spec: SACP1-6-1
#[test]
fn whole_numbers_are_integers_however_they_are_written() {
    let step = |more: &str| {
        format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING",
            "plan":[{{"id":"a","verb":"v","tool":"T","params":{{}},{more}}},{{"id":"b","verb":"v","tool":"T","params":{{}}}}]}}"#
        )
    };
    for good in ["10.0", "1e1", "10", "100e-1", "3600000", "0.1E2"] {
        let read = Message::decode(step(&format!("\"timeout_ms\":{good}")).as_bytes());
        let number = read.unwrap().plan[0].timeout_ms.map(u64::from);
        let seen = if good == "3600000" { 3_600_000 } else { 10 };
        assert_eq!(number, Some(seen), "{good}");
    }
    for bad in [
        "10.5",
        "0",
        "0.0",
        "-1",
        "-10.0",
        "1e99",
        "1e-1",
        "36000001e-1",
    ] {
        let read = Message::decode(step(&format!("\"timeout_ms\":{bad}")).as_bytes());
        assert!(read.is_err(), "{bad}");
    }
    assert!(Message::decode(step(r#""depends_on":["b"]"#).as_bytes()).is_ok());
    let doubled = Message::decode(step(r#""depends_on":["b","b"]"#).as_bytes()).unwrap_err();
    assert!(
        doubled.to_string().contains("/plan/0/depends_on"),
        "{doubled}"
    );
    let once = Message::decode(step(r#""depends_on":["b"]"#).as_bytes()).unwrap();
    // A plan that was made, and names a step twice, waits for it once.
    let mut steps = once.plan.to_vec();
    let named = steps[0].depends_on.clone().unwrap();
    steps[0].depends_on = Some([named.clone(), named].concat());
    let (id, ts, sender, g) = (
        once.msg_id.clone(),
        once.ts.clone(),
        once.sender.clone(),
        once.g.clone(),
    );
    let made = Message::pending(id, ts, sender, g, steps).unwrap();
    assert_eq!(Graph::from(&made).steps()[0].after[..], [2]);
    // The version of one that is as long as it may be is seen.
    let whole = once.encode();
    let limits = ubos_common::json::Limits::default().with_max_bytes(whole.len());
    let (read, _) = sacp::AnyMessage::decode_with(&whole, &limits, Profile::Strict).unwrap();
    assert_eq!(read, once.clone().into());
    let apart = Message::decode(step(r#""depends_on":["b","a","b"]"#).as_bytes()).unwrap_err();
    assert!(apart.to_string().contains("more than once"), "{apart}");
    let name = sacp::v1::Name::new("b").unwrap();
    let twice = once.plan[0].clone().after([name.clone(), name.clone()]);
    assert_eq!(twice.depends_on, Some(vec![name]));
    let change = sacp::check::Repair::DependOn {
        at: "/plan/0".into(),
        id: "b".into(),
    };
    let again = sacp::check::repair(&once.clone().into(), &change).unwrap();
    assert_eq!(again, once.into());
}

// spec: SACP1-4-4
#[test]
fn a_place_in_a_trace_is_an_extension() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let place = TraceContext::read(parent, ["a=1"]).unwrap();
    let mut message = Message::decode(base().to_string().as_bytes()).unwrap();
    assert_eq!(message.trace_context(), None);
    message.set_trace_context(&place);
    let read = Message::decode(&message.encode()).unwrap();
    assert_eq!(read.trace_context(), Some(place.clone()));
    let trace = read.trace.as_ref().unwrap();
    let id = trace.trace_id.as_ref().map(ToString::to_string);
    assert_eq!(id.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
    // The state of another place is not that of this one.
    let bare = TraceContext::read(parent, []).unwrap();
    message.set_trace_context(&bare);
    assert_eq!(message.trace_context(), Some(bare));
    let wrong = with("/ext", json!({"w3c.traceparent": parent.to_uppercase()}));
    let wrong = Message::decode(wrong.to_string().as_bytes()).unwrap();
    assert_eq!(wrong.trace_context(), None);
}
