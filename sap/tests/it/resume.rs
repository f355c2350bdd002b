//! What a processor takes up from the transcript of one that died.

use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context as Waking, Waker};
use std::time::Duration;

use futures::executor::block_on;
use sap::cache::{CacheRecord, CacheStore, Keys, Lookup, WholePayload};
use sap::learning::{Signal, SignalId, SignalSink};
use sap::processor::{Context, Interrupted, Outcome, Processor, Progress};
use sap::store::MemoryCache;
use sap::transcript::{Entry, EntryKind, Head, Proof, Transcript, TranscriptError};
use sap::{BoxFuture, CacheKey, ErrorCode, Status, StoreError};
use serde_json::json;
use ubos_common::driver::Sleep as _;
use ubos_common::json::RawObject;
use ubos_common::testing::CrashPoint;

use crate::processor::{
    Jumping, Log, answering, cached, consult, kinds, no_cache, processor, result, run, text, whole,
};
use crate::samples::with;

/// The stores of a process that dies at one of their durable effects, before or after it: transcript, cache and log of signals.
#[derive(Debug)]
struct Dying {
    log: Log,
    cache: Arc<MemoryCache>,
    signals: Kept,
    crash: CrashPoint,
    is_kept: bool,
    is_dead: AtomicBool,
    /// Whose stores they are: each effect waits for the signals before it, so that a crash is at the same one each time.
    process: OnceLock<Weak<Processor>>,
}

impl Dying {
    fn waits_for_signals(&self) {
        if let Some(process) = self.process.get().and_then(Weak::upgrade) {
            block_on(process.signals_told());
        }
    }
}

impl SignalSink for Dying {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        if self.is_dead.load(Ordering::SeqCst) {
            return Ok(());
        }
        let dies = self.crash.is_now();
        self.is_dead.store(dies, Ordering::SeqCst);
        if !dies || self.is_kept {
            self.signals.emit(signal)?;
        }
        Ok(())
    }
}

/// Signals by their ids.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<SignalId>>);

impl SignalSink for Kept {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        self.0.lock().unwrap().push(signal.id);
        Ok(())
    }
}

impl Transcript for Dying {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.waits_for_signals();
        if self.is_dead.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let dies = self.crash.is_now();
        self.is_dead.store(dies, Ordering::SeqCst);
        let recorded = (!dies || self.is_kept).then(|| self.log.record(entry));
        match recorded {
            Some(recorded) if !dies => recorded,
            _ => Box::pin(std::future::pending()),
        }
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.log.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

impl CacheStore for Dying {
    fn find(&self, key: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>> {
        self.cache.find(key)
    }

    fn put(&self, record: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        self.waits_for_signals();
        if self.is_dead.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let dies = self.crash.is_now();
        self.is_dead.store(dies, Ordering::SeqCst);
        let kept = (!dies || self.is_kept).then(|| self.cache.put(record));
        match kept {
            Some(kept) if !dies => kept,
            _ => Box::pin(std::future::pending()),
        }
    }

    fn versions(&self, key: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        self.cache.versions(key)
    }
}

/// Reports a part, then says 1.
fn working(processor: Processor, calls: &Arc<AtomicUsize>) -> Processor {
    let calls = Arc::clone(calls);
    processor.handle("consult.align".parse().unwrap(), move |mut cx: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            let part = Progress::partial(text("0"), vec![RawObject::empty()]);
            cx.report(part).await;
            Ok(Outcome::new(text("1")).citing(vec!["ubos://a".into()]))
        }
    })
}

fn typed(task: &serde_json::Value) -> sap::Task {
    let options = sap::validate::Options::default();
    crate::samples::read_task(task, &options).unwrap().0
}

/// Ends of the task in a transcript.
fn ends(log: &Log) -> usize {
    let kinds = kinds(log);
    let is_end = |kind: &&String| ["SUCCEEDED", "FAILED", "CANCELLED"].contains(&kind.as_str());
    kinds.iter().filter(is_end).count()
}

