//! What one message, or one task, must not do to a worker on NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sap::processor;
use sap::transport::nats::Queue;
use sap::transport::{Message, SendError, Service};
use sap::{ErrorCode, Status, Task, TaskResult};
use serde_json::json;
use ubos_common::driver::Sleep;
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Profile;

use super::nats::{Nats, OnNats, config, mortal, work};
use super::suite::{Harness as _, until};
use super::world::{ByHand, Real, Seen, ask, typed};
use crate::samples::with;

/// What the server takes in one message, as it is set by default.
const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes of headers that the server takes.
const MAX_HEADERS: usize = 64 << 10;

pub(super) async fn until_kept(nats: &Nats, stream: &str, messages: u64) {
    for _ in 0..6_000 {
        if nats.kept(stream).await == messages {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{stream} does not come to {messages}");
}

fn text_of(task: &Task) -> String {
    String::from_utf8(task.encode()).unwrap()
}

async fn succeeds(on: &OnNats, number: u16) {
    let (_, answer) = on.send(&typed(&ask(number, "test.echo").to_string())).await;
    let Ok(Some(Message::Result(result))) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(result.status, Status::Succeeded);
}

// spec: SAP-10-4
#[tokio::test]
async fn a_dead_letter_too_long_to_be_buried_whole_leaves_its_digest() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default()).await;
    let garbage = "x".repeat(MAX_PAYLOAD);
    on.nats.put(&garbage, &[]).await;
    until_kept(&on.nats, "sap_dead", 1).await;
    until_kept(&on.nats, "sap_tasks", 0).await;
    assert_eq!(seen.written(0), ["nack"]);
    let dead = on.nats.stream("sap_dead").await;
    let dead = dead
        .get_last_raw_message_by_subject("sap.dead")
        .await
        .unwrap();
    let header = |name| {
        dead.headers
            .get(name)
            .map(|value| value.as_str().to_owned())
    };
    let digest = ubos_common::canon::Digest::of_bytes(garbage.as_bytes()).to_string();
    assert_eq!(header("Sap-Why").as_deref(), Some("no task id"));
    assert_eq!(header("Sap-Body"), Some(digest));
    assert!(dead.payload.is_empty());
    // Headers have a bound of their own.
    let long = "y".repeat(MAX_HEADERS - 30);
    on.nats.put("x", &[("Long", &long)]).await;
    until_kept(&on.nats, "sap_dead", 2).await;
    until_kept(&on.nats, "sap_tasks", 0).await;
    succeeds(&on, 1).await;
}

/// What comes of a task of so many bytes.
async fn result_of(on: &OnNats, number: u16, capability: &str, bytes: usize) -> TaskResult {
    let task = |text: usize| {
        let payload = json!({"text": "x".repeat(text)});
        with(ask(number, capability), "/payload", Some(payload)).to_string()
    };
    let task = task(bytes - task(0).len());
    match on.send(&typed(&task)).await.1 {
        Ok(Some(Message::Result(result))) => *result,
        other => panic!("{other:?}"),
    }
}

// spec: SAP-10-4, SAP-5-1
#[tokio::test]
async fn a_result_longer_than_the_server_takes_ends_its_task_failed() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default()).await;
    // The result has the task in it, and more.
    let result = result_of(&on, 1, "test.echo", MAX_PAYLOAD - 500).await;
    assert_eq!(
        (&result.status, result.error_code()),
        (&Status::Failed, Some(&ErrorCode::Unprocessable))
    );
    until_kept(&on.nats, "sap_tasks", 0).await;
    // A worker that is slow may have it twice.
    let warned = std::mem::take(&mut *seen.warnings.lock().unwrap());
    assert!(!warned.is_empty());
    // A part on the way is left out, and the end comes.
    let result = result_of(&on, 2, "test.part", MAX_PAYLOAD - 500).await;
    assert_eq!(result.status, Status::Succeeded);
    let warned = seen.warnings.lock().unwrap().join(", ");
    assert!(
        warned.contains("longer than the transport takes"),
        "{warned}"
    );
    succeeds(&on, 3).await;
}

