//! Equal tasks at the same time, and what one outcome answers.

use crate::processor::{
    Jumping, Log, answering, cached, consult, processor, result, run, text, whole, yield_now,
};
use crate::samples::{task, with};
use futures::executor::block_on;
use sap::cache::{Caching, WholePayload};
use sap::processor::{AllowAll, Config, Context, Delivery, HandlerError, Outcome, Processor};
use sap::store::MemoryCache;
use sap::{ErrorCode, Producer, ProducerKind, Status, TaskResult};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Waking, Poll, Waker};
use std::time::Duration;

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
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
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
    let (one, two) = block_on(futures::future::join(ask(1, None), ask(2, None)));
    assert_eq!(
        (&one.status, &two.status),
        (&Status::Failed, &Status::Succeeded)
    );
    let hit = |result: &TaskResult| result.constitutional_evidence.cache.as_ref().unwrap().hit;
    assert_eq!((hit(&two), calls.load(Ordering::SeqCst)), (Some(false), 2));
    clock.go_on(Duration::from_secs(100));
    let wanting = [(3, Some(50)), (4, Some(50)), (5, None), (6, Some(0))];
    let all = futures::future::join_all(wanting.map(|(number, age)| ask(number, age)));
    let all = block_on(all);
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
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
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
    let late = result(block_on(late).unwrap());
    assert_eq!(late.error_code(), Some(&ErrorCode::Timeout));
    let waiting = ask(3, None);
    let mut sink = |_: Delivery<'_>| {};
    let mut waits = pin!(processor.process(&clock, waiting.as_bytes(), &mut sink));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    let issuer = "A-prime".parse().unwrap();
    let third = "00000000-0000-0000-0000-000000000003".parse().unwrap();
    assert!(processor.cancel(&issuer, &third));
    let Poll::Ready(Ok(cancelled)) = waits.as_mut().poll(&mut cx) else {
        panic!("ended")
    };
    assert_eq!(result(cancelled).status, Status::Cancelled);
}

// spec: SAP-6-11
#[test]
fn those_who_waited_for_one_that_failed_form_one_new_flight() {
    let (log, clock, calls) = (
        Log::default(),
        Jumping::new(),
        Arc::<AtomicUsize>::default(),
    );
    let counter = Arc::clone(&calls);
    let processor = processor(&log)
        .handle("consult.align".parse().unwrap(), move |_: Context| {
            let call = counter.fetch_add(1, Ordering::SeqCst);
            async move {
                yield_now().await;
                if call == 0 {
                    return Err(HandlerError::unprocessable("not today"));
                }
                Ok(Outcome::new(text("1")))
            }
        })
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let ask = |number: u8| {
        let bytes = cached(number, "prefer").to_string();
        let (processor, clock) = (&processor, &clock);
        async move {
            let mut sink = |_: Delivery<'_>| {};
            let answer = processor.process(clock, bytes.as_bytes(), &mut sink).await;
            result(answer.unwrap()).status
        }
    };
    let ends = block_on(futures::future::join_all((0..50).map(ask)));
    let failed = ends.iter().filter(|status| **status == Status::Failed);
    assert_eq!((failed.count(), calls.load(Ordering::SeqCst)), (1, 2));
}

// spec: SAP-6-3
#[test]
fn a_hit_is_said_by_the_processor_that_answers() {
    let (clock, calls) = (Jumping::new(), Arc::default());
    let cache = Arc::new(MemoryCache::default());
    let first = answering(&Log::default(), "1", &calls)
        .cache(cache.clone())
        .cached(consult(), whole());
    run(&first, &clock, &cached(1, "prefer"));
    let id = "A-other".parse().unwrap();
    let other = Producer::new(id, ProducerKind::Agent);
    let second = Processor::new(
        other.clone(),
        Arc::new(AllowAll),
        Log::default(),
        Config::default(),
    )
    .unwrap()
    .handle("consult.align".parse().unwrap(), |_: Context| async {
        Ok(Outcome::new(text("2")))
    })
    .cache(cache)
    .cached(consult(), whole());
    let task = with(cached(2, "only"), "/target/agentId", None);
    let hit = result(run(&second, &clock, &task).1);
    assert_eq!((hit.output.unwrap().as_str(), hit.producer), ("1", other));
}

/// A mailbox is read for its owner, and a mail is sent each time, whatever cache mode the sender chooses.
// spec: SAP-6-3
#[test]
fn an_outcome_answers_only_those_that_its_capability_says() {
    let clock = Jumping::new();
    let ask = |processor: &Processor, id: u8, issuer: &str, mode: &str| {
        let task = with(cached(id, mode), "/issuer/agentId", Some(json!(issuer)));
        result(run(processor, &clock, &task).1)
    };
    for (caching, answers) in [
        (None, [1, 2, 3]),
        (Some(Caching::by_issuer(WholePayload)), [1, 1, 2]),
        (Some(Caching::shared(WholePayload)), [1, 1, 1]),
    ] {
        let calls = Arc::default();
        let cache = Arc::new(MemoryCache::default());
        let mut processor = answering(&Log::default(), "1", &calls).cache(cache);
        let is_cached = caching.is_some();
        if let Some(caching) = caching {
            processor = processor.cached(consult(), caching);
        }
        let asked = [
            ("A-prime", "prefer"),
            ("A-prime", "prefer"),
            ("A-other", "prefer"),
        ];
        for (id, ((issuer, mode), wanted)) in (1..).zip(asked.into_iter().zip(answers)) {
            let answer = ask(&processor, id, issuer, mode);
            assert_eq!(answer.status, Status::Succeeded);
            assert_eq!(calls.load(Ordering::SeqCst), wanted, "{id}");
        }
        let only = ask(&processor, 4, "A-prime", "only");
        let wanted = if is_cached {
            Status::Succeeded
        } else {
            Status::Failed
        };
        assert_eq!(only.status, wanted);
    }
}
