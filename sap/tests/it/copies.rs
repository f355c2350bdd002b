//! Copies of a task that has not ended, and what they are told.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Waking, Waker};
use std::time::Duration;

use futures::executor::block_on;
use sap::processor::{Answer, Context, Delivery, HandlerError, Outcome, Processor};
use sap::store::MemoryCache;
use sap::transcript::{EntryKind, Transcript as _};
use sap::validate::{Options, decode_task};
use sap::{Accepted, Lifecycle, Status, TaskResult};
use ubos_common::violation::Profile;

use crate::processor::{Jumping, Log, cached, consult, processor, text, whole};

/// Answers a task, and gives what was said of it.
fn say(processor: &Processor, clock: &Jumping, bytes: &[u8]) -> (Vec<TaskResult>, Answer) {
    let mut said = Vec::new();
    let mut sink = |delivery: Delivery<'_>| {
        if let Delivery::Result(result) = delivery {
            said.push(result.clone());
        }
    };
    let answer = block_on(processor.process(clock, bytes, &mut sink)).unwrap();
    (said, answer)
}

// spec: SAP-5-10, SAP-5-1, SAP-5-2
#[test]
fn copies_of_a_task_of_which_nothing_was_said_are_told_that_it_is_taken() {
    let (log, clock) = (Log::default(), Jumping::new());
    let (finish, finished) = futures::channel::oneshot::channel::<()>();
    let finished = futures::FutureExt::shared(finished);
    let processor = processor(&log)
        .handle(consult(), move |_: Context| {
            let finished = finished.clone();
            async move {
                let _ = finished.await;
                Ok::<_, HandlerError>(Outcome::new(text("1")))
            }
        })
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let mut waking = Waking::from_waker(Waker::noop());
    let leader = cached(1, "prefer").to_string();
    let mut none = |_: Delivery<'_>| {};
    let mut leads = pin!(processor.process(&clock, leader.as_bytes(), &mut none));
    assert!(leads.as_mut().poll(&mut waking).is_pending());
    // The second computes the same, and waits for the first. Copies come meanwhile, from one who holds what they are told
    // against what the task was told.
    let bytes = cached(2, "prefer").to_string();
    let mut said = Vec::new();
    let mut sink = |delivery: Delivery<'_>| {
        if let Delivery::Result(result) = delivery {
            said.push(result.clone());
        }
    };
    let mut task = Box::pin(processor.process(&clock, bytes.as_bytes(), &mut sink));
    assert!(task.as_mut().poll(&mut waking).is_pending());
    let mut copies = Vec::new();
    for _ in 0..2 {
        clock.go_on(Duration::from_secs(1));
        copies.push(say(&processor, &clock, bytes.as_bytes()));
    }
    finish.send(()).unwrap();
    block_on(leads).unwrap();
    let Answer::Result(end) = block_on(task).unwrap() else {
        panic!("it has its end");
    };
    let (task, _) = decode_task(bytes.as_bytes(), &Options::default()).unwrap();
    let mut lifecycle = Lifecycle::new(&task, Profile::Strict);
    for (results, answer) in copies {
        assert!(results.is_empty());
        let Answer::Ack(ack) = answer else {
            panic!("nothing was said of it yet");
        };
        assert_eq!(ack.message_id, task.task_id);
    }
    assert_eq!(end.status, Status::Succeeded);
    for result in said.iter().chain([&*end]) {
        assert_eq!(lifecycle.accept(result), Ok(Accepted::Moved));
    }
    // What they were told is no result, and stands nowhere.
    let entries = block_on(log.read(0, 100)).unwrap();
    let results = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Result);
    let of_task = results.filter(|entry| entry.body.as_str().contains(&task.task_id.to_string()));
    assert_eq!(of_task.count(), said.len() + 1);
}