/// Has the stream of what is said keep only these subjects: the server then takes nothing on another one.
async fn keep(nats: &Nats, subjects: &[String]) {
    let out = nats.stream("sap_out").await;
    let mut config = out.cached_info().config.clone();
    config.subjects = subjects.to_vec();
    config.subjects.push("sap.cancel.>".into());
    nats.context().await.update_stream(config).await.unwrap();
}

fn all() -> Vec<String> {
    vec!["sap.out.>".into()]
}

// spec: SAP-10-4
#[tokio::test]
async fn a_cancel_that_the_server_does_not_take_is_an_error() {
    let nats = Nats::start();
    let queue = nats.queue(config()).await;
    let mut stream = nats.stream("sap_out").await.cached_info().config.clone();
    stream.subjects = all();
    nats.context().await.update_stream(stream).await.unwrap();
    let task = typed(&ask(1, "test.echo").to_string());
    let refused = queue.cancel(&task).await;
    assert!(matches!(refused, Err(SendError::Carrier(_))), "{refused:?}");
}

// spec: SAP-10-4, SAP-5-2
#[tokio::test]
async fn a_task_that_the_server_takes_nothing_of_is_given_back_and_the_others_go_on() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default()).await;
    let [gate, echo] = [(1, "test.gate"), (2, "test.echo")].map(|(number, capability)| {
        let task = ask(number, capability);
        typed(&task.to_string())
    });
    let fault = async {
        until(|| seen.entries() == 3).await;
        keep(&on.nats, &[format!("sap.out.{}.>", gate.task_id)]).await;
        on.nats.put(&text_of(&echo), &[]).await;
        until(|| !seen.warnings.lock().unwrap().is_empty()).await;
        keep(&on.nats, &all()).await;
        let answer = on.send(&echo).await.1;
        seen.gate.store(true, Ordering::SeqCst);
        answer
    };
    let ((_, gate), echo) = futures::future::join(on.send(&gate), fault).await;
    for answer in [gate, echo] {
        let Ok(Some(Message::Result(result))) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(result.status, Status::Succeeded);
    }
    assert!(!seen.written(0).contains(&"FAILED".to_owned()));
    until_kept(&on.nats, "sap_tasks", 0).await;
}

// spec: SAP-10-4, SAP-5-2
#[tokio::test]
async fn a_worker_that_is_asked_to_end_lets_all_end_though_one_fails() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let tasks = [1, 2].map(|number| typed(&ask(number, "test.gate").to_string()));
    for task in &tasks {
        nats.put(&text_of(task), &[]).await;
    }
    let shutdown = async {
        until(|| seen.entries() == 6).await;
        keep(&nats, &[format!("sap.out.{}.>", tasks[0].task_id)]).await;
        seen.gate.store(true, Ordering::SeqCst);
    };
    let service = seen.service_of(processor::Config::default());
    queue.work(&service, shutdown).await.unwrap();
    keep(&nats, &all()).await;
    assert_eq!(seen.written(6), ["SUCCEEDED"; 2]);
    assert_eq!(nats.kept("sap_tasks").await, 1);
    // The other comes again, and has its end from the transcript.
    let worker = work(&queue, service);
    until_kept(&nats, "sap_tasks", 0).await;
    let answer = queue.status(&tasks[1]).await.unwrap();
    assert!(
        matches!(&answer, Some(Message::Result(result)) if result.status == Status::Succeeded),
        "{answer:?}"
    );
    assert_eq!(seen.entries(), 8);
    worker.abort();
}

