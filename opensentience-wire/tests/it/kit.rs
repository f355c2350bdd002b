//! Machines in known states, frames from JSON, and what came out.

use opensentience_wire::Limits;
use opensentience_wire::message::{ActorType, Caller, SemVer, ToolSpec};
use opensentience_wire::role::agent::{self, AgentConnection};
use opensentience_wire::role::core::{self, CallRequest, CoreConnection};
use opensentience_wire::role::{CloseReason, Input};
use opensentience_wire::{FrameDecoder, encode_frame};
use opensentience_wire::{Grant, SessionToken};
use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

pub(crate) const AGENT: &str = "com.example.a";

pub(crate) fn at(millis: u64) -> Now {
    let wall = Timestamp::from_unix(1_760_000_000 + i64::try_from(millis / 1000).unwrap());
    Now::new(Mono::from_millis(millis), wall.unwrap())
}

pub(crate) fn token() -> SessionToken {
    SessionToken::from_random([9; 32])
}

pub(crate) fn object(value: &Value) -> RawObject {
    RawObject::new(RawBuf::parse(&value.to_string()).unwrap()).unwrap()
}

pub(crate) fn spec(name: &str) -> ToolSpec {
    ToolSpec::local(name, "a tool", object(&json!({"type": "object"})))
}

/// A message with a fixed envelope.
pub(crate) fn message(kind: &str, payload: Value) -> Value {
    json!({"v": 1, "type": kind, "id": "m-1", "ts": "2026-01-16T12:00:00Z", "payload": payload})
}

pub(crate) fn frame(value: &Value) -> Vec<u8> {
    raw_frame(value.to_string().as_bytes())
}

pub(crate) fn raw_frame(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, usize::MAX, |out| out.extend_from_slice(body)).unwrap();
    out
}

pub(crate) fn parse(bytes: &[u8]) -> Vec<Value> {
    let (mut decoder, mut at, mut out) = (FrameDecoder::new(usize::MAX), 0, Vec::new());
    while let (taken, Some(frame)) = decoder.decode(&bytes[at..]).unwrap() {
        out.push(serde_json::from_slice(frame).unwrap());
        at += taken;
    }
    out
}

pub(crate) fn hello() -> Value {
    let protocol = json!({"supported_versions": [1], "capabilities": ["tools"]});
    let token = token();
    message(
        "agent.hello",
        json!({"session_token": token.expose(), "agent_id": AGENT, "agent_version": "1.0.0", "protocol": protocol}),
    )
}

/// What came out of a core.
#[derive(Default)]
pub(crate) struct CoreSaid {
    pub(crate) sent: Vec<Value>,
    pub(crate) events: Vec<core::Event>,
    pub(crate) closed: Option<CloseReason>,
}

impl CoreSaid {
    pub(crate) fn audits(&self) -> Vec<String> {
        let audits = self.events.iter().filter_map(|event| match event {
            core::Event::Audit(audit) => Some(audit),
            _ => None,
        });
        audits
            .map(|a| format!("{} {}", a.name, a.code.as_ref().map_or("", |c| c.as_str())))
            .collect()
    }

    pub(crate) fn ended(&self) -> Vec<String> {
        let ended = self.events.iter().filter_map(|event| match event {
            core::Event::Ended(_, outcome) => Some(outcome),
            _ => None,
        });
        ended
            .map(|o| {
                o.error.as_ref().map_or_else(
                    || o.status.to_string(),
                    |e| format!("{} {}", o.status, e.code),
                )
            })
            .collect()
    }

    pub(crate) fn types(&self) -> Vec<&str> {
        self.sent
            .iter()
            .map(|m| m["type"].as_str().unwrap())
            .collect()
    }
}

pub(crate) fn drain_core(conn: &mut CoreConnection) -> CoreSaid {
    let mut said = CoreSaid::default();
    while let Some(out) = conn.poll_output() {
        match out {
            core::Output::Transmit(bytes) => said.sent.extend(parse(&bytes)),
            core::Output::Event(event) => said.events.push(event),
            core::Output::Close(reason) => said.closed = Some(reason),
            _ => {}
        }
    }
    said
}

