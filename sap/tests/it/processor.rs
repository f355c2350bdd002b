//! Tasks through the processor: every way in which one can end.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waking, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::alignment::Rules;
use sap::learning::{Signal, SignalError, SignalSink};
use sap::processor::{
    Answer, Config, Context, ContractCheck, ContractFinding, Delivery, HandlerError, Outcome,
    Processor, Progress, StopReason, Table,
};
use sap::store::{MemoryCache, MemoryTranscript};
use sap::task::OutputContract;
use sap::transcript::{Entry, EntryKind, Head, Proof, Transcript, TranscriptError};
use sap::validate::{Options, decode_result};
use sap::{ErrorCode, Nack, Producer, ProducerKind, Status, TaskResult};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::{Raw, RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

use crate::samples::{example_task, task, with};

/// A clock that jumps to whatever is waited for.
#[derive(Debug)]
struct Jumping(Arc<Mutex<Now>>);

impl Jumping {
    fn new() -> Self {
        let issued: Timestamp = "2025-09-28T10:15:23Z".parse().unwrap();
        Self(Arc::new(Mutex::new(Now::new(Mono::ZERO, issued))))
    }

    fn go_on(&self, span: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus(span);
    }
}

impl Sleep for Jumping {
    fn now(&self) -> Now {
        *self.0.lock().unwrap()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let clock = Arc::clone(&self.0);
        Box::pin(async move {
            // Everything else that is ready comes first.
            for _ in 0..8 {
                yield_now().await;
            }
            let mut now = clock.lock().unwrap();
            let span = deadline.saturating_since(now.mono);
            *now = now.plus(span);
        })
    }
}

async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

type Log = Arc<MemoryTranscript>;

fn processor(log: &Log) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    Processor::new(
        producer,
        Arc::clone(log) as Arc<dyn Transcript>,
        Config::default(),
    )
}

fn text(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

/// `consult.align` says `output` and counts how often it is asked.
fn answering(log: &Log, output: &'static str, calls: &Arc<AtomicUsize>) -> Processor {
    let calls = Arc::clone(calls);
    processor(log).handle("consult.align".parse().unwrap(), move |_: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Outcome::new(text(output)).citing(vec!["ubos://a".into()])) }
    })
}

fn run(processor: &Processor, clock: &Jumping, task: &Value) -> (Vec<String>, Answer) {
    let mut told = Vec::new();
    let bytes = task.to_string();
    let mut sink = |delivery: Delivery<'_>| {
        told.push(match delivery {
            Delivery::Ack(_) => "ACK".to_owned(),
            Delivery::Result(result) => result.status.to_string(),
            other => format!("{other:?}"),
        });
    };
    let answer = futures::executor::block_on(processor.process(clock, bytes.as_bytes(), &mut sink));
    (told, answer.unwrap())
}

fn result(answer: Answer) -> TaskResult {
    let Answer::Result(result) = answer else {
        panic!("{answer:?}")
    };
    assert!(result.check().is_valid(), "{}", result.check());
    *result
}

fn nack(answer: Answer) -> Nack {
    let Answer::Nack(nack) = answer else {
        panic!("{answer:?}")
    };
    nack
}

fn kinds(log: &Log) -> Vec<String> {
    let entries = log.read(0, 100).unwrap();
    let kind = |entry: &Entry| match entry.kind {
        EntryKind::Result => {
            let (result, _) =
                decode_result(entry.body.as_str().as_bytes(), &Options::default()).unwrap();
            result.status.to_string()
        }
        _ => entry.kind.to_string(),
    };
    entries.iter().map(kind).collect()
}

fn no_cache() -> Value {
    with(task(), "/constitutionalContext/cachePolicy", None)
}