// spec: SAP-10-4, SAP-5-2
#[tokio::test]
async fn a_part_on_the_way_that_is_lost_costs_no_end() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let task = typed(&ask(1, "test.gate").to_string());
    nats.put(&text_of(&task), &[]).await;
    let told = |kind: &str| format!("sap.out.{}.*.{kind}", task.task_id);
    keep(&nats, &["attempt", "result"].map(told)).await;
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    until(|| !seen.warnings.lock().unwrap().is_empty()).await;
    seen.gate.store(true, Ordering::SeqCst);
    until_kept(&nats, "sap_tasks", 0).await;
    let written = seen.written(0);
    assert_eq!(written, ["task", "RUNNING", "RUNNING", "SUCCEEDED"]);
    worker.abort();
}

/// A clock that panics the first times.
struct Faulty(Real, AtomicUsize);

impl Sleep for Faulty {
    fn now(&self) -> Now {
        let less = |left: usize| left.checked_sub(1);
        let left = self
            .1
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        assert!(left.is_err(), "a clock that does not work yet");
        self.0.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        self.0.sleep_until(deadline)
    }
}

// spec: SAP-10-4
#[tokio::test]
async fn a_panic_beside_the_hooks_gives_its_task_back_and_ends_no_worker() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let processor = seen.processor(processor::Config::default());
    let clock = Faulty(Real::default(), AtomicUsize::new(1));
    let worker = work(&queue, Service::new(Arc::new(processor), Arc::new(clock)));
    let on = OnNats {
        queue,
        nats,
        worker,
    };
    succeeds(&on, 1).await;
    assert_eq!(seen.calls(), 1);
}

// spec: SAP-10-4, SAP-4.3-2
#[tokio::test]
async fn a_task_given_up_by_a_stricter_worker_is_a_dead_letter_and_a_nack() {
    let (nats, first, second) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(mortal().with_max_attempts(1)).await;
    let pressure = "/constitutionalContext/pressureLevel";
    let task = with(ask(1, "test.hang"), pressure, None);
    nats.put(&task.to_string(), &[]).await;
    let lenient = processor::Config::default().with_options(Profile::Lenient.into());
    let worker = work(&queue, first.service_of(lenient));
    until(|| first.entries() == 2).await;
    worker.abort();
    // What is valid for the first worker is not for the second.
    let strict = processor::Config::default();
    let worker = work(&queue, second.service_of(strict));
    let Message::Nack(nack) = nats.said(&task, "nack").await else {
        panic!("turned away")
    };
    assert_eq!(nack.code, ErrorCode::InvalidTask);
    until_kept(&nats, "sap_tasks", 0).await;
    let dead = nats.stream("sap_dead").await;
    let dead = dead.get_last_raw_message_by_subject("sap.dead").await;
    let dead = dead.unwrap();
    let why = dead.headers.get("Sap-Why").map(|why| why.as_str());
    assert_eq!(why, Some("begun 1 times"));
    assert_eq!(dead.payload, task.to_string());
    assert_eq!(second.written(0), ["nack"]);
    worker.abort();
}

