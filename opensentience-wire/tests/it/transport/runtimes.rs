//! A runtime that ends before the handles of what ran on it.

use std::time::Duration;

use opensentience_wire::role::core::Config;
use opensentience_wire::transport::tokio::AuditSink;
use opensentience_wire::{CommandError, ErrorCode};
use serde_json::json;

use super::{audited_raw_agent, raw_agent, request};

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
