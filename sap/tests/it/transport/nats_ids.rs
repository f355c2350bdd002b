//! Two tasks of one id and issuer on NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::processor::{self, Access, Authorize, Peer};
use sap::transport::nats::Queue;
use sap::transport::{Message, Service};
use sap::{Status, Task};
use serde_json::json;
use tokio::task::JoinHandle;

use super::nats::{A_PRIME, Nats, config, mortal, work};
use super::nats_faults::until_kept;
use super::suite::until;
use super::world::{INBOX, Real, Seen, ask, typed};
use crate::samples::with;

/// A task, and another of its id.
fn two(capability: &str) -> [Task; 2] {
    let task = ask(1, capability);
    let other = with(ask(1, "test.echo"), "/tags", Some(json!(["other"])));
    [task, other].map(|task| typed(&task.to_string()))
}

/// The same task, of which the queue hears nothing while it runs.
fn silent() -> Task {
    let reply = json!({"endpoint": INBOX, "expectAck": false});
    let task = with(ask(1, "test.gate"), "/replyTo", Some(reply));
    typed(&task.to_string())
}

/// The last word, which is not long in coming: a status, or the code of a Nack.
async fn last(queue: &Queue, task: &Task) -> String {
    let mut ignored = |_: &Message| {};
    let sent = queue.send(task, &mut ignored);
    let answer = tokio::time::timeout(Duration::from_secs(60), sent).await;
    match answer.expect("a last word").unwrap() {
        Some(Message::Result(result)) => result.status.to_string(),
        Some(Message::Nack(nack)) => nack.code.to_string(),
        other => panic!("{other:?}"),
    }
}

// spec: SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_second_task_of_an_id_is_refused_while_the_first_runs_on_another_worker() {
    let (nats, seen, next) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(config()).await;
    let [task, other] = two("test.gate");
    let service = seen.service_of(processor::Config::default());
    // The first worker takes a task, and no other.
    let first = async { until(|| seen.entries() >= 3).await };
    let second = async {
        until(|| seen.entries() >= 3).await;
        let worker = work(&queue, next.service_of(processor::Config::default()));
        let refused = last(&queue, &other).await;
        seen.gate.store(true, Ordering::SeqCst);
        worker.abort();
        refused
    };
    let (ended, worked, refused) =
        tokio::join!(last(&queue, &task), queue.work(&service, first), second);
    worked.unwrap();
    assert_eq!(
        (ended.as_str(), refused.as_str()),
        ("SUCCEEDED", "INVALID_TASK")
    );
    assert_eq!(next.calls(), 0);
}

// spec: SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_second_task_of_an_id_is_refused_while_the_first_says_nothing_on_the_queue() {
    let (nats, seen, next) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(config()).await;
    let [task, other] = [silent(), two("test.gate")[1].clone()];
    let first = work(&queue, seen.service_of(processor::Config::default()));
    let second = async {
        until(|| seen.entries() >= 3).await;
        let worker = work(&queue, next.service_of(processor::Config::default()));
        let refused = last(&queue, &other).await;
        seen.gate.store(true, Ordering::SeqCst);
        (refused, worker)
    };
    let mut ignored = |_: &Message| {};
    let (_, (refused, worker)) = tokio::join!(queue.send(&task, &mut ignored), second);
    assert_eq!((refused.as_str(), next.calls()), ("INVALID_TASK", 0));
    first.abort();
    worker.abort();
}

/// Never comes to a decision.
#[derive(Debug)]
struct Undecided(Arc<AtomicUsize>);

impl Authorize for Undecided {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

// spec: SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_task_whose_worker_dies_before_it_runs_keeps_its_id_and_runs() {
    let (nats, seen, next) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(mortal()).await;
    let [task, other] = two("test.echo");
    let asked = Arc::new(AtomicUsize::new(0));
    let processor = seen.processor(processor::Config::default());
    let processor = processor.authorize(Arc::new(Undecided(Arc::clone(&asked))));
    let dying = work(
        &queue,
        Service::new(Arc::new(processor), Arc::new(Real::default())),
    );
    let second = async {
        until(|| asked.load(Ordering::SeqCst) >= 1).await;
        dying.abort();
        let worker = work(&queue, next.service_of(processor::Config::default()));
        (last(&queue, &other).await, worker)
    };
    let (ended, (refused, worker)) = tokio::join!(last(&queue, &task), second);
    assert_eq!(
        (ended.as_str(), refused.as_str()),
        ("SUCCEEDED", "INVALID_TASK")
    );
    assert_eq!((seen.calls(), next.calls()), (0, 1));
    until_kept(&nats, "sap_tasks", 0).await;
    worker.abort();
}

