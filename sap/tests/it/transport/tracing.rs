//! Spans with correlation ids, and nothing of a payload.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use sap::cache::{Caching, WholePayload};
use sap::processor::Config;
use sap::role::{consumer, producer};
use sap::store::MemoryCache;
use sap::transport::bus::{self, Bus};
use sap::validate::{Options, decode_result, decode_task};
use sap::{Ack, Producer, ProducerKind};
use serde_json::json;

use ubos_common::testing::Traces;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::processor::{Jumping, Log, answering, cached, consult, run};

use super::world::{Real, Seen, ask, typed};

#[tokio::test]
async fn spans_have_ids_and_nothing_of_the_payload() {
    let traces = Traces::of("sap");
    let seen = Seen::default();
    let bus = Bus::new(
        Arc::new(Real::default()),
        seen.log.clone(),
        bus::Config::default(),
    )
    .unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let task = typed(&ask(1, "test.echo").to_string());
    bus.send(&task, &mut |_| {}).await.unwrap();
    let said = traces.text();
    for wanted in [
        "span sap.carry".to_owned(),
        "transport=\"bus\"".into(),
        "span sap.task".into(),
        format!("task_id={}", task.task_id),
        "capability=test.echo".into(),
        "status=SUCCEEDED".into(),
        "running=0".into(),
    ] {
        assert!(said.contains(&wanted), "{wanted} in {said}");
    }
    // Each of the two spans can be found by it.
    let id = format!("correlation_id={}", task.correlation_id);
    assert_eq!(said.matches(&id).count(), 2, "{said}");
    assert!(!said.contains("UBOS SAP V2") && !said.contains("detailed"));
}

#[test]
fn the_span_of_a_task_that_is_turned_away_or_fails_says_so() {
    for (capability, wanted) in [
        ("test.unknown", "status=\"NACK\"\ncode=FORBIDDEN"),
        ("test.fail", "status=FAILED\ncode=UNPROCESSABLE"),
    ] {
        let traces = Traces::of("sap");
        let processor = Seen::default().processor(Config::default());
        run(&processor, &Jumping::new(), &ask(1, capability));
        let said = traces.text();
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn the_span_of_a_task_says_whether_the_cache_has_answered() {
    let (traces, runs) = (Traces::of("sap"), Arc::default());
    let processor = answering(&Log::default(), "1", &runs)
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), Caching::shared(WholePayload));
    for (number, is_hit) in [(1, false), (2, true)] {
        run(&processor, &Jumping::new(), &cached(number, "prefer"));
        let said = traces.text();
        assert!(said.contains(&format!("cache_hit={is_hit}")), "{said}");
    }
}

#[tokio::test]
async fn a_bus_records_how_many_wait_for_a_place() {
    let (traces, seen) = (Traces::of("sap"), Seen::default());
    let config = bus::Config::default().with_max_tasks(1);
    let bus = Bus::new(Arc::new(Real::default()), seen.log.clone(), config).unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let task = |number| typed(&ask(number, "test.hang").to_string());
    let tasks = [task(1), task(2), task(3)];
    let bus = &bus;
    let mut sending: Vec<_> = tasks
        .iter()
        .map(|task| Box::pin(async move { bus.send(task, &mut |_| {}).await }))
        .collect();
    for sending in &mut sending {
        assert!(sending.now_or_never().is_none());
    }
    let said = traces.text();
    for waiting in 1..=2 {
        let grown = format!("name=\"bus\"\nwaiting={waiting}\n");
        assert!(said.contains(&grown), "{said}");
    }
}

#[cfg(all(feature = "nats", feature = "external-tests"))]
#[tokio::test]
async fn a_worker_records_how_many_it_works_on() {
    use super::suite::Harness as _;
    let (traces, seen) = (Traces::of("sap"), Seen::default());
    let on = super::nats::OnNats::start(&seen, Config::default()).await;
    let (_, answer) = on.send(&typed(&ask(1, "test.echo").to_string())).await;
    assert!(answer.is_ok());
    let said = traces.text();
    assert!(said.contains("name=\"nats\"\nwaiting=1\n"), "{said}");
}

/// Every text of a message that is no id, word or time, with a canary in it.
fn with_canaries(value: &mut serde_json::Value, key: &str) {
    use serde_json::Value;
    const KEPT: [&str; 12] = [
        "protocolVersion",
        "taskId",
        "parentTaskId",
        "correlationId",
        "issuedAt",
        "reportedAt",
        "agentKind",
        "capability",
        "status",
        "alignment",
        "pressureLevel",
        "deadline",
    ];
    match value {
        Value::Object(members) => {
            members
                .iter_mut()
                .for_each(|(name, value)| with_canaries(value, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| with_canaries(item, key)),
        Value::String(text) if !KEPT.contains(&key) => *text = format!("canary {text}"),
        _ => {}
    }
}

#[test]
fn machines_record_ids_and_nothing_of_a_message() {
    let (mut task, mut result) = (crate::samples::task(), crate::samples::result());
    task["payload"] = json!({"canary-name": ["canary", {"password": "canary"}]});
    result["output"] = json!({"canary-name": "canary"});
    result["metrics"] = json!({"canary": 1});
    for (value, members) in [
        (
            &mut task,
            &["issuer", "target", "attachments", "tags", "meta", "replyTo"][..],
        ),
        (
            &mut result,
            &["nextActions", "artifacts", "meta", "producer"][..],
        ),
    ] {
        for member in members {
            if let Some(part) = value.get_mut(*member) {
                with_canaries(part, member);
            }
        }
    }
    let (task, _) = decode_task(task.to_string().as_bytes(), &Options::default()).unwrap();
    let (result, _) = decode_result(result.to_string().as_bytes(), &Options::default()).unwrap();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let traces = Traces::of("sap");
    let mut sent = producer::SentTasks::new(producer::Config::default()).unwrap();
    for _ in 0..2 {
        sent.handle_input(now, producer::Input::Dispatch(&task))
            .unwrap();
    }
    sent.handle_input(now, producer::Input::Ack(&Ack::from(&task)))
        .unwrap();
    sent.handle_timeout(now.plus(Duration::from_secs(1_000)));
    sent.handle_input(now, producer::Input::Result(&result))
        .unwrap();
    sent.handle_input(now, producer::Input::Dispatch(&task))
        .unwrap_err();
    let producer = Producer::new("worker".parse().unwrap(), ProducerKind::Agent);
    let config = consumer::Config::new(producer);
    let mut received = consumer::ReceivedTask::new(now, Arc::new(task.clone()), config);
    received
        .handle_input(now, consumer::Input::Cancel)
        .unwrap_err();
    received.handle_timeout(now);
    received
        .handle_input(now, consumer::Input::Shutdown)
        .unwrap();
    assert_eq!(received.stage(), consumer::Stage::Dismissed);
    let records = traces.text();
    for wanted in [
        "input: dispatch",
        "input: result",
        "nothing came in time",
        "input refused",
        "timer",
    ] {
        assert!(records.contains(wanted), "{wanted} in {records}");
    }
    assert!(records.contains(&format!("task={}", task.task_id)));
    assert!(!records.contains("canary"), "{records}");
}