/// It comes again once another server has what this one stored.
// spec: SAP-10-4
#[tokio::test]
async fn a_task_that_can_be_neither_answered_nor_given_back_is_told_of_twice() {
    let (mut nats, seen) = (Nats::start(), Seen::default());
    let options = async_nats::ConnectOptions::new().max_reconnects(1);
    let client = options.connect(&nats.url).await.unwrap();
    let queue = Queue::open(client.clone(), config()).await.unwrap();
    let service = seen.service_of(processor::Config::default());
    let task = ask(1, "test.gate");
    nats.put(&task.to_string(), &[]).await;
    let working = queue.work(&service, std::future::pending());
    let losing = async {
        // All that is said on the way is stored.
        loop {
            match nats.said(&task, "progress").await {
                Message::Result(said) if said.output.is_some() => break,
                _ => {}
            }
        }
        nats.child.kill().unwrap();
        nats.child.wait().unwrap();
        // The client has given the server up.
        let gives_up = async {
            while client.publish("nobody", "".into()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // The port may be another server's by now.
        let gave_up = tokio::time::timeout(Duration::from_secs(300), gives_up).await;
        gave_up.expect("it has given the server up");
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (worked, ()) = futures::future::join(working, losing).await;
    assert!(worked.is_err(), "no more tasks can be had");
    assert_eq!(seen.written(3), ["SUCCEEDED"]);
    let failed = "the transport failed at a task";
    let warned = seen.warnings.lock().unwrap().clone();
    assert_eq!(
        warned.iter().filter(|word| *word == failed).count(),
        2,
        "{warned:?}"
    );
}

// spec: SAP-10-4
#[tokio::test]
async fn tasks_that_wait_have_a_bound_of_bytes() {
    let nats = Nats::start();
    let queue = nats.queue(config().with_max_task_bytes(100_000)).await;
    let sent = async |number| {
        let long = with(
            ask(number, "test.echo"),
            "/payload",
            Some(json!({"text": "x".repeat(40_000)})),
        );
        queue.send(&typed(&long.to_string()), &mut |_| {}).await
    };
    // Two wait for a worker, who never comes; there is no room for a third.
    for number in [1, 2] {
        tokio::select! {
            answer = sent(number) => panic!("nobody works: {answer:?}"),
            () = until_kept(&nats, "sap_tasks", number.into()) => {}
        }
    }
    let third = sent(3).await;
    assert_eq!(nats.kept("sap_tasks").await, 2);
    assert!(matches!(third, Err(SendError::Carrier(_))), "{third:?}");
}

// spec: SAP-10-4
#[tokio::test]
async fn a_copy_of_a_task_that_runs_is_no_attempt() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(mortal().with_max_attempts(3)).await;
    let task = ask(1, "test.hang").to_string();
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    nats.put(&task, &[]).await;
    until(|| seen.entries() == 2).await;
    nats.put(&task, &[]).await;
    let said = async || {
        let out = nats.stream("sap_out").await;
        out.cached_info().state.last_sequence
    };
    // The copy comes back often enough to have used up all attempts. It is claimed, told how far the task is, and given back.
    let wanted = said().await + 12;
    let comes_back = async {
        while said().await < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let came_back = tokio::time::timeout(Duration::from_secs(60), comes_back).await;
    came_back.expect("it is begun no more");
    worker.abort();
    let next = Seen::default();
    let worker = work(&queue, next.service_of(processor::Config::default()));
    until(|| next.entries() == 2).await;
    assert_eq!(nats.kept("sap_dead").await, 0);
    worker.abort();
}

// spec: SAP-10-4
#[tokio::test]
async fn a_copy_of_a_task_that_runs_on_another_worker_is_not_given_up() {
    let (nats, seen, next) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(config().with_max_attempts(1)).await;
    let task = ask(1, "test.gate");
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    nats.put(&task.to_string(), &[]).await;
    until(|| seen.entries() == 3).await;
    let other = work(&queue, next.service_of(processor::Config::default()));
    nats.put(&task.to_string(), &[]).await;
    // Both workers have had the copy by then.
    let tasks = nats.stream("sap_tasks").await;
    let delivered = async || {
        let workers = tasks.consumer_info("sap_workers").await.unwrap();
        workers.delivered.consumer_sequence
    };
    let wanted = delivered().await + 40;
    let comes_back = async {
        while delivered().await < wanted && nats.kept("sap_dead").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let came_back = tokio::time::timeout(Duration::from_secs(60), comes_back).await;
    came_back.expect("it comes back again and again");
    assert_eq!(nats.kept("sap_dead").await, 0);
    seen.gate.store(true, Ordering::SeqCst);
    let Message::Result(result) = nats.said(&task, "result").await else {
        panic!("a result")
    };
    assert_eq!(result.status, Status::Succeeded);
    // The copy is answered by that result.
    until_kept(&nats, "sap_tasks", 0).await;
    assert_eq!(next.written(0), Vec::<String>::new());
    worker.abort();
    other.abort();
}

#[tokio::test]
async fn a_copy_of_a_task_is_given_up_where_the_delivery_that_began_it_is_gone() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config().with_max_attempts(1)).await;
    let task = ask(1, "test.hang");
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    nats.put(&task.to_string(), &[]).await;
    until(|| seen.entries() == 2).await;
    worker.abort();
    nats.stream("sap_tasks")
        .await
        .delete_message(1)
        .await
        .unwrap();
    nats.put(&task.to_string(), &[]).await;
    let worker = work(
        &queue,
        Seen::default().service_of(processor::Config::default()),
    );
    until_kept(&nats, "sap_dead", 1).await;
    until_kept(&nats, "sap_tasks", 0).await;
    worker.abort();
}

// spec: SAP-10-4, SAP-5-8
#[tokio::test]
async fn a_task_that_finds_no_place_in_its_time_is_turned_away() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let full = processor::Config::default().with_max_running(1);
    let full = full.with_default_time(Duration::from_secs(1));
    let worker = work(&queue, seen.service_of(full));
    let deadline = json!({"deadline": "2999-01-01T00:00:00Z"});
    let holds = with(ask(1, "test.gate"), "/telemetry", Some(deadline.clone()));
    nats.put(&holds.to_string(), &[]).await;
    until(|| seen.entries() == 3).await;
    // One has its time from when it was sent; the other's deadline was over before.
    let late = with(
        ask(3, "test.echo"),
        "/telemetry",
        Some(json!({"deadline": "2025-09-28T10:15:24Z"})),
    );
    for task in [ask(2, "test.echo"), late] {
        nats.put(&task.to_string(), &[]).await;
        let Message::Nack(nack) = nats.said(&task, "nack").await else {
            panic!("turned away")
        };
        assert_eq!(nack.code, ErrorCode::RateLimit);
    }
    // One that has time left waits for its place.
    let waits = with(ask(4, "test.echo"), "/telemetry", Some(deadline));
    nats.put(&waits.to_string(), &[]).await;
    seen.gate.store(true, Ordering::SeqCst);
    let answer = nats.said(&waits, "result").await;
    assert!(
        matches!(&answer, Message::Result(result) if result.status == Status::Succeeded),
        "{answer:?}"
    );
    until_kept(&nats, "sap_tasks", 0).await;
    worker.abort();
}

#[tokio::test]
async fn a_task_that_waits_for_a_place_is_not_late_in_the_second_of_its_deadline() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let full = processor::Config::default().with_max_running(1);
    let processor = Arc::new(seen.processor(full));
    let worker = work(&queue, Service::new(processor, Arc::new(ByHand::new())));
    nats.put(&ask(1, "test.gate").to_string(), &[]).await;
    until(|| seen.entries() == 3).await;
    // The clock stands at 10:15:23.
    let [waits, late] = [(2, 23), (3, 22)].map(|(number, second)| {
        let deadline = json!({"deadline": format!("2025-09-28T10:15:{second}Z")});
        with(ask(number, "test.echo"), "/telemetry", Some(deadline))
    });
    for task in [&waits, &late] {
        nats.put(&task.to_string(), &[]).await;
    }
    nats.said(&late, "nack").await;
    seen.gate.store(true, Ordering::SeqCst);
    let answer = nats.said(&waits, "result").await;
    assert!(matches!(&answer, Message::Result(it) if it.status == Status::Succeeded));
    worker.abort();
}

// spec: SAP-10-4
#[tokio::test]
async fn tasks_that_wait_to_come_again_keep_none_from_its_turn() {
    let nats = Nats::start();
    let _queue = nats.queue(config()).await;
    let tasks = nats.stream("sap_tasks").await;
    let workers = tasks.consumer_info("sap_workers").await.unwrap();
    // All that the stream has room for.
    assert_eq!(
        workers.config.max_ack_pending,
        tasks.cached_info().config.max_messages
    );
}
