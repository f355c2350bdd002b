//! Hooks and stores of somebody else: they take their time, they fail, and they panic.

use std::future::{pending, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waking, Waker};
use std::time::Duration;

use futures::executor::block_on;
use sap::alignment::{Assessment, Subject};
use sap::cache::{CacheKey, CacheRecord, CacheStore, Lookup};
use sap::processor::{
    Access, AllowAll, Answer, Authorize, Context, ContractCheck, ContractFinding, Delivery, Judge,
    Outcome, Peer, ProcessError, Processor,
};
use sap::store::MemoryTranscript;
use sap::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
use sap::{BoxFuture, ErrorCode, OutputContract, Producer, ProducerKind, Status, StoreError, Task};
use serde_json::json;
use ubos_common::json::Raw;

use crate::processor::{
    Jumping, Log, answering, cached, consult, kinds, nack, no_cache, result, run, text, whole,
    yield_now,
};
use crate::samples::with;

/// A hook for everything, which panics where it is told to.
#[derive(Debug, Default)]
struct Panicking {
    where_to: Mutex<&'static str>,
    log: MemoryTranscript,
}

impl Panicking {
    fn at(&self, place: &str) {
        let here = *self.where_to.lock().unwrap() == place;
        assert!(!here, "a hook's own fault");
    }
}

impl Authorize for Panicking {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        self.at("authorize");
        Box::pin(ready(Access::Allowed))
    }
}

impl Judge for Panicking {
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        Box::pin(async move {
            yield_now().await;
            self.at(if subject.output.is_some() {
                "judge an output"
            } else {
                "judge a task"
            });
            Assessment::valid(subject.context)
        })
    }
}

impl ContractCheck for Panicking {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        self.at("check");
        Box::pin(ready(ContractFinding::Kept))
    }
}

impl CacheStore for Panicking {
    fn find(&self, _: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>> {
        self.at("find");
        Box::pin(ready(Ok(Lookup::default())))
    }

    fn put(&self, _: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        self.at("put");
        Box::pin(ready(Ok(())))
    }

    fn versions(&self, _: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        Ok(Vec::new())
    }
}

impl Transcript for Panicking {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.at("record");
        self.log.record(entry)
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.log.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

fn on(hooks: &Arc<Panicking>) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    Processor::new(
        producer,
        hooks.clone(),
        hooks.clone(),
        sap::processor::Config::default(),
    )
    .unwrap()
    .policy(hooks.clone())
    .contract(hooks.clone())
    .cache(hooks.clone())
    .cached(consult(), whole())
    .handle("consult.align".parse().unwrap(), |_: Context| async {
        Ok(Outcome::new(text("1")))
    })
}

// spec: SAP-5-2
#[test]
fn a_hook_that_panics_ends_its_own_task_as_internal() {
    let (hooks, clock) = (Arc::<Panicking>::default(), Jumping::new());
    let processor = on(&hooks);
    let places = ["judge a task", "judge an output", "check", "find", "put"];
    for (number, place) in places.into_iter().enumerate() {
        let number = u8::try_from(number).unwrap();
        *hooks.where_to.lock().unwrap() = place;
        let ended = result(run(&processor, &clock, &cached(number, "prefer")).1);
        assert_eq!(ended.error_code(), Some(&ErrorCode::Internal), "{place}");
        // It said so to itself: the next task is answered.
        *hooks.where_to.lock().unwrap() = "";
        let next = result(run(&processor, &clock, &cached(number + 50, "prefer")).1);
        assert_eq!(next.status, Status::Succeeded, "{place}");
        // And it stays ended.
        let again = result(run(&processor, &clock, &cached(number, "prefer")).1);
        assert_eq!(again, ended);
    }
    *hooks.where_to.lock().unwrap() = "authorize";
    let turned = nack(run(&processor, &clock, &cached(90, "prefer")).1);
    assert_eq!(turned.code, ErrorCode::Internal);
    *hooks.where_to.lock().unwrap() = "record";
    let bytes = cached(91, "prefer").to_string();
    let lost = block_on(processor.process(&clock, bytes.as_bytes(), &mut |_: Delivery<'_>| {}));
    assert!(matches!(lost, Err(ProcessError::Transcript(_))));
    *hooks.where_to.lock().unwrap() = "";
    let taken = result(run(&processor, &clock, &cached(91, "prefer")).1);
    assert_eq!(taken.status, Status::Succeeded);
}

/// Never answers where it is said to, and panics when nobody waits any more.
#[derive(Debug)]
struct Brittle(&'static str);

impl Brittle {
    fn answers<'a, T: Send + 'a>(&self, what: &str, answer: T) -> BoxFuture<'a, T> {
        struct Breaks;
        impl Drop for Breaks {
            fn drop(&mut self) {
                panic!("a hook's own fault");
            }
        }
        if what != self.0 {
            return Box::pin(ready(answer));
        }
        let breaks = Breaks;
        Box::pin(async move {
            let _breaks = breaks;
            pending().await
        })
    }
}

impl Authorize for Brittle {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        self.answers("authorize", Access::Allowed)
    }
}

impl Judge for Brittle {
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        self.answers("judge", Assessment::valid(subject.context))
    }
}

impl ContractCheck for Brittle {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        self.answers("check", ContractFinding::Kept)
    }
}

