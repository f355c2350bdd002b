//! Several hubs on one queue, on a server that each test starts for itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use futures::StreamExt as _;
use tokio::sync::Notify;
use uap_hub_proto::{
    id::JobId,
    role::hub::{Job, JobEvent, Outcome, Record, Verdict},
    store::encode,
    transport::{
        client::{AgentBuilder, AgentHandle},
        nats::{JobQueue, QueueConfig, QueueError},
        server::{HubHandle, ServerConfig, serve},
    },
    wire::{Attachment, Payload, TestResult},
};
use ubos_common::{
    id::IdSource,
    trace_context::{TRACEPARENT, TRACESTATE, TraceContext},
};

/// Address of the nats-server, given to a process that is a hub.
const URL: &str = "HUB_NATS_TEST_URL";

/// How long the server may take for an answer.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Nats {
    child: Child,
    pub(crate) url: String,
    folder: tempfile::TempDir,
}

impl Nats {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (child, url) = Self::run(folder.path());
        Self { child, url, folder }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server that was killed, with all that it stored, on another port.
    pub(crate) fn run_again(&mut self) {
        (self.child, self.url) = Self::run(self.folder.path());
    }

    fn run(folder: &Path) -> (Child, String) {
        let ports = tempfile::tempdir().unwrap();
        let mut child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"])
            .arg(ports.path())
            .arg("-sd")
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need a nats-server in the path: apt-get install nats-server");
        while child.try_wait().unwrap().is_none() {
            let mut files = std::fs::read_dir(ports.path()).unwrap();
            let text = files
                .next()
                .and_then(|file| std::fs::read(file.unwrap().path()).ok());
            let ports = text.and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(serde_json::Value::Object(ports)) = ports {
                let url = ports["nats"][0].as_str().unwrap().to_owned();
                return (child, url);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the nats-server ended");
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that waits for as long as a busy machine takes.
async fn client(url: &str) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new()
        .connection_timeout(LONG)
        .request_timeout(Some(LONG));
    options.connect(url).await.unwrap()
}

async fn context(url: &str) -> async_nats::jetstream::Context {
    let mut context = async_nats::jetstream::new(client(url).await);
    context.set_timeout(LONG);
    context
}

async fn queue(url: &str) -> JobQueue {
    queue_with(url, |config| config).await
}

pub(crate) async fn queue_with(
    url: &str,
    change: impl FnOnce(QueueConfig) -> QueueConfig,
) -> JobQueue {
    let client = client(url).await;
    let config = QueueConfig::default()
        .with_ack_wait(Duration::from_millis(1500))
        .with_busy_delay(Duration::from_millis(50))
        .with_max_in_flight(8);
    JobQueue::open(client, change(config)).await.unwrap()
}

/// A hub with an agent that takes 20 ms for an echo.
pub(crate) async fn hub() -> (HubHandle, AgentHandle) {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default())
        .await
        .unwrap();
    let agent = echoing(&hub);
    hub.wait_for_agents(1).await.unwrap();
    (hub, agent)
}

pub(crate) fn echoing(hub: &HubHandle) -> AgentHandle {
    AgentBuilder::new("echo")
        .on_test("echo", |payloads, _| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let text = String::from_utf8_lossy(payloads[0].data()).into_owned();
            Ok(TestResult::completed(text))
        })
        .start(&hub.url())
        .unwrap()
}

fn echo(text: &str) -> Job {
    Job::test(
        "echo",
        vec![Payload::file("text", "t", "", text.to_owned())],
    )
}

pub(crate) async fn submit(queue: &JobQueue, count: usize) -> Vec<(JobId, String)> {
    let mut ids = IdSource::from_os().unwrap();
    let mut jobs = Vec::new();
    for n in 0..count {
        let (id, text) = (ids.next_id(), format!("text {n}"));
        queue.submit(id, &echo(&text)).await.unwrap();
        jobs.push((id, text));
    }
    jobs
}

pub(crate) async fn ends(queue: &JobQueue, jobs: &[(JobId, String)]) -> BTreeMap<JobId, Outcome> {
    let mut ends = BTreeMap::new();
    for _ in 0..6000 {
        for (id, _) in jobs {
            if !ends.contains_key(id)
                && let Some(outcome) = queue.outcome(*id).await.unwrap()
            {
                ends.insert(*id, outcome);
            }
        }
        if ends.len() == jobs.len() {
            return ends;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} of {} jobs ended", ends.len(), jobs.len());
}

pub(crate) fn all_done(jobs: &[(JobId, String)], ends: &BTreeMap<JobId, Outcome>) {
    for (id, text) in jobs {
        let outcome = &ends[id];
        let seen = (outcome.verdict, outcome.message.as_str());
        assert_eq!(seen, (Verdict::Completed, text.as_str()));
    }
}

/// Starts this file's hub as a process of its own, and waits until it has a job, which it never ends.
fn process(url: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nats::the_hub_that_is_killed", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "has a job"));
    child
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_hub_loses_no_job_to_the_others() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let jobs = submit(&queue, 100).await;
    let mut killed = process(&nats.url);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let other = hub().await;
    tokio::select! {
        done = queue.work(&other.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hubs_share_the_work_and_each_job_has_one_end() {
    let nats = Nats::start();
    // A hub that is slow for once keeps its jobs.
    let queue = queue_with(&nats.url, |config| {
        config.with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let jobs = submit(&queue, 60).await;
    let (one, two) = (hub().await, hub().await);
    let told = Mutex::new((Vec::new(), Vec::new()));
    let hear = |job, event: &JobEvent, first: bool| {
        if matches!(event, JobEvent::Ended(_)) {
            let mut told = told.lock().unwrap();
            if first {
                told.0.push(job)
            } else {
                told.1.push(job)
            }
        }
    };
    tokio::select! {
        done = queue.work(&one.0, |job, event| hear(job, event, true), pending()) => done.unwrap(),
        done = queue.work(&two.0, |job, event| hear(job, event, false), pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
    let told = told.lock().unwrap();
    let all: BTreeSet<_> = told.0.iter().chain(&told.1).collect();
    assert!(!told.0.is_empty() && !told.1.is_empty(), "both worked");
    assert_eq!(
        all.len(),
        told.0.len() + told.1.len(),
        "no end was told twice"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_runs_is_not_delivered_again_from_one_sign_of_life_to_the_next() {
    let nats = Nats::start();
    // A busy machine may be late by as much as two thirds of it.
    let long = |config: QueueConfig| config.with_ack_wait(Duration::from_secs(9));
    let queue = queue_with(&nats.url, long).await;
    let jobs = submit(&queue, 1).await;
    let client = client(&nats.url).await;
    let mut signs = client.subscribe("$JS.ACK.>").await.unwrap();
    client.flush().await.unwrap();
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let _hangs = AgentBuilder::new("hangs")
        .on_test("echo", |_, _| async { pending().await })
        .start(&hub.url())
        .unwrap();
    let two_signs = async {
        for _ in 0..2 {
            assert_eq!(&signs.next().await.unwrap().payload[..], b"+WPI");
        }
    };
    tokio::select! {
        done = queue.work(&hub, |_, _| {}, pending()) => panic!("{done:?}"),
        () = two_signs => {}
    }
    assert_eq!(queue_backs(&nats.url, jobs[0].0).await, 0);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_an_end_or_is_no_job_leaves_the_queue_at_once() {
    let nats = Nats::start();
    let queue = queue_with(&nats.url, |config| {
        config.with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let context = context(&nats.url).await;
    let left = async || {
        let mut jobs = context.get_stream("uap-hub_jobs").await.unwrap();
        jobs.info().await.unwrap().state.messages
    };
    let published = async |subject: String, bytes: Vec<u8>| {
        let sent = context.publish(subject, bytes.into()).await;
        sent.unwrap().await.unwrap()
    };
    let emptied = async || {
        while left().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let all = async {
        let first = submit(&queue, 1).await;
        let ended = ends(&queue, &first).await;
        all_done(&first, &ended);
        emptied().await;
        // Of this one another hub has stored the end before it comes.
        let id = IdSource::from_os().unwrap().next_id();
        let end = Record::Ended(ended[&first[0].0].clone());
        published(format!("uap-hub.end.{id}"), encode(id, &end)).await;
        queue.submit(id, &echo("another")).await.unwrap();
        emptied().await;
        let end = queue.outcome(id).await.unwrap();
        assert_eq!(end.unwrap().message, first[0].1);
        published("uap-hub.job".to_owned(), b"no job".to_vec()).await;
        emptied().await;
        // An end that nobody can read is one, and no hub fails over it.
        let id = IdSource::from_os().unwrap().next_id();
        published(format!("uap-hub.end.{id}"), b"no end".to_vec()).await;
        queue.submit(id, &echo("no more")).await.unwrap();
        emptied().await;
        let end = queue.outcome(id).await.unwrap().unwrap();
        assert_eq!(end.message, "the end of the job cannot be read");
    };
    let one = hub().await;
    tokio::select! {
        done = queue.work(&one.0, |_, _| {}, pending()) => panic!("{done:?}"),
        () = tokio::time::sleep(Duration::from_secs(300)) => panic!("{} are left", left().await),
        () = all => {}
    }
}

/// How often a job was given back, as the queue keeps it.
pub(crate) async fn queue_backs(url: &str, job: JobId) -> u64 {
    let context = context(url).await;
    let backs = context.get_stream("uap-hub_backs").await.unwrap();
    let subject = format!("uap-hub.back.{job}");
    let Ok(last) = backs.get_last_raw_message_by_subject(&subject).await else {
        return 0;
    };
    u64::from_be_bytes(last.payload[..].try_into().unwrap())
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_stored_end_is_reported() {
    let nats = Nats::start();
    // The first job does not come again.
    let queue = queue_with(&nats.url, |config| {
        config.with_ack_wait(Duration::from_secs(600))
    });
    let queue = queue.await;
    let one = hub().await;
    let jobs = submit(&queue, 1).await;
    let first = tokio::select! {
        done = queue.work(&one.0, |_, _| {}, pending()) => panic!("{done:?}"),
        mut ended = ends(&queue, &jobs) => ended.remove(&jobs[0].0).unwrap(),
    };
    let context = context(&nats.url).await;
    let (told, heard) = (Mutex::new(Vec::new()), Notify::new());
    let others = |id: JobId, event: &JobEvent| match event {
        JobEvent::Started { .. } => tokio::task::block_in_place(|| {
            let bytes = encode(id, &Record::Ended(first.clone()));
            let end = context.publish(format!("uap-hub.end.{id}"), bytes.into());
            tokio::runtime::Handle::current().block_on(async { end.await.unwrap().await.unwrap() });
        }),
        JobEvent::Ended(outcome) => {
            told.lock().unwrap().push(outcome.message.clone());
            heard.notify_one();
        }
        _ => {}
    };
    let mut ids = IdSource::from_os().unwrap();
    queue
        .submit(ids.next_id(), &echo("too late"))
        .await
        .unwrap();
    tokio::select! {
        done = queue.work(&one.0, others, pending()) => panic!("{done:?}"),
        () = heard.notified() => {}
    }
    assert_eq!(*told.lock().unwrap(), ["text 0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unplaced_jobs_end_and_large_ones_and_odd_names_are_refused() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let id = IdSource::from_os().unwrap().next_id();
    let large = queue.submit(id, &echo(&"x".repeat(2 << 20))).await;
    assert!(matches!(large, Err(QueueError::TooLarge { .. })));
    let many = Job::test("echo", vec![Payload::default(); 263_000]);
    let many = queue.submit(id, &many).await;
    assert!(matches!(many, Err(QueueError::TooManyFields)));
    let config = QueueConfig::default().with_name("a.b");
    let named = JobQueue::connect(&nats.url, config).await;
    assert!(matches!(named, Err(QueueError::Name)));
    queue.submit(id, &Job::test("", vec![])).await.unwrap();
    queue.submit(id, &Job::test("", vec![])).await.unwrap();
    let one = hub().await;
    let jobs = [(id, String::new())];
    tokio::select! {
        done = queue.work(&one.0, |_, _| {}, pending()) => done.unwrap(),
        ended = ends(&queue, &jobs) => assert_eq!(ended[&id].verdict, Verdict::Failed),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_may_have_as_many_bytes_as_the_server_takes_beside_its_headers() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let mut ids = IdSource::from_os().unwrap();
    let about = 1 << 20;
    let (seen, most) = match queue.submit(ids.next_id(), &echo(&"x".repeat(about))).await {
        Err(QueueError::TooLarge { seen, most }) => (seen, most),
        other => panic!("{other:?}"),
    };
    assert_eq!(most, (1 << 20) - 256);
    let longest = about - (seen - most);
    let text = "x".repeat(longest);
    let id = ids.next_id();
    queue.submit(id, &echo(&text)).await.unwrap();
    let larger = queue.submit(ids.next_id(), &echo(&(text + "x"))).await;
    let seen = most + 1;
    assert!(
        matches!(&larger, Err(QueueError::TooLarge { seen: is, most: of }) if (*is, *of) == (seen, most)),
        "{larger:?}"
    );
    // An end without room for its result is the verdict, with the first of the agent's words.
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let agent = AgentBuilder::new("long")
        .on_test("long", move |payloads, _| async move {
            let said = String::from_utf8_lossy(payloads[0].data()).into_owned();
            let (kind, length) = said.split_once(' ').unwrap();
            let long = "x".repeat(length.parse().unwrap());
            Ok(match kind {
                "words" => TestResult::completed(long),
                _ => TestResult::completed("").with_attachment(Attachment::new("", "", long)),
            })
        })
        .on_test("echo", |_, _| async { Ok(TestResult::completed("")) })
        .start(&hub.url())
        .unwrap();
    hub.wait_for_agents(1).await.unwrap();
    let end_of = async |said: String| {
        let id = IdSource::from_os().unwrap().next_id();
        let payload = Payload::file("text", "t", "", said);
        let job = Job::test("long", vec![payload]);
        queue.submit(id, &job).await.unwrap();
        ends(&queue, &[(id, String::new())]).await.remove(&id)
    };
    let all = async {
        assert!(
            ends(&queue, &[(id, String::new())]).await[&id]
                .result
                .is_some()
        );
        let about = 1_000_000;
        let end = end_of(format!("file {about}")).await.unwrap();
        let rest = encode(id, &Record::Ended(end)).len() - about;
        for (said, is_whole) in [
            (format!("file {}", most - rest), true),
            (format!("file {}", most - rest + 1), false),
            (format!("words {}", 1 << 20), false),
        ] {
            let end = end_of(said).await.unwrap();
            assert_eq!(end.verdict, Verdict::Completed);
            assert_eq!(end.result.is_some(), is_whole);
            assert_eq!(end.message.ends_with("too large for the queue)"), !is_whole);
            assert!(end.message.len() < 1_100, "{}", end.message.len());
        }
    };
    tokio::select! {
        done = queue.work(&hub, |_, _| {}, pending()) => panic!("{done:?}"),
        () = all => {}
    }
    drop(agent);
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A hub whose agent says where in a trace its handler runs.
async fn tracing_hub() -> (HubHandle, AgentHandle) {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let agent = AgentBuilder::new("tracer")
        .on_test("echo", |_, context| async move {
            let trace = context.trace();
            let place = trace.map_or_else(|| "nowhere".to_owned(), TraceContext::traceparent);
            let state = trace.and_then(TraceContext::tracestate).unwrap_or_default();
            Ok(TestResult::completed(format!("{place} {state}")))
        })
        .start(&hub.url())
        .unwrap();
    hub.wait_for_agents(1).await.unwrap();
    (hub, agent)
}

/// The headers of a trace on the last message of a stream, and whether its bytes say anything of it.
async fn carried(nats: &Nats, stream: &str) -> (Vec<String>, Vec<String>, bool) {
    let stream = context(&nats.url).await.get_stream(stream).await;
    let mut stream = stream.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let message = stream.get_raw_message(last).await.unwrap();
    let values = |name| {
        let values = message.headers.get_all(name);
        values.map(|value| value.as_str().to_owned()).collect()
    };
    let is_said = String::from_utf8_lossy(&message.payload).contains("0af7651916cd43dd");
    (values(TRACEPARENT), values(TRACESTATE), is_said)
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_of_a_job_in_a_trace_goes_in_headers_once() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let (id, job) = (IdSource::from_os().unwrap().next_id(), echo("x"));
    let place = TraceContext::read(PARENT, ["a=1,b=2"]).unwrap();
    let is_carried = (vec![PARENT.to_owned()], vec!["a=1,b=2".to_owned()], false);
    queue.submit(id, &job.with_trace(place)).await.unwrap();
    assert_eq!(carried(&nats, "uap-hub_jobs").await, is_carried);
    let (hub, _agent) = tracing_hub().await;
    let jobs = [(id, String::new())];
    let ended = tokio::select! {
        done = queue.work(&hub, |_, _| {}, pending()) => panic!("{done:?}"),
        ended = ends(&queue, &jobs) => ended,
    };
    assert_eq!(ended[&id].message, format!("{PARENT} a=1,b=2"));
    // Its bytes have what the handler says.
    let (parents, states, _) = carried(&nats, "uap-hub_ends").await;
    assert_eq!((parents, states, false), is_carried);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_absent_or_not_valid_is_dropped_and_the_job_runs() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let client = client(&nats.url).await;
    let mut ids = IdSource::from_os().unwrap();
    let mut jobs = Vec::new();
    for (parents, state, wanted) in [
        (vec![], "", "nowhere "),
        (vec![], "a=1", "nowhere "),
        (vec!["00-0-0-0"], "a=1", "nowhere "),
        (vec![PARENT, PARENT], "", "nowhere "),
        (vec![PARENT, "00-0-0-0"], "", "nowhere "),
        (vec![PARENT], "A=1", &*format!("{PARENT} ")),
        (vec![PARENT], "a=1", &*format!("{PARENT} a=1")),
    ] {
        let id = ids.next_id();
        let mut headers = async_nats::HeaderMap::new();
        for parent in parents {
            headers.append(TRACEPARENT, parent);
        }
        if !state.is_empty() {
            headers.append(TRACESTATE, state);
        }
        let bytes = encode(id, &Record::Accepted(echo("x"))).into();
        let sent = client.publish_with_headers("uap-hub.job", headers, bytes);
        sent.await.unwrap();
        jobs.push((id, wanted.to_owned()));
    }
    let (hub, _agent) = tracing_hub().await;
    tokio::select! {
        done = queue.work(&hub, |_, _| {}, pending()) => panic!("{done:?}"),
        ended = ends(&queue, &jobs) => all_done(&jobs, &ended),
    }
    let (parents, states, _) = carried(&nats, "uap-hub_ends").await;
    assert!(
        parents.len() < 2 && states.len() < 2,
        "{parents:?} {states:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_job_has_room_for_its_place_in_a_trace() {
    let nats = Nats::start();
    let queue = queue(&nats.url).await;
    let mut ids = IdSource::from_os().unwrap();
    let state = format!("a={},b={}", "v".repeat(256), "v".repeat(251));
    let place = TraceContext::read(PARENT, [&*state]).unwrap();
    let of = |bytes| echo(&"x".repeat(bytes)).with_trace(place.clone());
    let refused = queue.submit(ids.next_id(), &of(1 << 20)).await;
    let Err(QueueError::TooLarge { seen, most }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(most, (1 << 20) - 256 - (11 + 55 + 4) - (10 + 512 + 4));
    let longest = (1 << 20) - (seen - most);
    queue.submit(ids.next_id(), &of(longest)).await.unwrap();
    let refused = queue.submit(ids.next_id(), &of(longest + 1)).await;
    assert!(
        matches!(refused, Err(QueueError::TooLarge { .. })),
        "{refused:?}"
    );
}

/// Not a test by itself: a hub, where the address of its queue is given.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "the process that kills this one reads it"
)]
fn the_hub_that_is_killed() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let config = ServerConfig::default();
        let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
        let _agent = AgentBuilder::new("stuck")
            .on_test("echo", |_, _| pending())
            .start(&hub.url())
            .unwrap();
        let begun = |_, event: &JobEvent| {
            if matches!(event, JobEvent::Started { .. }) {
                println!("has a job");
            }
        };
        let queue = queue(&url).await;
        queue.work(&hub, begun, pending()).await.unwrap();
    });
}
