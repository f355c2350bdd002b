//! The cases of 1.0.

use serde_json::{Value, json};

use super::cases::{Row, heard_old, times};
use super::flaw::Flaw;
use super::script::Executors;
use super::script::Move::{Cancel, Fail, Heard, Start, Succeed};
use super::script::{Found, Move, Rounds};
use crate::Case;

/// The cases of 1.0.
pub(super) fn of_1_0() -> Vec<Case<Executors>> {
    let rows = ORDER.iter().chain(ATTEMPTS).chain(ANSWERS);
    let rows = rows.chain(STATES).map(Row::case);
    rows.chain(READINGS.iter().map(Row::reading)).collect()
}

/// A message with these steps and these further members.
fn new(steps: &[&str], more: &str) -> Move {
    Start(message(steps, "PENDING", more))
}

fn message(steps: &[&str], state: &str, more: &str) -> String {
    let steps = steps.join(",");
    format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"r","g":"G","plan":[{steps}],"state":"{state}"{more}}}"#
    )
}

macro_rules! step {
    ($id:literal, $tool:literal) => {
        step!($id, $tool, "")
    };
    ($id:literal, $tool:literal, $more:literal) => {
        concat!(
            r#"{"id":""#,
            $id,
            r#"","verb":"do","tool":""#,
            $tool,
            r#"","params":{}"#,
            $more,
            "}"
        )
    };
}

