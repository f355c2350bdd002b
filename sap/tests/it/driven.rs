//! What a processor does around its handlers: when it drops one, and when it gives way.

use std::future::{Future as _, pending, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Waking, Poll, Waker};

use futures::FutureExt as _;
use futures::executor::block_on;
use sap::learning::{Signal, SignalSink};
use sap::processor::{Context, Delivery, Outcome, Processor, Progress, StopReason, Unreachable};
use sap::store::MemoryCache;
use sap::transcript::Transcript as _;
use sap::transport::{Caller, Message, Replies, Service, ToEndpoint};
use sap::{BoxFuture, ErrorCode, Status, StoreError};
use serde_json::{Value, json};
use ubos_common::json::RawBuf;

use crate::processor::{
    Jumping, Log, answering, cached, consult, kinds, no_cache, processor, result, run, text, whole,
};
use crate::samples::with;

/// Notes how many entries the transcript has when it is dropped.
struct Dropped(Log, Arc<Mutex<Vec<usize>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let entries = self.0.read(0, 100).now_or_never().unwrap().unwrap();
        self.1.lock().unwrap().push(entries.len());
    }
}

// spec: SAP-5-8, SAP-10-1
#[test]
fn a_handler_whose_time_is_over_is_dropped_before_its_end_is_written() {
    let (log, clock, dropped) = (Log::default(), Jumping::new(), Arc::default());
    let (inner, noted) = (Arc::clone(&log), Arc::clone(&dropped));
    let processor = processor(&log).handle(consult(), move |_: Context| {
        let guard = Dropped(Arc::clone(&inner), Arc::clone(&noted));
        async move {
            let _guard = guard;
            pending().await
        }
    });
    let ended = result(run(&processor, &clock, &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
    assert_eq!(*dropped.lock().unwrap(), [2]);
}

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a handler's own fault");
    }
}

