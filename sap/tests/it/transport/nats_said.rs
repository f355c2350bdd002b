//! What a worker on NATS takes, and what it stores of what it says.

use std::sync::atomic::Ordering;

use sap::Status;
use sap::processor;
use sap::transport::Message;
use sap::transport::nats::QueueError;
use serde_json::json;
use ubos_common::trace_context::TraceContext;

use super::nats::{A_PRIME, Nats, OnNats, config};
use super::nats_faults::until_kept;
use super::suite::{Harness as _, until};
use super::world::{INBOX, Seen, ask, typed};
use crate::samples::with;

// spec: SAP-10-4, SAP-4.1-17
#[tokio::test]
async fn one_who_wants_no_ack_is_told_nothing_of_results_that_went_elsewhere() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default()).await;
    let there = json!({"endpoint": INBOX, "expectAck": false});
    let task = with(ask(1, "test.echo"), "/replyTo", Some(there));
    let task = typed(&task.to_string());
    let (told, answer) = on.send(&task).await;
    assert!(told.is_empty() && matches!(answer, Ok(None)), "{answer:?}");
    until_kept(&on.nats, "sap_tasks", 0).await;
    // It was delivered once, and each result went there once.
    let inbox = seen.inbox.lock().unwrap().clone();
    let statuses: Vec<_> = inbox.iter().map(|result| result.status.clone()).collect();
    assert_eq!(statuses, [Status::Running, Status::Succeeded]);
    let kept = on.follow(&task, &mut |_| {}).await;
    let Some(Message::Result(kept)) = kept else {
        panic!("{kept:?}")
    };
    assert_eq!(Some(&*kept), inbox.last());
}

#[tokio::test]
async fn all_that_is_said_of_a_task_has_its_place_in_a_trace() {
    let seen = Seen::default();
    let mut on = OnNats::start(&seen, processor::Config::default()).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert!(on.trace(TraceContext::read(parent, ["a=1"]).unwrap()));
    let task = typed(&ask(1, "test.echo").to_string());
    on.send(&task).await.1.unwrap();
    let out = on.nats.stream("sap_out").await;
    for kind in ["attempt", "ack", "progress", "result"] {
        let subject = format!("sap.out.{}.{A_PRIME}.{kind}", task.task_id);
        let said = out.get_last_raw_message_by_subject(&subject).await.unwrap();
        let header = |name| said.headers.get(name).map(|value| value.as_str());
        let place = (header("traceparent"), header("tracestate"));
        assert_eq!(place, (Some(parent), Some("a=1")), "{kind}");
    }
}

// spec: SAP-10-4
#[tokio::test]
async fn a_worker_runs_sixteen_tasks_at_once_and_leaves_the_others() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    for number in 1..=17 {
        let task = ask(number, "test.gate").to_string();
        nats.put(&task, &[]).await;
    }
    let service = seen.service_of(processor::Config::default());
    let shutdown = async {
        // Of each the task, RUNNING, and the handler's own.
        until(|| seen.entries() >= 3 * 16).await;
        // What is asked of the server now has its answer after all that was asked before.
        nats.kept("sap_tasks").await;
        nats.kept("sap_tasks").await;
        seen.gate.store(true, Ordering::SeqCst);
    };
    queue.work(&service, shutdown).await.unwrap();
    assert_eq!(nats.kept("sap_tasks").await, 1);
    assert_eq!(seen.entries(), 4 * 16);
}

#[tokio::test]
async fn a_queue_with_settings_out_of_range_is_not_opened() {
    let refused = Nats::start().open(config().with_max_attempts(0)).await;
    assert!(matches!(refused, Err(QueueError::Config(_))), "{refused:?}");
}
