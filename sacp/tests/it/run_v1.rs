//! Messages of 1.0, run to their answers.

use sacp::check::gaps;
use sacp::registry::MemoryRegistry;
use sacp::runner::{Cause, Config, Input, Outcome, Output, Runner, Ticket};
use sacp::spawn::spawn_request;
use sacp::v1::{Code, Id, Message, State};
use sacp::{Graph, MessageRef};
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

fn message(steps: &str) -> Message {
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","plan":{steps},"state":"PENDING"}}"#
    );
    Message::decode(text.as_bytes()).unwrap()
}

fn step(id: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","verb":"v","tool":"{id}","params":{{}}{rest}}}"#)
}

fn now(millis: u64) -> Now {
    Now::new(Mono::from_millis(millis), Timestamp::EPOCH)
}

/// Runs a message: each dispatched attempt ends as `fate` says, at once and in order. Gives the steps in the order in which
/// they were dispatched, each with its time.
fn run(
    message: &Message,
    fate: &dyn Fn(&str, u32) -> Option<Cause>,
) -> (Vec<(String, u64)>, Outcome) {
    let mut runner = Runner::new(message, Config::default()).unwrap();
    let (mut order, mut at) = (Vec::new(), now(0));
    runner.start(at);
    loop {
        while let Some(output) = runner.poll_output() {
            match output {
                Output::Dispatch { ticket, act, .. } => {
                    if runner.is_running(ticket) {
                        order.push((act.tool.clone(), at.mono.as_nanos() / 1_000_000));
                    }
                    let input = match fate(&act.tool, ticket.attempt) {
                        Some(cause) => Input::Failed { ticket, cause },
                        None => Input::Succeeded {
                            ticket,
                            output: RawBuf::from_serialize(&act.tool).unwrap(),
                        },
                    };
                    // One that was stopped before its turn is refused.
                    let live = runner.is_running(ticket);
                    assert_eq!(runner.handle_input(at, input).is_ok(), live);
                }
                Output::Ended(outcome) => return (order, *outcome),
                _ => {}
            }
        }
        at = Now::new(
            runner.poll_timeout().expect("a run that waits for nothing"),
            Timestamp::EPOCH,
        );
        runner.handle_timeout(at);
    }
}

fn answer(message: &Message, outcome: &Outcome) -> Message {
    let id = |text| Id::new(text).unwrap();
    let answer = outcome.answer_v1(
        message,
        Timestamp::from_unix(1).unwrap(),
        id("runner"),
        id("a-1"),
    );
    assert_eq!(Message::decode(&answer.encode()).unwrap(), answer);
    answer
}

