//! A thousand agents for an hour: calls that end in every way, agents that come and go, and what is left afterwards.
//!
//! `cargo run --release -p opensentience-wire --features tokio --example soak -- AGENTS SECONDS`
//!
//! Prints a line of figures now and then, and ends with 1 when a call is pending after the last one has ended. With 0 seconds it
//! only measures agents that are idle.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example tells what it does"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use opensentience_wire::message::{SemVer, ToolSpec};
use opensentience_wire::role::agent;
use opensentience_wire::role::core::{CallRequest, Config};
use opensentience_wire::transport::tokio::{Agent, AuditSink, CoreHandle, ToolError, attach};
use opensentience_wire::ubos_common::id::IdSource;
use opensentience_wire::ubos_common::json::{RawBuf, RawObject};
use opensentience_wire::ubos_common::os::Clock;
use opensentience_wire::{Grant, SessionToken};
use tokio::net::UnixStream;

type Failure = Box<dyn std::error::Error>;

fn object(text: &str) -> RawObject {
    let value = RawBuf::parse(text).ok().and_then(RawObject::new);
    value.unwrap_or_default()
}

fn tools() -> Option<Agent> {
    let spec = |name| ToolSpec::local(name, "of a soak", object(r#"{"type":"object"}"#));
    let agent = Agent::new("1.0.0".parse::<SemVer>().ok()?)
        .tool(spec("echo"), async |_, input| Ok(input))
        .tool(spec("pieces"), async |context, _| {
            for n in 0..20 {
                let sent = context.send(format!("line {n}")).await;
                sent.map_err(|_| ToolError::canceled())?;
            }
            Ok(RawObject::empty())
        })
        .tool(spec("wait"), async |context, _| {
            context.cancelled().await;
            Err(ToolError::canceled())
        })
        .tool(spec("fail"), async |_, _| Err(ToolError::failed("no")))
        .tool(spec("deaf"), async |_, _| {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(RawObject::empty())
        });
    Some(agent)
}

/// An agent behind a pair of sockets.
async fn agent(n: usize) -> Result<CoreHandle, Failure> {
    let (near, far) = UnixStream::pair()?;
    let mut bits = [0; 32];
    ubos_common::os::fill_random(&mut bits)?;
    let token = || SessionToken::from_random(bits);
    let id = format!("com.example.a{n}");
    let version = "1.0.0".parse()?;
    let config = agent::Config::new(id.as_str(), version, token());
    tokio::spawn(tools().ok_or("tools")?.serve(far, config));
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), &id);
    let ids = IdSource::from_os()?;
    let core = attach(
        near,
        clock,
        Config::default(),
        ids,
        grant,
        AuditSink::default(),
    );
    let mut core = core.await.map_err(|_| "the handshake failed")?;
    core.tools_changed().await;
    Ok(core)
}

/// One call, ended in the way that `kind` chooses.
async fn call(core: &CoreHandle, n: usize, kind: u64) -> Result<(), Failure> {
    let names = [
        "echo", "pieces", "wait", "fail", "deaf", "pieces", "wait", "echo",
    ];
    let name = usize::try_from(kind % 8).ok().and_then(|at| names.get(at));
    let tool = format!("com.example.a{n}/{}", name.unwrap_or(&"echo"));
    let input = object(r#"{"text":"a text that is as long as a short one usually is"}"#);
    let request = CallRequest::new(tool, input).with_timeout(Duration::from_millis(10));
    let mut call = core.call(request).await?;
    match kind / 8 % 4 {
        0 => drop(call),
        1 => {
            call.cancel();
            call.result().await;
        }
        2 => {
            while call.next_chunk().await.is_some() {}
            call.result().await;
        }
        _ => drop(call.result().await),
    }
    Ok(())
}

/// Memory in KiB, and processor time in ticks of 10 ms.
fn used() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|text| text.split_whitespace().next()?.parse().ok());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = stat.rsplit(')').next().unwrap_or_default();
    let ticks = times.split_whitespace().skip(11).take(2);
    let ticks = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
    (memory.unwrap_or_default(), ticks)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Failure> {
    let mut words = std::env::args().skip(1);
    let agents: usize = words.next().ok_or("usage: soak AGENTS SECONDS")?.parse()?;
    let seconds: u64 = words.next().ok_or("usage: soak AGENTS SECONDS")?.parse()?;
    let (before, _) = used();
    let mut cores = Vec::with_capacity(agents);
    for n in 0..agents {
        cores.push(agent(n).await?);
    }
    let (after, ticks) = used();
    let each = (after.saturating_sub(before) * 1024)
        .checked_div(u64::try_from(agents)?)
        .unwrap_or_default();
    println!("{agents} agents: {each} bytes each, both ends");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (idle, later) = used();
    println!(
        "30 s of heartbeats: {} ms of processor time, {idle} KiB",
        (later - ticks) * 10
    );
    let began = Instant::now();
    let (mut made, mut replaced, mut seed) = (0_u64, 0_u64, 1_u64);
    let mut told = 0;
    while began.elapsed().as_secs() < seconds {
        // Numbers that look like chance, the same ones in each run.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let kind = seed >> 33;
        let n = usize::try_from(seed >> 40)? % agents;
        let mut batch = Vec::new();
        for extra in 0..8 {
            let at = (n + extra) % agents;
            if let Some(core) = cores.get(at) {
                batch.push(call(core, at, kind + u64::try_from(extra)?));
            }
        }
        let ended = futures_join(batch).await;
        made += ended;
        if kind % 1_000 == 0 {
            let other = agent(n).await?;
            let old = cores.get_mut(n).map(|core| core::mem::replace(core, other));
            if let Some(old) = old {
                if kind % 2_000 == 0 {
                    drop(old);
                } else {
                    old.shutdown().await;
                }
            }
            replaced += 1;
        }
        if began.elapsed().as_secs() / 300 > told {
            told += 1;
            let (memory, _) = used();
            println!(
                "{} min: {made} calls, {replaced} agents replaced, {memory} KiB",
                told * 5
            );
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pending: usize = cores.iter().map(CoreHandle::pending_calls).sum();
    let (memory, _) = used();
    println!("{made} calls, {replaced} agents replaced, {memory} KiB, {pending} calls pending");
    for core in cores {
        core.shutdown().await;
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let patience = Instant::now();
    while metrics.num_alive_tasks() > 0 && patience.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tasks = metrics.num_alive_tasks();
    println!("{tasks} tasks alive at the end");
    Ok(ExitCode::from(u8::from(pending > 0 || tasks > 0)))
}

/// Runs calls at the same time; gives how many went as they should.
async fn futures_join(calls: Vec<impl Future<Output = Result<(), Failure>>>) -> u64 {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut ended = 0;
    core::future::poll_fn(|context| {
        calls.retain_mut(|call| match call.as_mut().poll(context) {
            core::task::Poll::Ready(result) => {
                ended += u64::from(result.is_ok());
                false
            }
            core::task::Poll::Pending => true,
        });
        if calls.is_empty() {
            core::task::Poll::Ready(())
        } else {
            core::task::Poll::Pending
        }
    })
    .await;
    ended
}