impl CacheStore for Brittle {
    fn find(&self, _: &CacheKey) -> BoxFuture<'_, Result<Lookup, StoreError>> {
        self.answers("find", Ok(Lookup::default()))
    }

    fn put(&self, _: &CacheRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        self.answers("put", Ok(()))
    }

    fn versions(&self, _: &CacheKey) -> Result<Vec<CacheRecord>, StoreError> {
        Ok(Vec::new())
    }
}

// spec: SAP-5-2, SAP-5-8
#[test]
fn a_hook_that_panics_when_it_is_dropped_ends_no_more_than_its_work() {
    for place in ["authorize", "judge", "check", "find", "put"] {
        let (log, hook) = (Log::default(), Arc::new(Brittle(place)));
        let processor = answering(&log, "1", &Arc::default())
            .authorize(hook.clone())
            .policy(hook.clone())
            .contract(hook.clone())
            .cache(hook)
            .cached(consult(), whole());
        let (_, answer) = run(&processor, &Jumping::new(), &cached(1, "prefer"));
        if place == "authorize" {
            assert_eq!(nack(answer).code, ErrorCode::RateLimit);
            continue;
        }
        assert_eq!(
            result(answer).error_code(),
            Some(&ErrorCode::Timeout),
            "{place}"
        );
    }
}

/// Takes a span of time over each output.
#[derive(Debug)]
struct Slow(Arc<Jumping>, Duration);

impl Slow {
    fn go_on(&self) {
        self.0.go_on(self.1);
    }
}

impl Judge for Slow {
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        if subject.output.is_some() {
            self.go_on();
        }
        Box::pin(ready(Assessment::valid(subject.context)))
    }
}

impl ContractCheck for Slow {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        self.go_on();
        Box::pin(ready(ContractFinding::Kept))
    }
}

// spec: SAP-5-8
#[test]
fn time_is_judged_after_the_contract_and_the_verdict() {
    let seconds = with(no_cache(), "/telemetry/budget/seconds", Some(json!(2.5)));
    for (task, nanos, wanted) in [
        (&seconds, 2_500_000_000, None),
        (&seconds, 2_500_000_001, Some(ErrorCode::Timeout)),
        (&no_cache(), 2_677_000_000_000, None),
        (&no_cache(), 2_678_000_000_000, Some(ErrorCode::Timeout)),
    ] {
        for of_contract in [true, false] {
            let clock = Arc::new(Jumping::new());
            let slow = Arc::new(Slow(clock.clone(), Duration::from_nanos(nanos)));
            let processor = answering(&Log::default(), "1", &Arc::default());
            let processor = if of_contract {
                processor.contract(slow)
            } else {
                processor.policy(slow)
            };
            let ended = result(run(&processor, &clock, task).1);
            assert_eq!(ended.error_code(), wanted.as_ref(), "{nanos} {of_contract}");
            // It is dated when it was said, not when the handler was done.
            let now = ubos_common::driver::Sleep::now(&*clock).wall;
            assert_eq!(ended.reported_at, now.into());
        }
    }
}

/// A transcript whose disk has stopped: it takes entries and does not say that they are kept.
#[derive(Debug, Default)]
struct Stuck {
    log: MemoryTranscript,
    is_stuck: AtomicBool,
}

