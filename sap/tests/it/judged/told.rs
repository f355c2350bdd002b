//! What is recorded, told, and said to those who learn.

use crate::apart::Still;
use crate::processor::{
    Jumping, Log, answering, consult, kinds, no_cache, processor, result, run, text,
};
use crate::samples::{task, with};
use futures::executor::block_on;
use sap::alignment::{Assessment, Policy, Rules, Subject};
use sap::cache::Caching;
use sap::learning::{Signal, SignalSink};
use sap::processor::{
    AllowAll, Config, Context, Delivery, Interrupted, Outcome, Processor, Progress,
};
use sap::store::MemoryCache;
use sap::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
use sap::validate::Options;
use sap::{BoxFuture, ErrorCode, Producer, ProducerKind, Status, StoreError};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use ubos_common::json::{Limits, RawBuf, RawObject};

// spec: SAP-5-1, SAP-5-3
#[test]
fn a_part_that_is_no_valid_result_ends_the_task() {
    let log = Log::default();
    let processor = processor(&log).handle(
        "consult.align".parse().unwrap(),
        |mut cx: Context| async move {
            // As long as a message may be, so that the result around it is longer.
            let long = "x".repeat(Limits::default().max_bytes - 2);
            let long = RawBuf::from_serialize(&long).unwrap();
            cx.report(Progress::running(Some(long))).await;
            Ok(Outcome::new(text("1")))
        },
    );
    let ended = result(run(&processor, &Still, &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::Internal));
    let why = ended.error.unwrap().message.unwrap();
    assert_eq!(why, "handler or policy made a result that is not valid");
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
}

/// Takes `room` entries and then no more.
#[derive(Debug)]
struct Failing {
    room: AtomicUsize,
}

impl Transcript for Failing {
    fn record(&self, _: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        let room = self
            .room
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let kept = room
            .map(|n| n as u64)
            .map_err(|_| TranscriptError::Full { limit: 0 });
        Box::pin(std::future::ready(kept))
    }

    fn read(&self, _: u64, _: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        Box::pin(async { Ok(Vec::new()) })
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
        let processor = Processor::new(
            producer,
            Arc::new(AllowAll),
            transcript.clone(),
            Config::default(),
        )
        .unwrap()
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
        let answer = block_on(processor.process(&Jumping::new(), bytes.as_bytes(), &mut sink));
        assert!(answer.is_err());
        assert_eq!(told, wanted);
        // It may come again, as if it had never been there.
        transcript.room.store(10, Ordering::SeqCst);
        let again = result(run(&processor, &Jumping::new(), &no_cache()).1);
        assert_eq!(again.status, Status::Succeeded);
    }
}

#[derive(Debug, Default)]
struct Signals(Mutex<Vec<Signal>>);

impl SignalSink for Signals {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        let mut signals = self.0.lock().unwrap();
        if signals.len() == 5 {
            return Err(StoreError::Full {
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
        .handle(
            "consult.align".parse().unwrap(),
            |mut cx: Context| async move {
                cx.report(Progress::partial(text("1"), vec![RawObject::empty()]))
                    .await;
                // Longer than its task.
                Ok(Outcome::new(text(&json!("2".repeat(8_000)).to_string())))
            },
        )
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
        .cache(Arc::new(MemoryCache::default()))
        .cached(
            consult(),
            Caching::shared(sap::cache::DropMembers::approved(
                "ada".parse().unwrap(),
                ["asked"],
            )),
        )
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
    let (_, answer) = ask(4, json!({"n": 1}));
    assert_eq!(result(answer).status, Status::Succeeded);
    block_on(processor.signals_told());
    // What the sink refuses is counted, and holds up no task.
    assert_eq!(processor.lost_signals(), 1);
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

/// Says more than a message may hold.
#[derive(Debug)]
struct Verbose;

impl Policy for Verbose {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        let mut assessment = Assessment::valid(subject.context);
        let mut check = sap::PolicyCheck::new();
        check.notes = Some("word ".repeat(100));
        assessment.checks = vec![check; 20_000];
        assessment
    }
}

// spec: SAP-5-1, SAP-5-10
#[test]
fn evidence_that_no_message_holds_ends_its_task_and_is_not_told() {
    let (log, clock, calls) = (Log::default(), Still, Arc::default());
    let verbose = |output| answering(&log, output, &calls).policy(Arc::new(Verbose));
    let processor = verbose("1");
    let failed = result(run(&processor, &clock, &no_cache()).1);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Internal));
    assert!(failed.encode().len() < 2_000);
    assert_eq!(result(run(&processor, &clock, &no_cache()).1), failed);
    let mut again = verbose("2");
    let resumed = block_on(again.resume(&clock, Interrupted::RunAgain)).unwrap();
    assert_eq!((resumed.ended, resumed.failed.len()), (1, 0));
    assert_eq!(result(run(&again, &clock, &no_cache()).1), failed);
}

// spec: SAP-5-10
#[test]
fn a_task_beyond_the_usual_limits_is_known_after_a_restart() {
    let (log, clock) = (Log::default(), Still);
    let limits = Limits::default().with_max_bytes(16 << 20);
    let limits = limits.with_max_string_bytes(16 << 20);
    let config = Config::default().with_options(Options::default().with_limits(limits));
    let on = |output: &'static str| {
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let log = log.clone();
        let processor = Processor::new(producer, Arc::new(AllowAll), log, config).unwrap();
        processor.handle(consult(), move |_: Context| async move {
            Ok(Outcome::new(text(output)))
        })
    };
    let long = json!({"text": "long ".repeat(1_000_000)});
    let task = with(no_cache(), "/payload", Some(long));
    let first = result(run(&on("1"), &clock, &task).1);
    assert_eq!(first.status, Status::Succeeded);
    let mut second = on("2");
    let resumed = block_on(second.resume(&clock, Interrupted::RunAgain)).unwrap();
    assert_eq!(resumed.ended, 1);
    assert_eq!(result(run(&second, &clock, &task).1), first);
}