const A: &str = step!("a", "A", r#","output_key":"first""#);
const B: &str = step!("b", "B", r#","output_key":"second""#);
const C: &str = step!("c", "C", r#","depends_on":["a","b"],"output_key":"third""#);

fn failed(rounds: &Rounds, code: &str, step: &str) -> Found {
    rounds.has("/state", &json!("FAILED"))?;
    rounds.has("/error/code", &json!(code))?;
    rounds.has("/error/step_id", &json!(step))
}

/// It is refused with this code, in whatever form, and nothing is called.
fn refused(rounds: &Rounds, code: &str) -> Found {
    rounds.called(&[])?;
    let answer = rounds.answer()?;
    let seen = [answer.pointer("/error/code"), answer.get("code")];
    if seen.contains(&Some(&json!(code))) && answer["state"] != "DONE" {
        return Ok(());
    }
    Err(format!("no {code} in {answer}"))
}

const ORDER: &[Row] = &[
    Row {
        clause: "SACP1-6-3",
        name: "starts steps when their dependencies are done, independent ones together",
        moves: || {
            vec![
                new(&[A, B, C], ""),
                Succeed("B", "2"),
                Succeed("A", "1"),
                Succeed("C", "3"),
            ]
        },
        holds: |rounds| rounds.called(&[&["A", "B"], &[], &["C"]]),
        flaw: Flaw::NothingWaits,
        drags: &["SACP1-6-2"],
    },
    Row {
        clause: "SACP1-6-3",
        name: "ends the message at the first failure, and stops what runs",
        moves: || vec![new(&[A, B, C], ""), Fail("A")],
        holds: |rounds| {
            rounds.called(&[&["A", "B"]])?;
            if !rounds.is_stopped("B") {
                return Err("the call of B goes on".into());
            }
            rounds.has("/state", &json!("FAILED"))
        },
        flaw: Flaw::GoesOn,
        drags: &["SACP1-6-4", "SACP1-7-1", "SACP1-4-3"],
    },
    Row {
        clause: "SACP1-6-3",
        name: "skips the dependents alone of a step that may fail",
        moves: || {
            let may_fail = step!("a", "A", r#","on_error":"continue""#);
            let after = step!("d", "D", r#","depends_on":["a"]"#);
            let last = step!("e", "E", r#","depends_on":["b"]"#);
            vec![
                new(&[may_fail, B, after, last], ""),
                Fail("A"),
                Succeed("B", "2"),
                Succeed("E", "3"),
            ]
        },
        holds: |rounds| {
            rounds.called(&[&["A", "B"], &[], &["E"]])?;
            rounds.has("/state", &json!("DONE"))
        },
        flaw: Flaw::AlwaysEnds,
        drags: &[],
    },
    Row {
        clause: "SACP1-6-3",
        name: "runs a fallback in place of its step alone, and gives its output to the dependents",
        moves: || {
            let falls = step!("a", "A", r#","on_error":"fallback","fallback_step":"f""#);
            let after = step!("d", "D", r#","depends_on":["a"]"#);
            vec![
                new(&[falls, step!("f", "F"), after], ""),
                Fail("A"),
                Succeed("F", "7"),
                Succeed("D", "1"),
            ]
        },
        holds: |rounds| {
            rounds.called(&[&["A"], &["F"], &["D"]])?;
            match rounds.inputs("D") {
                Some(inputs) if *inputs == json!([7]) => Ok(()),
                other => Err(format!("the inputs of D are {other:?}, not [7]")),
            }
        },
        flaw: Flaw::FallbacksStart,
        drags: &["SACP1-6-2"],
    },
    Row {
        clause: "SACP1-6-2",
        name: "calls nothing of a plan with a cycle",
        moves: || {
            let one = step!("a", "A", r#","depends_on":["b"]"#);
            let other = step!("b", "B", r#","depends_on":["a"]"#);
            vec![new(&[step!("c", "C"), one, other], "")]
        },
        holds: |rounds| refused(rounds, "MALFORMED_MESSAGE"),
        flaw: Flaw::NothingWaits,
        drags: &["SACP1-6-3"],
    },
    Row {
        clause: "SACP1-6-3",
        name: "ends the message when the fallback fails, too",
        moves: || {
            let falls = step!("a", "A", r#","on_error":"fallback","fallback_step":"f""#);
            vec![new(&[falls, step!("f", "F")], ""), Fail("A"), Fail("F")]
        },
        holds: |rounds| {
            rounds.called(&[&["A"], &["F"]])?;
            rounds.has("/state", &json!("FAILED"))
        },
        flaw: Flaw::GoesOn,
        drags: &["SACP1-6-4", "SACP1-7-1", "SACP1-4-3"],
    },
    Row {
        clause: "SACP1-6-2",
        name: "calls nothing of a plan that waits for an unknown step",
        moves: || {
            let waits = step!("b", "B", r#","depends_on":["nobody"]"#);
            vec![new(&[A, waits], "")]
        },
        holds: |rounds| refused(rounds, "MALFORMED_MESSAGE"),
        flaw: Flaw::NothingWaits,
        drags: &["SACP1-6-3"],
    },
    Row {
        clause: "SACP1-6-2",
        name: "calls nothing of a plan whose fallback is unknown",
        moves: || {
            let falls = step!(
                "a",
                "A",
                r#","on_error":"fallback","fallback_step":"nobody""#
            );
            vec![new(&[falls], "")]
        },
        holds: |rounds| refused(rounds, "MALFORMED_MESSAGE"),
        flaw: Flaw::FallbacksStart,
        drags: &["SACP1-6-3"],
    },
    Row {
        clause: "SACP1-6-2",
        name: "calls nothing of a plan with one id twice",
        moves: || vec![new(&[A, step!("a", "B")], "")],
        holds: |rounds| refused(rounds, "MALFORMED_MESSAGE"),
        flaw: Flaw::IdsMadeUp,
        drags: &[],
    },
    Row {
        clause: "SACP-3-4",
        name: "calls no tool of a message of 1.0 in test mode",
        moves: || vec![new(&[A, B, C], r#","test_mode":true"#)],
        holds: |rounds| {
            rounds.called(&[])?;
            rounds.has("/state", &json!("DONE"))
        },
        flaw: Flaw::TestModeIgnored,
        drags: &[],
    },
    Row {
        clause: "SACP1-4-1",
        name: "calls nothing of a message of another major version",
        moves: || {
            let message = message(&[A], "PENDING", "");
            vec![Start(message.replace("1.0.0", "2.0.0"))]
        },
        holds: |rounds| refused(rounds, "UNSUPPORTED_VERSION"),
        flaw: Flaw::AnyVersion,
        drags: &[],
    },
];

const ATTEMPTS: &[Row] = &[
    Row {
        clause: "SACP1-6-4",
        name: "counts the first attempt among those that are allowed",
        moves: || {
            let step = step!("a", "A", r#","retry":{"max_attempts":2}"#);
            vec![new(&[step], ""), Fail("A"), Fail("A"), Fail("A")]
        },
        holds: |rounds| {
            rounds.called(&[&["A"], &["A"]])?;
            rounds.has("/state", &json!("FAILED"))
        },
        flaw: Flaw::OneMore,
        drags: &[],
    },
    Row {
        clause: "SACP1-6-4",
        name: "waits as long before each attempt where the wait is fixed",
        moves: || waits(r#""fixed""#, &[99, 100], &[199, 200]),
        holds: |rounds| rounds.called(&[&["A"], &[], &[], &["A"], &[], &[], &["A"]]),
        flaw: Flaw::AlwaysDoubles,
        drags: &[],
    },
    Row {
        clause: "SACP1-6-4",
        name: "waits twice as long each time where the wait is exponential",
        moves: || waits(r#""exponential""#, &[99, 100], &[299, 300]),
        holds: |rounds| rounds.called(&[&["A"], &[], &[], &["A"], &[], &[], &["A"]]),
        flaw: Flaw::NeverDoubles,
        drags: &[],
    },
    Row {
        clause: "SACP1-6-4",
        name: "ends an attempt at its timeout, and names the step",
        moves: || {
            let slow = step!("a", "A", r#","timeout_ms":50"#);
            core::iter::once(new(&[slow], ""))
                .chain(times(&[49, 50]))
                .collect()
        },
        holds: |rounds| {
            if !rounds.is_stopped("A") {
                return Err("the call goes on".into());
            }
            failed(rounds, "TIMEOUT", "a")
        },
        flaw: Flaw::NoTimeout,
        drags: &[],
    },
    Row {
        clause: "SACP1-6-4",
        name: "tries a step again whose attempt took too long",
        moves: || {
            let slow = step!("a", "A", r#","timeout_ms":50,"retry":{"max_attempts":2}"#);
            let moves = core::iter::once(new(&[slow], "")).chain(times(&[50, 99]));
            moves.chain([Succeed("A", "1")]).collect()
        },
        holds: |rounds| {
            rounds.called(&[&["A"], &["A"]])?;
            rounds.has("/state", &json!("DONE"))
        },
        flaw: Flaw::NoRetry,
        drags: &[],
    },
];

/// Three attempts with waits of 100 ms or more: the times that go by after the first failure and after the second.
fn waits(strategy: &str, first: &[u64], second: &[u64]) -> Vec<Move> {
    let retry = format!(r#","retry":{{"max_attempts":3,"backoff_ms":100,"strategy":{strategy}}}"#);
    let step = format!(r#"{{"id":"a","verb":"do","tool":"A","params":{{}}{retry}}}"#);
    let moves = [new(&[&step], ""), Fail("A")]
        .into_iter()
        .chain(times(first));
    moves.chain([Fail("A")]).chain(times(second)).collect()
}

fn run() -> Vec<Move> {
    vec![
        new(&[A, B, C], ""),
        Succeed("A", "1"),
        Succeed("B", "2"),
        Succeed("C", "3"),
    ]
}

const ANSWERS: &[Row] = &[
    Row {
        clause: "SACP1-7-1",
        name: "gives outputs under the keys of their steps",
        moves: run,
        holds: |rounds| {
            rounds.has(
                "/result/outputs",
                &json!({"first": 1, "second": 2, "third": 3}),
            )
        },
        flaw: Flaw::OutputsByTool,
        drags: &[],
    },
    Row {
        clause: "SACP1-7-1",
        name: "gives the results of steps, where it gives them, as an object by step id",
        moves: run,
        holds: |rounds| match rounds.answer()?.pointer("/result/step_results") {
            None => Ok(()),
            Some(Value::Object(steps))
                if steps
                    .keys()
                    .all(|id| ["a", "b", "c"].contains(&id.as_str())) =>
            {
                Ok(())
            }
            Some(other) => Err(format!("step_results is {other}")),
        },
        flaw: Flaw::ResultsAsList,
        drags: &["SACP1-4-1"],
    },
    Row {
        clause: "SACP1-7-1",
        name: "names the step that failed",
        moves: || vec![new(&[A], ""), Fail("A")],
        holds: |rounds| rounds.has("/error/step_id", &json!("a")),
        flaw: Flaw::NoStepId,
        drags: &["SACP1-6-4"],
    },
    Row {
        clause: "SACP1-7-1",
        name: "gives errors a code of capitals, digits and underscores, and a message",
        moves: || vec![new(&[A], ""), Fail("A")],
        holds: |rounds| {
            let error = rounds.answer()?.get("error").unwrap_or(&Value::Null);
            let [code, words] = ["code", "message"].map(|name| error.get(name)?.as_str());
            let fits = |code: &str| {
                let mut bytes = code.bytes();
                !code.is_empty()
                    && bytes.all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            };
            if code.is_some_and(fits) && words.is_some_and(|words| !words.is_empty()) {
                return Ok(());
            }
            Err(format!("the error is {error}"))
        },
        flaw: Flaw::OwnCodes,
        drags: &["SACP1-6-4"],
    },
    Row {
        clause: "SACP1-4-3",
        name: "answers a failure with an error and no result",
        moves: || vec![new(&[A], ""), Fail("A")],
        holds: |rounds| {
            rounds.has("/result", &Value::Null)?;
            match rounds.answer()?["error"] {
                Value::Object(_) => Ok(()),
                ref other => Err(format!("error is {other}")),
            }
        },
        flaw: Flaw::ResultOfFailure,
        drags: &[],
    },
    Row {
        clause: "SACP1-4-1",
        name: "answers with a valid message that has an id of its own",
        moves: run,
        holds: |rounds| {
            let answer = rounds.answer()?;
            let text = answer.to_string();
            if let Err(refused) = sacp::v1::Message::decode(text.as_bytes()) {
                return Err(format!("the answer is no message of 1.0: {refused}"));
            }
            rounds.has("/reply_to", &json!("m"))?;
            if answer["msg_id"] == "m" {
                return Err("the answer has the id of what it answers".into());
            }
            Ok(())
        },
        flaw: Flaw::SameId,
        drags: &[],
    },
    Row {
        clause: "SACP1-4-4",
        name: "gives a trace that has no unknown member",
        moves: traced,
        holds: |rounds| match rounds.answer()?.get("trace") {
            None => Ok(()),
            Some(trace) => match trace.as_object() {
                Some(members) if members.keys().all(|name| TRACE.contains(&name.as_str())) => {
                    Ok(())
                }
                _ => Err(format!("the trace is {trace}")),
            },
        },
        flaw: Flaw::OpenTrace,
        drags: &["SACP1-4-1"],
    },
];

/// The members of a trace.
const TRACE: [&str; 5] = [
    "trace_id",
    "span_id",
    "parent_span_id",
    "attempt",
    "metrics",
];

fn traced() -> Vec<Move> {
    let trace = r#","trace":{"trace_id":"t","span_id":"s-1","metrics":{"tool_calls":99}}"#;
    vec![new(&[A], trace), Succeed("A", "1")]
}

const STATES: &[Row] = &[
    Row {
        clause: "SACP1-5-1",
        name: "follows the states of a message, and takes none back",
        moves: || {
            let states = [
                "PENDING",
                "ACCEPTED",
                "IN_PROGRESS",
                "IN_PROGRESS",
                "WAITING",
                "IN_PROGRESS",
                "CANCELLED",
                "PENDING",
                "IN_PROGRESS",
            ];
            states.map(|state| Heard(message(&[A], state, ""))).into()
        },
        holds: |rounds| {
            let refused = "INVALID_STATE_TRANSITION";
            let wanted = [
                "PENDING",
                "ACCEPTED",
                "IN_PROGRESS",
                "IN_PROGRESS",
                "WAITING",
                "IN_PROGRESS",
                "CANCELLED",
                refused,
                refused,
            ];
            same(&rounds.states(), &wanted)
        },
        flaw: Flaw::AnyState,
        drags: &["SACP-2-6"],
    },
    Row {
        clause: "SACP-2-6",
        name: "follows the states of a message of 0.1, and takes none back",
        moves: || heard_old(&["PENDING", "IN_PROGRESS", "DONE", "FAILED", "PENDING"]),
        holds: |rounds| {
            let refused = "INVALID_STATE";
            same(
                &rounds.states(),
                &["PENDING", "IN_PROGRESS", "DONE", refused, refused],
            )
        },
        flaw: Flaw::AnyState,
        drags: &["SACP1-5-1"],
    },
];

fn same(seen: &[&str], wanted: &[&str]) -> Found {
    if seen == wanted {
        return Ok(());
    }
    Err(format!("{seen:?}, not {wanted:?}"))
}

const READINGS: &[Row] = &[
    Row {
        clause: "SACP1-5-1",
        name: "takes an end although it did not hear of the states in between",
        moves: || {
            let result = r#","result":{"outputs":{}}"#;
            [("PENDING", ""), ("DONE", result), ("IN_PROGRESS", "")]
                .map(|(state, more)| Heard(message(&[A], state, more)))
                .into()
        },
        holds: |rounds| {
            let refused = "INVALID_STATE_TRANSITION";
            same(&rounds.states(), &["PENDING", "DONE", refused])
        },
        flaw: Flaw::EveryState,
        drags: &["SACP-2-6"],
    },
    Row {
        clause: "SACP1-5-1",
        name: "answers a run that is called off as cancelled",
        moves: || vec![new(&[A], ""), Cancel],
        holds: |rounds| rounds.has("/state", &json!("CANCELLED")),
        flaw: Flaw::CancelledIsDone,
        drags: &[],
    },
    Row {
        clause: "SACP1-4-4",
        name: "gives a span of its own below that of the request",
        moves: traced,
        holds: |rounds| {
            rounds.has("/trace/trace_id", &json!("t"))?;
            rounds.has("/trace/parent_span_id", &json!("s-1"))?;
            rounds.has("/trace/metrics/tool_calls", &json!(1))
        },
        flaw: Flaw::CopiedTrace,
        drags: &[],
    },
];
