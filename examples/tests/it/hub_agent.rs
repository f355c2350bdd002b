//! The program `hub-agent`, run as its users run it.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio::runtime::Runtime;
use uap_hub_proto::capability::Skill;
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::hub::{Job, Outcome, Verdict};
use uap_hub_proto::transport::server::{Denied, HubHandle, ServerConfig, serve};
use uap_hub_proto::wire::Payload;

use crate::hub_programs::Agent;
use crate::pipe;

/// How long what must come is waited for: longer than the busiest machine takes.
const LONG: Duration = Duration::from_secs(300);

fn a_hub(runtime: &Runtime, config: ServerConfig) -> HubHandle {
    at(runtime, [127, 0, 0, 1], config)
}

/// A hub at any port of an address.
fn at(runtime: &Runtime, ip: [u8; 4], config: ServerConfig) -> HubHandle {
    runtime.block_on(serve((ip, 0).into(), config)).unwrap()
}

fn outcome(runtime: &Runtime, hub: &HubHandle, job: Job) -> Outcome {
    let job = hub.submit(job).unwrap();
    let done = async { tokio::time::timeout(LONG, job.outcome()).await };
    runtime.block_on(done).unwrap()
}

fn text(words: &str) -> Payload {
    Payload::file("text", "t.txt", "text/plain", words.to_owned())
}

// spec: HUB-3-7, HUB-4-9
#[test]
fn it_does_what_its_help_says() {
    let runtime = Runtime::new().unwrap();
    let hub = a_hub(&runtime, ServerConfig::default());
    let mut agent = Agent::start(&["--hub", &hub.url(), "--name", "N"]);
    agent.says("listening as ");
    assert_eq!(hub.agents()[0].name, "N");
    for (job, verdict, words) in [
        (
            Job::test("echo", vec![text("hello"), text("more")]),
            Verdict::Completed,
            "hello",
        ),
        (
            Job::test("sleep", vec![text("5")]),
            Verdict::Completed,
            "slept 5 ms",
        ),
        (
            Job::test("sleep", vec![text("x")]),
            Verdict::Invalid,
            "the payload of type text is no number",
        ),
        (
            Job::test("fail", vec![text("as told")]),
            Verdict::Failed,
            "as told",
        ),
        (
            Job::test("fail", vec![]),
            Verdict::Failed,
            "failed as it was told",
        ),
    ] {
        let outcome = outcome(&runtime, &hub, job);
        assert_eq!(outcome.verdict, verdict);
        assert!(outcome.message.starts_with(words), "{}", outcome.message);
    }
    let echoed = outcome(
        &runtime,
        &hub,
        Job::test("echo", vec![text("a"), text("b")]),
    );
    let Some(JobResult::Test(result)) = echoed.result else {
        panic!("no result")
    };
    let files: Vec<_> = result
        .attachments
        .iter()
        .map(|file| &file.data[..])
        .collect();
    assert_eq!((files, result.reports.len()), (vec![&b"a"[..], b"b"], 2));
    let upper = outcome(
        &runtime,
        &hub,
        Job::translation("upper", vec![text("straße")]),
    );
    let Some(JobResult::Translation(result)) = upper.result else {
        panic!("no result")
    };
    assert_eq!(result.payloads[0].data(), "STRASSE".as_bytes());
    // It takes nothing that it did not say.
    let skills = hub.agents()[0].skills.clone();
    assert_eq!(skills.len(), 4);
    assert!(skills.contains(&Skill::translation("upper")));
    assert_eq!(agent.signal(Signal::TERM), Some(0));
}

// spec: HUB-5-2, HUB-6-3
#[test]
fn it_shows_its_token_and_comes_back() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "sesame\n").unwrap();
    let config = || {
        ServerConfig::default().with_authorize(|caller| async move {
            match caller.bearer_token() {
                Some("sesame") => Ok("known".into()),
                _ => Err(Denied::Unauthenticated("who?".into())),
            }
        })
    };
    // Between two hubs no other test's takes the port.
    let hub = at(&runtime, [127, 0, 1, 1], config());
    let (url, addr) = (hub.url(), hub.local_addr());
    let mut stranger = Agent::start(&["--hub", &url]);
    assert!(stranger.says("trying again in 1s").ends_with("who?"));
    let mut agent = Agent::start(&["--hub", &url, "--token-file", file.to_str().unwrap()]);
    runtime.block_on(hub.wait_for_agents(1)).unwrap();
    runtime.block_on(hub.shutdown(Duration::ZERO)).unwrap();
    drop(hub);
    agent.says("the hub is shutting down");
    let hub = runtime.block_on(serve(addr, config())).unwrap();
    agent.says("listening as ");
    let done = outcome(&runtime, &hub, Job::test("echo", vec![text("again")]));
    assert_eq!(done.message, "again");
    assert_eq!(agent.signal(Signal::INT), Some(130));
}

// spec: HUB-5-2
#[test]
fn it_goes_on_when_nobody_reads_what_it_says() {
    let runtime = Runtime::new().unwrap();
    // Between two hubs no other test's takes the port.
    let hub = at(&runtime, [127, 0, 1, 2], ServerConfig::default());
    let addr = hub.local_addr();
    let mut agent = Agent::start(&["--hub", &hub.url()]);
    agent.says("listening as ");
    agent.said = None;
    // It has something to say of a hub that goes and of one that comes.
    runtime.block_on(hub.shutdown(Duration::ZERO)).unwrap();
    drop(hub);
    let hub = runtime.block_on(serve(addr, ServerConfig::default()));
    let hub = hub.unwrap();
    let done = outcome(&runtime, &hub, Job::test("echo", vec![text("still")]));
    assert_eq!(done.message, "still");
    assert_eq!(agent.signal(Signal::TERM), Some(0));
}

// spec: HUB-5-3
#[test]
fn a_signal_ends_it_though_nobody_reads_what_it_says() {
    let runtime = Runtime::new().unwrap();
    let hub = a_hub(&runtime, ServerConfig::default());
    let (unread, full) = pipe::full();
    let child = Command::new(env!("CARGO_BIN_EXE_hub-agent"))
        .args(["--hub", &hub.url()])
        .stderr(full)
        .spawn();
    let mut agent = Agent::of(child.unwrap());
    let done = outcome(&runtime, &hub, Job::test("echo", vec![text("hello")]));
    assert_eq!(done.message, "hello");
    assert_eq!(agent.signal(Signal::TERM), Some(0));
    drop(unread);
}

#[test]
fn usage_ends_with_2() {
    for arguments in [
        &[][..],
        &["--hub", "no url at all"],
        &["--hub", "https://127.0.0.1:1"],
        &["--hub", "http://127.0.0.1:1", "--token-file", "/nowhere"],
        &["--what"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_hub-agent"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stderr.starts_with(b"hub-agent: "));
    }
}