// spec: SAP-5-9, SAP-10-1, SAP-4.3-1, SAP-4.1-16
#[test]
fn a_task_is_written_down_then_acknowledged_then_answered() {
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = answering(&log, "{\"n\":1.50}", &Arc::default());
    let (told, answer) = run(&processor, &clock, &no_cache());
    let result = result(answer);
    assert_eq!(told, ["ACK", "RUNNING"]);
    assert_eq!(
        (result.status, result.output.unwrap().as_str()),
        (Status::Succeeded, "{\"n\":1.50}")
    );
    assert_eq!(
        result
            .constitutional_evidence
            .pressure_readings
            .unwrap()
            .len(),
        3
    );
    assert_eq!(result.constitutional_evidence.cache, None);
    assert_eq!(kinds(&log), ["task", "RUNNING", "SUCCEEDED"]);
    let quiet = with(no_cache(), "/replyTo/expectAck", Some(json!(false)));
    let quiet = with(
        quiet,
        "/taskId",
        Some(json!("00000000-0000-0000-0000-000000000001")),
    );
    assert_eq!(run(&processor, &clock, &quiet).0, ["RUNNING"]);
}

// spec: SAP-4.3-2, SAP-8-1, SAP-11-2, SAP-5-2, SAP-4.1-16
#[test]
fn what_cannot_be_taken_is_turned_away_before_any_handler() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "1", &calls);
    let turned = nack(run(&processor, &clock, &example_task()).1);
    assert_eq!(turned.code, ErrorCode::InvalidTask);
    assert!(
        turned
            .reason
            .as_str()
            .contains("/constitutionalContext/pressureLevel")
    );
    assert!(turned.message_id.is_some() && turned.correlation_id.is_some());
    for (pointer, value) in [
        ("/target/capability", "consult.other"),
        ("/target/agentId", "A-none"),
    ] {
        let changed = with(no_cache(), pointer, Some(json!(value)));
        assert_eq!(
            nack(run(&processor, &clock, &changed).1).code,
            ErrorCode::NotFound
        );
    }
    let table = |id: &str, what: &str| {
        Arc::new(Table::default().allow(id.parse().unwrap(), what.parse().unwrap()))
    };
    let strict = answering(&log, "1", &calls).authorize(table("A-prime", "consult.other"));
    assert_eq!(
        nack(run(&strict, &clock, &no_cache()).1).code,
        ErrorCode::Forbidden
    );
    let strict = answering(&log, "1", &calls).authorize(table("A-other", "consult.align"));
    let (told, answer) = run(&strict, &clock, &no_cache());
    assert_eq!(
        (told.len(), nack(answer).code),
        (0, ErrorCode::Unauthorized)
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(kinds(&log), ["nack"; 5]);
    let entry = &log.read(0, 1).unwrap()[0];
    assert!(entry.digest.is_some() && !entry.body.as_str().contains("systems_over_willpower"));
}

// spec: SAP-5-2, SAP-5-6, SAP-5-7, SAP-8-1
#[test]
fn a_handler_that_fails_panics_or_escalates_ends_its_task() {
    let clock = Jumping::new();
    let ends = |handler: fn() -> Result<Outcome, HandlerError>| {
        let log = Log::default();
        let processor = processor(&log).handle(
            "consult.align".parse().unwrap(),
            move |_: Context| async move { handler() },
        );
        let ended = result(run(&processor, &clock, &no_cache()).1);
        assert_eq!(
            kinds(&log),
            [
                "task".to_owned(),
                "RUNNING".to_owned(),
                ended.status.to_string()
            ]
        );
        ended
    };
    let failed = ends(|| Err(HandlerError::unprocessable(" ")));
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert_eq!(
        failed.error.unwrap().message.as_deref(),
        Some("UNPROCESSABLE")
    );
    let panicked = ends(|| panic!("payload text"));
    assert_eq!(panicked.error_code(), Some(&ErrorCode::Internal));
    assert!(!format!("{panicked:?}").contains("payload text"));
    let next_actions = vec![RawObject::empty()];
    assert_eq!(next_actions.len(), 1);
    let escalated = ends(|| {
        Err(HandlerError::Escalated {
            message: "ask".into(),
            next_actions: vec![RawObject::empty()],
        })
    });
    assert_eq!(
        (escalated.status, escalated.next_actions),
        (Status::Escalated, Some(next_actions))
    );
    // A result that would not pass a strict reader is not sent.
    let deep = ends(|| {
        Ok(Outcome::new(text(&format!(
            "{}{}",
            "[".repeat(64),
            "]".repeat(64)
        ))))
    });
    assert_eq!(deep.error_code(), Some(&ErrorCode::Internal));
}

