//! Real sockets and real processes: this test binary, started again, is the agent.

mod backpressure;
mod flushes;
mod process;
mod replaced;
mod room;
mod runtimes;
mod told;
mod types;
mod unread;
mod writes;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use opensentience_wire::message::{Channel, SemVer, Status};
use opensentience_wire::role::CloseReason;
use opensentience_wire::role::agent::{self, Chunk};
use opensentience_wire::role::core::{CallRequest, Config, Event, Outcome};
use opensentience_wire::transport::tokio::{
    Agent, AttachError, AuditSink, CoreHandle, LaunchError, Launcher, Observer, ServeError,
    ToolContext, ToolError, attach,
};
use opensentience_wire::{AuditEvent, AuditName, CommandError, ErrorCode, Limits, Share};
use opensentience_wire::{Grant, SessionToken};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use ubos_common::id::{IdSource, parse_hyphenated};
use ubos_common::json::RawObject;
use ubos_common::os::Clock;

use crate::kit::{AGENT, RequestExt as _, frame, hello, message, object, spec, token, tool};

#[derive(serde::Deserialize)]
struct Numbers {
    numbers: Vec<u32>,
}

#[cfg(feature = "schemars")]
#[derive(Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Pair {
    dividend: u32,
    divisor: u32,
}

#[cfg(feature = "schemars")]
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Quotient {
    quotient: u32,
}

fn tools() -> Agent {
    let agent = Agent::new("1.0.0".parse::<SemVer>().unwrap())
        .tool(spec("echo"), async |_, input| Ok(input))
        .tool(spec("count"), async |context, input| {
            let wanted: serde_json::Value = input.deserialize().unwrap();
            for n in 1..=wanted["n"].as_u64().unwrap() {
                context
                    .send(format!("line {n}"))
                    .await
                    .map_err(|_| ToolError::canceled())?;
            }
            Ok(RawObject::empty())
        })
        .blocking_tool(spec("block"), |context, _| {
            context.blocking_send("begun").map_err(|_| ToolError::canceled())?;
            while !context.is_cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(ToolError::canceled())
        })
        .blocking_tool(spec("stubborn"), |_, _| {
            std::thread::sleep(Duration::from_secs(600));
            Ok(RawObject::empty())
        })
        .typed_tool(spec("typed"), async |context, numbers: Numbers| {
            let left = context.time_left().map(|left| left.as_secs());
            context.send(Chunk::text(Channel::Log, "adding")).await.map_err(|_| ToolError::canceled())?;
            Ok(json!({"sum": numbers.numbers.iter().sum::<u32>(), "timed": left.is_some_and(|left| left <= 60)}))
        })
        .typed_tool(spec("no_object"), async |_, _: Numbers| Ok(7))
        .tool(spec("panic"), async |_, _| {
            panic!("the stack is nobody's business")
        })
        .tool(spec("freeze"), async |_, _| {
            std::thread::sleep(Duration::from_secs(600));
            Ok(RawObject::empty())
        })
        .tool(spec("die"), async |_, _| std::process::abort())
        .tool(spec("tell"), async |_, _| {
            // A core would not send the token itself.
            let token = std::env::var("OPENSENTIENCE_SESSION_TOKEN").unwrap_or_default();
            Ok(object(&json!({"nekot": token.chars().rev().collect::<String>()})))
        })
        .tool(spec("leave"), async |_, _| std::process::exit(0))
        .tool(spec("environment"), async |_, _| {
            let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            let args: Vec<String> = std::env::args().collect();
            // All of the protocol's own but the token, which no output may hold.
            let own = ["AGENT_ID", "HOME", "INSTALL_PATH", "RUN_ID"]
                .map(|name| (name, std::env::var(format!("OPENSENTIENCE_{name}")).ok()));
            Ok(object(
                &json!({"names": names, "args": args, "pid": std::process::id(),
                    "greeting": std::env::var("GREETING").ok(),
                    "own": own.into_iter().collect::<BTreeMap<_, _>>()}),
            ))
        });
    #[cfg(feature = "schemars")]
    let agent = agent.declared_tool("divide", "divides", async |_, pair: Pair| {
        let quotient = pair.dividend.checked_div(pair.divisor);
        let quotient = quotient.ok_or_else(|| std::io::Error::other("division by zero"))?;
        Ok(Quotient { quotient })
    });
    agent
}

