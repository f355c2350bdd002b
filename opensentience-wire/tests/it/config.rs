//! Settings that cannot work are refused where the machine is made.

use std::time::Duration;

use opensentience_wire::ConfigError;
use opensentience_wire::message::SemVer;
use opensentience_wire::role::agent::{self, AgentConnection};
use opensentience_wire::role::core::{self, CoreConnection};
use opensentience_wire::role::router::{self, Quota, Router};
use opensentience_wire::{Ledger, Limits, MAX_FRAME_BYTES};
use ubos_common::id::IdSource;

use crate::kit::{AGENT, at, token};

fn core(config: core::Config) -> Result<(), ConfigError> {
    CoreConnection::new(at(0), config, IdSource::seeded(1), None).map(drop)
}

fn shared(ledger: Ledger) -> Result<(), ConfigError> {
    let conn = CoreConnection::new(at(0), core::Config::default(), IdSource::seeded(1), None);
    conn.unwrap().with_ledger(ledger).map(drop)
}

fn agent(id: &str, limits: Limits) -> Result<(), ConfigError> {
    let version = "1.0.0".parse::<SemVer>().unwrap();
    let config = agent::Config::new(id, version, token()).with_limits(limits);
    AgentConnection::new(at(0), config, IdSource::seeded(1)).map(drop)
}

fn router(config: router::Config) -> Result<(), ConfigError> {
    Router::new(config).map(drop)
}

fn limits(limits: Limits) -> Result<(), ConfigError> {
    core(core::Config::default().with_limits(limits))
}

#[test]
fn a_setting_out_of_its_range_is_refused_by_name() {
    let second = Duration::from_secs(1);
    let quota = |calls, span| Quota::default().with_rate(calls, span);
    let frame = |bytes| Limits::default().with_max_frame_bytes(bytes);
    let cases = [
        (
            limits(frame(0)),
            "max_frame_bytes is 0, but a frame has 1 to 4294967295 bytes",
        ),
        (
            limits(frame(u32::MAX as usize + 1)),
            "max_frame_bytes is 4294967296, but a frame has 1 to 4294967295 bytes",
        ),
        (
            agent(AGENT, frame(0)),
            "max_frame_bytes is 0, but a frame has 1 to 4294967295 bytes",
        ),
        (
            limits(frame(64 << 20)),
            "max_agent_bytes is 83886080, but 3 of its 16 parts must have room for a frame of max_frame_bytes and 256 KiB of short pieces",
        ),
        (
            shared(Ledger::new(1 << 20)),
            "max_agent_bytes is 1048576, but 3 of its 16 parts must have room for a frame of max_frame_bytes and 256 KiB of short pieces",
        ),
        (
            limits(Limits::default().with_max_inflight_requests(0)),
            "max_inflight_requests is 0, but a connection needs room for at least 1 call",
        ),
        (
            limits(Limits::default().with_max_waiting_outputs(0)),
            "max_waiting_outputs is 0, but a connection that takes input needs room for at least 1 output",
        ),
        (
            agent("", Limits::default()),
            "agent_id is \"\", but an agent needs the id of its manifest",
        ),
        (
            core(core::Config::default().with_heartbeat_interval(Duration::from_micros(999))),
            "heartbeat_interval is 999µs, but the welcome announces it in milliseconds and needs at least 1",
        ),
        (
            core(core::Config::default().with_call_timeout(Duration::ZERO)),
            "call_timeout is Some(0ns), but a call needs some time",
        ),
        (
            core(core::Config::default().with_missed_heartbeats(0)),
            "missed_heartbeats is 0, but an agent is unhealthy after at least 1 missed heartbeat",
        ),
        (
            router(router::Config::default().with_max_agents(0)),
            "max_agents is 0, but a router needs room for at least 1 agent",
        ),
        (
            router(router::Config::default().with_max_calls(0)),
            "max_calls is 0, but a router needs room for at least 1 call",
        ),
        (
            router(router::Config::default().with_agent_quota(quota(0, second))),
            "agent_quota is Some((0, 1s)), but a rate needs at least 1 call in a span that is not zero",
        ),
        (
            router(router::Config::default().with_tool_quota("a/b", quota(1, Duration::ZERO))),
            "tool_quota is Some((1, 0ns)), but a rate needs at least 1 call in a span that is not zero",
        ),
    ];
    for (made, wanted) in cases {
        let text = made.err().map(|error| error.to_string());
        assert_eq!(text.as_deref(), Some(wanted));
    }
}

#[test]
fn a_setting_at_its_bound_is_accepted() {
    let least = Limits::default()
        .with_max_frame_bytes(u32::MAX as usize)
        .with_max_inflight_requests(1)
        .with_max_waiting_outputs(1);
    assert_eq!(agent("a", least.clone()), Ok(()));
    let config = core::Config::default()
        .with_limits(least.with_max_frame_bytes(1))
        .with_heartbeat_interval(Duration::from_millis(1))
        .with_missed_heartbeats(1);
    assert_eq!(core(config), Ok(()));
    let quota = Quota::default().with_rate(1, Duration::from_nanos(1));
    let config = router::Config::default()
        .with_max_agents(1)
        .with_max_calls(1)
        .with_agent_quota(quota)
        .with_tool_quota("a/b", quota);
    assert_eq!(router(config), Ok(()));
}

#[test]
fn an_agent_whose_hello_exceeds_a_frame_is_refused() {
    // The hello has the handshake's limit, whatever the session's will be.
    let long = "a".repeat(MAX_FRAME_BYTES);
    let error = agent(&long, Limits::default()).unwrap_err();
    assert!(matches!(error, ConfigError::Hello(_)), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("the hello of this agent cannot be written: "),
        "{error}"
    );
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn an_agent_without_blocking_threads_is_refused() {
    use opensentience_wire::transport::tokio::Agent;

    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let served = Agent::new("1.0.0".parse::<SemVer>().unwrap())
        .with_blocking_threads(0)
        .serve(::tokio::io::empty(), config)
        .await;
    let wanted = "blocking_threads is 0, but blocking tools need at least 1 thread";
    assert!(served.unwrap_err().to_string().contains(wanted));
}
