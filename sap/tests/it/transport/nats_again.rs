//! Tasks on NATS that were turned away, and are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::processor::{self, Access, Authorize, Peer};
use sap::transport::nats::Queue;
use sap::transport::{Message, Service};
use sap::{ErrorCode, Status, Task};
use serde_json::json;
use tokio::task::JoinHandle;

use super::nats::{Nats, config, work};
use super::suite::until;
use super::world::{Real, Seen, ask, typed};
use crate::samples::with;

/// Lets nobody in until it is opened.
#[derive(Debug, Default)]
struct Door(AtomicBool);

impl Authorize for Door {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        let access = match self.0.load(Ordering::SeqCst) {
            true => Access::Allowed,
            false => Access::Unknown,
        };
        Box::pin(std::future::ready(access))
    }
}

fn worker(queue: &Queue, seen: &Seen, door: &Arc<Door>) -> JoinHandle<()> {
    let processor = seen.processor(processor::Config::default());
    let processor = processor.authorize(Arc::<Door>::clone(door));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    work(queue, service)
}

/// The answer, which is not long in coming.
async fn answer(queue: &Queue, task: &Task) -> Message {
    let mut ignored = |_: &Message| {};
    let sent = queue.send(task, &mut ignored);
    let answer = tokio::time::timeout(Duration::from_secs(60), sent).await;
    answer.expect("an answer").unwrap().unwrap()
}

fn code(message: Message) -> ErrorCode {
    match message {
        Message::Nack(nack) => nack.code,
        other => panic!("{other:?}"),
    }
}

fn status(message: Option<Message>) -> Status {
    match message {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    }
}

// spec: SAP-4.3-2, SAP-10-4
#[tokio::test]
async fn a_task_that_was_turned_away_is_tried_again_when_it_is_sent_again() {
    let (nats, seen, door) = (Nats::start(), Seen::default(), Arc::<Door>::default());
    let queue = nats.queue(config()).await;
    let worker = worker(&queue, &seen, &door);
    let task = typed(&ask(1, "test.gate").to_string());
    let other = with(ask(1, "test.echo"), "/tags", Some(json!(["other"])));
    let other = typed(&other.to_string());
    for _ in 0..2 {
        // Each is judged anew.
        let before = seen.entries();
        assert_eq!(code(answer(&queue, &task).await), ErrorCode::Unauthorized);
        assert!(seen.entries() > before);
    }
    let told = queue.status(&task).await.unwrap().unwrap();
    assert_eq!(code(told), ErrorCode::Unauthorized);
    door.0.store(true, Ordering::SeqCst);
    let meanwhile = async {
        let is_running = |kind: &&String| **kind == "RUNNING";
        until(|| seen.written(0).iter().filter(is_running).count() == 2).await;
        // The Nack of another task of its id is no word about this one.
        assert_eq!(code(answer(&queue, &other).await), ErrorCode::InvalidTask);
        let running = status(queue.status(&task).await.unwrap());
        let mut told = Vec::new();
        let mut tell = |message: &Message| {
            told.push(message.clone());
            // The task runs until something is told of it.
            seen.gate.store(true, Ordering::SeqCst);
        };
        let followed = status(queue.follow(&task, &mut tell).await.unwrap());
        let turned = told
            .iter()
            .any(|message| matches!(message, Message::Nack(_)));
        (running, followed, turned)
    };
    let (sent, (running, followed, turned)) = tokio::join!(answer(&queue, &task), meanwhile);
    assert_eq!((running, turned), (Status::Running, false));
    for ended in [Some(sent), queue.status(&task).await.unwrap()] {
        assert_eq!(status(ended), Status::Succeeded);
    }
    assert_eq!(followed, Status::Succeeded);
    // It has its result, and is not run again.
    let before = seen.entries();
    assert_eq!(status(Some(answer(&queue, &task).await)), Status::Succeeded);
    assert_eq!(seen.entries(), before);
    worker.abort();
}

// spec: SAP-4.3-2
#[tokio::test]
async fn one_who_follows_is_told_the_last_nack_of_a_task() {
    let (nats, seen, door) = (Nats::start(), Seen::default(), Arc::<Door>::default());
    let queue = nats.queue(config()).await;
    let task = typed(&ask(1, "test.nowhere").to_string());
    let worker = worker(&queue, &seen, &door);
    assert_eq!(code(answer(&queue, &task).await), ErrorCode::Unauthorized);
    door.0.store(true, Ordering::SeqCst);
    assert_eq!(code(answer(&queue, &task).await), ErrorCode::NotFound);
    let mut told = 0;
    let last = queue.follow(&task, &mut |_| told += 1).await.unwrap();
    assert_eq!((code(last.unwrap()), told), (ErrorCode::NotFound, 1));
    worker.abort();
}