/// No test of its own: what the launched process runs.
#[test]
fn agent_process() {
    let Some(socket) = std::env::var_os("OPENSENTIENCE_SOCKET_PATH") else {
        return;
    };
    let socket = std::path::Path::new(&socket);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    eprintln!(
        "modes {:o} {:o}",
        mode(socket.parent().unwrap()),
        mode(socket)
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let served = runtime.block_on(tools().serve_from_env());
    drop(served);
    std::process::exit(0);
}

/// However busy the machine is, an agent is taken in within this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The settings of a core for tests that are not about its spans: on a busy machine an agent may be late.
pub(crate) fn patient() -> Config {
    Config::default()
        .with_handshake_timeout(PATIENCE)
        .with_heartbeat_interval(PATIENCE * 5)
        .with_room_timeout(PATIENCE * 30)
}

type AuditStream = tokio::sync::mpsc::UnboundedReceiver<AuditEvent>;

/// A sink, and the records that it takes.
fn audit_channel() -> (AuditSink, AuditStream) {
    let (tx, records) = tokio::sync::mpsc::unbounded_channel();
    (AuditSink::from(move |event| drop(tx.send(event))), records)
}

fn launcher() -> (Launcher, AuditStream) {
    let (sink, audit) = audit_channel();
    let launcher = Launcher::new(AGENT, std::env::current_exe().unwrap())
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient())
        .with_stop_timeout(Duration::from_millis(300))
        .with_audit(sink);
    (launcher, audit)
}

async fn launch() -> (CoreHandle, AuditStream) {
    let (launcher, audit) = launcher();
    (launcher.launch().await.unwrap(), audit)
}

fn request(name: &str, input: serde_json::Value) -> CallRequest {
    CallRequest::new(format!("{AGENT}/{name}"), object(&input)).with_correlation_id("c")
}

fn code(outcome: &Outcome) -> &str {
    outcome
        .error
        .as_ref()
        .map_or("", |error| error.code.as_str())
}

async fn names(mut audit: AuditStream) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(event) = audit.recv().await {
        names.push(event.name.to_string());
    }
    names
}

// spec: OSW-5-2
// spec: OSW-5-3
#[tokio::test]
async fn the_variables_say_who_the_agent_is_and_where_it_stands() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (launcher, _audit) = launcher();
        let handle = launcher.launch().await.unwrap();
        let call = handle.call(request("environment", json!({}))).await;
        let outcome = call.unwrap().result().await;
        let seen: serde_json::Value = outcome.into_result().unwrap().deserialize().unwrap();
        let own = &seen["own"];
        assert_eq!(own["AGENT_ID"], AGENT);
        let folder = std::env::current_exe().unwrap();
        assert_eq!(
            own["INSTALL_PATH"],
            folder.parent().unwrap().to_str().unwrap()
        );
        let home = std::env::var("OPENSENTIENCE_HOME")
            .unwrap_or_else(|_| format!("{}/.opensentience", std::env::var("HOME").unwrap()));
        assert_eq!(own["HOME"], home);
        runs.push(own["RUN_ID"].as_str().unwrap().to_owned());
        handle.shutdown().await;
    }
    let ids = runs.iter().map(|id| parse_hyphenated(id).unwrap());
    assert!(ids.into_iter().all(|id| id.get_version_num() == 4));
    assert_ne!(runs[0], runs[1]);
}

