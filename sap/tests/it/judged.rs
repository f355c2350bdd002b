//! Verdicts, contracts, single flight and signals, through the whole processor.

use crate::apart::Still;
use crate::processor::{
    Jumping, Log, answering, cached, consult, kinds, no_cache, processor, result, run, text, whole,
    yield_now,
};
use crate::samples::{task, with};
use futures::executor::block_on;
use sap::OutputContract;
use sap::alignment::{Assessment, Policy, Rules, Subject};
use sap::cache::{Caching, WholePayload};
use sap::learning::{Signal, SignalSink};
use sap::processor::{
    AllowAll, Config, Context, ContractCheck, ContractFinding, Delivery, HandlerError, Interrupted,
    Outcome, Processor, Progress,
};
use sap::store::MemoryCache;
use sap::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
use sap::validate::{Options, decode_result};
use sap::{
    BoxFuture, ErrorCode, PressureLevel, Producer, ProducerKind, Status, StoreError, TaskResult,
};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waking, Poll, Waker};
use std::time::Duration;
use ubos_common::json::{Limits, Raw, RawBuf, RawObject};

// spec: SAP-4.2-9, SAP-8-1, SAP-6-7
#[test]
fn a_verdict_decides_the_end() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let rules = |words: &str| {
        Arc::new(Rules::default().forbid("strategic_pause", words).threshold(
            "blueprint_thinking",
            PressureLevel::Instant,
            40.0,
        ))
    };
    let processor = answering(&log, "\"burn it\"", &calls)
        .policy(rules("BURN"))
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let refused = result(run(&processor, &clock, &cached(1, "prefer")).1);
    assert_eq!(refused.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(
        (
            refused.output,
            refused.constitutional_evidence.alignment.as_str()
        ),
        (None, "NON_CONSTITUTIONAL")
    );
    assert_eq!(
        refused.constitutional_evidence.policy_checks.unwrap().len(),
        3 + 2
    );
    assert_eq!(
        result(run(&processor, &clock, &cached(2, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
    // Too much pressure for an instant decision: nothing is computed.
    let hasty = with(
        no_cache(),
        "/constitutionalContext/pressureLevel",
        Some(json!("instant")),
    );
    let hasty = with(
        hasty,
        "/constitutionalContext/riskTolerance",
        Some(json!("high")),
    );
    let before = calls.load(Ordering::SeqCst);
    let escalated = result(run(&processor, &clock, &hasty).1);
    assert_eq!(escalated.status, Status::Escalated);
    // What the policy proposes.
    let [action] = &escalated.next_actions.unwrap()[..] else {
        panic!("one action")
    };
    let action: Value = action.deserialize().unwrap();
    assert_eq!(action["action"], "decide again");
    assert_eq!(
        action["constitutionalContext"]["pressureLevel"],
        "consulted"
    );
    assert_eq!(calls.load(Ordering::SeqCst), before);
}

// spec: SAP-4.2-9
#[test]
fn a_part_that_breaks_a_principle_ends_the_task() {
    let log = Log::default();
    let processor = processor(&log)
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
        .handle(
            "consult.align".parse().unwrap(),
            |mut cx: Context| async move {
                cx.report(Progress::partial(
                    text("\"burn\""),
                    vec![RawObject::empty()],
                ))
                .await;
                Ok(Outcome::new(text("1")))
            },
        );
    let ended = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
}

// spec: SAP-4.2-9
#[test]
fn a_part_cites_where_a_policy_demands_it() {
    for (cited, wanted) in [(true, "PARTIAL"), (false, "ESCALATED")] {
        let log = Log::default();
        let sources = || vec!["ubos://a".to_owned()];
        let processor = processor(&log)
            .policy(Arc::new(Rules::default().cite("strategic_pause")))
            .handle(
                "consult.align".parse().unwrap(),
                move |mut cx: Context| async move {
                    let mut part = Progress::partial(text("1"), vec![RawObject::empty()]);
                    if cited {
                        part.citations = sources();
                    }
                    cx.report(part).await;
                    Ok(Outcome::new(text("1")).citing(sources()))
                },
            );
        let task = with(
            no_cache(),
            "/constitutionalContext/riskTolerance",
            Some(json!("medium")),
        );
        run(&processor, &Jumping::new(), &task);
        assert_eq!(kinds(&log)[2], wanted);
        let part = block_on(log.read(2, 1)).unwrap()[0].clone();
        let (part, _) = decode_result(part.body.as_str().as_bytes(), &Options::default()).unwrap();
        let said = part.constitutional_evidence.citations.unwrap_or_default();
        assert_eq!(said.len(), usize::from(cited));
    }
}

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

#[derive(Debug)]
struct Never;

impl ContractCheck for Never {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        Box::pin(async { ContractFinding::Broken(vec!["/n".into()]) })
    }
}

// spec: SAP-4.2-7
#[test]
fn an_output_that_breaks_its_contract_is_unprocessable() {
    let processor = answering(&Log::default(), "1", &Arc::default()).contract(Arc::new(Never));
    let failed = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().contains("/n"));
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

// spec: SAP-4.1-10, SAP-4.2-7
#[cfg(feature = "schema")]
#[test]
fn an_output_is_held_against_the_schema_of_its_contract() {
    let said = |schema: Value| {
        let processor = answering(&Log::default(), "{\"n\":1.5}", &Arc::default())
            .contract(Arc::new(sap::processor::Schemas::default()));
        let task = with(no_cache(), "/outputContract/schema", Some(schema));
        // Some schemas are compiled on another thread.
        let (told, answer) = run(&processor, &Still, &task);
        (told, result(answer))
    };
    let integer = json!({"properties": {"n": {"type": "integer"}}});
    let (_, failed) = said(integer);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().ends_with(" at /n"));
    let (_, kept) = said(json!({"properties": {"n": {"type": "number"}}}));
    assert_eq!(kept.status, Status::Succeeded);
    for descriptor in [
        json!({"type": "jsonish"}),
        json!({"$ref": "http://a.example/b"}),
    ] {
        let (told, kept) = said(descriptor);
        assert_eq!(kept.status, Status::Succeeded);
        assert!(
            told.iter().any(|line| line.contains("Contract(")),
            "{told:?}"
        );
    }
}

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

/// Escalates whatever is proposed, and proposes nothing.
#[derive(Debug)]
struct Escalating;

impl Policy for Escalating {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        let mut assessment = Assessment::valid(subject.context);
        if subject.output.is_some() {
            assessment.alignment = sap::Alignment::Escalate;
        }
        assessment
    }
}

// spec: SAP-4.2-9
#[test]
fn an_escalation_without_a_path_asks_for_a_review() {
    let processor = answering(&Log::default(), "1", &Arc::default()).policy(Arc::new(Escalating));
    let escalated = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(escalated.status, Status::Escalated);
    let [action] = &escalated.next_actions.unwrap()[..] else {
        panic!("one action")
    };
    let action: Value = action.deserialize().unwrap();
    assert_eq!(action, json!({"action": "review", "principles": []}));
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

// spec: SAP-6-5, SAP-4.2-4
#[test]
fn a_hit_says_that_constraints_were_not_held_against_it() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "{\"t\":\"long\"}", &calls)
        .policy(Arc::new(Rules::default()))
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let asks = |id: u8, level: &str, must_align: bool| {
        let task = with(
            cached(id, "prefer"),
            "/constitutionalContext/cachePolicy/mustAlign",
            Some(json!(must_align)),
        );
        let constraint = json!(["output /t length < 2"]);
        let constraint = (level != "instant").then_some(constraint);
        let task = with(task, "/constitutionalContext/constraints", constraint);
        with(
            task,
            "/constitutionalContext/pressureLevel",
            Some(json!(level)),
        )
    };
    let first = result(run(&processor, &clock, &asks(1, "instant", false)).1);
    assert_eq!(first.status, Status::Succeeded);
    let hit = result(run(&processor, &clock, &asks(2, "consulted", false)).1);
    assert_eq!(
        (&hit.status, calls.load(Ordering::SeqCst)),
        (&Status::Succeeded, 1)
    );
    let checks = hit.constitutional_evidence.policy_checks.unwrap();
    let constraint = checks
        .iter()
        .find(|check| check.principle.as_deref() == Some("output /t length < 2"));
    assert_eq!(constraint.unwrap().status.as_deref(), Some("UNCHECKED"));
    // Checked, it is none.
    let computed = result(run(&processor, &clock, &asks(3, "consulted", true)).1);
    assert_eq!(computed.error_code(), Some(&ErrorCode::NonConstitutional));
}
