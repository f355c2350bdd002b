//! Real sockets and real processes: this test binary, started again, is the agent.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use opensentience_wire::message::{Channel, SemVer, Status};
use opensentience_wire::role::CloseReason;
use opensentience_wire::role::agent::{self, Chunk};
use opensentience_wire::role::core::{CallRequest, Config, Outcome};
#[cfg(feature = "schemars")]
use opensentience_wire::transport::tokio::CallError;
use opensentience_wire::transport::tokio::{
    Agent, AttachError, AuditSink, CoreHandle, LaunchError, Launcher, ServeError, ToolError, attach,
};
use opensentience_wire::{AuditEvent, CommandError, ErrorCode, ErrorObject, Limits};
use opensentience_wire::{Grant, SessionToken};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use ubos_common::id::IdSource;
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
        .tool(spec("environment"), async |_, _| {
            let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            let args: Vec<String> = std::env::args().collect();
            Ok(object(
                &json!({"names": names, "args": args, "pid": std::process::id()}),
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
async fn a_launched_agent_has_a_clean_environment_and_arguments() {
    let (launcher, audit) = launcher();
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
    let tools = 10 + usize::from(cfg!(feature = "schemars"));
    assert_eq!(handle.tools().len(), tools);
    assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
    assert!(output.text().contains("modes 700 600"));
    let seen = names(audit).await;
    assert_eq!(seen.first().map(String::as_str), Some("agent.run_started"));
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
        assert_eq!(
            (chunk.seq, chunk.data.text),
            (seen, Some(format!("line {seen}")))
        );
    }
    assert_eq!(seen, 500);
    assert_eq!(call.result().await.status, Status::Succeeded);
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
    assert_eq!(
        names(audit).await.last().map(String::as_str),
        Some("agent.run_crashed")
    );
}

// spec: OSW-7-4
#[tokio::test]
async fn a_panic_is_contained_and_says_nothing() {
    let (handle, _) = launch().await;
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
}

// spec: OSW-5-1
#[tokio::test]
async fn a_process_that_is_no_agent_is_not_waited_for() {
    let launcher = Launcher::new(AGENT, "/bin/sh").args(["-c", "echo no >&2; exit 3"]);
    let output = launcher.output();
    let error = launcher.launch().await.unwrap_err();
    assert!(matches!(error, LaunchError::Ended(status) if status.code() == Some(3)));
    assert_eq!(output.text(), "no\n");
    let silent = Launcher::new(AGENT, "/bin/sleep")
        .args(["600"])
        .with_stop_timeout(Duration::from_millis(300));
    let config = Config::default().with_handshake_timeout(Duration::from_millis(200));
    let error = silent.with_config(config).launch().await.unwrap_err();
    assert!(matches!(error, LaunchError::Handshake));
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
    let config = Config::default().with_limits(limits);
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
    let (near, mut far) = tokio::io::duplex(4_096);
    let register = message("agent.tools.register", json!({"tools": [tool("echo")]}));
    far.write_all(&frame(&hello())).await.unwrap();
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let ids = IdSource::seeded(1);
    let config = Config::default().with_limits(limits);
    let attached = attach(near, clock, config, ids, grant, AuditSink::default());
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
    let core = attach(near, clock, Config::default(), ids, grant, audit);
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

#[tokio::test]
async fn a_call_waits_for_room_no_longer_than_it_may_take() {
    let (core, _far) = raw_agent().await;
    // Nobody reads them: the stream is full after the first, and the driver takes no more.
    let text = "x".repeat(900_000);
    let timed = || request("echo", json!({"text": text})).with_timeout(Duration::from_millis(50));
    let late = async {
        loop {
            if let Err(error) = core.call(timed()).await {
                break error;
            }
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(60), late).await;
    assert_eq!(late.unwrap(), CommandError::Late);
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
        Config::default(),
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

// spec: OSW-4.3-11
#[tokio::test]
async fn a_slow_reader_slows_the_tool_and_loses_nothing() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let mut slow = handle
        .call(request("count", json!({"n": 3_000})))
        .await
        .unwrap();
    let echo = handle.call(request("echo", json!({}))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut seen = 0;
    while slow.next_chunk().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3_000);
    assert_eq!(slow.result().await.status, Status::Succeeded);
    assert_eq!(echo.result().await.status, Status::Succeeded);
    let unread = handle
        .call(request("count", json!({"n": 3_000})))
        .await
        .unwrap();
    assert_eq!(unread.result().await.status, Status::Succeeded);
}

// Both ends have more to write than either has read: one of them has to go on reading.
// spec: OSW-4.3-11
#[tokio::test]
async fn large_calls_and_large_results_pass_each_other() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let text = "x".repeat(1_000_000);
    let echo = async || {
        let call = handle.call(request("echo", json!({"text": text}))).await;
        call.unwrap().result().await.status
    };
    let all = async {
        tokio::join!(
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo(),
            echo()
        )
    };
    let patience = Duration::from_secs(30);
    let (a, b, c, d, e, f, g, h) = tokio::time::timeout(patience, all).await.unwrap();
    assert!(
        [a, b, c, d, e, f, g, h]
            .iter()
            .all(|status| *status == Status::Succeeded)
    );
}

/// The next frame of a core, parsed.
async fn next_frame(far: &mut DuplexStream) -> serde_json::Value {
    let head = far.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(head).unwrap()];
    far.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The ids of the next calls that a core sends.
async fn next_calls(far: &mut DuplexStream, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let frame = next_frame(far).await;
        if let Some(id) = frame["payload"]["call_id"].as_str() {
            ids.push(id.to_owned());
        }
    }
    ids
}

// An agent that answers before it reads must not wait for ever: what results let go is the core's to send.
// spec: OSW-2-6
#[tokio::test]
async fn results_are_read_while_the_calls_behind_them_wait_to_be_sent() {
    let limits = Limits::default().with_max_inflight_requests(4);
    let (handle, mut far) = raw_agent_within(limits).await;
    let mut calls = Vec::new();
    for n in 0..12 {
        let size = if n < 4 { 10 } else { 500_000 };
        let input = json!({"text": "x".repeat(size)});
        calls.push(handle.call(request("echo", input)).await.unwrap());
    }
    let answered = async {
        for id in next_calls(&mut far, 4).await {
            let output = json!({"text": "y".repeat(500_000)});
            let result = json!({"call_id": id, "status": "succeeded", "output": output});
            let result = message("agent.tool.result", result);
            far.write_all(&frame(&result)).await.unwrap();
        }
        next_calls(&mut far, 4).await
    };
    let patience = Duration::from_secs(30);
    let next = tokio::time::timeout(patience, answered).await.unwrap();
    assert_eq!(next.len(), 4);
    for call in calls.drain(..4) {
        assert_eq!(call.result().await.status, Status::Succeeded);
    }
}

// Output is bounded in bytes, too: few pieces may be many bytes.
// spec: OSW-4.3-11
#[tokio::test]
async fn long_output_that_nobody_takes_is_not_read_on() {
    let (handle, mut far) = raw_agent().await;
    let mut call = handle.call(request("echo", json!({}))).await.unwrap();
    let id = next_calls(&mut far, 1).await.remove(0);
    let mut written = 0;
    let flood = async {
        for seq in 1..=60 {
            let data = json!({"text": "x".repeat(500_000)});
            let piece = json!({"call_id": id, "seq": seq, "channel": "stdout", "data": data});
            let piece = message("agent.tool.stream", piece);
            far.write_all(&frame(&piece)).await.unwrap();
            written = seq;
        }
    };
    let quiet = tokio::time::timeout(Duration::from_secs(2), flood);
    assert!(quiet.await.is_err());
    assert!(written <= 4, "{written}");
    assert_eq!(call.next_chunk().await.unwrap().seq, 1);
}

// spec: OSW-2-9
#[tokio::test]
async fn an_agent_that_provokes_answers_and_reads_none_is_not_read_on() {
    let (_handle, mut far) = raw_agent().await;
    let unknown = |n: usize| {
        let mut message = message("agent.what", json!({}));
        message["request_id"] = json!(format!("{n}{}", "r".repeat(10_000)));
        frame(&message)
    };
    let flood = async {
        for n in 0.. {
            far.write_all(&unknown(n)).await.unwrap();
        }
    };
    // A core that wrote down answers without end would read without end.
    let quiet = tokio::time::timeout(Duration::from_secs(2), flood);
    assert!(quiet.await.is_err());
    let mut answers = 0;
    let rest = async {
        let mut buffer = vec![0; 4_096];
        while answers < 8 << 20 {
            answers += far.read(&mut buffer).await.unwrap();
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(2), rest)
            .await
            .is_err()
    );
}

// spec: OSW-4.1-7
#[tokio::test]
async fn an_agent_that_stops_reading_does_not_delay_shutdown() {
    for dropped in [false, true] {
        let (handle, mut far) = raw_agent().await;
        let input = json!({"text": "x".repeat(1_000_000)});
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.push(handle.call(request("echo", input.clone())).await.unwrap());
        }
        let ended = async {
            if dropped {
                drop(handle);
            } else {
                assert_eq!(handle.shutdown().await, CloseReason::Goodbye);
            }
            for call in calls {
                assert_eq!(code(&call.result().await), "agent.disconnected");
            }
        };
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, ended).await.unwrap();
        // The stream has ended too.
        while far.read(&mut [0; 4_096]).await.unwrap() > 0 {}
    }
}

#[tokio::test]
async fn who_asks_after_the_end_is_told_even_while_output_waits() {
    let (handle, _) = launch().await;
    let count = request("count", json!({"n": 50}));
    let unread = handle.call(count).await.unwrap();
    let die = handle.call(request("die", json!({}))).await.unwrap();
    assert_eq!(code(&die.result().await), "agent.disconnected");
    let late = handle.call(request("echo", json!({}))).await;
    assert_eq!(late.unwrap_err(), CommandError::Closing);
    drop(unread);
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
async fn a_typed_tool_has_its_types_its_log_and_its_time() {
    let mut core = connect(Limits::default(), token()).await.unwrap();
    assert!(core.tools_changed().await);
    let input = json!({"numbers": [1, 2]});
    let asked = request("typed", input.clone()).with_timeout(Duration::from_secs(60));
    let mut call = core.call(asked).await.unwrap();
    let log = call.next_chunk().await.unwrap();
    assert_eq!(log.channel, Channel::Log);
    let output = call.result().await.output.unwrap();
    assert_eq!(output.as_str(), r#"{"sum":3,"timed":true}"#);
    let outcome = core.call(request("no_object", input)).await.unwrap();
    assert_eq!(code(&outcome.result().await), "tool.internal");
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn both_sides_of_a_call_may_have_types() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let divide = format!("{AGENT}/divide");
    let of = |dividend, divisor| {
        CallRequest::typed(divide.as_str(), &Pair { dividend, divisor }).unwrap()
    };
    let quotient: Quotient = handle.ask(of(42, 6)).await.unwrap();
    assert_eq!(quotient, Quotient { quotient: 7 });
    let failed = handle.ask::<Quotient>(of(42, 0)).await.unwrap_err();
    assert_eq!(failed.to_string(), "tool.failed: division by zero");
    let unread = handle.ask::<Pair>(of(42, 6)).await.unwrap_err();
    assert!(matches!(unread, CallError::Output(_)), "{unread}");
    // The schema is that of the type, so what does not fit it is refused before the tool.
    let wrong = CallRequest::typed(divide.as_str(), &json!({"dividend": 1})).unwrap();
    let refused = handle.ask::<Quotient>(wrong).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("tool.invalid_input"),
        "{refused}"
    );
    let tools = handle.tools();
    let declared = tools.iter().find(|tool| tool.name == "divide").unwrap();
    let output = declared.output_schema.as_ref().unwrap().as_str();
    assert!(output.contains("quotient"), "{output}");
}

#[test]
fn errors_of_a_tool_keep_what_they_are() {
    let object = ErrorObject::of(ErrorCode::ToolBusy, "full");
    let text = |error: ToolError| error.to_string();
    assert_eq!(text(object.clone().into()), "tool.busy: full");
    assert_eq!(text(Box::new(object).into()), "tool.busy: full");
    assert_eq!(
        text(CommandError::Closing.into()),
        "tool.canceled: canceled"
    );
    let io = std::io::Error::other("no disk");
    assert_eq!(text(io.into()), "tool.failed: no disk");
}

#[tokio::test]
async fn an_input_of_another_type_is_refused_and_not_repeated() {
    let mut core = connect(Limits::default(), token()).await.unwrap();
    assert!(core.tools_changed().await);
    let input = json!({"numbers": ["hidden"]});
    let call = core.call(request("typed", input)).await.unwrap();
    let outcome = call.result().await;
    assert_eq!(code(&outcome), "tool.invalid_input");
    assert!(!format!("{outcome:?}").contains("hidden"));
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
