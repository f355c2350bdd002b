//! NATS JetStream, on a server that each test starts for itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::{self, stream::Stream};
use sap::processor::{self, Context, Outcome, Processor};
use sap::transport::nats::{Config, Queue, QueueError};
use sap::transport::{Message, SendError, Service};
use sap::validate::Options;
use sap::{ErrorCode, Producer, ProducerKind, Status, Task};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use ubos_common::trace_context::TraceContext;

use super::nats_faults::until_kept;
use super::suite::{self, Harness, until};
use super::world::{Real, Seen, ask, text, typed};
use crate::samples::with;

/// A server of its own, on a port that it picks itself.
pub(super) struct Nats {
    pub(super) child: Child,
    pub(super) url: String,
    folder: tempfile::TempDir,
}

impl Nats {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (child, url) = Self::run(folder.path(), "-1");
        Self { child, url, folder }
    }

    fn run(folder: &Path, port: &str) -> (Child, String) {
        let ports = tempfile::tempdir().unwrap();
        #[expect(
            clippy::zombie_processes,
            reason = "its owner kills it and waits for it"
        )]
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", port, "--ports_file_dir"])
            .arg(ports.path())
            .arg("-sd")
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need a nats-server in the path: apt-get install nats-server");
        for _ in 0..3_000 {
            let mut files = std::fs::read_dir(ports.path()).unwrap();
            let text = files
                .next()
                .map(|file| std::fs::read(file.unwrap().path()).unwrap());
            if let Some(Ok(ports)) = text.map(|text| serde_json::from_slice::<Value>(&text)) {
                return (child, ports["nats"][0].as_str().unwrap().to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the nats-server does not say its port");
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server that was killed, with all that it stored, on another port.
    pub(super) fn run_again(&mut self) {
        (self.child, self.url) = Self::run(self.folder.path(), "-1");
    }

    pub(super) async fn open(&self, config: Config) -> Result<Queue, QueueError> {
        Queue::open(self.client().await, config).await
    }

    pub(super) async fn queue(&self, config: Config) -> Queue {
        self.open(config).await.unwrap()
    }

    pub(super) async fn context(&self) -> jetstream::Context {
        let mut context = jetstream::new(self.client().await);
        context.set_timeout(PATIENCE);
        context
    }

    /// One that waits for a server that has little of the machine.
    async fn client(&self) -> async_nats::Client {
        let options = async_nats::ConnectOptions::new();
        let options = options.connection_timeout(PATIENCE);
        let options = options.request_timeout(Some(PATIENCE));
        options.connect(&self.url).await.unwrap()
    }

    pub(super) async fn stream(&self, name: &str) -> Stream {
        self.context().await.get_stream(name).await.unwrap()
    }

    pub(super) async fn put(&self, body: &str, headers: &[(&str, &str)]) {
        self.put_on("sap.task", body, headers).await;
    }

    pub(super) async fn put_on(&self, subject: &str, body: &str, headers: &[(&str, &str)]) {
        let mut all = async_nats::HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, *value);
        }
        let body = body.to_owned().into();
        let context = self.context().await;
        let put = context.publish_with_headers(subject.to_owned(), all, body);
        put.await.unwrap().await.unwrap();
    }

    pub(super) async fn said(&self, task: &Value, kind: &str) -> Message {
        let out = self.stream("sap_out").await;
        let issuer = task["issuer"]["agentId"].as_str().unwrap_or_default();
        let issuer = ubos_common::canon::Digest::of_bytes(issuer.as_bytes()).to_string();
        let (id, issuer) = (task["taskId"].as_str().unwrap(), &issuer[..16]);
        let subject = format!("sap.out.{id}.{issuer}.{kind}");
        for _ in 0..6_000 {
            if let Ok(said) = out.get_last_raw_message_by_subject(&subject).await {
                return Message::decode(&said.payload, &Options::default()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nothing is said")
    }

    pub(super) async fn kept(&self, name: &str) -> u64 {
        self.stream(name)
            .await
            .get_info()
            .await
            .unwrap()
            .state
            .messages
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// For what a server does at once where it has the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// For workers that live: a task comes again where one that has little of the machine is silent for longer.
pub(super) fn config() -> Config {
    Config::default()
        .with_ack_wait(Duration::from_secs(30))
        .with_busy_delay(Duration::from_millis(50))
}

/// For workers that die: the next has the task soon.
pub(super) fn mortal() -> Config {
    config().with_ack_wait(Duration::from_secs(2))
}

pub(super) fn work(queue: &Queue, service: Service) -> JoinHandle<()> {
    let queue = queue.clone();
    #[expect(clippy::disallowed_methods, reason = "a worker beside the test")]
    tokio::spawn(async move {
        queue.work(&service, std::future::pending()).await.unwrap();
    })
}

pub(super) struct OnNats {
    pub(super) queue: Queue,
    pub(super) nats: Nats,
    pub(super) worker: JoinHandle<()>,
}

impl Drop for OnNats {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

impl Harness for OnNats {
    const TALKS: bool = true;
    const WAITS: bool = true;

    async fn start(seen: &Seen, processor: processor::Config) -> Self {
        let nats = Nats::start();
        let queue = nats.queue(config()).await;
        let worker = work(&queue, seen.service_of(processor));
        Self {
            queue,
            nats,
            worker,
        }
    }

    async fn send(&self, task: &Task) -> (Vec<Message>, Result<Option<Message>, SendError>) {
        let mut told = Vec::new();
        let answer = self
            .queue
            .send(task, &mut |message| told.push(message.clone()))
            .await;
        (told, answer)
    }

    fn trace(&mut self, trace: TraceContext) -> bool {
        self.queue = self.queue.clone().with_trace(trace);
        true
    }

    async fn status(&self, task: &Task) -> Option<Message> {
        self.queue.status(task).await.unwrap()
    }

    async fn cancel(&self, task: &Task) -> Option<Message> {
        self.queue.cancel(task).await.unwrap()
    }

    async fn follow(
        &self,
        task: &Task,
        told: &mut (dyn FnMut(&Message) + Send),
    ) -> Option<Message> {
        self.queue.follow(task, told).await.unwrap()
    }

    async fn raw(&self, bytes: &str) -> Message {
        self.nats.put(bytes, &[]).await;
        self.nats
            .said(&serde_json::from_str(bytes).unwrap(), "nack")
            .await
    }
}

// spec: SAP-1-1, SAP-4.1-16, SAP-4.1-17, SAP-4.3-1, SAP-4.3-2, SAP-4.3-3, SAP-5-1, SAP-5-2, SAP-5-9, SAP-5-10
#[tokio::test]
async fn the_suite_holds() {
    suite::run::<OnNats>().await;
}

/// An agent whose `test.echo` first behaves otherwise: it hangs, as one does whose worker is about to die.
fn fragile(seen: &Seen, hangs: bool) -> Service {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let calls = Arc::clone(&seen.calls);
    let processor = Processor::new(
        producer,
        Arc::new(processor::AllowAll),
        seen.log.clone(),
        processor::Config::default(),
    )
    .unwrap()
    .handle("test.echo".parse().unwrap(), move |_: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::new(text("1")))
        }
    });
    Service::new(Arc::new(processor), Arc::new(Real::default()))
}

// spec: SAP-10-4, SAP-4.3-3
#[tokio::test]
async fn a_worker_that_is_killed_loses_nothing() {
    let (nats, seen, next) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(mortal()).await;
    let task = typed(&ask(1, "test.echo").to_string());
    let (client, mut told) = (queue.clone(), Vec::new());
    let mut tell = |message: &Message| told.push(message.clone());
    let answer = client.send(&task, &mut tell);
    let workers = async {
        let first = work(&queue, fragile(&seen, true));
        until(|| seen.calls() == 1).await;
        first.abort();
        assert_eq!(nats.kept("sap_tasks").await, 1);
        Some(work(&queue, fragile(&next, false)))
    };
    let (answer, second) = futures::future::join(answer, workers).await;
    let Some(Message::Result(result)) = answer.unwrap() else {
        panic!("a result")
    };
    assert_eq!((result.status, next.calls()), (Status::Succeeded, 1));
    // The second Ack is not told.
    let acks = told
        .iter()
        .filter(|message| matches!(message, Message::Ack(_)));
    assert_eq!(acks.count(), 1);
    // One stored result; the task is gone from the queue once that is there.
    let subject = format!("sap.out.{}.{A_PRIME}.result", task.task_id);
    let out = nats.stream("sap_out").await;
    let mut stored = out.info_with_subjects(&subject).await.unwrap();
    use futures::TryStreamExt as _;
    assert_eq!(stored.try_next().await.unwrap(), Some((subject, 1)));
    until_kept(&nats, "sap_tasks", 0).await;
    // Delivered again, past what the server itself notices, to a worker that never saw it: it is not run again.
    second.unwrap().abort();
    let last = Seen::default();
    let worker = work(&queue, fragile(&last, false));
    let again = OnNats {
        queue,
        nats,
        worker,
    };
    again
        .nats
        .put(std::str::from_utf8(&task.encode()).unwrap(), &[])
        .await;
    let (_, answer) = again.send(&task).await;
    assert!(matches!(answer, Ok(Some(Message::Result(_)))));
    until_kept(&again.nats, "sap_tasks", 0).await;
    assert_eq!(last.calls(), 0);
}

// spec: SAP-10-4, SAP-5-2
#[tokio::test]
async fn what_is_begun_too_often_is_a_dead_letter_and_has_a_result() {
    let (nats, seen, last) = (Nats::start(), Seen::default(), Seen::default());
    let queue = nats.queue(mortal().with_max_attempts(2)).await;
    let task = typed(&ask(1, "test.echo").to_string());
    let client = queue.clone();
    let mut ignored = |_: &Message| {};
    let killing = async {
        for calls in 1..=2 {
            let worker = work(&queue, fragile(&seen, true));
            until(|| seen.calls() == calls).await;
            worker.abort();
        }
        Some(work(&queue, fragile(&last, true)))
    };
    let (answer, worker) = futures::future::join(client.send(&task, &mut ignored), killing).await;
    let Some(Message::Result(result)) = answer.unwrap() else {
        panic!("a result")
    };
    assert_eq!(
        (&result.status, result.error_code()),
        (&Status::Failed, Some(&ErrorCode::Internal))
    );
    assert_eq!((seen.calls(), nats.kept("sap_dead").await), (2, 1));
    // The worker that gives it up takes it first, and does not run it.
    let written = (last.calls(), last.written(0));
    assert_eq!(written, (0, vec!["task".to_owned(), "FAILED".to_owned()]));
    let dead = nats
        .stream("sap_dead")
        .await
        .get_last_raw_message_by_subject("sap.dead")
        .await
        .unwrap();
    assert_eq!(dead.payload.as_ref(), task.encode());
    let why = dead.headers.get("Sap-Why").map(|why| why.as_str());
    assert_eq!(why, Some("begun 2 times"));
    worker.unwrap().abort();
}

// spec: SAP-10-4
#[tokio::test]
async fn at_the_bound_a_task_comes_back_later_and_is_not_dropped() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default().with_max_running(1)).await;
    let [gate, echo] = [(1, "test.gate"), (2, "test.echo")].map(|(number, capability)| {
        let task = ask(number, capability);
        typed(&task.to_string())
    });
    let nacks = || {
        let written = seen.written(0);
        written.iter().filter(|kind| *kind == "nack").count()
    };
    let second = async {
        until(|| seen.entries() == 3).await;
        let opening = async {
            // More often than a task may be begun.
            until(|| nacks() > 5).await;
            seen.gate.store(true, Ordering::SeqCst);
        };
        futures::future::join(on.send(&echo), opening).await.0.1
    };
    let ((_, first), second) = futures::future::join(on.send(&gate), second).await;
    assert!(first.unwrap().is_some());
    let Some(Message::Result(result)) = second.unwrap() else {
        panic!("a result")
    };
    assert_eq!(result.status, Status::Succeeded);
    assert_eq!(on.nats.kept("sap_dead").await, 0);
}

// spec: SAP-10-4
#[tokio::test]
async fn ids_are_in_headers_and_body_and_must_agree() {
    let seen = Seen::default();
    let on = OnNats::start(&seen, processor::Config::default()).await;
    let task = ask(1, "test.echo");
    let (_, answer) = on.send(&typed(&task.to_string())).await;
    assert!(answer.unwrap().is_some());
    let out = on.nats.stream("sap_out").await;
    let subject = format!(
        "sap.out.{}.{A_PRIME}.result",
        task["taskId"].as_str().unwrap()
    );
    let stored = out.get_last_raw_message_by_subject(&subject).await.unwrap();
    let header = |name| stored.headers.get(name).unwrap().as_str().to_owned();
    assert_eq!(
        header("X-Correlation-Id"),
        task["correlationId"].as_str().unwrap()
    );
    assert_eq!(header("Sap-Task-Id"), task["taskId"].as_str().unwrap());
    for (number, name) in [(2, "X-Correlation-Id"), (3, "Sap-Task-Id")] {
        let task = ask(number, "test.echo");
        on.nats
            .put(
                &task.to_string(),
                &[(name, "00000000-0000-0000-0000-000000000000")],
            )
            .await;
        let Message::Nack(nack) = on.nats.said(&task, "nack").await else {
            panic!("turned away")
        };
        assert_eq!(nack.code, ErrorCode::InvalidTask);
    }
    let garbage = async { on.nats.put("{\"taskId\":7}", &[]).await };
    garbage.await;
    until_kept(&on.nats, "sap_dead", 1).await;
    assert_eq!(seen.calls(), 1);
}

// spec: SAP-10-4
#[tokio::test]
async fn tasks_survive_the_server() {
    let mut nats = Nats::start();
    let queue = nats.queue(config()).await;
    let task = typed(&ask(1, "test.echo").to_string());
    let client = queue.clone();
    let mut ignored = |_: &Message| {};
    tokio::select! {
        answer = client.send(&task, &mut ignored) => panic!("nobody works: {answer:?}"),
        () = until_kept(&nats, "sap_tasks", 1) => {}
    }
    nats.kill();
    nats.run_again();
    let seen = Seen::default();
    let queue = nats.queue(config()).await;
    let worker = work(&queue, seen.service_of(processor::Config::default()));
    let mut ignored = |_: &Message| {};
    let answer = queue.send(&task, &mut ignored).await.unwrap();
    assert!(matches!(answer, Some(Message::Result(_))));
    assert_eq!(seen.calls(), 1);
    worker.abort();
}

// spec: SAP-10-4, SAP-5-2
#[tokio::test]
async fn a_worker_that_is_asked_to_end_answers_what_it_has_begun() {
    let (nats, seen) = (Nats::start(), Seen::default());
    let queue = nats.queue(config()).await;
    let (client, service) = (queue.clone(), seen.service_of(processor::Config::default()));
    let task = typed(&ask(1, "test.gate").to_string());
    let mut ignored = |_: &Message| {};
    let shutdown = async {
        until(|| seen.entries() == 3).await;
        // It ends only when the worker has been asked to.
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (answer, worked) = futures::future::join(
        client.send(&task, &mut ignored),
        queue.work(&service, shutdown),
    )
    .await;
    worked.unwrap();
    assert!(
        matches!(answer.unwrap(), Some(Message::Result(result)) if result.status.is_terminal())
    );
}

/// Of `A-prime`, in a subject.
pub(super) const A_PRIME: &str = "9a2c24b466860f7f";

// spec: SAP-11-2
#[tokio::test]
async fn a_user_speaks_for_its_issuers_and_ids_are_an_issuers_own() {
    use sap::processor::{AllowAll, Identity, Speakers};
    let (nats, seen) = (Nats::start(), Seen::default());
    let identity = Identity::NatsUser("desk".to_owned());
    let speakers = Speakers::new(Arc::new(AllowAll))
        .allow(identity.clone(), "A-prime".parse().unwrap())
        .allow(identity, "A-second".parse().unwrap());
    let processor = seen.processor(processor::Config::default());
    let processor = processor.authorize(Arc::new(speakers));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let nobody = nats.queue(config()).await;
    let desk = nats.queue(config().with_user("desk")).await;
    let worker = work(&nobody, service);
    let told = async |queue: &Queue, number, issuer: &str| {
        let issuer = Some(json!(issuer));
        let task = with(ask(number, "test.echo"), "/issuer/agentId", issuer);
        let answer = queue.send(&typed(&task.to_string()), &mut |_| {}).await;
        match answer.unwrap().unwrap() {
            Message::Nack(nack) => nack.code.to_string(),
            Message::Result(result) => result.status.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(&nobody, 1, "A-prime").await, "UNAUTHORIZED");
    assert_eq!(told(&desk, 2, "A-other").await, "FORBIDDEN");
    assert_eq!(told(&desk, 3, "A-prime").await, "SUCCEEDED");
    // The same id of another issuer is another task.
    assert_eq!(told(&desk, 3, "A-second").await, "SUCCEEDED");
    assert_eq!(seen.calls(), 2);
    worker.abort();
}

#[cfg(feature = "sign")]
// spec: SAP-2-4, SAP-11-2
#[tokio::test]
async fn signatures_go_in_headers() {
    use super::world::{Signatures, signed_service};
    let (nats, seen) = (Nats::start(), Seen::default());
    let Signatures {
        desk,
        keys,
        other_keys,
    } = Signatures::new();
    let queue = nats.queue(config()).await;
    let worker = work(&queue, signed_service(&seen));
    let send = async |queue: &Queue, number| {
        // It has results on the way, too.
        let task = typed(&ask(number, "test.steps").to_string());
        queue.send(&task, &mut |_| {}).await
    };
    let unsigned = send(&queue, 1).await.unwrap();
    assert!(matches!(unsigned, Some(Message::Nack(_))), "{unsigned:?}");
    let queue = queue.with_signing_key(desk);
    let strict = queue.clone().with_trusted_keys(keys);
    let answer = send(&strict, 2).await.unwrap();
    assert!(matches!(answer, Some(Message::Result(_))), "{answer:?}");
    let strict = queue.with_trusted_keys(other_keys);
    let refused = send(&strict, 3).await;
    assert!(
        matches!(refused, Err(SendError::Unsigned(_))),
        "{refused:?}"
    );
    worker.abort();
}

/// A stream of an earlier version takes no tasks of users. It is made to, and keeps its other settings.
#[tokio::test]
async fn a_stream_of_an_earlier_version_gets_the_subjects_that_it_lacks() {
    let nats = Nats::start();
    let earlier = jetstream::stream::Config {
        name: "sap_tasks".into(),
        retention: jetstream::stream::RetentionPolicy::WorkQueue,
        subjects: vec!["sap.task".into()],
        max_messages: 7,
        ..jetstream::stream::Config::default()
    };
    nats.context().await.create_stream(earlier).await.unwrap();
    let queue = nats.queue(config().with_user("desk")).await;
    let stream = nats.stream("sap_tasks").await;
    let now = &stream.cached_info().config;
    assert_eq!(now.subjects, ["sap.task", "sap.task.*"]);
    assert_eq!(now.max_messages, 7);
    let worker = work(
        &queue,
        Seen::default().service_of(processor::Config::default()),
    );
    let task = typed(&ask(1, "test.echo").to_string());
    let answer = queue.send(&task, &mut |_| {}).await.unwrap();
    assert!(matches!(answer, Some(Message::Result(_))), "{answer:?}");
    worker.abort();
}
