//! The program `hub`, run as its users run it, with agents of this process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::Code;
use uap_hub_proto::transport::client::{AgentBuilder, AgentHandle, HandlerError};
use uap_hub_proto::wire::{
    AgentRegistration, Capability, Payload, Severity, TestCapability, TestResult,
    TranslationResult, agent_hub_client::AgentHubClient, capability::Format,
};
use ubos_conformance::hub::Attack;

use crate::conformance::program;
use crate::hub_programs::{Hub, with};

fn agent(url: &str, name: &str) -> AgentHandle {
    worker(name).start(url).unwrap()
}

fn worker(name: &str) -> AgentBuilder {
    let first = |payloads: &[Payload]| {
        let payload = payloads
            .first()
            .ok_or_else(|| HandlerError::invalid("no text"))?;
        Ok::<_, HandlerError>(String::from_utf8_lossy(payload.data()).into_owned())
    };
    AgentBuilder::new(name)
        .on_test("echo", move |payloads, context| async move {
            context.log(Severity::Info, "echoing").await?;
            Ok(TestResult::completed(first(&payloads)?))
        })
        .on_test("fail", |_, _| async { Err(HandlerError::new("cannot")) })
        .on_translation("upper", move |payloads, _| async move {
            let text = first(&payloads)?.to_uppercase();
            Ok(TranslationResult::completed(vec![Payload::file(
                "text",
                "t",
                "text/plain",
                text,
            )]))
        })
}

