//! What becomes of a task before a handler sees it.

use futures::executor::block_on;
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Waking, Waker};
use std::time::Duration;

use sap::processor::{
    Access, AllowAll, Answer, Authorize, Config, Context, Delivery, Outcome, Peer, Processor, Table,
};
use sap::store::MemoryTranscript;
use sap::transcript::Transcript;
use sap::validate::Options;
use sap::{BoxFuture, ErrorCode, Producer, ProducerKind, Status};
use serde_json::json;
use ubos_common::violation::Profile;

use crate::samples::{example_task, with};

use super::{Jumping, Log, answering, kinds, nack, no_cache, result, run, text};

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

/// Counts who asks it.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Authorize for Counting {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a sap::Task) -> BoxFuture<'a, Access> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Access::Allowed))
    }
}

#[test]
fn others_have_their_turn_after_a_long_task_was_read_and_after_each_of_its_steps() {
    const LARGE: usize = 16 << 10;
    let task = |text: usize| {
        let payload = Some(json!({"text": "x".repeat(text)}));
        let task = with(no_cache(), "/payload", payload);
        let task = crate::samples::read_task(&task, &Options::default());
        task.unwrap().0.encode()
    };
    let rest = task(0).len();
    for (bytes, polls) in [(LARGE, 1), (LARGE + 1, 3)] {
        let hook = Arc::new(Counting::default());
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let log = Arc::new(MemoryTranscript::default());
        let processor = Processor::new(producer, hook.clone(), log, Config::default()).unwrap();
        let task = task(bytes - rest);
        let (clock, mut sink) = (Jumping::new(), |_: Delivery<'_>| {});
        let mut run = pin!(processor.process(&clock, &task, &mut sink));
        let until_asked = (1..10).find(|_| {
            let _ = run.as_mut().poll(&mut Waking::from_waker(Waker::noop()));
            hook.0.load(Ordering::SeqCst) > 0
        });
        assert_eq!(until_asked, Some(polls), "{bytes} bytes");
    }
}

#[test]
fn others_have_their_turn_after_a_long_output() {
    for (bytes, is_long) in [(16 << 10, false), ((16 << 10) + 1, true)] {
        let log = Log::default();
        let output = format!("\"{}\"", "x".repeat(bytes - 2));
        let processor =
            super::processor(&log).handle("consult.align".parse().unwrap(), move |_: Context| {
                let output = text(&output);
                async { Ok(Outcome::new(output)) }
            });
        let (clock, task) = (Jumping::new(), no_cache().to_string());
        let mut sink = |_: Delivery<'_>| {};
        let mut run = pin!(processor.process(&clock, task.as_bytes(), &mut sink));
        let polled = run.as_mut().poll(&mut Waking::from_waker(Waker::noop()));
        assert_eq!(polled.is_pending(), is_long, "{bytes} bytes");
    }
}