impl Transcript for Stuck {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        let kept = self.log.record(entry);
        if self.is_stuck.load(Ordering::SeqCst) {
            return Box::pin(pending());
        }
        kept
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.log.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

fn written(log: &Stuck) -> Vec<String> {
    let all = Log::default();
    for entry in block_on(log.read(0, 100)).unwrap() {
        block_on(all.record(&entry)).unwrap();
    }
    kinds(&all)
}

// spec: SAP-10-1, SAP-5-2
#[test]
fn a_run_that_is_dropped_while_it_is_written_down_ends_once() {
    // Stuck at the task, at RUNNING, and at the last result.
    for (stuck_at, wanted) in [
        (0, vec!["task", "FAILED"]),
        (1, vec!["task", "RUNNING", "FAILED"]),
        (2, vec!["task", "RUNNING", "SUCCEEDED"]),
    ] {
        let log = Arc::new(Stuck::default());
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let (inner, has_run) = (Arc::clone(&log), AtomicBool::new(false));
        let processor = Processor::new(
            producer,
            Arc::new(AllowAll),
            log.clone(),
            sap::processor::Config::default().with_max_running(1),
        )
        .unwrap()
        .handle("consult.align".parse().unwrap(), move |_: Context| {
            // Only under the first task.
            let is_first = !has_run.swap(true, Ordering::SeqCst);
            inner
                .is_stuck
                .store(is_first && stuck_at == 2, Ordering::SeqCst);
            async { Ok(Outcome::new(text("1"))) }
        });
        log.is_stuck.store(stuck_at == 0, Ordering::SeqCst);
        let (clock, bytes) = (Jumping::new(), no_cache().to_string());
        let mut told = 0;
        let mut sink = |_: Delivery<'_>| {
            told += 1;
            // The Ack: what follows is not kept.
            log.is_stuck.store(stuck_at == 1, Ordering::SeqCst);
        };
        {
            let mut running = pin!(processor.process(&clock, bytes.as_bytes(), &mut sink));
            let mut cx = Waking::from_waker(Waker::noop());
            assert!(running.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(
            (told, written(&log)),
            (stuck_at, wanted.iter().map(ToString::to_string).collect())
        );
        // Its place is free, and the same task has its end.
        log.is_stuck.store(false, Ordering::SeqCst);
        let again = result(run(&processor, &clock, &no_cache()).1);
        assert_eq!(again.status.as_str(), *wanted.last().unwrap());
        let other = with(
            no_cache(),
            "/taskId",
            Some(json!("00000000-0000-0000-0000-000000000001")),
        );
        let other = result(run(&processor, &clock, &other).1);
        assert_eq!(other.status, Status::Succeeded);
    }
}

// spec: SAP-5-8
#[test]
fn a_large_task_gives_way_between_its_steps() {
    let polls = |payload: serde_json::Value| {
        let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
        let processor = answering(&log, "1", &calls);
        let task = with(no_cache(), "/payload", Some(payload)).to_string();
        let mut sink = |_: Delivery<'_>| {};
        let mut running = pin!(processor.process(&clock, task.as_bytes(), &mut sink));
        let mut cx = Waking::from_waker(Waker::noop());
        let polls = (1..).find(|_| running.as_mut().poll(&mut cx).is_ready());
        polls.unwrap()
    };
    assert_eq!(polls(json!({"text": "short"})), 1);
    assert!(polls(json!({"text": "long ".repeat(4_000)})) > 5);
}

#[cfg(feature = "typed")]
// spec: SAP-5-2
#[test]
fn a_typed_handler_takes_and_gives_types() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Ask {
        text: String,
    }
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Said {
        number: i64,
    }
    async fn number(ask: Ask, cx: Context) -> Result<Said, sap::processor::HandlerError> {
        cx.spend("tokens", 1.0)?;
        Ok(Said {
            number: ask.text.parse()?,
        })
    }
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "1", &calls);
    let processor = processor.handle_typed("text.number".parse().unwrap(), number);
    let ended = |id: u8, payload: serde_json::Value| {
        let task = with(no_cache(), "/payload", Some(payload));
        let task = with(task, "/target/capability", Some(json!("text.number")));
        let id = format!("00000000-0000-0000-0000-0000000000{id:02}");
        result(run(&processor, &clock, &with(task, "/taskId", Some(json!(id)))).1)
    };
    let said = ended(1, json!({"text": "12"}));
    assert_eq!(said.output.unwrap().as_str(), r#"{"number":12}"#);
    let failed = ended(2, json!({"text": "twelve"}));
    assert_eq!(failed.error_code(), Some(&ErrorCode::Internal));
    let why = failed.error.unwrap().message.unwrap();
    assert_eq!(why, "invalid digit found in string");
    let other = ended(3, json!({"text": 12}));
    assert_eq!(other.error_code(), Some(&ErrorCode::Unprocessable));
    let why = other.error.unwrap().message.unwrap();
    let wanted = r#"the payload is not what the capability takes at "/text": wanted a string, not an integer"#;
    assert_eq!(why, wanted);
}

#[cfg(feature = "typed")]
#[test]
fn the_schemas_of_a_typed_handler_are_those_of_reading_and_of_writing() {
    #[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
    #[serde(rename_all(serialize = "camelCase"))]
    struct Both {
        two_words: String,
    }
    async fn same(both: Both, _: Context) -> Result<Both, sap::processor::HandlerError> {
        Ok(both)
    }
    let capability: sap::Capability = "text.same".parse().unwrap();
    let processor = answering(&Log::default(), "1", &Arc::default());
    let processor = processor.handle_typed(capability.clone(), same);
    let shape = processor.shape(&capability).unwrap();
    for (schema, name) in [(&shape.payload, "two_words"), (&shape.output, "twoWords")] {
        let schema: serde_json::Value = schema.as_ref().unwrap().deserialize().unwrap();
        assert_eq!(schema["required"], json!([name]));
        assert_eq!(schema["properties"][name]["type"], "string");
    }
}

/// Does not answer its first record.
#[derive(Debug, Default)]
struct Hesitant {
    log: MemoryTranscript,
    is_asked: AtomicBool,
}

impl Transcript for Hesitant {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        if !self.is_asked.swap(true, Ordering::SeqCst) {
            return Box::pin(pending());
        }
        self.log.record(entry)
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.log.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

// spec: SAP-5-10
#[test]
fn a_task_that_comes_again_before_it_is_written_is_the_same_in_any_spelling() {
    let transcript = Arc::new(Hesitant::default());
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = sap::processor::Config::default();
    let all = Arc::new(AllowAll);
    let processor = Processor::new(producer, all, transcript, config)
        .unwrap()
        .handle(consult(), |_: Context| pending());
    let clock = Jumping::new();
    let task = no_cache().to_string();
    let (one, two) = ("\"depth\":\"detailed\"", "\"topic\":\"UBOS SAP V2\"");
    let turned = task.replace(&format!("{one},{two}"), &format!("{two}, {one}"));
    assert_ne!(turned, task);
    let mut sink = |_: Delivery<'_>| {};
    let mut first = pin!(processor.process(&clock, task.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut waking).is_pending());
    let mut sink = |_: Delivery<'_>| {};
    let again = block_on(processor.process(&clock, turned.as_bytes(), &mut sink));
    assert!(matches!(again.unwrap(), Answer::Ack(_)));
    let other = with(no_cache(), "/tags", Some(json!(["other"]))).to_string();
    let mut sink = |_: Delivery<'_>| {};
    let other = block_on(processor.process(&clock, other.as_bytes(), &mut sink));
    assert_eq!(nack(other.unwrap()).code, ErrorCode::InvalidTask);
}

/// A hook whose server never answers.
#[derive(Debug)]
struct Hanging;

impl Authorize for Hanging {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        Box::pin(pending())
    }
}

// spec: SAP-11-2
#[test]
fn a_hook_that_does_not_say_who_may_costs_a_bounded_time() {
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = answering(&log, "1", &Arc::default()).authorize(Arc::new(Hanging));
    let bytes = no_cache().to_string();
    let mut sink = |_: Delivery<'_>| {};
    let mut task = pin!(processor.process(&clock, bytes.as_bytes(), &mut sink));
    let mut waking = Waking::from_waker(Waker::noop());
    let answer = (0..1_000).find_map(|_| match task.as_mut().poll(&mut waking) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    });
    let refused = nack(answer.expect("an answer").unwrap());
    assert_eq!(refused.code, ErrorCode::RateLimit);
    assert_eq!(kinds(&log), ["nack"]);
}