// spec: OSW-5-3
#[tokio::test]
async fn a_launched_agent_has_a_clean_environment_and_arguments() {
    let (launcher, audit) = launcher();
    // However busy the machine is, the process ends by itself.
    let launcher = launcher.with_stop_timeout(Duration::from_secs(300));
    let output = launcher.output();
    let handle = launcher.launch().await.unwrap();
    let outcome = handle
        .call(request("environment", json!({})))
        .await
        .unwrap()
        .result()
        .await;
    let seen: serde_json::Value = outcome.into_result().unwrap().deserialize().unwrap();
    let mut names_seen: Vec<_> = seen["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        // A program that records its coverage says so to itself.
        .filter(|n| *n != "__LLVM_PROFILE_RT_INIT_ONCE")
        .collect();
    names_seen.sort_unstable();
    let own = [
        "AGENT_ID",
        "HOME",
        "INSTALL_PATH",
        "RUN_ID",
        "SESSION_TOKEN",
        "SOCKET_PATH",
    ];
    let mut want: Vec<String> = own
        .iter()
        .map(|name| format!("OPENSENTIENCE_{name}"))
        .collect();
    want.push("PATH".into());
    assert_eq!(names_seen, want);
    assert_eq!(seen["args"].as_array().unwrap().len(), 4);
    let tools = 12 + usize::from(cfg!(feature = "schemars"));
    assert_eq!(handle.tools().len(), tools);
    assert_eq!(output.status(), None);
    let ledger = handle.ledger().clone();
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
    assert!(output.status().unwrap().success());
    let text = output.text();
    assert!(text.contains("modes 700 600"));
    let counted = ledger.held_bytes_of(Share::Log);
    assert!(counted >= text.len(), "its agent pays for it");
    let seen = names(audit).await;
    assert_eq!(seen.first().map(String::as_str), Some("agent.run_started"));
    assert_eq!(seen.last().map(String::as_str), Some("agent.run_stopped"));
}

// An agent that was asked to go has stopped, whatever its process says at the end; so has one that goes in good order by itself.
// spec: OSW-8-1
#[tokio::test]
async fn a_run_that_ends_in_good_order_has_stopped() {
    let (sink, audit) = audit_channel();
    let asked = Launcher::new(AGENT, "/bin/sh")
        .args(["-c", "\"$0\" \"$@\"; exit 3"])
        .args([std::env::current_exe().unwrap()])
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient())
        .with_stop_timeout(Duration::from_secs(300))
        .with_audit(sink);
    let output = asked.output();
    let handle = asked.launch().await.unwrap();
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
    assert_eq!(output.status().unwrap().code(), Some(3));
    let seen = names(audit).await;
    assert!(seen.iter().any(|name| name == "agent.run_stop_requested"));
    assert_eq!(seen.last().map(String::as_str), Some("agent.run_stopped"));

    let (launcher, audit) = launcher();
    let handle = launcher
        .with_stop_timeout(Duration::from_secs(300))
        .launch()
        .await
        .unwrap();
    let left = handle.call(request("leave", json!({}))).await.unwrap();
    assert_eq!(code(&left.result().await), "agent.disconnected");
    handle.shutdown().await;
    let seen = names(audit).await;
    assert_eq!(seen.last().map(String::as_str), Some("agent.run_stopped"));
}

#[tokio::test]
async fn output_comes_in_order_and_the_result_last() {
    let (handle, _) = launch().await;
    let mut call = handle
        .call(request("count", json!({"n": 500})))
        .await
        .unwrap();
    let mut seen = 0;
    while let Some(chunk) = call.next_chunk().await {
        seen += 1;
        // More than may wait are still to come.
        assert!(seen > 1 || handle.pending_calls() == 1);
        assert_eq!(
            (chunk.seq, chunk.data.text),
            (seen, Some(format!("line {seen}")))
        );
    }
    assert_eq!(seen, 500);
    assert_eq!(call.result().await.status, Status::Succeeded);
    assert_eq!(handle.pending_calls(), 0);
}

// spec: OSW-4.4-3
#[tokio::test]
async fn cancelling_stops_tools_that_block() {
    let (handle, _) = launch().await;
    let mut call = handle.call(request("block", json!({}))).await.unwrap();
    assert!(call.next_chunk().await.is_some());
    call.cancel();
    let outcome = call.result().await;
    assert_eq!(
        (&outcome.status, code(&outcome)),
        (&Status::Canceled, "tool.canceled")
    );
    let mut dropped = handle.call(request("block", json!({}))).await.unwrap();
    assert!(dropped.next_chunk().await.is_some());
    drop(dropped);
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
}

// spec: OSW-4.3-9
#[tokio::test]
async fn a_tool_that_never_returns_times_out_and_holds_nobody_up() {
    let (handle, _) = launch().await;
    let slow = request("stubborn", json!({})).with_timeout(Duration::from_millis(100));
    let outcome = handle.call(slow).await.unwrap().result().await;
    assert_eq!(code(&outcome), "tool.timeout");
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
}

// spec: OSW-4.5-5
#[tokio::test]
async fn every_call_ends_when_the_process_dies() {
    let (handle, audit) = launch().await;
    let block = handle.call(request("block", json!({}))).await.unwrap();
    let die = handle.call(request("die", json!({}))).await.unwrap();
    assert_eq!(code(&die.result().await), "agent.disconnected");
    assert_eq!(code(&block.result().await), "agent.disconnected");
    let late = handle.call(request("echo", json!({}))).await.unwrap_err();
    assert_eq!(late, CommandError::Closing);
    assert_eq!(handle.shutdown().await, CloseReason::Disconnected);
    // The late call may be refused before the process is seen to have ended.
    let names = names(audit).await;
    for (name, times) in [("agent.run_crashed", 1), ("tool.call_refused", 1)] {
        let recorded = names.iter().filter(|recorded| *recorded == name);
        assert_eq!(recorded.count(), times, "{name}: {names:?}");
    }
}