// spec: SAP-5-8
#[test]
fn deadline_and_budgets_end_a_task() {
    let hanging = |log: &Log| {
        processor(log).handle("consult.align".parse().unwrap(), |_: Context| {
            std::future::pending()
        })
    };
    let code = |processor: &Processor, clock: &Jumping, task: &Value| {
        result(run(processor, clock, task).1).error_code().cloned()
    };
    let clock = Jumping::new();
    assert_eq!(
        code(&hanging(&Log::default()), &clock, &no_cache()),
        Some(ErrorCode::Timeout)
    );
    assert_eq!(clock.now().wall.to_string(), "2025-09-28T11:00:01Z");
    // Over on arrival: nothing runs.
    let (log, calls) = (Log::default(), Arc::default());
    assert_eq!(
        code(&answering(&log, "1", &calls), &clock, &no_cache()),
        Some(ErrorCode::Timeout)
    );
    assert_eq!(
        (calls.load(Ordering::SeqCst), kinds(&log)),
        (0, vec!["task".to_owned(), "FAILED".into()])
    );
    let clock = Jumping::new();
    let seconds = with(no_cache(), "/telemetry/budget/seconds", Some(json!(2.5)));
    assert_eq!(
        code(&hanging(&Log::default()), &clock, &seconds),
        Some(ErrorCode::Timeout)
    );
    assert_eq!(clock.now().mono, Mono::from_nanos(2_500_000_001));
    // In the last second is within; an answer after it is refused.
    for (late, wanted) in [(2677, None), (2678, Some(ErrorCode::Timeout))] {
        let clock = Arc::new(Jumping::new());
        let inner = Arc::clone(&clock);
        let slow = processor(&Log::default()).handle(
            "consult.align".parse().unwrap(),
            move |_: Context| {
                inner.go_on(Duration::from_secs(late));
                async { Ok(Outcome::new(text("1"))) }
            },
        );
        assert_eq!(code(&slow, &clock, &no_cache()), wanted, "{late}");
    }
    for (nanos, wanted) in [
        (2_500_000_000, None),
        (2_500_000_001, Some(ErrorCode::Timeout)),
    ] {
        let clock = Arc::new(Jumping::new());
        let inner = Arc::clone(&clock);
        let slow = processor(&Log::default()).handle(
            "consult.align".parse().unwrap(),
            move |_: Context| {
                inner.go_on(Duration::from_nanos(nanos));
                async { Ok(Outcome::new(text("1"))) }
            },
        );
        assert_eq!(code(&slow, &clock, &seconds), wanted, "{nanos}");
    }
    for (tokens, wanted) in [(8000.0, None), (8000.5, Some(ErrorCode::RateLimit))] {
        let spending = processor(&Log::default()).handle(
            "consult.align".parse().unwrap(),
            move |cx: Context| async move {
                let _ = cx.spend("tokens", tokens);
                Ok(Outcome::new(text("1")))
            },
        );
        assert_eq!(code(&spending, &Jumping::new(), &no_cache()), wanted);
    }
}

// spec: SAP-5-8, SAP-5-4
#[test]
fn progress_is_told_and_a_cancelled_task_ends_cancelled() {
    let (log, clock) = (Log::default(), Jumping::new());
    let stopped = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&stopped);
    let processor =
        processor(&log).handle("consult.align".parse().unwrap(), move |mut cx: Context| {
            let seen = Arc::clone(&seen);
            async move {
                cx.report(Progress::running(Some(text("1")))).await;
                cx.report(Progress::partial(text("2"), vec![RawObject::empty()]))
                    .await;
                *seen.lock().unwrap() = Some(cx.stopped().await);
                // Nobody wants to know any more.
                cx.report(Progress::running(Some(text("9")))).await;
                Ok(Outcome::new(text("3")))
            }
        });
    let task_id = "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a".parse().unwrap();
    assert!(!processor.cancel(&task_id));
    let mut told = Vec::new();
    let mut sink = |delivery: Delivery<'_>| {
        if let Delivery::Result(result) = delivery {
            told.push(result.status.to_string());
            if result.status == Status::Partial {
                assert!(processor.cancel(&task_id));
            }
        }
    };
    let bytes = no_cache().to_string();
    let answer =
        futures::executor::block_on(processor.process(&clock, bytes.as_bytes(), &mut sink))
            .unwrap();
    assert_eq!(result(answer).status, Status::Cancelled);
    assert_eq!(told, ["RUNNING", "RUNNING", "PARTIAL"]);
    assert_eq!(*stopped.lock().unwrap(), Some(StopReason::Cancelled));
    assert_eq!(
        kinds(&log),
        ["task", "RUNNING", "RUNNING", "PARTIAL", "CANCELLED"]
    );
    assert!(!processor.cancel(&task_id));
}

