//! A server that is away for so long that its client has no room for another request.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use futures::FutureExt as _;
use futures::future::join;
use sap::transport::nats::Queue;
use sap::transport::{Message, Service};
use sap::{ErrorCode, Status, processor};
use tokio::sync::oneshot;

use super::nats::{Nats, mortal, work};
use super::nats_faults::until_kept;
use super::suite::until;
use super::world::{ByHand, Seen, ask, typed};

/// More than all bounds together.
const LONG: Duration = Duration::from_secs(300);

/// A client that has room for few requests.
async fn narrow(nats: &Nats) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new().client_capacity(8);
    options.connect(&nats.url).await.unwrap()
}

/// Kills the server, and takes all the room that the client has for requests.
async fn cut(nats: &mut Nats, client: &async_nats::Client) {
    nats.kill();
    while client.connection_state() == State::Connected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let take = async || client.publish("x", "".into()).await.unwrap();
    while take().now_or_never().is_some() {}
}

#[tokio::test]
async fn a_task_ends_in_its_time_while_the_server_is_away_and_its_end_is_told_later() {
    let (mut nats, seen, clock) = (Nats::start(), Seen::default(), ByHand::new());
    // The server waits for longer than this worker says.
    nats.queue(mortal()).await;
    let client = narrow(&nats).await;
    let often = mortal().with_ack_wait(Duration::from_millis(30));
    let queue = Queue::open(client.clone(), often).await.unwrap();
    let task = ask(1, "test.hang").to_string();
    nats.put(&task, &[]).await;
    let processor = Arc::new(seen.processor(processor::Config::default()));
    let service = Service::new(processor, Arc::new(clock.clone()));
    let (leave, left) = oneshot::channel();
    let is_written = |what: &str| seen.written(0).contains(&what.to_owned());
    let away = async {
        until(|| is_written("RUNNING")).await;
        cut(&mut nats, &client).await;
        // By then a sign of life waits for room.
        tokio::time::sleep(Duration::from_millis(100)).await;
        clock.go_on(Duration::from_secs(7_200));
        until(|| is_written("FAILED")).await;
        leave.send(()).unwrap();
    };
    let working = queue.work(&service, async { left.await.unwrap() });
    let (worked, ()) = tokio::time::timeout(LONG, join(working, away))
        .await
        .expect("the worker ends");
    worked.unwrap();
    nats.run_again();
    let queue = nats.queue(mortal()).await;
    let worker = work(&queue, service);
    until_kept(&nats, "sap_tasks", 0).await;
    let Some(Message::Result(result)) = queue.status(&typed(&task)).await.unwrap() else {
        panic!("a result")
    };
    assert_eq!(
        (&result.status, result.error_code()),
        (&Status::Failed, Some(&ErrorCode::Timeout))
    );
    worker.abort();
}

#[tokio::test]
async fn a_worker_that_begins_while_the_server_is_away_can_be_asked_to_end() {
    let mut nats = Nats::start();
    let client = narrow(&nats).await;
    let queue = Queue::open(client.clone(), mortal()).await.unwrap();
    cut(&mut nats, &client).await;
    let service = Seen::default().service_of(processor::Config::default());
    let worked = tokio::time::timeout(LONG, queue.work(&service, async {})).await;
    worked.expect("the worker ends").unwrap();
}