// spec: OSW-7-4
#[tokio::test]
async fn a_panic_is_contained_and_says_nothing() {
    let (launcher, _audit) = launcher();
    // However busy the machine is, the process ends by itself.
    let launcher = launcher.with_stop_timeout(Duration::from_secs(300));
    let handle = launcher.launch().await.unwrap();
    let outcome = handle
        .call(request("panic", json!({})))
        .await
        .unwrap()
        .result()
        .await;
    assert_eq!(code(&outcome), "tool.internal");
    assert!(!outcome.error.unwrap().message.contains("business"));
    let again = handle
        .call(request("echo", json!({"a": 1})))
        .await
        .unwrap()
        .result()
        .await;
    assert_eq!(again.output.unwrap().as_str(), r#"{"a":1}"#);
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
}

// spec: OSW-5-1
#[tokio::test]
async fn a_process_that_is_no_agent_is_not_waited_for() {
    let (sink, mut audit) = audit_channel();
    let launcher = Launcher::new(AGENT, "/bin/sh").args(["-c", "echo no >&2; exit 3"]);
    let launcher = launcher.with_config(patient()).with_audit(sink);
    let output = launcher.output();
    let error = launcher.launch().await.unwrap_err();
    assert!(matches!(error, LaunchError::Ended(status) if status.code() == Some(3)));
    assert_eq!(audit.recv().await.unwrap().name, AuditName::RunStarted);
    let end = audit.recv().await.unwrap();
    assert_eq!(
        (end.name, end.detail),
        (AuditName::RunCrashed, Some(error.to_string()))
    );
    assert_eq!(output.text(), "no\n");
    assert_eq!(output.status().unwrap().code(), Some(3));
    let silent = Launcher::new(AGENT, "/bin/sleep")
        .args(["600"])
        .with_stop_timeout(Duration::from_millis(300));
    let config = Config::default().with_handshake_timeout(Duration::from_millis(200));
    let error = silent.with_config(config).launch().await.unwrap_err();
    assert!(matches!(error, LaunchError::Handshake));
}

// spec: OSW-5-2
#[tokio::test]
async fn a_connection_of_another_process_is_refused_whatever_it_knows() {
    let (sink, mut audit) = audit_channel();
    let told = "echo $OPENSENTIENCE_SOCKET_PATH >&2; exec sleep 600";
    let launcher = Launcher::new(AGENT, "/bin/sh")
        .args(["-c", told])
        .with_config(patient())
        .with_stop_timeout(Duration::from_millis(300))
        .with_audit(sink);
    let output = launcher.output();
    let launching = tokio::spawn(launcher.launch());
    let path = loop {
        if let Some(path) = output.text().strip_suffix('\n') {
            break path.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
    // The other end may be gone already.
    let _ = stream.write_all(&frame(&hello())).await;
    assert_eq!(stream.read(&mut [0; 1_024]).await.unwrap_or(0), 0);
    let refused = loop {
        let event = audit.recv().await.unwrap();
        if event.name == AuditName::HandshakeFailed {
            break event;
        }
    };
    assert_eq!(
        refused.detail.as_deref(),
        Some("a connection of another process")
    );
    launching.abort();
}

// Whoever waits lets the clock of the timers go on, and nothing else does.
// spec: OSW-4.4-2
#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_hear_its_cancel_is_dropped_by_its_agent() {
    let deaf = async |_: ToolContext, _: RawObject| {
        std::future::pending::<Result<RawObject, ToolError>>().await
    };
    let tidy = async |context: ToolContext, _: RawObject| {
        let begun = context.send(Chunk::text(Channel::Log, "begun")).await;
        begun.unwrap();
        context.cancelled().await;
        tokio::task::yield_now().await;
        Err::<RawObject, _>(ToolError::failed("tidied up"))
    };
    let agent = Agent::new("1.0.0".parse().unwrap()).tool(spec("deaf"), deaf);
    let (mut core, _agent) = serve_in_memory(agent.tool(spec("tidy"), tidy)).await;
    assert!(core.tools_changed().await);
    let mut call = core.call(request("tidy", json!({}))).await.unwrap();
    assert!(call.next_chunk().await.is_some());
    call.cancel();
    let error = call.result().await.error.unwrap();
    assert_eq!(error.message, "tidied up", "it has a moment");
    let call = core.call(request("deaf", json!({}))).await.unwrap();
    let canceled = tokio::time::Instant::now();
    call.cancel();
    let outcome = call.result().await;
    // The core, which waits for 5 s, had not to say it.
    assert_eq!((outcome.status, outcome.by_agent), (Status::Canceled, true));
    assert!(canceled.elapsed() < Duration::from_secs(5));
}

fn serve(
    io: DuplexStream,
    token: SessionToken,
) -> tokio::task::JoinHandle<Result<CloseReason, ServeError>> {
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token);
    tokio::spawn(tools().serve(io, config))
}

async fn connect(limits: Limits, token_seen: SessionToken) -> Result<CoreHandle, AttachError> {
    let (near, far) = tokio::io::duplex(4_096);
    serve(far, token_seen);
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let config = patient().with_limits(limits);
    attach(
        near,
        clock,
        config,
        IdSource::seeded(1),
        grant,
        AuditSink::default(),
    )
    .await
}

/// A core, and the other end of its stream when an agent with the tool `echo` was taken in there.
async fn raw_agent() -> (CoreHandle, DuplexStream) {
    raw_agent_within(Limits::default()).await
}

async fn raw_agent_within(limits: Limits) -> (CoreHandle, DuplexStream) {
    raw_agent_with(patient().with_limits(limits)).await
}

async fn raw_agent_with(config: Config) -> (CoreHandle, DuplexStream) {
    audited_raw_agent(config, AuditSink::default()).await
}

async fn audited_raw_agent(config: Config, audit: AuditSink) -> (CoreHandle, DuplexStream) {
    raw_agent_over(4_096, config, audit).await
}

/// An agent whose stream holds so many bytes.
async fn raw_agent_over(
    bytes: usize,
    config: Config,
    audit: AuditSink,
) -> (CoreHandle, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(bytes);
    let register = message("agent.tools.register", json!({"tools": [tool("echo")]}));
    far.write_all(&frame(&hello())).await.unwrap();
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let ids = IdSource::seeded(1);
    let attached = attach(near, clock, config, ids, grant, audit);
    let mut handle = attached.await.unwrap();
    far.write_all(&frame(&register)).await.unwrap();
    assert!(handle.tools_changed().await);
    (handle, far)
}

/// An agent at the other end of a core's stream.
async fn serve_in_memory(
    agent: Agent,
) -> (
    CoreHandle,
    tokio::task::JoinHandle<Result<CloseReason, ServeError>>,
) {
    let (near, far) = tokio::io::duplex(4_096);
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let served = tokio::spawn(agent.serve(far, config));
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
    let core = attach(near, clock, patient(), ids, grant, audit);
    (core.await.unwrap(), served)
}

#[tokio::test]
async fn tools_that_fit_into_no_frame_are_an_error_of_the_agent() {
    let mut wordy = spec("wordy");
    wordy.description = "x".repeat(5_000_000);
    let agent = Agent::new("1.0.0".parse::<SemVer>().unwrap());
    let agent = agent.tool(wordy, async |_, input| Ok(input));
    let (_core, served) = serve_in_memory(agent).await;
    let error = served.await.unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Tools(_)), "{error}");
}