// spec: SACP1-6-3, SACP1-7-1
#[test]
fn outputs_stand_under_their_keys_and_a_stand_in_writes_under_the_key_of_the_step_it_replaces() {
    let plan = format!(
        "[{},{},{}]",
        step(
            "a",
            r#","on_error":"fallback","fallback_step":"b","output_key":"k""#
        ),
        step("b", r#","output_key":"k""#),
        step("c", r#","depends_on":["a"],"output_key":"last""#),
    );
    let message = message(&plan);
    let (order, outcome) = run(&message, &|tool, _| {
        (tool == "a").then(|| Cause::tool("down"))
    });
    assert_eq!(
        order
            .iter()
            .map(|(tool, _)| tool.as_str())
            .collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    let answer = answer(&message, &outcome);
    assert_eq!(
        (
            answer.state.clone(),
            answer.reply_to.as_ref().map(Id::as_str)
        ),
        (State::Done, Some("m"))
    );
    assert_eq!(
        (
            answer.sender.as_str(),
            answer.recipient.as_ref().map(Id::as_str)
        ),
        ("runner", Some("s"))
    );
    let result = answer.result.clone().unwrap();
    assert_eq!(
        (
            result.outputs["k"].as_str(),
            result.outputs["last"].as_str()
        ),
        ("\"b\"", "\"c\"")
    );
    let steps: serde_json::Value = result.step_results.unwrap().deserialize().unwrap();
    assert_eq!(
        steps["a"],
        serde_json::json!({"state": "DONE", "attempts": 1})
    );
}

// spec: SACP1-6-3
#[test]
fn continue_skips_the_dependents_alone_and_fail_fast_ends_the_message() {
    let with = |on_error: &str| {
        format!(
            "[{},{},{},{}]",
            step("a", on_error),
            step("b", r#","depends_on":["a"],"output_key":"b""#),
            step("c", r#","depends_on":["b"]"#),
            step("d", r#","output_key":"d""#),
        )
    };
    let down = |tool: &str, _| (tool == "a").then(|| Cause::permanent("down"));
    let going_on = message(&with(r#","on_error":"continue""#));
    let (order, outcome) = run(&going_on, &down);
    assert_eq!(
        order
            .iter()
            .map(|(tool, _)| tool.as_str())
            .collect::<Vec<_>>(),
        ["a", "d"]
    );
    let done = answer(&going_on, &outcome);
    let result = done.result.clone().unwrap();
    assert_eq!(result.outputs.keys().collect::<Vec<_>>(), ["d"]);
    let steps: serde_json::Value = result.step_results.unwrap().deserialize().unwrap();
    assert_eq!(
        (&steps["a"]["state"], &steps["a"]["error"]),
        (&"FAILED".into(), &"TOOL_INVOCATION_FAILED".into())
    );
    for skipped in [&steps["b"], &steps["c"]] {
        assert_eq!(
            (&skipped["state"], &skipped["error"]),
            (&"SKIPPED".into(), &"DEPENDENCY_FAILED".into())
        );
    }
    let fast = message(&with(""));
    let (_, outcome) = run(&fast, &down);
    let failed = answer(&fast, &outcome);
    let error = failed.error.clone().unwrap();
    assert_eq!(
        (failed.state.clone(), failed.result.is_none()),
        (State::Failed, true)
    );
    assert_eq!(
        (
            &*error.code,
            error.step_id.as_ref().map(|id| id.as_str()),
            error.retryable == Some(true)
        ),
        (&Code::ToolInvocationFailed, Some("a"), false)
    );
}

// spec: SACP1-6-4
#[test]
fn attempts_and_waits_are_those_of_the_step() {
    let plan = |strategy: &str| {
        let rest =
            format!(r#","retry":{{"max_attempts":4,"backoff_ms":100,"strategy":"{strategy}"}}"#);
        message(&format!("[{}]", step("a", &rest)))
    };
    let times = |strategy: &str| {
        let (order, outcome) = run(&plan(strategy), &|_, attempt| {
            (attempt < 4).then(|| Cause::tool("down"))
        });
        assert_eq!(outcome.steps[0].attempts, 4);
        order.into_iter().map(|(_, at)| at).collect::<Vec<_>>()
    };
    assert_eq!(times("fixed"), [0, 100, 200, 300]);
    assert_eq!(times("exponential"), [0, 100, 300, 700]);
}

// spec: SACP1-6-4, SACP1-7-1
#[test]
fn a_step_over_its_time_fails_with_its_id_and_codes_of_others_are_named_in_the_words() {
    let slow = message(&format!(
        "[{}]",
        step("a", r#","timeout_ms":50,"retry":{"max_attempts":2}"#)
    ));
    let mut runner = Runner::new(&slow, Config::default()).unwrap();
    runner.start(now(0));
    let outcome = loop {
        match runner.poll_output() {
            Some(Output::Ended(outcome)) => break outcome,
            Some(_) => {}
            None => {
                let due = runner.poll_timeout().unwrap();
                runner.handle_timeout(Now::new(due, Timestamp::EPOCH));
            }
        }
    };
    let failed = answer(&slow, &outcome);
    let error = failed.error.clone().unwrap();
    assert_eq!(
        (
            &*error.code,
            error.step_id.as_ref().map(|id| id.as_str()),
            error.retryable == Some(true)
        ),
        (&Code::Timeout, Some("a"), true)
    );
    let odd = Cause::Tool {
        code: Some("ODD_ONE".into()),
        message: "why".into(),
        retryable: false,
    };
    let plain = message(&format!("[{}]", step("a", "")));
    let (_, outcome) = run(&plain, &|_, _| Some(odd.clone()));
    let error = answer(&plain, &outcome).error.clone().unwrap();
    assert_eq!(
        (&*error.code, &*error.message),
        (&Code::ToolInvocationFailed, "ODD_ONE: why")
    );
    let limited = Cause::Tool {
        code: Some("RATE_LIMITED".into()),
        message: String::new(),
        retryable: false,
    };
    let (_, outcome) = run(&plain, &|_, _| Some(limited.clone()));
    assert_eq!(
        answer(&plain, &outcome)
            .error
            .clone()
            .unwrap()
            .code
            .as_str(),
        "RATE_LIMITED"
    );
}

#[test]
fn a_run_that_is_called_off_is_cancelled() {
    let message = message(&format!("[{}]", step("a", "")));
    let mut runner = Runner::new(&message, Config::default()).unwrap();
    runner.start(now(0));
    runner.cancel(now(1)).unwrap();
    let outcome = core::iter::from_fn(|| runner.poll_output()).find_map(|output| match output {
        Output::Ended(outcome) => Some(outcome),
        _ => None,
    });
    let answer = answer(&message, &outcome.unwrap());
    assert_eq!(
        (
            answer.state.clone(),
            answer.result.is_none(),
            answer.error.is_none()
        ),
        (State::Cancelled, true, true)
    );
    let late = Input::Progress {
        ticket: Ticket {
            step: 1,
            attempt: 1,
            epoch: 0,
        },
    };
    assert!(runner.handle_input(now(2), late).is_err());
}

// spec: SACP1-14-1
#[test]
fn a_spawn_request_defines_instantiates_and_registers() {
    let mut message = message(&format!(
        "[{}]",
        step("VISA", r#","output_key":"visa_required""#)
    ));
    message.test_mode = Some(true);
    let gap = &gaps(&message, &MemoryRegistry::default())[0];
    let request = spawn_request(gap, &message, Timestamp::EPOCH).unwrap();
    let read = Message::decode(&request.encode()).unwrap();
    assert_eq!(
        (read.g.as_str(), read.test_mode),
        ("SPAWN_AGENT", Some(true))
    );
    let verbs: Vec<_> = read.plan.iter().map(|step| step.verb.as_str()).collect();
    assert_eq!(verbs, ["define", "instantiate", "register"]);
    let entry: serde_json::Map<String, serde_json::Value> =
        read.plan[2].params.deserialize().unwrap();
    let members: Vec<_> = entry.keys().map(String::as_str).collect();
    assert_eq!(
        members,
        [
            "agent_name",
            "description",
            "inputs",
            "outputs",
            "supported_tools",
            "supported_verbs",
            "version"
        ]
    );
    assert_eq!(
        (&entry["agent_name"], &entry["outputs"][0]),
        (&"VISA_AGENT".into(), &"visa_required".into())
    );
    assert_eq!(Graph::from(&read).step(3).unwrap().after[..], [2]);
    let mut awake = message.clone();
    awake.test_mode = None;
    let request = spawn_request(gap, &awake, Timestamp::EPOCH).unwrap();
    assert!(!MessageRef::from(&request).is_test());
}

// spec: SACP1-7-1, SACP1-4-4
#[test]
fn the_trace_of_an_answer_is_its_own() {
    let mut request = message(&format!("[{}]", step("a", "")));
    let mut metrics = sacp::v1::Metrics::new();
    metrics.cost_usd = Some(7.0);
    let mut trace = sacp::v1::Trace::new();
    (trace.trace_id, trace.span_id) = (Id::new("t"), Id::new("s-1"));
    trace.metrics = Some(metrics);
    request.trace = Some(trace);
    let (_, outcome) = run(&request, &|_, _| None);
    let id = |text| Id::new(text).unwrap();
    let answer = outcome.answer_v1(&request, Timestamp::EPOCH, id("me"), id("r-1"));
    let read = Message::decode(&answer.encode()).unwrap().trace.unwrap();
    let text = |id: &Option<Id>| id.as_deref().map(str::to_owned);
    assert_eq!(text(&read.trace_id).as_deref(), Some("t"));
    assert_eq!(text(&read.span_id).as_deref(), Some("r-1"));
    assert_eq!(text(&read.parent_span_id).as_deref(), Some("s-1"));
    assert_eq!(read.attempt.map(u64::from), Some(1));
    let metrics = read.metrics.unwrap();
    assert_eq!(metrics.cost_usd, None);
    assert_eq!(metrics.tool_calls.map(u64::from), Some(1));
    assert_eq!(metrics.latency_ms.map(u64::from), Some(0));
}

// spec: SACP1-4-1, SACP-4-3
#[test]
fn an_answer_is_written_in_our_version_and_a_summary_has_one() {
    let text = format!(
        "[{},{}]",
        step("a", r#","on_error":"continue""#),
        step("b", "")
    );
    let text = String::from_utf8(message(&text).encode()).unwrap();
    for (form, wanted, summary) in [
        ("", "raw", None),
        (r#","out_fmt":"raw""#, "raw", None),
        (r#","out_fmt":"human""#, "raw", None),
        (
            r#","out_fmt":"summary""#,
            "summary",
            Some("1 of 2 steps done, 1 failed"),
        ),
    ] {
        let text = text.replace("1.0.0", "1.0.9").replacen(
            r#","state""#,
            &format!(r#"{form},"state""#),
            1,
        );
        let request = Message::decode(text.as_bytes()).unwrap();
        let fate = |tool: &str, _| (tool == "a").then(|| Cause::permanent("no"));
        let outcome = run(&request, &fate).1;
        let id = |text| Id::new(text).unwrap();
        let answer = outcome.answer_v1(&request, Timestamp::EPOCH, id("me"), id("r-1"));
        let read: serde_json::Value = serde_json::from_slice(&answer.encode()).unwrap();
        assert_eq!(
            (&read["proto_ver"], &read["out_fmt"]),
            (&"1.0.0".into(), &wanted.into())
        );
        assert_eq!(
            read["result"].get("summary").and_then(|text| text.as_str()),
            summary
        );
    }
}
