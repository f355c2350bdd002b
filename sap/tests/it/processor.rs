//! Tasks through the processor: every way in which one can end.

use futures::executor::block_on;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waking, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::alignment::Rules;
use sap::cache::{Caching, WholePayload};
use sap::processor::{
    AllowAll, Answer, Config, Context, Delivery, HandlerError, Outcome, Processor, Progress,
    StopReason, Table,
};
use sap::store::{MemoryCache, MemoryTranscript};
use sap::transcript::{Entry, EntryKind, Transcript};
use sap::validate::{Options, decode_result};
use sap::{Capability, ErrorCode, Nack, Producer, ProducerKind, Status, TaskResult};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

use crate::samples::{example_task, task, with};

/// A clock that jumps to whatever is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Jumping(Arc<Mutex<Now>>);

impl Jumping {
    pub(crate) fn new() -> Self {
        let issued: Timestamp = "2025-09-28T10:15:23Z".parse().unwrap();
        Self(Arc::new(Mutex::new(Now::new(Mono::ZERO, issued))))
    }

    pub(crate) fn go_on(&self, span: Duration) {
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

pub(crate) async fn yield_now() {
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

pub(crate) type Log = Arc<MemoryTranscript>;

pub(crate) fn processor(log: &Log) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    Processor::new(
        producer,
        Arc::new(AllowAll),
        Arc::clone(log) as Arc<dyn Transcript>,
        Config::default(),
    )
    .unwrap()
    .refusals(log.clone())
}

pub(crate) fn text(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

/// `consult.align` says `output`.
#[cfg(feature = "log")]
pub(crate) fn answering_on(transcript: Arc<dyn Transcript>, output: &'static str) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let all = Arc::new(AllowAll);
    Processor::new(producer, all, transcript, Config::default())
        .unwrap()
        .handle(
            "consult.align".parse().unwrap(),
            move |_: Context| async move { Ok(Outcome::new(text(output))) },
        )
}

pub(crate) fn consult() -> Capability {
    "consult.align".parse().unwrap()
}

/// Outcomes that answer equal tasks of everybody.
pub(crate) fn whole() -> Caching {
    Caching::shared(WholePayload)
}

/// A task without a cache, numbered.
#[cfg(feature = "log")]
pub(crate) fn cached_off(number: u16) -> Value {
    let id = format!("00000000-0000-0000-0000-00000000{number:04}");
    with(no_cache(), "/taskId", Some(json!(id)))
}

/// `consult.align` says `output` and counts how often it is asked.
pub(crate) fn answering(log: &Log, output: &'static str, calls: &Arc<AtomicUsize>) -> Processor {
    let calls = Arc::clone(calls);
    processor(log).handle("consult.align".parse().unwrap(), move |_: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Outcome::new(text(output)).citing(vec!["ubos://a".into()])) }
    })
}

pub(crate) fn run<S: Sleep + Clone + Send + Sync + 'static>(
    processor: &Processor,
    clock: &S,
    task: &Value,
) -> (Vec<String>, Answer) {
    let mut told = Vec::new();
    let bytes = task.to_string();
    let mut sink = |delivery: Delivery<'_>| {
        told.push(match delivery {
            Delivery::Ack(_) => "ACK".to_owned(),
            Delivery::Result(result) => result.status.to_string(),
            other => format!("{other:?}"),
        });
    };
    let answer = block_on(processor.process(clock, bytes.as_bytes(), &mut sink));
    (told, answer.unwrap())
}

pub(crate) fn result(answer: Answer) -> TaskResult {
    let Answer::Result(result) = answer else {
        panic!("{answer:?}")
    };
    sap::report(&result).unwrap_or_else(|error| panic!("{error}"));
    *result
}

pub(crate) fn nack(answer: Answer) -> Nack {
    let Answer::Nack(nack) = answer else {
        panic!("{answer:?}")
    };
    nack
}