/// What those results of a transcript say that say something.
fn said(log: &Log, task: &serde_json::Value) -> Vec<SignalId> {
    let task = typed(task);
    let entries = block_on(log.read(0, 100)).unwrap();
    let results = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Result);
    let signals = results.filter_map(|entry| {
        let bytes = entry.body.as_str().as_bytes();
        let options = sap::validate::Options::default();
        let (result, _) = sap::validate::decode_result(bytes, &options).unwrap();
        Signal::of_result(&task, None, &result)
    });
    signals.map(|signal| signal.id).collect()
}

// spec: SAP-5-10, SAP-10-1, SAP-5-3, SAP-7-6
#[test]
fn a_process_that_dies_at_any_durable_effect_leaves_each_task_one_end() {
    for is_kept in [true, false] {
        for policy in [Interrupted::Fail, Interrupted::RunAgain] {
            for task in [no_cache(), cached(1, "prefer")] {
                CrashPoint::at_each(|crash| dies_at(&task, crash, is_kept, policy));
            }
        }
    }
}

fn has_hit(result: &sap::TaskResult) -> bool {
    let cache = result.constitutional_evidence.cache.as_ref();
    cache.and_then(|cache| cache.hit) == Some(true)
}

fn dies_at(task: &serde_json::Value, crash: &CrashPoint, is_kept: bool, policy: Interrupted) {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let cache = Arc::new(MemoryCache::default());
    let dying = Dying {
        log: log.clone(),
        cache: cache.clone(),
        signals: Kept::default(),
        crash: crash.clone(),
        is_kept,
        is_dead: AtomicBool::new(false),
        process: OnceLock::new(),
    };
    let dying = Arc::new(dying);
    let first = working(processor_on(dying.clone()), &calls)
        .cache(dying.clone())
        .signals(dying.clone())
        .cached(consult(), whole());
    let first = Arc::new(first);
    dying.process.set(Arc::downgrade(&first)).unwrap();
    let bytes = task.to_string();
    {
        let mut sink = |_: sap::processor::Delivery<'_>| {};
        let mut task = pin!(first.process(&clock, bytes.as_bytes(), &mut sink));
        for _ in 0..100 {
            if task
                .as_mut()
                .poll(&mut Waking::from_waker(Waker::noop()))
                .is_ready()
            {
                break;
            }
        }
    }
    block_on(first.signals_told());
    let before = kinds(&log);
    // What is not in the transcript is not learned of, and what is there once; but for the last, at which it may have died.
    let (recorded, learned) = (said(&log, task), dying.signals.0.lock().unwrap().clone());
    assert!(recorded.starts_with(&learned), "{before:?}");
    assert!(recorded.len() - learned.len() <= 1, "{before:?}");
    let ran = calls.load(Ordering::SeqCst);
    let was_kept = Keys::of(&typed(task), &WholePayload).is_ok_and(|keys| {
        let versions = cache.versions(&keys.key).unwrap();
        !versions.is_empty()
    });
    // The clock of the first jumped to its deadline while nothing went on.
    let (clock, signals) = (Jumping::new(), Arc::new(Kept::default()));
    let mut second = working(processor(&log), &calls)
        .cache(cache.clone())
        .signals(signals.clone())
        .cached(consult(), whole());
    let resumed = block_on(second.resume(&clock, policy)).unwrap();
    let was_open = !before.is_empty() && ends(&log) - resumed.failed.len() == 0;
    assert_eq!(
        (resumed.failed.len(), resumed.interrupted.len()),
        match policy {
            Interrupted::Fail => (usize::from(was_open), 0),
            _ => (0, usize::from(was_open)),
        },
        "{before:?}"
    );
    let (_, answer) = run(&second, &clock, task);
    let answer = result(answer);
    let hits = usize::from(has_hit(&answer));
    let runs = calls.load(Ordering::SeqCst) - ran;
    match (before.is_empty(), was_open, policy) {
        // It never was here.
        (true, ..) => assert_eq!((answer.status, runs), (Status::Succeeded, 1)),
        (_, true, Interrupted::Fail) => {
            assert_eq!(answer.error_code(), Some(&ErrorCode::Internal));
            assert_eq!((answer.status, runs), (Status::Failed, 0), "{before:?}");
        }
        (_, true, _) => {
            // What the cache had kept answers it.
            assert_eq!(hits > 0, was_kept);
            assert_eq!(
                (answer.status, runs),
                (Status::Succeeded, 1 - hits),
                "{before:?}"
            );
            // The transcript shows that it ran again, and has the task once.
            let after = kinds(&log)[before.len()..].to_vec();
            assert_eq!(after, ["RUNNING", "PARTIAL", "SUCCEEDED"][2 * hits..]);
        }
        (_, false, _) => assert_eq!((answer.status, runs), (Status::Succeeded, 0)),
    }
    assert_eq!(ends(&log), 1, "{before:?}");
    block_on(second.signals_told());
    let later = &said(&log, task)[recorded.len()..];
    assert_eq!(*signals.0.lock().unwrap(), later, "{before:?}");
    assert_eq!(kinds(&log).iter().filter(|kind| *kind == "task").count(), 1);
}

