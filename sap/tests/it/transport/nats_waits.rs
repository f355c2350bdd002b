//! How long a client of a queue waits, and what it sends again.

use std::sync::Arc;
use std::time::Duration;

use sap::processor;
use sap::transport::nats::Queue;
use sap::transport::{Message, SendError};
use sap::{Status, Task};
use serde_json::json;

use super::nats::{Nats, config, work};
use super::nats_faults::until_kept;
use super::world::{ByHand, Seen, ask, typed};
use crate::samples::with;

/// What comes of a task that nobody works on. The clock goes on once it is in the queue.
async fn sent(
    nats: &Nats,
    (queue, clock): (&Queue, &ByHand),
    task: &Task,
    follows: bool,
) -> SendError {
    let mut ignored = |_: &Message| {};
    let asking = async {
        match follows {
            false => queue.send(task, &mut ignored).await,
            true => queue.follow(task, &mut ignored).await,
        }
    };
    let running = async {
        until_kept(nats, "sap_tasks", 1).await;
        clock.run().await
    };
    let answer = tokio::select! {
        biased;
        answer = asking => answer,
        _ = running => panic!("never"),
    };
    answer.unwrap_err()
}

fn no_answer(error: &SendError) -> &str {
    match error {
        SendError::NoAnswer { what } => what,
        error => panic!("{error:?}"),
    }
}

// spec: SAP-5-8, SAP-10-4
#[tokio::test]
async fn a_client_gives_a_queue_up_where_nobody_works() {
    let (nats, clock) = (Nats::start(), ByHand::new());
    let queue = nats.queue(config()).await;
    let queue = queue.with_clock(Arc::new(clock.clone()));
    let hasty = queue.clone().with_patience(Duration::from_secs(50));
    let timed = queue.clone().with_default_time(Duration::from_secs(10));
    let days = 7 * 24 * 3_600;
    let deadline = json!({"deadline": "2025-09-28T10:15:24Z"});
    let over = with(ask(1, "test.echo"), "/telemetry", Some(deadline));
    let task = typed(&ask(2, "test.echo").to_string());
    for (queue, follows, what, wanted) in [
        (&hasty, false, "longer than the patience", 50),
        (&hasty, true, "longer than the patience", 50),
        (&timed, false, "no end", 10 + 300),
        (&timed, true, "no end", 10 + 300),
    ] {
        let begun = clock.gone();
        let error = sent(&nats, (queue, &clock), &task, follows).await;
        assert!(no_answer(&error).contains(what), "{error:?}");
        assert_eq!((clock.gone() - begun).as_secs(), wanted);
        // It stays there for whoever begins to work.
        assert_eq!(nats.kept("sap_tasks").await, 1);
    }
    // The deadline's own second is in time, and is over at the second time.
    let (over, begun) = (typed(&over.to_string()), clock.gone());
    let mut ignored = |_: &Message| {};
    let over = queue.send(&over, &mut ignored);
    let error = tokio::select! {
        biased;
        answer = over => answer.unwrap_err(),
        _ = clock.run() => panic!("never"),
    };
    assert!(no_answer(&error).contains("no end"), "{error:?}");
    assert_eq!((clock.gone() - begun).as_secs(), 300);
    // Where nothing is set, it waits as long as what is said is kept.
    let waited = async {
        let mut ignored = |_: &Message| {};
        let mut waiting = std::pin::pin!(queue.send(&task, &mut ignored));
        let begun = clock.gone();
        loop {
            let asked = futures::poll!(&mut waiting);
            if let std::task::Poll::Ready(answer) = asked {
                no_answer(&answer.unwrap_err());
                return (clock.gone() - begun).as_secs();
            }
            tokio::task::yield_now().await;
            let rest = days - 1 - (clock.gone() - begun).as_secs();
            clock.go_on(Duration::from_secs(rest.max(1)));
        }
    };
    assert_eq!(waited.await, days);
}

// spec: SAP-4.3-3, SAP-5-10, SAP-10-4
#[tokio::test]
async fn a_client_sends_again_what_nobody_answers_and_it_runs_once() {
    let (nats, clock, seen) = (Nats::start(), ByHand::new(), Seen::default());
    let queue = nats.queue(config()).await;
    let client = queue.clone().with_clock(Arc::new(clock.clone()));
    let client = client
        .with_patience(Duration::from_secs(50))
        .with_resends(2);
    let task = typed(&ask(1, "test.echo").to_string());
    let mut told = Vec::new();
    let mut note = |message: &Message| told.push(message.clone());
    let beginning = async {
        for copies in 1..=3 {
            until_kept(&nats, "sap_tasks", copies).await;
            if copies < 3 {
                clock.go_on(Duration::from_secs(50));
            }
        }
        Some(work(&queue, seen.service_of(processor::Config::default())))
    };
    let (answer, worker) = futures::future::join(client.send(&task, &mut note), beginning).await;
    let Ok(Some(Message::Result(result))) = &answer else {
        panic!("{answer:?}")
    };
    assert_eq!(result.status, Status::Succeeded);
    // Ack, RUNNING and the end, each once, however often it is in the queue.
    assert_eq!(told.len(), 3);
    until_kept(&nats, "sap_tasks", 0).await;
    assert_eq!((seen.calls(), nats.kept("sap_dead").await), (1, 0));
    worker.unwrap().abort();
}

/// Of two ids, or signatures, nobody knows which one is meant.
// spec: SAP-10-4
#[tokio::test]
async fn a_header_that_comes_twice_must_agree_each_time() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    let context = nats.context().await;
    for (number, name) in [(1, "X-Correlation-Id"), (2, "Sap-Task-Id")] {
        let task = ask(number, "test.echo");
        let member = if name == "Sap-Task-Id" {
            "taskId"
        } else {
            "correlationId"
        };
        let mut headers = async_nats::HeaderMap::new();
        headers.append(name, task[member].as_str().unwrap());
        headers.append(name, "00000000-0000-0000-0000-000000000000");
        let body = task.to_string().into();
        let put = context.publish_with_headers("sap.task", headers, body);
        put.await.unwrap().await.unwrap();
        let said = nats.said(&task, "nack").await;
        assert!(matches!(said, Message::Nack(_)), "{said:?}");
    }
    assert_eq!(seen.calls(), 0);
    worker.abort();
}
