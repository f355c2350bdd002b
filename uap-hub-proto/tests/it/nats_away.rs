//! A server that is away for so long that its client has no room for another request.

use std::{
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use tokio::sync::Notify;
use uap_hub_proto::{
    role::hub::JobEvent,
    transport::{
        client::AgentBuilder,
        nats::{JobQueue, QueueConfig, QueueError},
        server::{ServerConfig, serve},
    },
    wire::TestResult,
};

use crate::nats::{LONG, Nats, all_done, ends, hub, queue_with, submit};

/// More than all bounds together.
const ALL: Duration = LONG.saturating_mul(5);

/// A client that has room for few requests.
async fn narrow(nats: &Nats) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new().client_capacity(8);
    options.connect(&nats.url).await.unwrap()
}

/// Kills the server, and takes all the room that the client has for requests.
async fn cut(nats: &mut Nats, client: &async_nats::Client) {
    nats.kill();
    while client.connection_state() == async_nats::connection::State::Connected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let take = async || client.publish("x", "".into()).await.unwrap();
    while take().now_or_never().is_some() {}
}

/// A job that runs when the server goes away: it ends by itself, or the hub leaves.
async fn runs_while_the_server_is_away(leaves: bool) {
    let mut nats = Nats::start();
    // The server waits for longer than this hub says.
    let other = queue_with(&nats.url, |config| config).await;
    let jobs = submit(&other, 1).await;
    let client = narrow(&nats).await;
    let often = QueueConfig::default().with_ack_wait(Duration::from_millis(30));
    let queue = JobQueue::open(client.clone(), often).await.unwrap();
    let one = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let one = one.await.unwrap();
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let _agent = AgentBuilder::new("held")
        .on_test("echo", move |_, _| {
            let held = held.clone();
            async move {
                held.notified().await;
                Ok(TestResult::completed("told to nobody"))
            }
        })
        .start(&one.url())
        .unwrap();
    let (started, left) = (Notify::new(), Notify::new());
    let told = std::sync::Mutex::new(Vec::new());
    let hear = |_, event: &JobEvent| match event {
        JobEvent::Started { .. } => started.notify_one(),
        JobEvent::Ended(outcome) => told.lock().unwrap().push(outcome.verdict),
        _ => {}
    };
    let away = async {
        started.notified().await;
        cut(&mut nats, &client).await;
        // By then a sign of life waits for room.
        tokio::time::sleep(Duration::from_millis(100)).await;
        match leaves {
            true => {
                left.notify_one();
                one.shutdown(Duration::ZERO).await.unwrap();
            }
            false => gate.notify_one(),
        }
    };
    let working = futures::future::join(queue.work(&one, hear, left.notified()), away);
    let (worked, ()) = tokio::time::timeout(ALL, working)
        .await
        .expect("it returns");
    assert!(matches!(worked, Err(QueueError::Nats(_))), "{worked:?}");
    assert_eq!(
        *told.lock().unwrap(),
        [],
        "an end is stored before it is told"
    );
    nats.run_again();
    let queue = queue_with(&nats.url, |config| config).await;
    let two = hub().await;
    tokio::select! {
        done = queue.work(&two.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ends_while_the_server_is_away_comes_again() {
    runs_while_the_server_is_away(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_leaves_while_the_server_is_away_loses_no_job() {
    runs_while_the_server_is_away(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_asks_for_jobs_while_the_server_is_away_can_leave() {
    let mut nats = Nats::start();
    let client = narrow(&nats).await;
    let queue = JobQueue::open(client.clone(), QueueConfig::default());
    let queue = queue.await.unwrap();
    cut(&mut nats, &client).await;
    let one = hub().await;
    let asks = tokio::time::sleep(Duration::from_millis(100));
    for shutdown in [ready(()).left_future(), asks.right_future()] {
        let worked = tokio::time::timeout(ALL, queue.work(&one.0, |_, _| {}, shutdown)).await;
        worked.expect("it returns").unwrap();
    }
}