fn echo(text: &str) -> Value {
    json!({"kind": "test", "type": "echo", "payloads": [{"type": "text", "text": text}]})
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_and_every_step_is_told() {
    let mut hub = Hub::start(&["--exit-when-done"]);
    let _agent = agent(&hub.url, "one");
    hub.say(&echo("hi"));
    hub.until("result");
    hub.say(&json!({"kind": "translation", "type": "upper", "payloads": [{"type": "text", "base64": "YWJj"}]}));
    let (code, lines) = hub.end();
    assert_eq!(code, Some(0));
    let told = events(&lines);
    for event in [
        "listening",
        "agent-registered",
        "agent-listening",
        "submitted",
        "proposed",
        "accepted",
        "ready",
        "init-sent",
        "status",
        "telemetry",
        "result",
    ] {
        assert!(told.contains(&event), "{event}: {told:?}");
    }
    let results = with(&lines, "result");
    assert_eq!(
        (&results[0]["state"], &results[0]["message"]),
        (&json!("COMPLETED"), &json!("hi"))
    );
    assert_eq!(results[1]["payloads"][0]["text"], "ABC");
    // The agent's clock, with parts of a second, beside the hub's.
    for line in [with(&lines, "telemetry")[0], with(&lines, "status")[0]] {
        let at = line["agent_at"].as_str().unwrap();
        assert!(at.contains('.') && at.ends_with('Z'), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_say_how_it_went() {
    let mut hub = Hub::start(&["--exit-when-done"]);
    let _agent = agent(&hub.url, "one");
    hub.say(&json!({"kind": "test", "type": "fail"}));
    hub.say(&json!({"kind": "test", "type": "nobody", "timeout_ms": 50}));
    let (code, lines) = hub.end();
    assert_eq!(code, Some(1));
    let states: Vec<_> = lines
        .iter()
        .filter_map(|line| line["state"].as_str())
        .collect();
    assert!(states.contains(&"FAILED"), "{states:?}");
    let failed = with(&lines, "failed");
    assert_eq!(failed.len(), 1, "the other has a result: {lines:?}");
    let mut hub = Hub::start(&["--exit-when-done"]);
    let _agent = agent(&hub.url, "two");
    hub.say(&json!({"kind": "nothing", "type": "t"}));
    hub.say(&echo("still"));
    let (code, lines) = hub.end();
    assert_eq!((code, with(&lines, "result").len()), (Some(2), 1));
    assert_eq!(with(&lines, "refused")[0]["line"], "stdin:1");
}

#[test]
fn what_of_an_agent_was_ignored_is_told() {
    let mut hub = Hub::start::<&str>(&[]);
    // Again and again: a busy machine may make little of one.
    let attacks = [["--attack", Attack::StrayAnswers.name()]; 60];
    let mut attack = Command::new(program())
        .args(["hub-hostile", "--url", &hub.url])
        .args(["--seconds", "1", "--patience", "300"])
        .args(attacks.as_flattened())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let audit = hub.until("audit");
    attack.kill().unwrap();
    attack.wait().unwrap();
    assert_eq!(audit["kind"], "StrayAcceptance");
    let id = audit["agent"].as_str().unwrap();
    let registered = with(&hub.seen, "agent-registered");
    assert!(registered.iter().any(|line| line["agent"] == id), "{id}");
    let session = audit["session"].as_str().unwrap();
    assert!(session.starts_with("JOB-"), "{session}");
    assert!(audit["at"].is_string());
    hub.kill();
}

/// A registration of a stranger, of about 1 MiB.
fn large() -> AgentRegistration {
    let capability = |n| {
        let test = TestCapability {
            r#type: format!("{n}{}", "t".repeat(1_000)),
            payloads: Vec::new(),
        };
        let format = Some(Format::Test(test));
        Capability { format }
    };
    AgentRegistration {
        display_name: "stranger".to_owned(),
        capabilities: (0..1_000).map(capability).collect(),
    }
}

// spec: HUB-4-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_registration_does_not_make_a_long_line() {
    // A peer of one agent may register as much as any.
    let mut hub = Hub::start(&["--max-per-peer", "1"]);
    let mut stranger = AgentHubClient::connect(hub.url.clone()).await.unwrap();
    stranger.register(large()).await.unwrap();
    let line = hub.until("agent-registered");
    assert_eq!(line["name"], "stranger");
    assert!(!line["skills"].as_array().unwrap().is_empty());
    assert!(line["left_out_bytes"].as_u64().unwrap() > 900_000);
    assert!(line.to_string().len() < 17_000);
    hub.kill();
}

// spec: HUB-3-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_told_why_a_job_waits() {
    let mut hub = Hub::start(&["--exit-when-done"]);
    let job = json!({"kind": "test", "type": "echo", "id": "a"});
    hub.say(&job);
    let waiting = hub.until("waiting");
    assert_eq!(waiting["id"], "a");
    assert_eq!(waiting["reason"], r#"no agent offers test type "echo""#);
    // The reason is another.
    let needs_text = hub_agent_that_echoes(&hub.url);
    let reason = hub.until("waiting")["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("1, of which 0 take these payloads") && reason.contains("\"text\""),
        "{reason}"
    );
    drop(needs_text);
    let _agent = agent(&hub.url, "two");
    // It runs, and lacks its text.
    assert_eq!(hub.end().0, Some(1));
}

/// An agent whose echo wants a text.
fn hub_agent_that_echoes(url: &str) -> AgentHandle {
    examples::hub_agent::work::agent("picky")
        .start(url)
        .unwrap()
}

// spec: HUB-4-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_a_hub_whose_lines_nobody_reads() {
    let mut hub = Hub::start::<&str>(&[]);
    let mut stranger = AgentHubClient::connect(hub.url.clone()).await.unwrap();
    // More than a pipe takes.
    for _ in 0..30 {
        stranger.register(large()).await.unwrap();
    }
    hub.signal(Signal::TERM);
    // It says that the last lines were not read.
    assert_eq!(hub.child.wait().unwrap().code(), Some(3));
}

#[test]
fn what_cannot_be_used_is_said() {
    let taken = Hub::start::<&str>(&[]);
    let address = taken.address().to_owned();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hub"))
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&["--help"]).0, 0);
    for arguments in [&["--what"][..], &["--listen", "x"], &["--listen", &address]] {
        let (code, said) = run(arguments);
        assert_eq!(code, 2, "{said}");
        assert!(said.starts_with("hub: "));
    }
    let files = [
        "--listen",
        "127.0.0.1:0",
        "--exit-when-done",
        "/no/such/file",
    ];
    assert_eq!(run(&files).0, 2);
    taken.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_for_the_agent_that_it_names() {
    let mut hub = Hub::start(&["--exit-when-done"]);
    let _other = agent(&hub.url, "other");
    hub.until("agent-listening");
    let mut job = echo("for two");
    job["agent"] = "two".into();
    job["id"] = "x".into();
    hub.say(&job);
    let waiting = hub.until("waiting");
    assert_eq!(
        (&waiting["id"], &waiting["reason"]),
        (
            &json!("x"),
            &json!("no agent \"two\" listens; agents that listen: 1")
        )
    );
    let mut late = echo("for three");
    late["timeout_ms"] = 100.into();
    late["agent"] = "three".into();
    hub.say(&late);
    assert_eq!(hub.until("failed")["state"], "TIMED_OUT");
    let _two = agent(&hub.url, "two");
    assert_eq!(hub.until("agent-registered")["name"], "two");
    let two = hub.seen.last().unwrap()["agent"].clone();
    assert_eq!(hub.until("result")["agent"], two);
    assert_eq!(hub.end().0, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_hub_goes_on_with_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().to_str().unwrap();
    let mut hub = Hub::start(&["--store", store]);
    // Whenever the hub is killed, the second job runs.
    let one = worker("one").on_test("sleep", |_, _| std::future::pending());
    let one = one.start(&hub.url).unwrap();
    let mut job = echo("first");
    job["id"] = "a".into();
    hub.say(&job);
    hub.until("result");
    let sleep = json!({"kind": "test", "type": "sleep", "id": "b"});
    hub.say(&sleep);
    hub.until("init-sent");
    let before = hub.kill();
    one.shutdown(Duration::ZERO).await;
    let mut hub = Hub::start(&["--store", store, "--exit-when-done"]);
    assert_eq!(hub.until("restored")["id"], "b");
    let slept = |_, _| async { Ok(TestResult::completed("slept")) };
    let two = worker("two").on_test("sleep", slept);
    let _agent = two.start(&hub.url).unwrap();
    hub.say(&job);
    hub.say(&sleep);
    let (code, after) = hub.end();
    assert_eq!(code, Some(0));
    assert_eq!(
        with(&after, "known").len(),
        2,
        "none is taken twice: {after:?}"
    );
    let told: Vec<_> = before
        .iter()
        .chain(&after)
        .filter(|line| line["event"] == "result")
        .collect();
    let ids: Vec<_> = told.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, ["a", "b"]);
    results(store);
}