pub(crate) fn kinds(log: &Log) -> Vec<String> {
    let entries = block_on(log.read(0, 100)).unwrap();
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

pub(crate) fn no_cache() -> Value {
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
        let refused = nack(run(&processor, &clock, &changed).1);
        assert_eq!(refused.code, ErrorCode::NotFound);
        assert!(refused.to_string().contains(&format!("{value:?}")));
    }
    let long = format!("a.{}", "x".repeat(5_000));
    let changed = with(no_cache(), "/target/capability", Some(json!(long)));
    let changed = with(changed, "/target/agentId", Some(json!("A\n\u{202e}\"")));
    let refused = nack(run(&processor, &clock, &changed).1);
    let (capability, agent) = (&long[..120], r#""A\n\u{202e}\"""#);
    assert_eq!(
        refused.reason.as_str(),
        format!("no such capability or agent here: \"{capability}\"… of the agent {agent}")
    );
    let version = with(no_cache(), "/protocolVersion", Some(json!("3.0")));
    assert_eq!(
        nack(run(&processor, &clock, &version).1).to_string(),
        "INVALID_TASK: not a valid task: bad_value at \"/protocolVersion\", where the string \"2.0\" is supported"
    );
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
    assert_eq!(kinds(&log), ["nack"; 7]);
    let entry = &block_on(log.read(0, 1)).unwrap()[0];
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
    assert_eq!(clock.now().wall.to_string(), "2025-09-28T11:00:01.000Z");
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
    let issuer = "A-prime".parse().unwrap();
    let task_id = "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a".parse().unwrap();
    assert!(!processor.cancel(&"A-other".parse().unwrap(), &task_id));
    assert!(!processor.cancel(&issuer, &task_id));
    let mut told = Vec::new();
    let mut sink = |delivery: Delivery<'_>| {
        if let Delivery::Result(result) = delivery {
            told.push(result.status.to_string());
            if result.status == Status::Partial {
                assert!(!processor.cancel(&"A-other".parse().unwrap(), &task_id));
                assert!(processor.cancel(&issuer, &task_id));
            }
        }
    };
    let bytes = no_cache().to_string();
    let answer = block_on(processor.process(&clock, bytes.as_bytes(), &mut sink)).unwrap();
    assert_eq!(result(answer).status, Status::Cancelled);
    assert_eq!(told, ["RUNNING", "RUNNING", "PARTIAL"]);
    assert_eq!(*stopped.lock().unwrap(), Some(StopReason::Cancelled));
    assert_eq!(
        kinds(&log),
        ["task", "RUNNING", "RUNNING", "PARTIAL", "CANCELLED"]
    );
    assert!(!processor.cancel(&issuer, &task_id));
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
    assert_eq!(result(block_on(again).unwrap()), first);
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
    let config = Config::default().with_max_running(1);
    let processor = Processor::new(producer, Arc::new(AllowAll), log.clone(), config)
        .unwrap()
        .refusals(log.clone())
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

pub(crate) fn cached(id: u8, mode: &str) -> Value {
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
    let processor = answering(&log, "{\"n\":1e3}", &calls)
        .cache(cache.clone())
        .cached(consult(), whole());
    let evidence = |result: &TaskResult| {
        result
            .constitutional_evidence
            .cache
            .clone()
            .map(|c| (c.hit, c.age_sec.as_ref().map(u64::from)))
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
        assert_eq!(hit.reported_at, clock.now().wall.into());
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
        .cached(consult(), whole())
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "1e3")));
    assert_eq!(
        result(run(&strict, &clock, &cached(10, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
}

#[test]
fn a_processor_refuses_settings_out_of_range() {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = Config::default().with_max_running(0);
    let refused = Processor::new(producer, Arc::new(AllowAll), Log::default(), config).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "max_running is 0, but a processor needs room for at least 1 task"
    );
}

#[test]
fn a_lenient_processor_takes_a_task_without_a_pressure_level() {
    let task = with(no_cache(), "/constitutionalContext/pressureLevel", None).to_string();
    for (options, is_taken) in [
        (Options::from(Profile::Lenient), true),
        (Options::default(), false),
    ] {
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let config = Config::default().with_options(options);
        let processor = Processor::new(producer, Arc::new(AllowAll), Log::default(), config)
            .unwrap()
            .handle("consult.align".parse().unwrap(), |_: Context| async {
                Ok(Outcome::new(text("1")))
            });
        let mut ignored = |_: Delivery<'_>| {};
        let clock = Jumping::new();
        let answer = processor.process(&clock, task.as_bytes(), &mut ignored);
        let answer = block_on(answer).unwrap();
        assert_eq!(matches!(answer, Answer::Result(_)), is_taken);
    }
}

// spec: SAP-5-2
#[test]
fn at_a_clean_end_every_task_that_runs_is_cancelled_and_counted() {
    let (clock, log) = (Jumping::new(), Log::default());
    let processor =
        processor(&log).handle("consult.align".parse().unwrap(), |cx: Context| async move {
            cx.stopped().await;
            Ok(Outcome::new(text("1")))
        });
    assert_eq!(processor.cancel_all(), 0);
    let tasks = [1, 2, 3].map(|number| {
        let id = format!("00000000-0000-0000-0000-0000000000{number:02}");
        with(no_cache(), "/taskId", Some(json!(id))).to_string()
    });
    let mut sinks = [(); 3].map(|()| |_: Delivery<'_>| {});
    let runs = tasks.iter().zip(&mut sinks);
    let runs = runs.map(|(task, sink)| processor.process(&clock, task.as_bytes(), sink));
    let all = futures::future::join_all(runs);
    let cancel = async {
        while log.verify(None).unwrap().records < 6 {
            yield_now().await;
        }
        processor.cancel_all()
    };
    let (answers, cancelled) = block_on(futures::future::join(all, cancel));
    assert_eq!(cancelled, 3);
    for answer in answers {
        assert_eq!(result(answer.unwrap()).status, Status::Cancelled);
    }
    assert_eq!(processor.cancel_all(), 0);
}

// spec: SAP-5-8
#[test]
fn a_task_without_a_deadline_has_the_time_of_the_settings() {
    let forever = with(no_cache(), "/telemetry", None);
    let (clock, log) = (Jumping::new(), Log::default());
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = Config::default().with_default_time(Duration::from_secs(7));
    let processor = Processor::new(producer, Arc::new(AllowAll), log, config)
        .unwrap()
        .handle("consult.align".parse().unwrap(), |_: Context| {
            std::future::pending()
        });
    let ended = result(run(&processor, &clock, &forever).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    assert_eq!(clock.now().mono, Mono::from_nanos(7_000_000_001));
}

// spec: SAP-5-10
#[test]
fn results_above_a_bound_of_bytes_are_read_from_the_transcript() {
    let (clock, log, calls) = (
        Jumping::new(),
        Log::default(),
        Arc::new(AtomicUsize::new(0)),
    );
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = Config::default().with_max_remembered_bytes(25_000);
    let counter = Arc::clone(&calls);
    let processor = Processor::new(producer, Arc::new(AllowAll), log, config)
        .unwrap()
        .handle("consult.align".parse().unwrap(), move |_: Context| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::new(text(&format!("\"{}\"", "x".repeat(10_000))))) }
        });
    let ask = |number: u8| {
        let id = format!("00000000-0000-0000-0000-0000000000{number:02}");
        run(
            &processor,
            &clock,
            &with(no_cache(), "/taskId", Some(json!(id))),
        );
        calls.load(Ordering::SeqCst)
    };
    // Two have room in memory; the transcript has the third, which is not run again.
    let first: Vec<usize> = (1..4).map(ask).collect();
    let again: Vec<usize> = [3, 2, 1].map(ask).into();
    assert_eq!((first, again), (vec![1, 2, 3], vec![3, 3, 3]));
}

// spec: SAP-10-1, SAP-5-2
#[test]
fn what_is_turned_away_fills_no_transcript() {
    let (clock, log, calls) = (Jumping::new(), Log::default(), Arc::default());
    let small = Arc::new(MemoryTranscript::new(3));
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let processor = Processor::new(
        producer,
        Arc::new(AllowAll),
        small.clone(),
        Config::default(),
    );
    let counter: Arc<AtomicUsize> = Arc::clone(&calls);
    let processor = processor.unwrap().refusals(log.clone()).handle(
        "consult.align".parse().unwrap(),
        move |_: Context| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::new(text("1"))) }
        },
    );
    let garbage = |times: usize| {
        for _ in 0..times {
            let mut sink = |_: Delivery<'_>| {};
            let answer = block_on(processor.process(&clock, b"x", &mut sink));
            assert_eq!(nack(answer.unwrap()).code, ErrorCode::InvalidTask);
        }
        (
            log.verify(None).unwrap().records,
            processor.unlogged_refusals(),
        )
    };
    // A hundred at once, and ten a second.
    assert_eq!(garbage(150), (100, 50));
    clock.go_on(Duration::from_secs(1));
    assert_eq!(garbage(15), (110, 55));
    clock.go_on(Duration::from_secs(1_000));
    assert_eq!(garbage(101), (210, 56));
    // Who may have something done still has it done.
    let done = result(run(&processor, &clock, &no_cache()).1);
    assert_eq!(
        (done.status, calls.load(Ordering::SeqCst)),
        (Status::Succeeded, 1)
    );
}