// spec: SAP-11-2
#[test]
fn tasks_that_wait_for_a_hook_are_bounded() {
    let (log, clock) = (Log::default(), Jumping::new());
    let processor = answering(&log, "1", &Arc::default()).authorize(Arc::new(Hanging));
    let mut waking = Waking::from_waker(Waker::noop());
    let bytes = no_cache().to_string();
    let mut sinks: Vec<_> = (0..=256).map(|_| |_: Delivery<'_>| {}).collect();
    let mut tasks: Vec<_> = sinks
        .iter_mut()
        .map(|sink| Box::pin(processor.process(&clock, bytes.as_bytes(), sink)))
        .collect();
    let last = tasks.pop().unwrap();
    for task in &mut tasks {
        assert!(task.as_mut().poll(&mut waking).is_pending());
    }
    let mut last = last;
    let answer = (0..4).find_map(|_| match last.as_mut().poll(&mut waking) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    });
    let refused = nack(answer.expect("turned away at once").unwrap());
    assert_eq!(refused.code, ErrorCode::RateLimit);
    // Room comes back.
    drop(tasks);
    let mut sink = |_: Delivery<'_>| {};
    let mut next = pin!(processor.process(&clock, bytes.as_bytes(), &mut sink));
    assert!((0..4).all(|_| next.as_mut().poll(&mut waking).is_pending()));
}