// spec: OSW-4.2-3
#[tokio::test]
async fn of_two_tools_with_one_name_both_sides_take_the_first() {
    let agent = Agent::new("1.0.0".parse::<SemVer>().unwrap());
    let mut second = spec("same");
    second.input_schema = object(&json!({"type": "object", "required": ["never"]}));
    let agent = agent
        .tool(spec("same"), async |_, _| Ok(object(&json!({"tool": 1}))))
        .tool(second, async |_, _| Ok(object(&json!({"tool": 2}))));
    let (mut core, _served) = serve_in_memory(agent).await;
    core.tools_changed().await;
    let call = core.call(request("same", json!({}))).await.unwrap();
    let output = call.result().await.into_result().unwrap();
    assert_eq!(output.as_str(), r#"{"tool":1}"#);
}

// spec: OSW-4.1-3
#[tokio::test]
async fn a_wrong_token_is_refused_on_both_sides() {
    let wrong = || SessionToken::from_random([1; 32]);
    let error = connect(Limits::default(), wrong()).await.unwrap_err();
    assert!(
        matches!(error, AttachError::Handshake { grant: Some(_) }),
        "{error}"
    );
    let (near, far) = tokio::io::duplex(4_096);
    let served = serve(far, wrong());
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let core = attach(
        near,
        clock,
        patient(),
        IdSource::seeded(1),
        grant,
        AuditSink::default(),
    );
    assert!(core.await.is_err());
    let error = served.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the connection ended with protocol.unauthorized"
    );
}