/// Denies what it is asked about first, when it is told to; lets in all else.
#[derive(Debug, Default)]
struct Late {
    asked: AtomicUsize,
    told: AtomicBool,
}

impl Authorize for Late {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        Box::pin(async {
            if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
                return Access::Allowed;
            }
            until(|| self.told.load(Ordering::SeqCst)).await;
            Access::Forbidden
        })
    }
}

/// A worker that denies the first task that it gets, when it is told to.
fn denying(queue: &Queue) -> (Arc<Late>, JoinHandle<()>) {
    let late = Arc::<Late>::default();
    let processor = Seen::default().processor(processor::Config::default());
    let processor = processor.authorize(Arc::clone(&late) as Arc<dyn Authorize>);
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    (late, work(queue, service))
}

/// A worker takes the task and dies, and the next one turns it away.
async fn is_taken_in_vain(queue: &Queue, [task, other]: [&Task; 2]) {
    let seen = Seen::default();
    let dying = work(queue, seen.service_of(processor::Config::default()));
    let next = async {
        until(|| seen.entries() >= 3).await;
        assert_eq!(last(queue, other).await, "INVALID_TASK");
        dying.abort();
        let (late, worker) = denying(queue);
        late.told.store(true, Ordering::SeqCst);
        (late, worker)
    };
    let (denied, (_, worker)) = tokio::join!(last(queue, task), next);
    assert_eq!(denied, "FORBIDDEN");
    worker.abort();
}

// spec: SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_second_task_of_an_id_is_not_refused_while_the_first_may_be_turned_away() {
    for was_taken in [false, true] {
        let (nats, next) = (Nats::start(), Seen::default());
        let config = if was_taken { mortal() } else { config() };
        let queue = nats.queue(config).await;
        let [task, other] = [silent(), two("test.gate")[1].clone()];
        if was_taken {
            is_taken_in_vain(&queue, [&task, &other]).await;
        }
        let (late, first) = denying(&queue);
        let second = async {
            until(|| late.asked.load(Ordering::SeqCst) == 1).await;
            let worker = work(&queue, next.service_of(processor::Config::default()));
            let decided = async {
                // It comes round a few times.
                let tasks = nats.stream("sap_tasks").await;
                let delivered = async || {
                    let workers = tasks.consumer_info("sap_workers").await.unwrap();
                    workers.delivered.consumer_sequence
                };
                let wanted = delivered().await + 4;
                while delivered().await < wanted {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                late.told.store(true, Ordering::SeqCst);
            };
            let (ended, ()) = tokio::join!(last(&queue, &other), decided);
            (ended, worker)
        };
        let (denied, (ended, worker)) = tokio::join!(last(&queue, &task), second);
        assert_eq!(
            (denied.as_str(), ended.as_str()),
            ("FORBIDDEN", "SUCCEEDED")
        );
        first.abort();
        worker.abort();
    }
}

// spec: SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_task_that_was_turned_away_keeps_no_id() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    let [denied, task] = two("test.denied");
    assert_eq!(last(&queue, &denied).await, "FORBIDDEN");
    assert_eq!(last(&queue, &task).await, "SUCCEEDED");
    worker.abort();
}

// spec: SAP-5-2, SAP-10-4
#[tokio::test]
async fn who_waits_is_told_the_end_though_another_task_has_the_result_of_the_id() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    let [task, _] = two("test.gate");
    let meanwhile = async {
        until(|| seen.entries() >= 3).await;
        // As where the oldest of what was said is gone, and with it who has the id.
        let subject = format!("sap.out.{}.{A_PRIME}.result", task.task_id);
        nats.put_on(&subject, "{}", &[("Sap-Body", "another")])
            .await;
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (ended, ()) = tokio::join!(last(&queue, &task), meanwhile);
    assert_eq!(ended, "SUCCEEDED");
    let status = queue.status(&task).await.unwrap();
    let Some(Message::Result(result)) = status else {
        panic!("{status:?}")
    };
    assert_eq!(result.status, Status::Succeeded);
    worker.abort();
}