/// The stored ends can be read without a hub.
fn results(store: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_hub"))
        .args(["--store", store, "--results"])
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), lines.lines().count()), (Some(0), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_come_from_files_and_a_signal_ends_the_hub() {
    let dir = tempfile::tempdir().unwrap();
    let (jobs, data) = (dir.path().join("jobs.jsonl"), dir.path().join("data.txt"));
    fs::write(&data, "from a file").unwrap();
    let payload = json!({"type": "text", "file": Path::new(&data)});
    let job = json!({"kind": "test", "type": "echo", "payloads": [payload]});
    fs::write(&jobs, format!("{job}\n\n")).unwrap();
    let mut hub = Hub::start(&[jobs.to_str().unwrap()]);
    let _agent = agent(&hub.url, "one");
    assert_eq!(hub.until("result")["message"], "from a file");
    hub.signal(Signal::INT);
    assert_eq!(hub.end().0, Some(130));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_with_the_id_of_an_open_job_is_refused() {
    let mut hub = Hub::start(&["--exit-when-done"]);
    let mut job = echo("hi");
    job["id"] = json!("one");
    hub.say(&job);
    hub.until("submitted");
    hub.say(&job);
    let refused = hub.until("refused");
    assert_eq!(
        (&refused["id"], &refused["line"]),
        (&json!("one"), &json!("stdin:2"))
    );
    let _agent = agent(&hub.url, "one");
    hub.until("result");
    hub.say(&job);
    hub.until("submitted");
    let (code, lines) = hub.end();
    assert_eq!(
        (code, with(&lines, "result").len()),
        (Some(2), 2),
        "the id is free again"
    );
}

/// How a hub prints the ends in a folder.
fn ends_in(options: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_hub"))
        .args(options)
        .arg("--results")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

// spec: HUB-6-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_archived_while_the_hub_runs_and_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, archive) = (path("store"), path("archive"));
    let options = ["--store", &store, "--archive", &archive, "--keep-ends"];
    let options = [&options[..], &["3", "--exit-when-done"]].concat();
    let mut hub = Hub::start(&options);
    let _agent = agent(&hub.url, "one");
    assert_eq!(with(&hub.seen, "archived")[0]["jobs"], 0);
    // An id is taken once, until its job has gone.
    let job = |n: u32| {
        let mut job = echo("hi");
        job["id"] = n.to_string().into();
        job
    };
    let mut ended = 0;
    loop {
        hub.say(&job(ended));
        hub.until("result");
        ended += 1;
        let told = with(&hub.seen, "archived");
        if told.iter().any(|line| line["jobs"].as_u64().unwrap() > 0) {
            break;
        }
    }
    hub.say(&job(0));
    assert_eq!(hub.until("submitted")["id"], "0");
    let (code, lines) = hub.end();
    assert_eq!((code, with(&lines, "not-archived").len()), (Some(0), 0));
    // What went is in the store's file until that is whole, and the store does not know it any more.
    let lines = ends_in(&options[..6]);
    assert!(lines[0]["jobs"].as_u64().unwrap() > 0, "{lines:?}");
    assert_eq!(with(&lines, "result").len(), 3, "the last ends stay");
    assert!(Path::new(&archive).is_dir());
}

// spec: HUB-4-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_a_control_message_are_those_that_were_given() {
    let bytes = large().encoded_len();
    for (most, code) in [(bytes, Code::Ok), (bytes - 1, Code::ResourceExhausted)] {
        let hub = Hub::start(&["--max-control-bytes", &most.to_string()]);
        let mut stranger = AgentHubClient::connect(hub.url.clone()).await.unwrap();
        let answer = stranger.register(large()).await;
        let seen = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(seen, code, "{most}");
    }
}