/// The next frame of a core, parsed.
async fn next_frame(far: &mut DuplexStream) -> serde_json::Value {
    let head = far.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(head).unwrap()];
    far.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn the_agent_ends_when_the_core_vanishes() {
    let (near, far) = tokio::io::duplex(4_096);
    let served = serve(far, token());
    drop(near);
    assert_eq!(served.await.unwrap().unwrap(), CloseReason::Disconnected);
}

async fn pid(handle: &CoreHandle) -> String {
    let call = handle.call(request("environment", json!({}))).await;
    let output = call.unwrap().result().await.into_result().unwrap();
    let seen: serde_json::Value = output.deserialize().unwrap();
    seen["pid"].to_string()
}

fn is_alive(pid: &str) -> bool {
    let mut kill = Command::new("kill");
    let kill = kill.arg("-0").arg(pid).stderr(std::process::Stdio::null());
    kill.status().unwrap().success()
}

#[tokio::test]
async fn a_launched_process_is_gone_after_the_shutdown() {
    let (handle, _) = launch().await;
    let pid = pid(&handle).await;
    assert!(is_alive(&pid));
    handle.shutdown().await;
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn an_agent_lives_on_when_the_shell_that_began_it_is_killed() {
    let launcher = Launcher::new(AGENT, "/bin/sh")
        .args(["-c", "echo $$; \"$0\" \"$@\" & wait"])
        .args([std::env::current_exe().unwrap()])
        .args(["transport::agent_process", "--exact", "--nocapture"])
        .with_config(patient());
    let output = launcher.output();
    let handle = launcher.launch().await.unwrap();
    let shell = loop {
        let text = output.text();
        if let Some(line) = text.lines().find(|line| line.parse::<u32>().is_ok()) {
            break line.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    Command::new("kill").arg(&shell).status().unwrap();
    while is_alive(&shell) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(pid(&handle).await, shell);
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
}

#[tokio::test]
async fn a_process_is_asked_to_end_before_it_is_killed() {
    let script = "trap 'exit 7' TERM; echo ready; sleep 600 & wait";
    let launcher = Launcher::new(AGENT, "/bin/sh").args(["-c", script]);
    let output = launcher.output();
    let process = launcher.spawn().unwrap();
    while output.text() != "ready\n" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = process.stop(Duration::from_secs(60)).await.unwrap();
    assert_eq!(status.code(), Some(7));
}

#[tokio::test]
async fn a_launched_process_is_gone_after_its_handle_is_dropped() {
    let (handle, audit) = launch().await;
    let pid = pid(&handle).await;
    let stubborn = request("stubborn", json!({})).with_timeout(Duration::from_millis(50));
    let call = handle.call(stubborn).await.unwrap();
    assert_eq!(code(&call.result().await), "tool.timeout");
    drop(handle);
    names(audit).await;
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let call = handle.call(request("block", json!({}))).await.unwrap();
    assert_eq!(handle.pending_calls(), 1);
    drop(call);
    let over = async {
        while handle.pending_calls() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), over)
        .await
        .unwrap();
}

/// Whether a process that is not our child runs; one that nobody has reaped does not.
#[cfg(target_os = "linux")]
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_launch_that_is_given_up_leaves_no_process_behind() {
    let script = "sleep 600 & echo $!; wait";
    let launcher = Launcher::new(AGENT, "/bin/sh").args(["-c", script]);
    let launcher = launcher.with_config(patient());
    let output = launcher.output();
    let mut launch = Box::pin(launcher.launch());
    let pid = loop {
        tokio::select! {
            _ = &mut launch => panic!("it is no agent"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        if let Some(pid) = output.text().strip_suffix('\n') {
            break pid.to_owned();
        }
    };
    assert!(runs(&pid));
    drop(launch);
    let gone = async {
        while runs(&pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .unwrap();
}
