//! Tasks that an earlier process began and that nobody sends again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{BoxFuture, ready};
use sap::processor::{AllowAll, Config, Context, HandlerError, Interrupted, Outcome, Processor};
use sap::store::{MemoryTranscript, Redacting};
use sap::transcript::{Entry, EntryKind, Head, Proof, Transcript, TranscriptError};
use sap::validate::Options;
use sap::{ErrorCode, Producer, ProducerKind, Status, Task};
use serde_json::{Value, json};
use ubos_common::driver::Sleep as _;
use ubos_common::time::Timestamp;

use crate::processor::{
    Jumping, Log, answering, answering_on, cached, consult, kinds, no_cache, result, run,
};
use crate::samples::with;

fn typed(task: &Value) -> Task {
    let read = crate::samples::read_task(task, &Options::default());
    read.unwrap().0
}

fn without_deadline(task: &Value) -> Value {
    with(task.clone(), "/telemetry/deadline", None)
}

fn record(log: &dyn Transcript, at: Timestamp, task: &Value) {
    let entry = Entry::of(EntryKind::Task, at, &typed(task)).unwrap();
    block_on(log.record(&entry)).unwrap();
}

fn hanging(log: Arc<dyn Transcript>, config: Config) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    Processor::new(producer, Arc::new(AllowAll), log, config)
        .unwrap()
        .handle(consult(), |_: Context| {
            std::future::pending::<Result<Outcome, HandlerError>>()
        })
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn the_time_of_a_task_without_a_deadline_passes_while_no_process_is_there() {
    let task = without_deadline(&no_cache());
    for (seconds, ends) in [(3_600, false), (3_601, true)] {
        let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
        record(&*log, clock.now().wall, &task);
        clock.go_on(Duration::from_secs(seconds));
        let mut second = answering(&log, "1", &calls);
        let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
        assert_eq!(resumed.failed.len(), usize::from(ends), "{seconds}");
        if ends {
            let ended = result(run(&second, &clock, &task).1);
            assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
            assert_eq!(kinds(&log), ["task", "FAILED"]);
            assert_eq!(calls.load(Ordering::SeqCst), 0);
        }
    }
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn a_task_that_runs_again_has_no_more_time_than_it_had() {
    let task = without_deadline(&no_cache());
    let (log, clock) = (Log::default(), Jumping::new());
    let begun = clock.now().wall;
    record(&*log, begun, &task);
    clock.go_on(Duration::from_secs(3_000));
    let mut second = hanging(log, Config::default());
    block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    let ended = result(run(&second, &clock, &task).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    let wanted = begun.saturating_add(Duration::from_secs(3_601));
    assert_eq!(ended.reported_at, wanted.into());
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn a_task_that_nobody_sends_again_ends_when_its_time_is_over() {
    let secret = with(no_cache(), "/payload", Some(json!({"password": "hunter2"})));
    for task in [no_cache(), without_deadline(&no_cache()), secret] {
        let (log, clock) = (
            Arc::new(Redacting(MemoryTranscript::default())),
            Jumping::new(),
        );
        record(&*log, clock.now().wall, &task);
        let mut second = hanging(log.clone(), Config::default());
        let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
        assert_eq!(resumed.failed, []);
        block_on(second.end_interrupted(&clock)).unwrap();
        let entries = block_on(log.read(0, 9)).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(entries[1].body.as_str().contains(r#""code":"TIMEOUT""#));
        // Its sender is told so.
        let ended = result(run(&second, &clock, &task).1);
        assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    }
}

// spec: SAP-5-10
#[test]
fn a_task_that_was_sent_again_has_one_end() {
    let (log, clock, calls) = (
        Log::default(),
        Jumping::new(),
        Arc::<AtomicUsize>::default(),
    );
    record(&*log, clock.now().wall, &no_cache());
    let mut second = answering(&log, "1", &calls);
    block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    let ended = result(run(&second, &clock, &no_cache()).1);
    assert_eq!(ended.status, Status::Succeeded);
    block_on(second.end_interrupted(&clock)).unwrap();
    assert_eq!(kinds(&log), ["task", "RUNNING", "SUCCEEDED"]);
}

/// A transcript that takes no entry for a while.
#[derive(Debug, Default)]
struct Full(MemoryTranscript, AtomicBool);

impl Transcript for Full {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        match self.1.load(Ordering::SeqCst) {
            true => Box::pin(ready(Err(TranscriptError::Full { limit: 0 }))),
            false => self.0.record(entry),
        }
    }

    fn read(&self, from: u64, most: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.0.read(from, most)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.0.verify(kept)
    }
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn a_task_whose_end_could_not_be_recorded_ends_later_and_does_not_run() {
    let (log, clock) = (Arc::<Full>::default(), Jumping::new());
    record(&*log, clock.now().wall, &no_cache());
    let mut second = answering_on(log.clone(), "1");
    block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    log.1.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let refused = block_on(second.end_interrupted(&clock));
        assert!(matches!(refused, Err(TranscriptError::Full { .. })));
    }
    log.1.store(false, Ordering::SeqCst);
    let ended = result(run(&second, &clock, &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
    assert_eq!(block_on(log.read(0, 9)).unwrap().len(), 2);
}

// spec: SAP-5-2, SAP-5-10
#[test]
fn a_task_whose_time_is_over_waits_for_a_place_to_end_in() {
    let (log, clock) = (Log::default(), Jumping::new());
    let left = without_deadline(&cached(1, "bypass"));
    record(&*log, clock.now().wall, &left);
    let config = Config::default().with_max_running(1);
    let mut second = hanging(log.clone(), config);
    block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    // Its deadline comes in time, for the clock goes on while it is waited for.
    clock.go_on(Duration::from_secs(3_601));
    let other = without_deadline(&cached(2, "bypass")).to_string();
    let mut sink = |_: sap::processor::Delivery<'_>| {};
    let mut running = Box::pin(second.process(&clock, other.as_bytes(), &mut sink));
    let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(running.as_mut().poll(waker).is_pending());
    let mut ending = Box::pin(second.end_interrupted(&clock));
    for _ in 0..100 {
        assert!(ending.as_mut().poll(waker).is_pending());
    }
    drop(running);
    block_on(ending).unwrap();
    let timeouts = block_on(log.read(0, 99)).unwrap();
    let is_timeout = |entry: &&Entry| entry.body.as_str().contains(r#""code":"TIMEOUT""#);
    assert_eq!(timeouts.iter().filter(is_timeout).count(), 1);
}

// spec: SAP-5-8
#[test]
fn of_tasks_that_nobody_sends_again_the_first_whose_time_is_over_ends_first() {
    let (log, clock) = (Log::default(), Jumping::new());
    for id in 0..9 {
        let later = Duration::from_secs(u64::from(9 - id));
        let task = without_deadline(&cached(id, "bypass"));
        record(&*log, clock.now().wall.saturating_add(later), &task);
    }
    let mut second = hanging(log.clone(), Config::default());
    block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    block_on(second.end_interrupted(&clock)).unwrap();
    let ends = block_on(log.read(9, 99)).unwrap();
    let tasks = ends.iter().map(|end| end.task.as_ref().map(u64::from));
    assert!(tasks.eq((0..9).rev().map(Some)));
}

// spec: SAP-5-10
#[test]
fn more_tasks_without_an_end_than_may_be_are_refused_with_a_way_out() {
    let (log, clock) = (Log::default(), Jumping::new());
    for id in [1, 2] {
        record(&*log, clock.now().wall, &cached(id, "bypass"));
    }
    let resumed = |limit| {
        let config = Config::default().with_max_interrupted(limit);
        let mut second = hanging(log.clone(), config);
        block_on(second.resume(&clock, Interrupted::RunAgain))
    };
    let refused = resumed(1).unwrap_err();
    assert!(matches!(refused, TranscriptError::TooManyOpen { limit: 1 }));
    let told = refused.to_string();
    assert!(
        told.contains("max_interrupted") && told.contains("archive"),
        "{told}"
    );
    assert_eq!(kinds(&log), ["task", "task"]);
    assert_eq!(resumed(2).unwrap().interrupted.len(), 2);
}
