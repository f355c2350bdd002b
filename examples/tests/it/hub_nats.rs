//! The program `hub` with `--nats`, on a server that each test starts for itself.

#![allow(
    clippy::disallowed_types,
    reason = "the server is asked over a socket what the programs do not tell"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uap_hub_proto::role::hub::{Job, Verdict};
use uap_hub_proto::transport::client::{AgentBuilder, AgentHandle, Context};
use uap_hub_proto::transport::nats::{JobQueue, QueueConfig};
use uap_hub_proto::wire::{
    AgentRegistration, PayloadRequirement, Severity, TestCapability, TestResult,
    agent_hub_client::AgentHubClient,
};
use ubos_common::id::IdSource;

use crate::hub_programs::Hub;

/// A server with a folder of its own.
struct Nats {
    child: Child,
    /// Host and port.
    address: String,
    _folder: tempfile::TempDir,
}

impl Nats {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"])
            .arg(folder.path())
            .arg("-sd")
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need a nats-server in the path: apt-get install nats-server");
        let mut nats = Self {
            child,
            address: String::new(),
            _folder: folder,
        };
        while nats.child.try_wait().unwrap().is_none() {
            let files = std::fs::read_dir(nats._folder.path()).unwrap();
            let mut files = files.map(|file| file.unwrap().path());
            let ports = files.find(|path| path.extension().is_some_and(|end| end == "ports"));
            let text = ports.and_then(|path| std::fs::read(path).ok());
            let ports: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(url) = ports.as_ref().and_then(|ports| ports["nats"][0].as_str()) {
                nats.address = url.trim_start_matches("nats://").to_owned();
                return nats;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the nats-server ended");
    }

    fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// What hubs say to the server of the jobs that they have, from now on.
    fn acknowledgements(&self) -> impl Iterator<Item = String> + use<> {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let ask = "CONNECT {\"verbose\":false}\r\nSUB $JS.ACK.> 1\r\nPING\r\n";
        socket.write_all(ask.as_bytes()).unwrap();
        let mut lines = BufReader::new(socket).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "PONG"));
        lines.filter(|line| !line.starts_with("MSG"))
    }

    /// The messages of a stream.
    fn messages(&self, stream: &str) -> u64 {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let ask =
            format!("CONNECT {{}}\r\nSUB i 1\r\nPUB $JS.API.STREAM.INFO.{stream} i 0\r\n\r\n");
        socket.write_all(ask.as_bytes()).unwrap();
        let lines = BufReader::new(socket).lines().map(Result::unwrap);
        let answer = lines
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .next();
        answer.unwrap()["state"]["messages"].as_u64().unwrap()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A hub of the queue.
fn start(nats: &Nats, options: &[&str]) -> Hub {
    let mut command = Hub::command();
    Hub::of(command.args(["--nats", &nats.url()]).args(options))
}

/// An agent whose jobs end when they may.
fn agent(url: &str, name: &str, may_end: &Arc<Semaphore>) -> AgentHandle {
    let may_end = Arc::clone(may_end);
    AgentBuilder::new(name)
        .on_test("wait", move |_, _| {
            let may_end = Arc::clone(&may_end);
            async move {
                may_end.acquire().await?.forget();
                Ok(TestResult::completed("it ended"))
            }
        })
        .start(url)
        .unwrap()
}

fn wait(id: &str) -> Value {
    json!({"kind": "test", "type": "wait", "id": id})
}

fn ends(lines: &[Value]) -> Vec<(&str, &str)> {
    let ends = lines
        .iter()
        .filter(|line| ["result", "failed"].contains(&line["event"].as_str().unwrap()));
    let mut ends: Vec<_> = ends
        .map(|line| {
            (
                line["id"].as_str().unwrap(),
                line["state"].as_str().unwrap(),
            )
        })
        .collect();
    ends.sort_unstable();
    ends
}

/// Waits until a hub takes no agents any more.
async fn leaves(url: &str) {
    loop {
        let Ok(mut client) = AgentHubClient::connect(url.to_owned()).await else {
            return;
        };
        if client.register(AgentRegistration::default()).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_one_hub_run_at_another_and_their_ends_are_told_where_they_came_from() {
    let nats = Nats::start();
    let mut one = start(&nats, &["--max-jobs", "1", "--exit-when-done"]);
    // It has one job that no agent of its own takes, and room for no other.
    one.say(&json!({"kind": "test", "type": "nothing", "id": "stays", "timeout_ms": 600_000}));
    one.until("submitted");
    let two = start(&nats, &[]);
    let free = Arc::new(Semaphore::new(100));
    let agents = [agent(&one.url, "one", &free), agent(&two.url, "two", &free)];
    for n in 0..5 {
        one.say(&wait(&n.to_string()));
    }
    let mut results = Vec::new();
    while results.len() < 5 {
        results.push(one.until("result"));
    }
    assert!(results.iter().all(|result| result["message"] == "it ended"));
    drop(agents);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_told_to_end_settles_what_ends_in_time_first() {
    let nats = Nats::start();
    let mut hub = start(&nats, &["--drain-ms", "3600000"]);
    let may_end = Arc::new(Semaphore::new(0));
    let _agent = agent(&hub.url, "one", &may_end);
    hub.say(&wait("a"));
    hub.until("init-sent");
    hub.signal(Signal::TERM);
    leaves(&hub.url).await;
    may_end.add_permits(1);
    let (code, lines) = hub.end();
    assert_eq!(code, Some(143));
    assert_eq!(ends(&lines), [("a", "COMPLETED")]);
    assert_eq!(nats.messages("uap-hub_jobs"), 0, "it left the queue");
    assert_eq!(nats.messages("uap-hub_ends"), 1);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_end_in_time_goes_to_another_hub_at_once() {
    let nats = Nats::start();
    // Another hub would wait for an hour for what was not given back.
    let mut one = start(&nats, &["--drain-ms", "0", "--ack-wait", "3600"]);
    let never = Arc::new(Semaphore::new(0));
    let _agent = agent(&one.url, "one", &never);
    one.say(&wait("a"));
    one.until("init-sent");
    one.signal(Signal::TERM);
    let (code, lines) = one.end();
    assert_eq!((code, ends(&lines)), (Some(143), vec![]));
    assert_eq!(nats.messages("uap-hub_ends"), 0);
    let mut two = start(&nats, &["--ack-wait", "3600"]);
    let _agent = agent(&two.url, "two", &Arc::new(Semaphore::new(9)));
    two.until("init-sent");
    while nats.messages("uap-hub_jobs") > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(nats.messages("uap-hub_ends"), 1);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_hub_gives_jobs_back_and_has_not_taken_them() {
    let nats = Nats::start();
    let options = [
        "--max-jobs",
        "1",
        "--max-deliveries",
        "1",
        "--exit-when-done",
    ];
    let mut hub = start(&nats, &options);
    let may_end = Arc::new(Semaphore::new(0));
    let _agent = agent(&hub.url, "one", &may_end);
    hub.say(&wait("a"));
    hub.until("init-sent");
    hub.say(&wait("b"));
    while nats.messages("uap-hub_backs") == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    may_end.add_permits(2);
    let (code, lines) = hub.end();
    assert_eq!(ends(&lines), [("a", "COMPLETED"), ("b", "COMPLETED")]);
    assert_eq!(code, Some(0));
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_was_killed_goes_on_with_its_jobs_when_it_is_started_again() {
    let nats = Nats::start();
    let mut hub = start(&nats, &["--ack-wait", "2"]);
    let never = Arc::new(Semaphore::new(0));
    let lost = agent(&hub.url, "one", &never);
    hub.say(&wait("a"));
    hub.until("init-sent");
    hub.signal(Signal::KILL);
    let (code, lines) = hub.end();
    assert_eq!((code, ends(&lines)), (None, vec![]));
    lost.shutdown(Duration::ZERO).await;
    let mut again = start(&nats, &["--ack-wait", "2"]);
    let _agent = agent(&again.url, "two", &Arc::new(Semaphore::new(9)));
    again.until("init-sent");
    while nats.messages("uap-hub_jobs") > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(nats.messages("uap-hub_ends"), 1);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_lines_nobody_reads_keeps_its_jobs() {
    let nats = Nats::start();
    // A busy machine may be late by as much as two thirds of it.
    let mut one = start(&nats, &["--ack-wait", "30"]);
    let (begun, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let talks = |url: &str| {
        let (begun, free) = (Arc::clone(&begun), Arc::clone(&free));
        let talk = move |_, context: Context| {
            let (begun, free) = (Arc::clone(&begun), Arc::clone(&free));
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                // More than a pipe takes.
                for _ in 0..200 {
                    context.log(Severity::Info, "w".repeat(1_000)).await?;
                }
                free.acquire().await?.forget();
                Ok(TestResult::completed("it ended"))
            }
        };
        AgentBuilder::new("talks")
            .on_test("talk", talk)
            .start(url)
            .unwrap()
    };
    let _first = talks(&one.url);
    one.say(&json!({"kind": "test", "type": "talk", "id": "a"}));
    one.until("init-sent");
    let two = start(&nats, &["--ack-wait", "30"]);
    let _second = talks(&two.url);
    // The hub goes on saying that it is at the job.
    let is_at_it = |said: &String| {
        assert_eq!(begun.load(Ordering::Relaxed), 1, "the job runs twice");
        said == "+WPI"
    };
    assert_eq!(nats.acknowledgements().filter(is_at_it).take(5).count(), 5);
    free.add_permits(1);
    let (_, lines) = {
        one.until("result");
        one.signal(Signal::TERM);
        one.end()
    };
    assert_eq!(ends(&lines), [("a", "COMPLETED")]);
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_own_jobs_have_ended_ends_what_it_runs_for_others() {
    let nats = Nats::start();
    // No other hub would get in time what this one let fall.
    let config = QueueConfig::default().with_ack_wait(Duration::from_secs(3600));
    let theirs = JobQueue::connect(&nats.url(), config).await.unwrap();
    let id = IdSource::from_os().unwrap().next_id();
    theirs.submit(id, &Job::test("wait", vec![])).await.unwrap();
    let mut two = start(&nats, &["--exit-when-done", "--drain-ms", "0"]);
    let may_end = Arc::new(Semaphore::new(0));
    let _agent = agent(&two.url, "two", &may_end);
    two.until("init-sent");
    drop(two.stdin.take());
    // It takes no agents any more, and goes on.
    leaves(&two.url).await;
    assert!(two.child.try_wait().unwrap().is_none());
    may_end.add_permits(1);
    let (code, _) = two.end();
    assert_eq!(code, Some(0));
    let end = theirs.outcome(id).await.unwrap().unwrap();
    assert_eq!(end.verdict, Verdict::Completed);
}

// spec: HUB-6-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_lines_with_one_id_the_second_is_refused_at_once() {
    let nats = Nats::start();
    let mut hub = start(&nats, &["--exit-when-done"]);
    let may_end = Arc::new(Semaphore::new(0));
    let _agent = agent(&hub.url, "one", &may_end);
    hub.say(&wait("a"));
    hub.until("init-sent");
    hub.say(&wait("a"));
    let refused = hub.until("refused");
    assert_eq!(
        (&refused["id"], &refused["line"]),
        (&json!("a"), &json!("stdin:2"))
    );
    may_end.add_permits(2);
    hub.until("result");
    hub.say(&wait("a"));
    let (code, lines) = hub.end();
    let both = [("a", "COMPLETED"), ("a", "COMPLETED")];
    assert_eq!((code, &ends(&lines)[..]), (Some(2), &both[..]));
}

// spec: HUB-6-2, HUB-3-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_told_why_a_job_of_the_queue_waits() {
    let nats = Nats::start();
    let mut hub = start(&nats, &["--exit-when-done"]);
    hub.say(&wait("a"));
    let waiting = hub.until("waiting");
    assert_eq!(waiting["id"], "a");
    assert_eq!(waiting["reason"], r#"no agent offers test type "wait""#);
    let picky = TestCapability {
        r#type: "wait".to_owned(),
        payloads: vec![PayloadRequirement {
            r#type: "text".to_owned(),
            is_required: true,
            ..PayloadRequirement::default()
        }],
    };
    let picky = AgentBuilder::new("picky")
        .on_test(picky, |_, _| async { Ok(TestResult::completed("")) })
        .start(&hub.url)
        .unwrap();
    assert_eq!(
        hub.until("waiting")["reason"],
        r#"agents that offer test type "wait": 1, of which 0 take these payloads: a payload of type "text" is missing"#
    );
    drop(picky);
    let _agent = agent(&hub.url, "one", &Arc::new(Semaphore::new(1)));
    let (code, lines) = hub.end();
    assert_eq!((code, ends(&lines)), (Some(0), vec![("a", "COMPLETED")]));
}
