//! What every transport must do alike.

use std::future::Future;
use std::sync::atomic::Ordering;

use futures::future::{join, join_all};
use sap::DispatchError;
use sap::processor::Config;
use sap::transport::{Message, SendError};
use sap::validate::{Options, decode_task};
use sap::{ErrorCode, Status, Task, TaskResult};
use serde_json::{Value, json};

use super::world::{INBOX, Seen, ask, typed};
use crate::samples::with;
use ubos_common::trace_context::TraceContext;
use ubos_common::violation::Profile;

/// A client and a server of one transport, around the agent that `Seen` watches.
pub(crate) trait Harness: Sized {
    /// Whether the transport has an Ack, and results on the way.
    const TALKS: bool;
    /// Whether one who follows a task that nobody has sent waits for it.
    const WAITS: bool = false;

    fn start(seen: &Seen, config: Config) -> impl Future<Output = Self>;

    /// What was told, and what it came to.
    fn send(
        &self,
        task: &Task,
    ) -> impl Future<Output = (Vec<Message>, Result<Option<Message>, SendError>)>;

    /// Has the client send from a place in a trace; false where the transport has no place for that.
    fn trace(&mut self, _trace: TraceContext) -> bool {
        false
    }

    /// How far a task is.
    fn status(&self, task: &Task) -> impl Future<Output = Option<Message>>;

    fn cancel(&self, task: &Task) -> impl Future<Output = Option<Message>>;

    /// What it comes to.
    fn follow(
        &self,
        task: &Task,
        told: &mut (dyn FnMut(&Message) + Send),
    ) -> impl Future<Output = Option<Message>>;

    /// The last word to a peer that sends whatever it likes.
    fn raw(&self, bytes: &str) -> impl Future<Output = Message>;
}

pub(crate) async fn run<H: Harness>() {
    let seen = Seen::default();
    let mut harness = H::start(&seen, Config::default()).await;
    nothing_is_added_dropped_or_altered(&harness).await;
    what_cannot_be_taken_is_turned_away(&harness, &seen).await;
    what_may_not_be_sent_does_not_leave(&harness, &seen).await;
    every_task_ends(&harness).await;
    acks_and_progress_come_in_order(&harness, &seen).await;
    a_handler_that_reports_much_comes_to_its_end(&harness).await;
    results_go_to_the_endpoint(&harness, &seen).await;
    a_task_sent_again_is_answered_and_not_run_again(&harness, &seen).await;
    tasks_of_one_correlation_id_do_not_mix(&harness).await;
    who_sent_a_task_may_ask_and_follow(&harness, &seen).await;
    a_task_that_runs_is_cancelled(&harness, &seen).await;
    a_place_in_a_trace_goes_along(&mut harness, &seen).await;
}

async fn a_place_in_a_trace_goes_along<H: Harness>(harness: &mut H, seen: &Seen) {
    seen.traces.lock().unwrap().clear();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = TraceContext::read(parent, ["a=1,b=2"]).unwrap();
    sent(harness, &ask(900, "test.echo")).await;
    if !harness.trace(trace.clone()) {
        return assert_eq!(*seen.traces.lock().unwrap(), [None]);
    }
    sent(harness, &ask(901, "test.echo")).await;
    let elsewhere = with(
        ask(902, "test.echo"),
        "/replyTo",
        Some(json!({"endpoint": INBOX})),
    );
    let sent = harness.send(&typed(&elsewhere.to_string())).await;
    assert!(sent.1.is_ok());
    // One without a place, two at the handler, and RUNNING and SUCCEEDED at the endpoint.
    until(|| seen.traces.lock().unwrap().len() >= 5).await;
    let traces = seen.traces.lock().unwrap().clone();
    assert_eq!(traces[0], None);
    assert_eq!(traces[1..], vec![Some(trace); 4]);
}

fn ended(answer: Result<Option<Message>, SendError>) -> TaskResult {
    match answer.unwrap().unwrap() {
        Message::Result(result) => *result,
        other => panic!("{other:?}"),
    }
}

async fn sent<H: Harness>(harness: &H, task: &Value) -> TaskResult {
    let (_, answer) = harness.send(&typed(&task.to_string())).await;
    ended(answer)
}

fn words(told: &[Message]) -> Vec<String> {
    let word = |message: &Message| match message {
        Message::Ack(_) => "ACK".to_owned(),
        Message::Nack(nack) => nack.code.to_string(),
        Message::Result(result) => result.status.to_string(),
        _ => panic!("{message:?}"),
    };
    told.iter().map(word).collect()
}

