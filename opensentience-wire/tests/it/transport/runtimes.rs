//! A runtime that ends before the handles of what ran on it.

use std::time::Duration;

use opensentience_wire::message::{SemVer, ToolSpec};
use opensentience_wire::role::agent;
use opensentience_wire::role::core::Config;
use opensentience_wire::transport::tokio::{Agent, AuditSink, CoreHandle, attach};
use opensentience_wire::{CommandError, ErrorCode, Grant};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use super::{AGENT, PATIENCE, audited_raw_agent, patient, raw_agent, request};
use crate::kit::{frame, hello, object, token};

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

// spec: OSW-4.5-5
#[test]
fn calls_end_when_the_runtime_of_their_connection_does() {
    let own = runtime();
    let (core, _far) = own.block_on(raw_agent());
    let call = own.block_on(core.call(request("echo", json!({})))).unwrap();
    let other = runtime();
    let result = other.spawn(call.result());
    // It waits before the runtime ends, and is woken.
    other.block_on(tokio::task::yield_now());
    drop(own);
    let late = async { tokio::time::timeout(Duration::from_secs(60), result).await };
    let outcome = other.block_on(late).expect("the call ends").unwrap();
    let code = outcome.error.map(|error| error.code);
    assert_eq!(code, Some(ErrorCode::AgentDisconnected));
    assert_eq!(core.pending_calls(), 0);
}

#[test]
fn who_waits_for_room_waits_no_more_when_the_runtime_of_the_connection_ends() {
    let own = runtime();
    let patient = Config::default().with_room_timeout(Duration::from_secs(3_600));
    let (core, _far) = own.block_on(audited_raw_agent(patient, AuditSink::default()));
    let full = || request("echo", json!({"text": "x".repeat(900_000)}));
    let other = runtime();
    let mut waiting = loop {
        let mut call = Box::pin(core.call(full()));
        let taken = async { tokio::time::timeout(Duration::from_millis(20), &mut call).await };
        match other.block_on(taken) {
            Ok(taken) => drop(taken.unwrap()),
            Err(_) => break call,
        }
    };
    drop(own);
    let late = async { tokio::time::timeout(Duration::from_secs(60), &mut waiting).await };
    let refused = other.block_on(late).expect("nobody waits any more");
    assert_eq!(refused.unwrap_err(), CommandError::Closing);
}

async fn attached(stream: tokio::io::DuplexStream) -> CoreHandle {
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
    let core = attach(stream, clock, patient(), ids, grant, audit);
    core.await.unwrap()
}

#[test]
fn calls_end_when_the_runtime_ends_before_it_has_run_their_connection() {
    let (own, other) = (runtime(), runtime());
    let (near, mut far) = tokio::io::duplex(4_096);
    // It returns where the handshake is over: the task of the connection has not run yet.
    let core = own.block_on(async {
        far.write_all(&frame(&hello())).await.unwrap();
        attached(near).await
    });
    drop(own);
    let late =
        async { tokio::time::timeout(PATIENCE, core.call(request("echo", json!({})))).await };
    let refused = other.block_on(late).expect("the call ends");
    assert_eq!(refused.unwrap_err(), CommandError::Closing);
    let late = async { tokio::time::timeout(PATIENCE, core.shutdown()).await };
    other.block_on(late).expect("it has ended");
}

/// An agent registers a tool whose schema nobody has seen before.
async fn registered(number: u32) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let schema = object(&json!({"type": "object", "title": format!("of its own {number}")}));
    let agent = Agent::new("1.0.0".parse::<SemVer>().unwrap());
    let agent = agent.tool(ToolSpec::local("t", "x", schema), async |_, input| {
        Ok(input)
    });
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    tokio::spawn(agent.serve(far, config));
    assert!(attached(near).await.tools_changed().await);
}

#[test]
fn a_runtime_that_nobody_drives_holds_up_no_schemas_of_others() {
    let (idle, own) = (runtime(), runtime());
    let mut waiting = JoinSet::new();
    for number in 0..8 {
        waiting.spawn_on(registered(number), idle.handle());
    }
    // The others wait for their schemas, and are left there.
    let first = idle.block_on(waiting.join_next());
    first.unwrap().unwrap();
    let next = async { tokio::time::timeout(PATIENCE, registered(8)).await };
    own.block_on(next).expect("its turn comes");
}