fn processor_on(transcript: Arc<dyn Transcript>) -> Processor {
    use sap::{Producer, ProducerKind};
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = sap::processor::Config::default();
    let all = Arc::new(sap::processor::AllowAll);
    Processor::new(producer, all, transcript, config).unwrap()
}

// spec: SAP-5-10
#[test]
fn a_task_that_had_ended_is_answered_from_the_transcript() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let first = result(run(&answering(&log, "1", &calls), &clock, &no_cache()).1);
    let written = kinds(&log);
    let mut second = answering(&log, "2", &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!((resumed.ended, resumed.failed.len()), (1, 0));
    assert_eq!(result(run(&second, &clock, &no_cache()).1), first);
    // In another order it is the same task, and with another payload it is another one.
    let text = no_cache().to_string();
    let mut members: Vec<_> = no_cache()
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .collect();
    members.reverse();
    let lines: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}: {value}", json!(name)))
        .collect();
    let reordered = format!("{{{}}}", lines.join(", "));
    assert_ne!(reordered, text);
    let mut sink = |_: sap::processor::Delivery<'_>| {};
    let answer = block_on(second.process(&clock, reordered.as_bytes(), &mut sink)).unwrap();
    assert_eq!(result(answer), first);
    assert_eq!(kinds(&log), written);
    let other = with(no_cache(), "/payload/topic", Some(json!("another")));
    let refused = crate::processor::nack(run(&second, &clock, &other).1);
    assert_eq!(refused.code, ErrorCode::InvalidTask);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