/// Numbers that a double does not keep, unknown members at every depth, and strings that need escapes.
const ODD: &str =
    r#"{"n":1.50,"e":1e3,"long":12345678901234567890123,"deep":{"x":[-0.0,null,"\u0000é\"\\"]}}"#;

async fn nothing_is_added_dropped_or_altered<H: Harness>(harness: &H) {
    for (number, payload) in [(1, ODD), (2, r#"{"plain":[1,"two",{"three":null}]}"#)] {
        let task = with(ask(number, "test.echo"), "/payload", Some(json!("HERE")));
        let task = with(
            task,
            "/constitutionalContext/ourOwn",
            Some(json!({"a": [true]})),
        );
        let sent = task.to_string().replace("\"HERE\"", payload);
        let task = typed(&sent);
        let (_, answer) = harness.send(&task).await;
        let result = ended(answer);
        assert_eq!(
            (&result.status, result.task_id),
            (&Status::Succeeded, task.task_id)
        );
        assert_eq!(result.correlation_id, task.correlation_id);
        let evidence = &result.constitutional_evidence;
        assert_eq!(
            evidence.citations.as_deref(),
            Some(&["ubos://a".to_owned()][..])
        );
        let output = result.output.as_ref().unwrap().as_str();
        let (arrived, _) = decode_task(output.as_bytes(), &Options::default()).unwrap();
        if number == 1 {
            assert_eq!(arrived, task);
        }
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(output), read(&sent));
        let back: Value = serde_json::from_slice(&result.encode()).unwrap();
        let mut members: Vec<&str> = back
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        members.sort_unstable();
        assert_eq!(
            members,
            [
                "constitutionalEvidence",
                "correlationId",
                "output",
                "producer",
                "protocolVersion",
                "reportedAt",
                "status",
                "taskId"
            ]
        );
    }
}

async fn what_cannot_be_taken_is_turned_away<H: Harness>(harness: &H, seen: &Seen) {
    let before = (seen.entries(), seen.calls());
    let unknown = with(
        ask(10, "test.echo"),
        "/issuer/agentId",
        Some(json!("A-nobody")),
    );
    let elsewhere = with(
        ask(11, "test.echo"),
        "/target/agentId",
        Some(json!("A-none")),
    );
    let nobody = with(ask(12, "test.none"), "/target/agentId", None);
    let invalid = with(
        ask(13, "test.echo"),
        "/constitutionalContext/pressureLevel",
        None,
    );
    // What is asked of a capability that is not there is nobody's business, unless somebody may ask for it.
    let codes = [
        (unknown, &[ErrorCode::Unauthorized][..]),
        (elsewhere, &[ErrorCode::NotFound]),
        (nobody, &[ErrorCode::NotFound, ErrorCode::Forbidden]),
        (ask(14, "test.denied"), &[ErrorCode::Forbidden]),
        (invalid, &[ErrorCode::InvalidTask]),
    ];
    for (task, codes) in &codes {
        let Message::Nack(nack) = harness.raw(&task.to_string()).await else {
            panic!("turned away")
        };
        assert!(codes.contains(&nack.code), "{nack:?}");
        assert_eq!(
            nack.message_id.unwrap().to_string(),
            task["taskId"].as_str().unwrap()
        );
        assert!(nack.correlation_id.is_some());
    }
    let nacks = codes.len();
    assert_eq!(seen.written(before.0), vec!["nack"; nacks]);
    assert_eq!(seen.calls(), before.1);
}

async fn what_may_not_be_sent_does_not_leave<H: Harness>(harness: &H, seen: &Seen) {
    let before = seen.entries();
    let odd = with(
        ask(20, "test.echo"),
        "/issuer/agentKind",
        Some(json!("robot")),
    )
    .to_string();
    let (invalid, _) = decode_task(odd.as_bytes(), &Options::from(Profile::Lenient)).unwrap();
    let (told, answer) = harness.send(&invalid).await;
    assert!(
        matches!(answer, Err(SendError::Dispatch(DispatchError::Invalid(_)))),
        "{answer:?}"
    );
    assert!(told.is_empty());
    let block = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----";
    let secret = with(ask(21, "test.echo"), "/payload/k", Some(json!(block)));
    let (_, answer) = harness.send(&typed(&secret.to_string())).await;
    assert!(
        matches!(answer, Err(SendError::Dispatch(DispatchError::Secret(_)))),
        "{answer:?}"
    );
    assert_eq!(seen.entries(), before);
}

