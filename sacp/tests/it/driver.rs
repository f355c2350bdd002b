//! Plans with asynchronous tools, from their text to their answer.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use sacp::driver::{Call, TokioClock, run};
use sacp::runner::{Cause, Config, End, Recovery, Rule, Runner};
use sacp::{AnyMessage, Reply, Retry};
use ubos_common::driver::DriveError;
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::Timestamp;

const OLD: &str = r#"{"msg_id":"m","g":"G","plan":[{"parallel":[["get","A",{}],["get","B",{}]]},["join","SUM",{}]]}"#;
const NEW: &str = r#"{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"r","g":"G",
    "state":"PENDING","plan":[{"id":"a","verb":"get","tool":"A","params":{}},{"id":"b","verb":"get","tool":"B","params":{}},
    {"id":"c","verb":"join","tool":"SUM","params":{},"depends_on":["a","b"],"output_key":"sum"}]}"#;

fn decode(text: &str) -> AnyMessage {
    AnyMessage::decode(text.as_bytes()).unwrap().0
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

/// A tool that gives the number of its inputs.
async fn count(call: Call) -> Result<RawBuf, Cause> {
    RawBuf::from_serialize(&call.inputs.len()).map_err(|err| Cause::permanent(err.to_string()))
}

// spec: SACP-3-1, SACP-3-2
#[test]
fn messages_of_both_editions_run_to_answers_with_ids_of_their_own() {
    let mut seen = Vec::new();
    for text in [OLD, NEW] {
        let message = decode(text);
        let mut runner = Runner::new(&message, Config::default()).unwrap();
        let outcome = block_on(run(&mut runner, &TokioClock::default(), count)).unwrap();
        assert_eq!(outcome.result.as_ref().unwrap().as_str(), "2");
        let answer = outcome.answer(Timestamp::EPOCH, &message, &mut IdSource::seeded(1));
        let (msg_id, reply_to) = match answer {
            Reply::Message(answer) => (answer.msg_id.unwrap().to_string(), answer.reply_to),
            Reply::V10(answer) => {
                assert_eq!(&*answer.sender, "r");
                let reply_to = answer.reply_to.as_deref().and_then(sacp::NonEmpty::new);
                (answer.msg_id.to_string(), reply_to)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(reply_to.as_deref(), Some("m"));
        seen.push(msg_id);
    }
    let own = IdSource::seeded(1).uuid().to_string();
    assert_eq!(seen, [own.clone(), own]);
}

// spec: SACP-3-4
#[test]
fn a_message_in_test_mode_asks_for_nothing() {
    for text in [OLD, NEW] {
        let text = text.replacen(r#""g":"G""#, r#""g":"G","test_mode":true"#, 1);
        let mut runner = Runner::new(&decode(&text), Config::default()).unwrap();
        let tools = |call: Call| async move { panic!("{call:?}") };
        let outcome = block_on(run(&mut runner, &TokioClock::default(), tools)).unwrap();
        assert_eq!(outcome.end, End::Done);
    }
}

// spec: SACP-3-3, SACP-3-5
#[test]
fn attempts_that_fail_or_last_too_long_are_made_again() {
    let rule = Rule {
        recoveries: vec![Recovery::Retry(Retry::fixed(3, Duration::from_millis(1)))],
        ..Rule::default()
    };
    let config = Config::default().with_rule(rule);
    // The third attempt has to be begun within it.
    let config = config.with_step_timeout(Duration::from_millis(500));
    let mut runner = Runner::new(&decode(r#"{"g":"G","plan":[["get","A",{}]]}"#), config).unwrap();
    let made = Arc::new(Mutex::new(Vec::new()));
    let outcome = block_on(run(&mut runner, &TokioClock::default(), |call| {
        let made = Arc::clone(&made);
        async move {
            let attempt = call.ticket.attempt;
            // What lasts too long is dropped before the next attempt.
            assert_eq!(Arc::strong_count(&made), 2, "{attempt}");
            made.lock().unwrap().push(attempt);
            match attempt {
                1 => Err(Cause::tool("busy")),
                2 => core::future::pending().await,
                _ => Ok(RawBuf::parse("7").unwrap()),
            }
        }
    }));
    assert_eq!(outcome.unwrap().result.unwrap().as_str(), "7");
    assert_eq!(*made.lock().unwrap(), [1, 2, 3]);
    let again = block_on(run(&mut runner, &TokioClock::default(), count));
    assert_eq!(again.unwrap_err(), DriveError::Stalled);
}