// spec: SAP-5-10
#[test]
fn a_task_that_was_redacted_is_known_again_by_its_digest() {
    use sap::store::{MemoryTranscript, Redacting};
    let asks = |password: &str| with(no_cache(), "/payload", Some(json!({"password": password})));
    let log = Arc::new(Redacting(MemoryTranscript::default()));
    let (clock, calls) = (Jumping::new(), Arc::default());
    let first = working(processor_on(log.clone()), &calls);
    let ended = result(run(&first, &clock, &asks("hunter2")).1);
    let kept = block_on(log.read(0, 1)).unwrap();
    assert!(!kept[0].body.as_str().contains("hunter2"));
    let mut second = working(processor_on(log), &calls);
    block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!(result(run(&second, &clock, &asks("hunter2")).1), ended);
    let other = run(&second, &clock, &asks("hunter3")).1;
    assert!(matches!(other, sap::processor::Answer::Nack(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

// spec: SAP-5-10
#[test]
fn a_task_that_was_redacted_and_interrupted_runs_for_its_sender_alone() {
    use sap::store::{MemoryTranscript, Redacting};
    let asks = |password: &str| with(no_cache(), "/payload", Some(json!({"password": password})));
    let (log, clock) = (
        Arc::new(Redacting(MemoryTranscript::default())),
        Jumping::new(),
    );
    for task in [asks("hunter2"), cached(7, "bypass")] {
        let entry = Entry::of(EntryKind::Task, clock.now().wall, &typed(&task)).unwrap();
        block_on(log.record(&entry)).unwrap();
    }
    let asked = Arc::new(Mutex::new(Vec::new()));
    let payloads = Arc::clone(&asked);
    let work = move |cx: Context| {
        let payload = cx.task.payload.as_str().to_owned();
        payloads.lock().unwrap().push(payload);
        async { Ok(Outcome::new(text("1"))) }
    };
    let mut second = processor_on(log.clone()).handle("consult.align".parse().unwrap(), work);
    let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    assert_eq!(resumed.left_to_sender, [typed(&asks("hunter2")).task_id]);
    assert_eq!(resumed.interrupted, [typed(&cached(7, "bypass"))]);
    // What the transcript has of it is another task.
    let kept = block_on(log.read(0, 1)).unwrap();
    let mut sink = |_: sap::processor::Delivery<'_>| {};
    let redacted = second.process(&clock, kept[0].body.as_str().as_bytes(), &mut sink);
    let refused = crate::processor::nack(block_on(redacted).unwrap());
    assert_eq!(refused.code, ErrorCode::InvalidTask);
    let ended = result(run(&second, &clock, &asks("hunter2")).1);
    assert_eq!(ended.status, Status::Succeeded);
    assert_eq!(*asked.lock().unwrap(), [r#"{"password":"hunter2"}"#]);
}

// spec: SAP-5-10
#[test]
fn a_task_that_was_redacted_and_is_not_to_run_again_has_its_end() {
    use sap::store::{MemoryTranscript, Redacting};
    let task = with(no_cache(), "/payload", Some(json!({"password": "hunter2"})));
    let (log, clock) = (
        Arc::new(Redacting(MemoryTranscript::default())),
        Jumping::new(),
    );
    let entry = Entry::of(EntryKind::Task, clock.now().wall, &typed(&task)).unwrap();
    block_on(log.record(&entry)).unwrap();
    let calls = Arc::default();
    let mut second = working(processor_on(log), &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!(resumed.failed, [typed(&task).task_id]);
    let ended = result(run(&second, &clock, &task).1);
    assert_eq!(
        (ended.status, calls.load(Ordering::SeqCst)),
        (Status::Failed, 0)
    );
}

// spec: SAP-5-10
#[test]
fn others_run_between_two_entries_of_a_transcript_that_is_read() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let first = answering(&log, "1", &calls);
    (1..5).for_each(|id| drop(run(&first, &clock, &cached(id, "bypass"))));
    let entries = block_on(log.read(0, 100)).unwrap().len();
    let mut second = answering(&log, "1", &calls);
    let mut resuming = pin!(second.resume(&clock, Interrupted::Fail));
    let waker = &mut Waking::from_waker(Waker::noop());
    for _ in 0..entries {
        assert!(resuming.as_mut().poll(waker).is_pending());
    }
    assert!(resuming.as_mut().poll(waker).is_ready());
}

// spec: SAP-5-10, SAP-11-2
#[test]
fn ids_are_an_issuers_own_also_after_a_restart() {
    let of = |issuer: &str| with(no_cache(), "/issuer/agentId", Some(json!(issuer)));
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let first = answering(&log, "1", &calls);
    let ended = result(run(&first, &clock, &of("A-prime")).1);
    // Another issuer does not get the result of the first, and does not keep it from its own.
    let other = result(run(&answering(&log, "2", &calls), &clock, &of("A-other")).1);
    assert_eq!(
        (other.status, other.output.unwrap().as_str()),
        (Status::Succeeded, "2")
    );
    assert_eq!(
        result(run(&first, &clock, &of("A-third")).1).status,
        Status::Succeeded
    );
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let mut second = answering(&log, "9", &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!((resumed.ended, resumed.failed.len()), (3, 0));
    assert_eq!(result(run(&second, &clock, &of("A-prime")).1), ended);
    let again = result(run(&second, &clock, &of("A-other")).1);
    assert_eq!(again.output.unwrap().as_str(), "2");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// One of two tasks of the same id has its end in the transcript.
// spec: SAP-5-10, SAP-11-2
#[test]
fn an_end_is_that_of_its_own_task() {
    let of = |issuer: &str| with(no_cache(), "/issuer/agentId", Some(json!(issuer)));
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "1", &calls);
    let ended = result(run(&processor, &clock, &of("A-prime")).1);
    let late = typed(&of("A-other"));
    let entry = Entry::of(
        EntryKind::Task,
        "2025-09-28T10:15:30Z".parse().unwrap(),
        &late,
    );
    block_on(log.record(&entry.unwrap())).unwrap();
    let again = log_of_results_last(&log);
    let mut second = answering(&again, "9", &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!((resumed.ended, resumed.failed), (1, vec![late.task_id]));
    assert_eq!(result(run(&second, &clock, &of("A-prime")).1), ended);
    let failed = result(run(&second, &clock, &of("A-other")).1);
    assert_eq!(failed.status, Status::Failed);
}

// spec: SAP-5-10
#[test]
fn an_end_that_names_no_entry_is_that_of_the_task_of_its_id() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let ended = result(run(&answering(&log, "1", &calls), &clock, &no_cache()).1);
    let unnumbered = Log::default();
    for mut entry in block_on(log.read(0, 100)).unwrap() {
        entry.task = None;
        block_on(unnumbered.record(&entry)).unwrap();
    }
    let mut second = answering(&unnumbered, "2", &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::Fail)).unwrap();
    assert_eq!((resumed.ended, resumed.failed.len()), (1, 0));
    assert_eq!(result(run(&second, &clock, &no_cache()).1), ended);
}

/// The same entries, as they stand where the second task came before the first one's end.
fn log_of_results_last(log: &Log) -> Log {
    let entries = block_on(log.read(0, 100)).unwrap();
    let (tasks, results): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|entry| entry.kind == EntryKind::Task);
    let again = Log::default();
    for entry in tasks.iter().chain(&results) {
        block_on(again.record(entry)).unwrap();
    }
    again
}

// spec: SAP-5-10, SAP-5-2
#[test]
fn an_end_that_cannot_be_recorded_is_not_taken_for_one() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let crash = CrashPoint::at(1);
    let cache = Arc::new(MemoryCache::default());
    let dying = Dying {
        log: log.clone(),
        cache: cache.clone(),
        crash,
        is_kept: false,
        is_dead: AtomicBool::new(false),
        signals: Kept::default(),
        process: OnceLock::new(),
    };
    let first = working(processor_on(Arc::new(dying)), &calls);
    let bytes = no_cache().to_string();
    {
        let mut sink = |_: sap::processor::Delivery<'_>| {};
        let mut task = pin!(first.process(&clock, bytes.as_bytes(), &mut sink));
        assert!(
            task.as_mut()
                .poll(&mut Waking::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    let full = Arc::new(sap::store::MemoryTranscript::new(1));
    let entry = block_on(log.read(0, 1)).unwrap().remove(0);
    block_on(full.record(&entry)).unwrap();
    let mut second = working(processor(&full), &calls);
    let failed = block_on(second.resume(&clock, Interrupted::Fail));
    assert!(matches!(failed, Err(TranscriptError::Full { limit: 1 })));
}

/// A task that wants no Ack, whose deadline passed while no process was there; and its transcript.
fn overdue() -> (serde_json::Value, Entry, Jumping) {
    let (task, clock) = (
        with(no_cache(), "/replyTo", Some(json!({"expectAck": false}))),
        Jumping::new(),
    );
    let entry = Entry::of(EntryKind::Task, clock.now().wall, &typed(&task)).unwrap();
    clock.go_on(Duration::from_secs(3_600));
    (task, entry, clock)
}

// spec: SAP-5-2, SAP-5-10, SAP-10-1
#[test]
fn an_end_for_its_time_that_cannot_be_recorded_is_not_taken_for_one() {
    let (_, entry, clock) = overdue();
    let full = Arc::new(sap::store::MemoryTranscript::new(1));
    block_on(full.record(&entry)).unwrap();
    let signals = Arc::new(Kept::default());
    let mut second = working(processor(&full), &Arc::default()).signals(signals.clone());
    let failed = block_on(second.resume(&clock, Interrupted::Fail));
    assert!(matches!(failed, Err(TranscriptError::Full { limit: 1 })));
    block_on(second.signals_told());
    assert_eq!(*signals.0.lock().unwrap(), []);
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn a_task_whose_time_passed_while_no_process_was_there_ends_for_it_and_does_not_run_again() {
    for policy in [Interrupted::Fail, Interrupted::RunAgain] {
        let (task, entry, clock) = overdue();
        let (log, calls) = (Log::default(), Arc::default());
        block_on(log.record(&entry)).unwrap();
        let mut second = working(processor(&log), &calls);
        let resumed = block_on(second.resume(&clock, policy)).unwrap();
        assert_eq!(resumed.failed, [typed(&task).task_id]);
        assert_eq!(resumed.interrupted, []);
        let ended = result(run(&second, &clock, &task).1);
        assert_eq!(ended.error_code(), Some(&ErrorCode::Timeout));
        assert_eq!(kinds(&log), ["task", "FAILED"]);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn in_the_last_second_of_its_deadline_a_task_runs_again() {
    // From 10:15:23 to 11:00:00.
    for (seconds, runs) in [(2_677, true), (2_678, false)] {
        let (_, entry, _) = overdue();
        let (log, clock) = (Log::default(), Jumping::new());
        block_on(log.record(&entry)).unwrap();
        clock.go_on(Duration::from_millis(seconds * 1_000 + 500));
        let mut second = working(processor(&log), &Arc::default());
        let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
        assert_eq!(!resumed.interrupted.is_empty(), runs, "{seconds}");
    }
}

// spec: SAP-5-2, SAP-5-10
#[test]
fn tasks_that_run_again_have_no_more_places_than_others() {
    let (log, clock) = (Log::default(), Jumping::new());
    let tasks = [cached(1, "bypass"), cached(2, "bypass")];
    for task in &tasks {
        let entry = Entry::of(EntryKind::Task, clock.now().wall, &typed(task)).unwrap();
        block_on(log.record(&entry)).unwrap();
    }
    let producer = sap::Producer::new("A-ml-001".parse().unwrap(), sap::ProducerKind::Agent);
    let config = sap::processor::Config::default().with_max_running(1);
    let all = Arc::new(sap::processor::AllowAll);
    let mut second = Processor::new(producer, all, log, config)
        .unwrap()
        .handle("consult.align".parse().unwrap(), |_: Context| {
            std::future::pending()
        });
    let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    assert_eq!(resumed.interrupted.len(), 2);
    let bytes = tasks[0].to_string();
    let mut sink = |_: sap::processor::Delivery<'_>| {};
    let mut first = pin!(second.process(&clock, bytes.as_bytes(), &mut sink));
    let waker = &mut Waking::from_waker(Waker::noop());
    assert!(first.as_mut().poll(waker).is_pending());
    let refused = crate::processor::nack(run(&second, &clock, &tasks[1]).1);
    assert_eq!(refused.code, ErrorCode::RateLimit);
}

// spec: SAP-5-8, SAP-5-10
#[test]
fn a_task_that_is_to_run_again_is_cancelled_before_it_comes() {
    let (log, clock) = (Log::default(), Jumping::new());
    let task = cached(1, "bypass");
    let entry = Entry::of(EntryKind::Task, clock.now().wall, &typed(&task)).unwrap();
    block_on(log.record(&entry)).unwrap();
    let calls = Arc::default();
    let mut second = working(processor_on(log), &calls);
    let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    let waiting = &resumed.interrupted[0];
    assert!(second.cancel(&waiting.issuer.agent_id, &waiting.task_id));
    let ended = result(run(&second, &clock, &task).1);
    assert_eq!(
        (ended.status, calls.load(Ordering::SeqCst)),
        (Status::Cancelled, 0)
    );
}
