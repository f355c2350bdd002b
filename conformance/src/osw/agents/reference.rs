//! An agent in memory, with the reference tools and a clock of its own.

use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::osw::mutation::{MutatingTransport, Mutation};
use crate::osw::recording::Launch;
use crate::osw::test_peer::object;
use crate::osw::{Peer, Received};
use opensentience_wire::SessionToken;
use opensentience_wire::message::{Channel, SemVer, ToolSpec};
use opensentience_wire::role::agent::{
    AgentConnection, Chunk, Config, Event, IncomingCall, Output,
};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{ErrorCode, ErrorObject};

/// The agent's id.
const AGENT: &str = "com.example.reference";

pub(super) struct ReferenceAgent {
    now: Now,
    transport: MutatingTransport,
    conn: Option<AgentConnection>,
    launches: u8,
    sleeping: BTreeMap<CallId, Mono>,
    closed: bool,
}

impl ReferenceAgent {
    pub(super) fn boxed(mutation: Mutation) -> Box<dyn Peer> {
        Box::new(Self {
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            transport: MutatingTransport::new(mutation),
            conn: None,
            launches: 0,
            sleeping: BTreeMap::new(),
            closed: false,
        })
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.as_mut().and_then(|conn| conn.poll_output()) {
            match output {
                Output::Transmit(bytes) => self.transport.send(&bytes),
                Output::Event(Event::Welcomed { .. }) => self.register(),
                Output::Call(call) => self.run(&call),
                Output::Cancel(id) => {
                    self.sleeping.remove(&id);
                    let error = ErrorObject::of(ErrorCode::ToolCanceled, "stopped");
                    self.finish(&id, Err(error));
                }
                Output::Close(_) => self.closed = true,
                _ => {}
            }
        }
    }

    fn register(&mut self) {
        let tools = TOOLS.iter().map(|(name, schema)| {
            let mut spec = ToolSpec::local(name, "a reference tool", object(schema));
            spec.side_effects = Some(false);
            spec
        });
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            // It is open: the welcome has just come.
            let _ = conn.register(now, tools.collect(), false);
        }
    }

    fn finish(&mut self, id: &CallId, result: Result<&str, ErrorObject>) {
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            // It may have ended by itself.
            let _ = conn.finish(now, id, result.map(object));
        }
    }

    fn run(&mut self, call: &IncomingCall) {
        let name = call.call.tool_id.rsplit('/').next().unwrap_or_default();
        let input: BTreeMap<String, ubos_common::json::RawBuf> =
            call.call.input.deserialize().unwrap_or_default();
        let number = |name: &str| -> u64 {
            let value = input.get(name).map(|value| value.as_str().parse());
            value.and_then(Result::ok).unwrap_or(0)
        };
        let id = &call.call_id;
        match name {
            "sleep" => {
                let until = Duration::from_millis(number("ms"));
                let until = self.now.mono.saturating_add(until);
                self.sleeping.insert(id.clone(), until);
            }
            "stream_counter" => self.count(id, number("count")),
            "large_output" if number("bytes") > 1 << 20 => {
                let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, "ask for less");
                self.finish(id, Err(error));
            }
            "large_output" => {
                let bytes = usize::try_from(number("bytes")).unwrap_or(0);
                let output = format!(r#"{{"data":"{}"}}"#, "x".repeat(bytes));
                self.finish(id, Ok(&output));
            }
            "hello_world" => {
                let name = input.get("name").map_or("\"world\"", |name| name.as_str());
                self.finish(id, Ok(&format!(r#"{{"hello":{name}}}"#)));
            }
            _ => self.finish(id, Ok("{}")),
        }
    }

    fn count(&mut self, id: &CallId, count: u64) {
        let now = self.now;
        for n in 1..=count {
            let mut chunk = Chunk::text(Channel::Stdout, n.to_string());
            if n == count {
                chunk.done = true;
            }
            if let Some(conn) = &mut self.conn {
                // Output that does not fit is dropped: no case needs it.
                let _ = conn.stream(now, id, chunk);
            }
        }
        self.finish(id, Ok("{}"));
    }

    /// Does the earliest thing that is due until `end`; `false` where there is none.
    fn step(&mut self, end: Mono) -> bool {
        let wake = self.sleeping.iter().min_by_key(|(_, at)| **at);
        let wake = wake.map(|(id, at)| (id.clone(), *at));
        let timer = self.conn.as_ref().and_then(|conn| conn.poll_timeout());
        let next = wake
            .as_ref()
            .map(|(_, at)| *at)
            .into_iter()
            .chain(timer)
            .min();
        let Some(next) = next.filter(|next| *next <= end && !self.closed) else {
            return false;
        };
        self.pass(next);
        match wake.filter(|(_, at)| *at <= next) {
            Some((id, _)) => {
                self.sleeping.remove(&id);
                self.finish(&id, Ok("{}"));
            }
            None => {
                let now = self.now;
                if let Some(conn) = &mut self.conn {
                    conn.handle_timeout(now);
                }
            }
        }
        self.drain();
        true
    }

    fn pass(&mut self, to: Mono) {
        let span = to.saturating_since(self.now.mono);
        self.now = self.now.plus(span);
    }
}

impl Peer for ReferenceAgent {
    fn launch(&mut self) -> Option<Launch> {
        self.launches += 1;
        let token = || SessionToken::from_random([self.launches; 32]);
        let version = "1.0.0".parse::<SemVer>().ok()?;
        let config = Config::new(AGENT, version, token());
        let ids = IdSource::seeded(u64::from(self.launches) + 100);
        self.conn = AgentConnection::new(self.now, config, ids).ok();
        self.transport.reset();
        self.sleeping.clear();
        self.closed = false;
        let launch = Launch::new(AGENT, token());
        self.drain();
        Some(launch)
    }

    fn reconnect(&mut self) -> bool {
        false
    }

    fn now(&mut self) -> Now {
        self.now
    }

    fn send(&mut self, bytes: &[u8]) {
        let bytes = self.transport.receive(bytes);
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            // A fault is among the outputs, too.
            let _ = conn.handle_input(now, Input::Bytes(&bytes));
        }
        self.drain();
    }

    fn receive(&mut self, within: Duration) -> Received {
        let end = self.now.mono.saturating_add(within);
        loop {
            if let Some(bytes) = self.transport.next() {
                return Received::Bytes(bytes);
            }
            if self.closed {
                return Received::End;
            }
            if !self.step(end) {
                self.pass(end);
                return Received::Nothing;
            }
        }
    }

    fn close(&mut self) {
        let now = self.now;
        if let Some(conn) = &mut self.conn {
            let _ = conn.handle_input(now, Input::Eof);
        }
        self.drain();
    }
}

/// The reference tools.
const TOOLS: [(&str, &str); 5] = [
    (
        "hello_world",
        r#"{"type":"object","properties":{"name":{"type":"string"}}}"#,
    ),
    (
        "stream_counter",
        r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#,
    ),
    (
        "sleep",
        r#"{"type":"object","properties":{"ms":{"type":"integer"}},"required":["ms"]}"#,
    ),
    (
        "invalid_input",
        r#"{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}"#,
    ),
    (
        "large_output",
        r#"{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]}"#,
    ),
];
