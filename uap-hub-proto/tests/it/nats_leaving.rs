//! Hubs that leave the queue, or have no room, and the jobs that they give back.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Notify;
use uap_hub_proto::{
    role::hub::{self, Job, JobEvent, Verdict},
    transport::{
        client::{AgentBuilder, AgentHandle},
        nats::{JobQueue, QueueConfig},
        server::{HubHandle, ServerConfig, serve},
    },
};

use crate::nats::{Nats, all_done, echoing, ends, hub, queue_backs, queue_with, submit};

/// A hub whose agent ends no job.
async fn hanging() -> (HubHandle, AgentHandle) {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let agent = AgentBuilder::new("hangs")
        .on_test("echo", |_, _| async { pending().await })
        .start(&hub.url())
        .unwrap();
    (hub, agent)
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_leaves_settles_what_it_has() {
    let nats = Nats::start();
    // Nobody else gets a job by waiting.
    let queue = queue_with(&nats.url, |config| {
        config.with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let jobs = submit(&queue, 20).await;
    let one = hub().await;
    let (leave, mut leaving) = tokio::sync::watch::channel(false);
    let told = Mutex::new(Vec::new());
    let hear = |job, event: &JobEvent| match event {
        JobEvent::Ended(outcome) => told.lock().unwrap().push((job, outcome.verdict)),
        JobEvent::Started { .. } => drop(leave.send_replace(true)),
        _ => {}
    };
    let left = async { drop(leaving.wait_for(|leaving| *leaving).await) };
    let mut leaves = leave.subscribe();
    let drain = async {
        let _ = leaves.wait_for(|leaving| *leaving).await;
        one.0.shutdown(Duration::from_secs(600)).await.unwrap();
    };
    let (done, ()) = tokio::join!(queue.work(&one.0, hear, left), drain);
    done.unwrap();
    let ended = told.into_inner().unwrap();
    assert!(!ended.is_empty(), "some ended in the time for draining");
    for (job, verdict) in ended {
        assert_eq!(verdict, Verdict::Completed);
        assert!(queue.outcome(job).await.unwrap().is_some());
    }
    let two = hub().await;
    tokio::select! {
        done = queue.work(&two.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_give_a_job_back_for_lack_of_room_is_no_attempt() {
    let nats = Nats::start();
    let queue = queue_with(&nats.url, |config| {
        config
            .with_max_deliveries(2)
            .with_ack_wait(Duration::from_secs(600))
            .with_busy_delay(Duration::from_millis(10))
    });
    let queue = queue.await;
    let config = hub::Config::default().with_max_jobs(1);
    let hub = serve(
        ([127, 0, 0, 1], 0).into(),
        ServerConfig::default().with_hub(config),
    );
    let hub = hub.await.unwrap();
    // It waits for an agent that does not come, and fills the hub.
    let filling = hub.submit(Job::test("nothing", vec![])).unwrap();
    let jobs = submit(&queue, 1).await;
    let agent = echoing(&hub);
    hub.wait_for_agents(1).await.unwrap();
    let room = async {
        while queue_backs(&nats.url, jobs[0].0).await < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        filling.cancel().unwrap();
        ends(&queue, &jobs).await
    };
    tokio::select! {
        done = queue.work(&hub, |_, _| {}, pending()) => done.unwrap(),
        () = tokio::time::sleep(Duration::from_secs(300)) => panic!("it did not come back"),
        ended = room => all_done(&jobs, &ended),
    }
    drop(agent);
}

/// Takes jobs until one was started, and leaves with no time for it.
async fn leaves_when_one_started(queue: &JobQueue, hub: &HubHandle) {
    let (started, left) = (Notify::new(), Notify::new());
    let hear = |_, event: &JobEvent| {
        if matches!(event, JobEvent::Started { .. }) {
            started.notify_one();
        }
    };
    let leave = async {
        started.notified().await;
        left.notify_one();
        hub.shutdown(Duration::ZERO).await.unwrap();
    };
    let (done, ()) = tokio::join!(queue.work(hub, hear, left.notified()), leave);
    done.unwrap();
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_hubs_gave_back_when_they_left_was_not_attempted() {
    let nats = Nats::start();
    let queue = queue_with(&nats.url, |config| {
        config
            .with_max_deliveries(1)
            .with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let jobs = submit(&queue, 1).await;
    for _ in 0..3 {
        let (hub, _hangs) = hanging().await;
        tokio::select! {
            () = leaves_when_one_started(&queue, &hub) => {}
            ended = ends(&queue, &jobs) => panic!("it was taken too often: {ended:?}"),
        }
    }
    let last = hub().await;
    tokio::select! {
        done = queue.work(&last.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_does_not_end_in_the_time_for_draining_is_given_back_at_once() {
    let nats = Nats::start();
    let queue = queue_with(&nats.url, |config| {
        config.with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let jobs = submit(&queue, 1).await;
    let (one, _hangs) = hanging().await;
    leaves_when_one_started(&queue, &one).await;
    let two = hub().await;
    tokio::select! {
        done = queue.work(&two.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
}

// spec: HUB-6-2
#[test]
fn a_job_is_given_back_though_the_process_ends_when_all_is_settled() {
    let nats = Nats::start();
    let leaving = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let change = |config: QueueConfig| config.with_ack_wait(Duration::from_secs(600));
    let jobs = {
        let runtime = leaving().unwrap();
        runtime.block_on(async {
            let queue = queue_with(&nats.url, change).await;
            let jobs = submit(&queue, 1).await;
            let (hub, _hangs) = hanging().await;
            let (started, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (starts, leaves, leaver) = (started.clone(), left.clone(), hub.clone());
            let mut leave = tokio::task::JoinSet::new();
            leave.spawn(async move {
                starts.notified().await;
                leaves.notify_one();
                leaver.shutdown(Duration::ZERO).await.unwrap();
            });
            let hear = |_, event: &JobEvent| {
                if matches!(event, JobEvent::Started { .. }) {
                    started.notify_one();
                }
            };
            // Nothing of this runtime runs once this is over.
            queue.work(&hub, hear, left.notified()).await.unwrap();
            jobs
        })
    };
    leaving().unwrap().block_on(async {
        let queue = queue_with(&nats.url, change).await;
        let last = hub().await;
        tokio::select! {
            done = queue.work(&last.0, |_, _| {}, pending()) => done.unwrap(),
            ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
        }
    });
}