// spec: SAP-5-10
#[test]
fn a_task_that_came_before_is_answered_and_not_run_again() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "1", &calls);
    let first = result(run(&processor, &clock, &no_cache()).1);
    clock.go_on(Duration::from_secs(5));
    assert_eq!(result(run(&processor, &clock, &no_cache()).1), first);
    // Another order of a payload's members does not make it another task.
    let ordered = no_cache().to_string();
    let (one, two) = ("\"depth\":\"detailed\"", "\"topic\":\"UBOS SAP V2\"");
    let turned = ordered.replace(&format!("{one},{two}"), &format!("{two}, {one}"));
    assert_ne!(turned, ordered);
    let mut sink = |_: Delivery<'_>| {};
    let again = processor.process(&clock, turned.as_bytes(), &mut sink);
    assert_eq!(result(futures::executor::block_on(again).unwrap()), first);
    let other = with(no_cache(), "/tags", Some(json!(["other"])));
    assert_eq!(
        nack(run(&processor, &clock, &other).1).code,
        ErrorCode::InvalidTask
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(kinds(&log), ["task", "RUNNING", "SUCCEEDED", "nack"]);
}

// spec: SAP-5-2, SAP-8-1
#[test]
fn at_the_bound_tasks_are_turned_away_and_given_up_ones_end() {
    let (log, clock) = (Log::default(), Jumping::new());
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = Config::default().max_running(1);
    let processor = Processor::new(producer, log.clone(), config)
        .handle("consult.align".parse().unwrap(), |_: Context| {
            std::future::pending()
        });
    let forever = with(no_cache(), "/telemetry", None);
    let bytes = forever.to_string();
    let mut sink = |_: Delivery<'_>| {};
    {
        let mut running = pin!(processor.process(&clock, bytes.as_bytes(), &mut sink));
        let mut cx = Waking::from_waker(Waker::noop());
        assert!(running.as_mut().poll(&mut cx).is_pending());
        let second = with(
            forever.clone(),
            "/taskId",
            Some(json!("00000000-0000-0000-0000-000000000001")),
        );
        assert_eq!(
            nack(run(&processor, &clock, &second).1).code,
            ErrorCode::RateLimit
        );
        assert_eq!(
            result(run(&processor, &clock, &forever).1).status,
            Status::Running
        );
    }
    // Its future was dropped.
    assert_eq!(kinds(&log), ["task", "RUNNING", "nack", "FAILED"]);
    assert_eq!(
        result(run(&processor, &clock, &forever).1).error_code(),
        Some(&ErrorCode::Internal)
    );
}

fn cached(id: u8, mode: &str) -> Value {
    let id = format!("00000000-0000-0000-0000-0000000000{id:02}");
    let policy = json!({"mode": mode, "maxAgeSec": 60, "mustAlign": true});
    with(
        with(task(), "/taskId", Some(json!(id))),
        "/constitutionalContext/cachePolicy",
        Some(policy),
    )
}