// spec: SAP-5-2, SAP-5-8
#[test]
fn a_handler_that_panics_when_it_is_dropped_ends_no_more_than_its_work() {
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = processor(&log).handle(consult(), |_: Context| {
        let fragile = Fragile;
        async move {
            let _fragile = fragile;
            pending().await
        }
    });
    let ended = result(run(&processor, &clock, &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    let bytes = with(
        no_cache(),
        "/taskId",
        Some(json!("00000000-0000-0000-0000-000000000009")),
    )
    .to_string();
    let clock = Jumping::new();
    let mut sink = |_: Delivery<'_>| {};
    let mut running = Box::pin(processor.process(&clock, bytes.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut waking).is_pending());
    drop(running);
    let wanted = ["task", "RUNNING", "FAILED"];
    assert_eq!(kinds(&log), [wanted, wanted].concat());
}

/// A way to endpoints that panics.
#[derive(Debug)]
struct Panicking;

impl Replies for Panicking {
    fn send<'a>(&'a self, _: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        panic!("a transport's own fault")
    }
}

/// Waits for nothing.
struct Gone;

impl Caller for Gone {
    fn tell(&mut self, _: Message) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

// spec: SAP-5-2, SAP-4.1-17
#[test]
fn a_task_ends_though_the_way_to_its_endpoint_and_who_is_warned_of_it_panic() {
    let (log, warned) = (Log::default(), Arc::new(AtomicUsize::new(0)));
    let processor = answering(&log, "1", &Arc::default());
    let counted = Arc::clone(&warned);
    let service = Service::new(Arc::new(processor), Arc::new(Jumping::new()))
        .replies(Arc::new(Panicking))
        .on_warning(move |warning| {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("{warning}");
        });
    let task = with(no_cache(), "/replyTo/endpoint", Some(json!("test:inbox")));
    block_on(service.serve(task.to_string().as_bytes(), &mut Gone)).unwrap();
    assert_eq!(kinds(&log), ["task", "RUNNING", "SUCCEEDED"]);
    // One for each result.
    assert_eq!(warned.load(Ordering::SeqCst), 2);
}

/// How often a task is polled until it has succeeded, where there is nothing to wait for.
fn polls(processor: &Processor, task: &Value) -> usize {
    let (clock, bytes) = (Jumping::new(), task.to_string());
    let mut sink = |_: Delivery<'_>| {};
    let mut running = pin!(processor.process(&clock, bytes.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(answer) = running.as_mut().poll(&mut waking) {
            assert_eq!(result(answer.unwrap()).status, Status::Succeeded);
            return polls;
        }
    }
}

/// Long enough to give way, and too short to be worth another thread, whose time nobody knows.
fn long() -> RawBuf {
    text(&json!("long ".repeat(4_000)).to_string())
}

// spec: SAP-5-8
#[test]
fn a_long_output_of_a_short_task_gives_way() {
    let said = |output: RawBuf, is_part: bool| {
        let processor = processor(&Log::default()).handle(consult(), move |mut cx: Context| {
            let output = output.clone();
            async move {
                if is_part {
                    cx.report(Progress::running(Some(output))).await;
                    return Ok(Outcome::new(text("1")));
                }
                Ok(Outcome::new(output))
            }
        });
        polls(&processor, &no_cache())
    };
    assert_eq!((said(text("1"), false), said(text("1"), true)), (1, 1));
    assert!(said(long(), false) > 1);
    assert!(said(long(), true) > 1);
}

// spec: SAP-6-3
#[test]
fn a_long_record_that_answers_a_short_task_gives_way() {
    let said = |output: RawBuf| {
        let processor = processor(&Log::default())
            .cache(Arc::new(MemoryCache::default()))
            .cached(consult(), whole())
            .handle(consult(), move |_: Context| {
                let output = output.clone();
                async move { Ok(Outcome::new(output).citing(vec!["ubos://a".into()])) }
            });
        polls(&processor, &cached(1, "prefer"));
        // `only`: the record answers, and nothing is computed.
        polls(&processor, &cached(2, "only"))
    };
    assert_eq!(said(text("1")), 1);
    assert!(said(long()) > 1);
}

/// Keeps the statuses that are learned of.
#[derive(Debug, Default)]
struct Learned(Mutex<Vec<Option<Status>>>);

impl SignalSink for Learned {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        self.0.lock().unwrap().push(signal.status);
        Ok(())
    }
}

// spec: SAP-7-6, SAP-5-2
#[test]
fn a_task_that_is_given_up_is_learned_of() {
    let learned = Arc::new(Learned::default());
    let processor = processor(&Log::default())
        .signals(learned.clone())
        .handle(consult(), |_: Context| pending());
    let (clock, bytes) = (Jumping::new(), no_cache().to_string());
    let mut sink = |_: Delivery<'_>| {};
    let mut running = Box::pin(processor.process(&clock, bytes.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut waking).is_pending());
    drop(running);
    block_on(processor.signals_told());
    assert_eq!(*learned.0.lock().unwrap(), [Some(Status::Failed)]);
}

/// Takes nothing until it is released.
#[derive(Debug)]
struct Stuck(Mutex<mpsc::Receiver<()>>);

impl SignalSink for Stuck {
    fn emit(&self, _: Signal) -> Result<(), StoreError> {
        // An error: it is released.
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
}

// spec: SAP-7-6, SAP-5-8, SAP-5-2
#[test]
fn who_takes_no_signal_holds_up_no_task_no_poll_and_no_drop() {
    let (release, held) = mpsc::channel();
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = answering(&log, "1", &Arc::default())
        .handle("consult.hangs".parse().unwrap(), |_: Context| pending())
        .signals(Arc::new(Stuck(Mutex::new(held))));
    for number in 1..=3 {
        let id = format!("00000000-0000-0000-0000-{number:012}");
        let task = with(no_cache(), "/taskId", Some(json!(id)));
        let ended = result(run(&processor, &clock, &task).1);
        assert_eq!(ended.status, Status::Succeeded);
    }
    let hangs = json!("consult.hangs");
    let bytes = with(no_cache(), "/target/capability", Some(hangs)).to_string();
    let mut sink = |_: Delivery<'_>| {};
    let mut running = Box::pin(processor.process(&clock, bytes.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut waking).is_pending());
    drop(running);
    assert_eq!(kinds(&log).last().map(String::as_str), Some("FAILED"));
    let mut told = Box::pin(processor.signals_told());
    assert!(told.as_mut().poll(&mut waking).is_pending());
    drop(release);
    block_on(told);
    assert_eq!(processor.lost_signals(), 0);
}

// spec: SAP-5-8
#[test]
fn what_a_handler_left_running_hears_that_its_time_is_over() {
    let left: Arc<Mutex<Option<BoxFuture<'static, StopReason>>>> = Arc::default();
    let leaves = Arc::clone(&left);
    let processor = processor(&Log::default()).handle(consult(), move |cx: Context| {
        *leaves.lock().unwrap() = Some(Box::pin(cx.stopped()));
        pending()
    });
    let budget = json!({"budget": {"seconds": 1}});
    let task = with(no_cache(), "/telemetry", Some(budget));
    let ended = result(run(&processor, &Jumping::new(), &task).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    let heard = left.lock().unwrap().take().unwrap().now_or_never();
    assert_eq!(heard, Some(StopReason::TimedOut));
}
