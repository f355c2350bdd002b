//! How a task ends that a handler works on.

use futures::executor::block_on;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sap::processor::{
    AllowAll, Config, Context, Delivery, HandlerError, Outcome, Processor, Progress, StopReason,
};
use sap::transcript::Transcript;
use sap::{ErrorCode, Producer, ProducerKind, Status};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::RawObject;
use ubos_common::time::Mono;

use crate::samples::with;

use super::{Jumping, Log, answering, kinds, no_cache, processor, result, run, text, yield_now};

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