// spec: SAP-6-3, SAP-6-6, SAP-6-7, SAP-8-1
#[test]
fn the_cache_answers_as_the_policy_says() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let cache = Arc::new(MemoryCache::default());
    let processor = answering(&log, "{\"n\":1e3}", &calls).cache(cache.clone());
    let evidence = |result: &TaskResult| {
        result
            .constitutional_evidence
            .cache
            .clone()
            .map(|c| (c.hit, c.age_sec.map(|a| a.value())))
    };
    let only = result(run(&processor, &clock, &cached(1, "only")).1);
    assert_eq!(only.error_code(), Some(&ErrorCode::CacheMiss));
    let bypassed = result(run(&processor, &clock, &cached(2, "bypass")).1);
    assert_eq!(evidence(&bypassed), None);
    assert!(
        result(run(&processor, &clock, &cached(3, "only")).1)
            .error_code()
            .is_some(),
        "a bypass writes nothing"
    );
    let computed = result(run(&processor, &clock, &cached(4, "prefer")).1);
    assert_eq!(evidence(&computed), Some((Some(false), None)));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    clock.go_on(Duration::from_secs(59));
    for (id, mode) in [(5, "prefer"), (6, "only")] {
        let (told, answer) = run(&processor, &clock, &cached(id, mode));
        let hit = result(answer);
        assert_eq!(
            (told, &hit.status),
            (vec!["ACK".to_owned()], &Status::Succeeded)
        );
        assert_eq!(evidence(&hit), Some((Some(true), Some(59))));
        assert_eq!(
            hit.constitutional_evidence
                .cache
                .as_ref()
                .unwrap()
                .cache_key
                .as_ref()
                .unwrap()
                .len(),
            64
        );
        assert_eq!(hit.output.unwrap().as_str(), "{\"n\":1e3}");
        assert_eq!(
            hit.constitutional_evidence.citations,
            Some(vec!["ubos://a".to_owned()])
        );
        assert_eq!(hit.reported_at, clock.now().wall);
    }
    clock.go_on(Duration::from_secs(1));
    assert!(
        result(run(&processor, &clock, &cached(7, "only")).1)
            .error_code()
            .is_some(),
        "as old as maxAgeSec is stale"
    );
    run(&processor, &clock, &cached(8, "prefer"));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(
        result(run(&processor, &clock, &cached(9, "only")).1).status,
        Status::Succeeded
    );
    // The same record under rules that it breaks is a miss.
    let strict = answering(&log, "{\"n\":1}", &calls)
        .cache(cache)
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "1e3")));
    assert_eq!(
        result(run(&strict, &clock, &cached(10, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
}

// spec: SAP-4.2-9, SAP-8-1, SAP-6-7
#[test]
fn a_verdict_decides_the_end() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let rules = |words: &str| {
        Arc::new(
            Rules::default()
                .forbid("strategic_pause", words)
                .deliberate_above("blueprint_thinking", 40.0),
        )
    };
    let processor = answering(&log, "\"burn it\"", &calls)
        .policy(rules("BURN"))
        .cache(Arc::new(MemoryCache::default()));
    let refused = result(run(&processor, &clock, &cached(1, "prefer")).1);
    assert_eq!(refused.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(
        (
            refused.output,
            refused.constitutional_evidence.alignment.as_str()
        ),
        (None, "NON_CONSTITUTIONAL")
    );
    assert_eq!(
        refused.constitutional_evidence.policy_checks.unwrap().len(),
        3 + 2
    );
    assert_eq!(
        result(run(&processor, &clock, &cached(2, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
    // Too much pressure for an instant decision: nothing is computed.
    let hasty = with(
        no_cache(),
        "/constitutionalContext/pressureLevel",
        Some(json!("instant")),
    );
    let hasty = with(
        hasty,
        "/constitutionalContext/riskTolerance",
        Some(json!("high")),
    );
    let before = calls.load(Ordering::SeqCst);
    let escalated = result(run(&processor, &clock, &hasty).1);
    assert_eq!(escalated.status, Status::Escalated);
    // What the policy proposes.
    let [action] = &escalated.next_actions.unwrap()[..] else {
        panic!("one action")
    };
    let action: Value = action.deserialize().unwrap();
    assert_eq!(action["action"], "decide again");
    assert_eq!(
        action["constitutionalContext"]["pressureLevel"],
        "consulted"
    );
    assert_eq!(calls.load(Ordering::SeqCst), before);
}

// spec: SAP-4.2-9
#[test]
fn a_part_that_breaks_a_principle_ends_the_task() {
    let log = Log::default();
    let processor = processor(&log)
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
        .handle(
            "consult.align".parse().unwrap(),
            |mut cx: Context| async move {
                cx.report(Progress::partial(
                    text("\"burn\""),
                    vec![RawObject::empty()],
                ))
                .await;
                Ok(Outcome::new(text("1")))
            },
        );
    let ended = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
}

// spec: SAP-4.2-9
#[test]
fn a_part_cites_where_a_policy_demands_it() {
    for (cited, wanted) in [(true, "PARTIAL"), (false, "ESCALATED")] {
        let log = Log::default();
        let sources = || vec!["ubos://a".to_owned()];
        let processor = processor(&log)
            .policy(Arc::new(Rules::default().cite("strategic_pause")))
            .handle(
                "consult.align".parse().unwrap(),
                move |mut cx: Context| async move {
                    let part = Progress::partial(text("1"), vec![RawObject::empty()]);
                    let part = if cited { part.citing(sources()) } else { part };
                    cx.report(part).await;
                    Ok(Outcome::new(text("1")).citing(sources()))
                },
            );
        let task = with(
            no_cache(),
            "/constitutionalContext/riskTolerance",
            Some(json!("medium")),
        );
        run(&processor, &Jumping::new(), &task);
        assert_eq!(kinds(&log)[2], wanted);
        let part = log.read(2, 1).unwrap()[0].clone();
        let (part, _) = decode_result(part.body.as_str().as_bytes(), &Options::default()).unwrap();
        let said = part.constitutional_evidence.citations.unwrap_or_default();
        assert_eq!(said.len(), usize::from(cited));
    }
}

// spec: SAP-5-1, SAP-5-3
#[test]
fn a_part_that_is_no_valid_result_ends_the_task() {
    let log = Log::default();
    let processor = processor(&log).handle(
        "consult.align".parse().unwrap(),
        |mut cx: Context| async move {
            // As long as a message may be, so that the result around it is longer.
            let long = "x".repeat(Options::default().limits.max_bytes - 2);
            let long = RawBuf::from_serialize(&long).unwrap();
            cx.report(Progress::running(Some(long))).await;
            Ok(Outcome::new(text("1")))
        },
    );
    let ended = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Internal));
    let why = ended.error.unwrap().message.unwrap();
    assert_eq!(why, "the handler made a result that is not valid");
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
}

#[derive(Debug)]
struct Never;

impl ContractCheck for Never {
    fn check(&self, _: &OutputContract, _: Raw<'_>) -> ContractFinding {
        ContractFinding::Broken(vec!["/n".into()])
    }
}

// spec: SAP-4.2-7
#[test]
fn an_output_that_breaks_its_contract_is_unprocessable() {
    let processor = answering(&Log::default(), "1", &Arc::default()).contract(Arc::new(Never));
    let failed = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().contains("/n"));
}

/// Takes `room` entries and then no more.
#[derive(Debug)]
struct Failing {
    room: AtomicUsize,
}

impl Transcript for Failing {
    fn record(&self, _: &Entry) -> Result<u64, TranscriptError> {
        let room = self
            .room
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        room.map(|n| n as u64)
            .map_err(|_| TranscriptError::Full { limit: 0 })
    }

    fn read(&self, _: u64, _: usize) -> Result<Vec<Entry>, TranscriptError> {
        Ok(Vec::new())
    }

    fn verify(&self, _: Option<&Head>) -> Result<Proof, TranscriptError> {
        Err(TranscriptError::Head)
    }
}

// spec: SAP-10-1
#[test]
fn what_cannot_be_written_down_is_not_told() {
    for (room, wanted) in [(0, vec![]), (1, vec!["ACK"]), (2, vec!["ACK", "RUNNING"])] {
        let transcript = Arc::new(Failing {
            room: AtomicUsize::new(room),
        });
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let processor = Processor::new(producer, transcript.clone(), Config::default())
            .handle("consult.align".parse().unwrap(), |_: Context| async {
                Ok(Outcome::new(text("1")))
            });
        let mut told = Vec::new();
        let mut sink = |delivery: Delivery<'_>| {
            told.push(if matches!(delivery, Delivery::Ack(_)) {
                "ACK"
            } else {
                "RUNNING"
            });
        };
        let bytes = no_cache().to_string();
        let answer = futures::executor::block_on(processor.process(
            &Jumping::new(),
            bytes.as_bytes(),
            &mut sink,
        ));
        assert!(answer.is_err());
        assert_eq!(told, wanted);
        // It may come again, as if it had never been there.
        transcript.room.store(10, Ordering::SeqCst);
        let again = result(run(&processor, &Jumping::new(), &no_cache()).1);
        assert_eq!(again.status, Status::Succeeded);
    }
}

// spec: SAP-4.1-10, SAP-4.2-7
#[cfg(feature = "schema")]
#[test]
fn an_output_is_held_against_the_schema_of_its_contract() {
    let said = |schema: Value| {
        let processor = answering(&Log::default(), "{\"n\":1.5}", &Arc::default())
            .contract(Arc::new(sap::processor::Schemas::default()));
        let task = with(no_cache(), "/outputContract/schema", Some(schema));
        let (told, answer) = run(&processor, &Jumping::new(), &task);
        (told, result(answer))
    };
    let integer = json!({"properties": {"n": {"type": "integer"}}});
    let (_, failed) = said(integer);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().ends_with(" at /n"));
    let (_, kept) = said(json!({"properties": {"n": {"type": "number"}}}));
    assert_eq!(kept.status, Status::Succeeded);
    for descriptor in [
        json!({"type": "jsonish"}),
        json!({"$ref": "http://a.example/b"}),
    ] {
        let (told, kept) = said(descriptor);
        assert_eq!(kept.status, Status::Succeeded);
        assert!(
            told.iter().any(|line| line.contains("Contract(")),
            "{told:?}"
        );
    }
}

// spec: SAP-6-11
#[test]
fn equal_tasks_at_the_same_time_are_computed_once() {
    let (log, clock, calls) = (
        Log::default(),
        Jumping::new(),
        Arc::new(AtomicUsize::new(0)),
    );
    let counter = Arc::clone(&calls);
    let processor = processor(&log)
        .handle("consult.align".parse().unwrap(), move |_: Context| {
            let call = counter.fetch_add(1, Ordering::SeqCst);
            async move {
                yield_now().await;
                // The first attempt comes to nothing; nobody else's fails for that.
                if call == 0 {
                    return Err(HandlerError::unprocessable("not today"));
                }
                Ok(Outcome::new(text("1")))
            }
        })
        .cache(Arc::new(MemoryCache::default()));
    let ask = |number: u8, max_age: Option<u64>| {
        let id = format!("00000000-0000-0000-0000-0000000000{number:02}");
        let task = with(task(), "/taskId", Some(json!(id)));
        let place = "/constitutionalContext/cachePolicy/maxAgeSec";
        let bytes = with(task, place, max_age.map(|age| json!(age))).to_string();
        let (processor, clock) = (&processor, &clock);
        async move {
            let mut sink = |_: Delivery<'_>| {};
            result(
                processor
                    .process(clock, bytes.as_bytes(), &mut sink)
                    .await
                    .unwrap(),
            )
        }
    };
    let (one, two) = futures::executor::block_on(futures::future::join(ask(1, None), ask(2, None)));
    assert_eq!(
        (&one.status, &two.status),
        (&Status::Failed, &Status::Succeeded)
    );
    let hit = |result: &TaskResult| result.constitutional_evidence.cache.as_ref().unwrap().hit;
    assert_eq!((hit(&two), calls.load(Ordering::SeqCst)), (Some(false), 2));
    clock.go_on(Duration::from_secs(100));
    let wanting = [(3, Some(50)), (4, Some(50)), (5, None), (6, Some(0))];
    let all = futures::future::join_all(wanting.map(|(number, age)| ask(number, age)));
    let all = futures::executor::block_on(all);
    // The record is too old for two, who share one outcome; the last one takes nobody else's.
    let hits: Vec<_> = all.iter().map(|result| hit(result).unwrap()).collect();
    assert_eq!(hits, [false, true, true, false]);
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

// spec: SAP-6-11, SAP-5-8
#[test]
fn who_waits_for_an_equal_task_keeps_its_own_time_and_may_be_cancelled() {
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = processor(&log)
        .handle("consult.align".parse().unwrap(), |_: Context| {
            std::future::pending()
        })
        .cache(Arc::new(MemoryCache::default()));
    let ask = |number: u8, deadline: Option<&str>| {
        let id = format!("00000000-0000-0000-0000-0000000000{number:02}");
        let task = with(task(), "/taskId", Some(json!(id)));
        let task = with(task, "/telemetry/deadline", deadline.map(|at| json!(at)));
        task.to_string()
    };
    let mut sink = |_: Delivery<'_>| {};
    let forever = ask(1, None);
    let mut leader = pin!(processor.process(&clock, forever.as_bytes(), &mut sink));
    let mut cx = Waking::from_waker(Waker::noop());
    assert!(leader.as_mut().poll(&mut cx).is_pending());
    let timed = ask(2, Some("2025-09-28T10:16:00Z"));
    let mut sink = |_: Delivery<'_>| {};
    let late = processor.process(&clock, timed.as_bytes(), &mut sink);
    let late = result(futures::executor::block_on(late).unwrap());
    assert_eq!(late.error_code(), Some(&ErrorCode::Timeout));
    let waiting = ask(3, None);
    let mut sink = |_: Delivery<'_>| {};
    let mut waits = pin!(processor.process(&clock, waiting.as_bytes(), &mut sink));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert!(processor.cancel(&"00000000-0000-0000-0000-000000000003".parse().unwrap()));
    let Poll::Ready(Ok(cancelled)) = waits.as_mut().poll(&mut cx) else {
        panic!("ended")
    };
    assert_eq!(result(cancelled).status, Status::Cancelled);
}

#[derive(Debug, Default)]
struct Signals(Mutex<Vec<Signal>>);

impl SignalSink for Signals {
    fn emit(&self, signal: Signal) -> Result<(), SignalError> {
        let mut signals = self.0.lock().unwrap();
        if signals.len() == 5 {
            return Err(SignalError::Full {
                what: "signals",
                limit: 5,
            });
        }
        signals.push(signal);
        Ok(())
    }
}

// spec: SAP-7-6, SAP-6-13
#[test]
fn each_partial_or_last_result_is_one_signal() {
    let (log, clock, signals) = (Log::default(), Jumping::new(), Arc::new(Signals::default()));
    let processor = processor(&log)
        .handle_with(
            "consult.align".parse().unwrap(),
            |mut cx: Context| async move {
                cx.report(Progress::partial(text("1"), vec![RawObject::empty()]))
                    .await;
                Ok(Outcome::new(text("2")))
            },
            Arc::new(sap::cache::DropMembers::new(["asked"])),
        )
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
        .cache(Arc::new(MemoryCache::default()))
        .signals(Arc::clone(&signals) as Arc<dyn SignalSink>);
    let ask = |number: u8, payload: Value| {
        let id = format!("00000000-0000-0000-0000-0000000000{number:02}");
        let task = with(task(), "/taskId", Some(json!(id)));
        run(&processor, &clock, &with(task, "/payload", Some(payload)))
    };
    ask(1, json!({"n": 1, "asked": "now"}));
    ask(1, json!({"n": 1, "asked": "now"}));
    ask(2, json!({"n": 1, "asked": "then"}));
    ask(3, json!({"n": 2}));
    let (told, answer) = ask(4, json!({"n": 1}));
    assert_eq!(result(answer).status, Status::Succeeded);
    assert!(told.iter().any(|line| line.contains("Signal(")), "{told:?}");
    let signals = signals.0.lock().unwrap();
    let said: Vec<_> = signals
        .iter()
        .map(|signal| {
            let status = signal.status.as_ref().unwrap();
            (status.as_str(), signal.cache_hit.unwrap())
        })
        .collect();
    let computed = [("PARTIAL", false), ("SUCCEEDED", false)];
    assert_eq!(said[..2], computed);
    assert_eq!(said[2], ("SUCCEEDED", true));
    assert_eq!(said[3..], computed);
    let prints: Vec<_> = signals.iter().map(|s| s.fingerprint.unwrap()).collect();
    assert!(prints[..3].iter().all(|print| *print == prints[0]) && prints[3] != prints[0]);
    let one = &signals[1];
    assert_eq!(
        (one.capability.as_str(), one.territory.as_deref()),
        ("consult.align", Some("EUFM"))
    );
    // One a principle, and one a constraint.
    assert_eq!(one.policy_checks.as_ref().unwrap().len(), 3 + 2);
}