async fn every_task_ends<H: Harness>(harness: &H) {
    let late = json!({"deadline": "2001-01-01T00:00:00Z"});
    let short = json!({"budget": {"seconds": 0.05}});
    let ends = [
        (
            ask(30, "test.fail"),
            Status::Failed,
            Some(ErrorCode::Unprocessable),
        ),
        (
            ask(31, "test.panic"),
            Status::Failed,
            Some(ErrorCode::Internal),
        ),
        (
            ask(32, "test.burn"),
            Status::Failed,
            Some(ErrorCode::NonConstitutional),
        ),
        (
            with(ask(33, "test.echo"), "/telemetry", Some(late)),
            Status::Failed,
            Some(ErrorCode::Timeout),
        ),
        (
            with(ask(34, "test.hang"), "/telemetry", Some(short)),
            Status::Failed,
            Some(ErrorCode::Timeout),
        ),
        (ask(35, "test.echo"), Status::Succeeded, None),
    ];
    let only = json!({"mode": "only"});
    let only = with(
        ask(36, "test.echo"),
        "/constitutionalContext/cachePolicy",
        Some(only),
    );
    let miss = (only, Status::Failed, Some(ErrorCode::CacheMiss));
    for (task, status, code) in ends.into_iter().chain([miss]) {
        let result = sent(harness, &task).await;
        assert_eq!(
            (&result.status, result.error_code()),
            (&status, code.as_ref())
        );
        assert!(sap::report(&result).is_ok());
    }
}

async fn acks_and_progress_come_in_order<H: Harness>(harness: &H, seen: &Seen) {
    let before = seen.entries();
    for (number, expect_ack) in [(40, None), (41, Some(true)), (42, Some(false))] {
        let mut task = typed(&ask(number, "test.steps").to_string());
        task.reply_to = expect_ack.map(|expect| {
            let mut reply_to = sap::ReplyTo::new();
            reply_to.expect_ack = Some(expect);
            reply_to
        });
        let (told, answer) = harness.send(&task).await;
        let mut wanted = vec!["ACK", "RUNNING", "RUNNING", "PARTIAL", "SUCCEEDED"];
        if expect_ack == Some(false) {
            wanted.remove(0);
        }
        if !H::TALKS {
            wanted = vec!["SUCCEEDED"];
        }
        assert_eq!(words(&told), wanted);
        assert_eq!(ended(answer).output.unwrap().as_str(), "3");
    }
    let one = ["task", "RUNNING", "RUNNING", "PARTIAL", "SUCCEEDED"];
    assert_eq!(seen.written(before), [one, one, one].concat());
}

/// More than wait for a slow caller at a time.
async fn a_handler_that_reports_much_comes_to_its_end<H: Harness>(harness: &H) {
    let (_, answer) = harness
        .send(&typed(&ask(140, "test.many").to_string()))
        .await;
    assert_eq!(ended(answer).output.unwrap().as_str(), "3");
}

async fn results_go_to_the_endpoint<H: Harness>(harness: &H, seen: &Seen) {
    let task = with(
        ask(50, "test.steps"),
        "/replyTo",
        Some(json!({"endpoint": INBOX})),
    );
    let (told, answer) = harness.send(&typed(&task.to_string())).await;
    assert!(matches!(answer, Ok(Some(Message::Ack(_)))), "{answer:?}");
    assert_eq!(words(&told), ["ACK"]);
    let arrived = || seen.inbox.lock().unwrap().clone();
    until(|| arrived().len() == 4).await;
    let words: Vec<_> = arrived()
        .iter()
        .map(|result| result.status.to_string())
        .collect();
    assert_eq!(words, ["RUNNING", "RUNNING", "PARTIAL", "SUCCEEDED"]);
    // It is kept for those who ask, too.
    let kept = harness.follow(&typed(&task.to_string()), &mut |_| {}).await;
    assert_eq!(Some(&ended(Ok(kept))), arrived().last());
    let before = seen.entries();
    let task = with(
        ask(51, "test.echo"),
        "/replyTo",
        Some(json!({"endpoint": "test:gone"})),
    );
    let (_, answer) = harness.send(&typed(&task.to_string())).await;
    assert!(matches!(answer, Ok(Some(Message::Ack(_)))), "{answer:?}");
    until(|| seen.warnings.lock().unwrap().len() == 2).await;
    assert_eq!(seen.written(before), ["task", "RUNNING", "SUCCEEDED"]);
    let warnings = seen.warnings.lock().unwrap().clone();
    assert_eq!(warnings, ["a result did not get to its endpoint"; 2]);
}