pub(crate) fn tell_core(conn: &mut CoreConnection, millis: u64, value: &Value) -> CoreSaid {
    let _ = conn.handle_input(at(millis), Input::Bytes(&frame(value)));
    drain_core(conn)
}

pub(crate) fn new_core(config: core::Config) -> CoreConnection {
    let grant = Grant::new(at(0).mono, token(), AGENT);
    CoreConnection::new(at(0), config, IdSource::seeded(1), Some(grant)).unwrap()
}

/// A core whose agent offers `echo` and `write`, which requires a directive.
pub(crate) fn open_core(config: core::Config) -> CoreConnection {
    let mut conn = new_core(config);
    tell_core(&mut conn, 0, &hello());
    let mut write = tool("write");
    write["requires_directive"] = json!(true);
    let register = message(
        "agent.tools.register",
        json!({"tools": [tool("echo"), write]}),
    );
    let said = tell_core(&mut conn, 0, &register);
    assert_eq!(
        said.sent[0]["payload"]["registered"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    conn
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"tool_id": format!("{AGENT}/{name}"), "name": name, "description": "d", "input_schema": {"type": "object"}})
}

/// What came out of an agent.
#[derive(Default)]
pub(crate) struct AgentSaid {
    pub(crate) sent: Vec<Value>,
    pub(crate) calls: Vec<agent::IncomingCall>,
    pub(crate) cancels: usize,
    pub(crate) events: Vec<agent::Event>,
    pub(crate) closed: Option<CloseReason>,
}

pub(crate) fn drain_agent(conn: &mut AgentConnection) -> AgentSaid {
    let mut said = AgentSaid::default();
    while let Some(out) = conn.poll_output() {
        match out {
            agent::Output::Transmit(bytes) => said.sent.extend(parse(&bytes)),
            agent::Output::Call(call) => said.calls.push(*call),
            agent::Output::Cancel(_) => said.cancels += 1,
            agent::Output::Event(event) => said.events.push(event),
            agent::Output::Close(reason) => said.closed = Some(reason),
            _ => {}
        }
    }
    said
}

pub(crate) fn tell_agent(conn: &mut AgentConnection, millis: u64, value: &Value) -> AgentSaid {
    let _ = conn.handle_input(at(millis), Input::Bytes(&frame(value)));
    drain_agent(conn)
}

pub(crate) fn new_agent(limits: Limits) -> AgentConnection {
    let version = "1.0.0".parse::<SemVer>().unwrap();
    let config = agent::Config::new(AGENT, version, token()).with_limits(limits);
    AgentConnection::new(at(0), config, IdSource::seeded(2)).unwrap()
}

pub(crate) fn welcome() -> Value {
    message(
        "core.welcome",
        json!({"accepted_version": 1, "session_id": "s-1", "heartbeat_interval_ms": 1000, "max_frame_bytes": 4096,
               "server": {"core_version": "1", "instance_id": "i"}}),
    )
}

pub(crate) fn open_agent(limits: Limits) -> AgentConnection {
    let mut conn = new_agent(limits);
    drain_agent(&mut conn);
    tell_agent(&mut conn, 0, &welcome());
    conn.register(at(0), vec![spec("echo")], false).unwrap();
    drain_agent(&mut conn);
    conn
}

pub(crate) fn call(id: &str) -> Value {
    let mut call = message(
        "core.tool.call",
        json!({"call_id": id, "tool_id": format!("{AGENT}/echo"), "input": {"n": 1}}),
    );
    call["request_id"] = json!("r-1");
    call["correlation_id"] = json!("c-1");
    call
}

/// The members of a request that tests set in a chain.
pub(crate) trait RequestExt {
    fn with_correlation_id(self, id: &str) -> Self;
    fn with_causation_id(self, id: &str) -> Self;
    fn with_caller(self, kind: ActorType, id: &str) -> Self;
}

impl RequestExt for CallRequest {
    fn with_correlation_id(mut self, id: &str) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    fn with_causation_id(mut self, id: &str) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    fn with_caller(mut self, kind: ActorType, id: &str) -> Self {
        self.caller = Some(Caller::new(kind, id.into()));
        self
    }
}