/// Waits for something that another task does.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not come to that");
}

async fn a_task_sent_again_is_answered_and_not_run_again<H: Harness>(harness: &H, seen: &Seen) {
    let task = ask(60, "test.echo");
    let before = seen.calls();
    let first = sent(harness, &task).await;
    assert_eq!(sent(harness, &task).await, first);
    assert_eq!(seen.calls(), before + 1);
    let other = with(task, "/tags", Some(json!(["other"])));
    let Message::Nack(nack) = harness.raw(&other.to_string()).await else {
        panic!("turned away")
    };
    assert_eq!(nack.code, ErrorCode::InvalidTask);
}

async fn tasks_of_one_correlation_id_do_not_mix<H: Harness>(harness: &H) {
    let tasks: Vec<Task> = (70..90)
        .map(|number| typed(&ask(number, "test.steps").to_string()))
        .collect();
    let answers = join_all(tasks.iter().map(|task| harness.send(task))).await;
    for (task, (_, answer)) in tasks.iter().zip(answers) {
        assert_eq!(ended(answer).task_id, task.task_id);
    }
}

/// Nobody has said anything about it.
fn is_unknown(message: Option<&Message>) -> bool {
    match message {
        None => true,
        Some(Message::Nack(nack)) => nack.code == ErrorCode::NotFound,
        Some(_) => false,
    }
}

async fn who_sent_a_task_may_ask_and_follow<H: Harness>(harness: &H, seen: &Seen) {
    let task = ask(100, "test.gate");
    let other = with(
        task.clone(),
        "/issuer/agentId",
        Some(json!("A other/issuer?")),
    );
    let (task, other) = (typed(&task.to_string()), typed(&other.to_string()));
    assert!(is_unknown(harness.status(&task).await.as_ref()));
    let before = seen.entries();
    seen.gate.store(false, Ordering::SeqCst);
    let asking = async {
        // The task, RUNNING, and the handler's own RUNNING.
        until(|| seen.entries() == before + 3).await;
        // It is written before it is told.
        let output = loop {
            let standing = ended(Ok(harness.status(&task).await));
            assert_eq!(standing.status, Status::Running);
            if let Some(output) = standing.output {
                break output;
            }
        };
        assert_eq!(output.as_str(), "1");
        // An id is its issuer's own.
        assert!(is_unknown(harness.status(&other).await.as_ref()));
        assert!(is_unknown(harness.cancel(&other).await.as_ref()));
        let mut told = Vec::new();
        if !H::WAITS {
            let mut tell = |message: &Message| told.push(message.clone());
            let unknown = harness.follow(&other, &mut tell).await;
            assert!(is_unknown(unknown.as_ref()));
            assert_eq!(told.last(), unknown.as_ref());
        }
        let mut told = Vec::new();
        let mut tell = |message: &Message| {
            told.push(message.clone());
            seen.gate.store(true, Ordering::SeqCst);
        };
        let open = async {
            if !H::TALKS {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                seen.gate.store(true, Ordering::SeqCst);
            }
        };
        let (end, ()) = join(harness.follow(&task, &mut tell), open).await;
        assert_eq!(told.last(), end.as_ref());
        let told = words(&told);
        match H::TALKS {
            true => assert!(told.ends_with(&["RUNNING".into(), "SUCCEEDED".into()])),
            false => assert_eq!(told, ["SUCCEEDED"]),
        }
        ended(Ok(end))
    };
    let ((_, answer), followed) = join(harness.send(&task), asking).await;
    let sent = ended(answer);
    assert_eq!(sent, followed);
    // What has ended stays as it is.
    assert_eq!(ended(Ok(harness.status(&task).await)), sent);
    assert_eq!(ended(Ok(harness.cancel(&task).await)), sent);
    assert_eq!(ended(Ok(harness.follow(&task, &mut |_| {}).await)), sent);
}

async fn a_task_that_runs_is_cancelled<H: Harness>(harness: &H, seen: &Seen) {
    let task = typed(&ask(101, "test.hang").to_string());
    let before = seen.entries();
    let cancelling = async {
        until(|| seen.entries() == before + 2).await;
        harness.cancel(&task).await;
    };
    let ((_, answer), ()) = join(harness.send(&task), cancelling).await;
    let end = ended(answer);
    assert_eq!(end.status, Status::Cancelled);
    assert_eq!(ended(Ok(harness.status(&task).await)), end);
    assert_eq!(seen.written(before), ["task", "RUNNING", "CANCELLED"]);
}
