//! The agent's machine against a core that does anything: one result a call, sound frames, nothing behind the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use opensentience_wire::Limits;
use opensentience_wire::SessionToken;
use opensentience_wire::encode_frame;
use opensentience_wire::message::{Channel, Health, SemVer, ToolSpec};
use opensentience_wire::role::agent::{AgentConnection, Chunk, Config, Event, Output};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::validate;
use opensentience_wire::{ErrorCode, ErrorObject};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

/// A connection, and what is known of it.
struct Play {
    now: Now,
    conn: AgentConnection,
    /// Tools that run, and whether they were told to stop.
    running: BTreeMap<CallId, bool>,
    sent: Vec<u8>,
    closed: bool,
    messages: usize,
    /// Ids of calls: an id that comes back after its result names another call, which a stream cannot tell.
    used: BTreeSet<String>,
}

/// The bytes are a list of things that happen.
pub fn check(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    let limits = Limits::default()
        .with_max_inflight_requests(3)
        .with_max_tool_output_bytes(64)
        .with_max_remembered_calls(2)
        .with_max_remembered_bytes(256)
        .with_max_waiting_outputs(64);
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let version = "1.0.0".parse::<SemVer>().expect("a version");
    let token = SessionToken::from_random([9; 32]);
    let config = Config::new("a", version, token).with_limits(limits);
    let conn = AgentConnection::new(now, config, IdSource::seeded(7)).expect("a short hello");
    let mut play = Play {
        now,
        conn,
        running: BTreeMap::new(),
        sent: Vec::new(),
        closed: false,
        messages: 0,
        used: BTreeSet::new(),
    };
    play.drain();
    for _ in 0..200 {
        if source.is_empty() || play.step(&mut source).is_err() {
            break;
        }
    }
    play.end();
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, usize::MAX, |out| out.extend_from_slice(body)).expect("it fits");
    out
}

fn object(text: &str) -> RawObject {
    RawObject::new(RawBuf::parse(text).expect("ours")).expect("ours")
}

impl Play {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=14)? {
            0 => {
                let bytes = u.arbitrary_len::<u8>()?.min(64);
                let bytes = u.bytes(bytes)?.to_vec();
                self.hear(&bytes);
            }
            1 => {
                let body = opensentience_wire::arbitrary::message(u)?;
                // Calls of the generator may have an id again: the stream would not show which is which.
                if !String::from_utf8_lossy(&body).contains("core.tool.call\"") {
                    self.hear(&frame(&body));
                }
            }
            2 => {
                let most = u.choose(&[4_194_304, 2_000])?;
                self.say("core.welcome", &format!(
                    r#"{{"accepted_version":1,"session_id":"s","heartbeat_interval_ms":5000,"max_frame_bytes":{most},"server":{{"core_version":"1","instance_id":"i"}}}}"#
                ));
            }
            3 => {
                let schema = object(r#"{"properties":{"ms":{"type":"integer"}}}"#);
                let tool = ToolSpec::local("echo", "gives back", schema);
                let _ = self.conn.register(self.now, vec![tool], u.arbitrary()?);
            }
            4..=6 => self.call(u)?,
            7 => {
                let id = self.some_call(u)?;
                let deadline = u.choose(&["null", "0", "300"])?;
                self.say(
                    "core.tool.cancel",
                    &format!(r#"{{"call_id":"{id}","deadline_ms":{deadline}}}"#),
                );
            }
            8 => {
                let id = CallId::from(self.some_call(u)?.as_str());
                let chunk = Chunk::text(Channel::Stdout, "x");
                let mut chunk = chunk;
                chunk.done = u.ratio(1, 8)?;
                let _ = self.conn.stream(self.now, &id, chunk);
            }
            9 | 10 => {
                let id = CallId::from(self.some_call(u)?.as_str());
                let result = match u.int_in_range(0..=3)? {
                    0 => Err(ErrorObject::of(ErrorCode::ToolFailed, "no")),
                    1 => Err(ErrorObject::of(ErrorCode::ToolCanceled, "stopped")),
                    2 => Ok(object(&format!(r#"{{"x":"{}"}}"#, "y".repeat(100)))),
                    _ => Ok(object("{}")),
                };
                let _ = self.conn.finish(self.now, &id, result);
                self.running.remove(&id);
            }
            11 | 12 => {
                self.now = self
                    .now
                    .plus(Duration::from_millis(u.int_in_range(0..=6_000)?));
                self.conn.handle_timeout(self.now);
                assert!(self.conn.poll_timeout().is_none_or(|at| at > self.now.mono));
            }
            13 => self.conn.set_health(self.now, Health::Degraded),
            _ if u.ratio(1, 8)? => self.say("core.goodbye", r#"{"reason":"done"}"#),
            _ if u.ratio(1, 8)? => self.conn.shutdown(self.now),
            _ if u.ratio(1, 8)? => drop(self.conn.handle_input(self.now, Input::Eof)),
            _ => {}
        }
        self.drain();
        Ok(())
    }

    fn call(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        // One that runs already may be called again; one that has ended may not.
        let again = u.ratio(1, 8)?;
        let id = match self.running.keys().next() {
            Some(id) if again => id.to_string(),
            _ => format!("c-{}", self.used.len()),
        };
        self.used.insert(id.clone());
        let (tool, input) = (
            u.choose(&["echo", "none"])?,
            u.choose(&["{}", r#"{"ms":""}"#, "[]"])?,
        );
        let timeout = u.choose(&["null", "0", "700"])?;
        let key = u.choose(&["null", r#""k""#, r#""l""#])?;
        self.say("core.tool.call", &format!(
            r#"{{"call_id":"{id}","tool_id":"a/{tool}","input":{input},"timeout_ms":{timeout},"idempotency_key":{key}}}"#
        ));
        Ok(())
    }

    fn some_call(&self, u: &mut Unstructured<'_>) -> Result<String> {
        let n = u.int_in_range(0..=self.used.len())?;
        Ok(self
            .used
            .iter()
            .nth(n)
            .cloned()
            .unwrap_or_else(|| "none".to_owned()))
    }

    fn say(&mut self, kind: &str, payload: &str) {
        self.messages += 1;
        let n = self.messages;
        let body = format!(
            r#"{{"v":1,"type":"{kind}","id":"m-{n}","ts":"2026-01-16T12:00:00Z","request_id":"r","payload":{payload}}}"#
        );
        self.hear(&frame(body.as_bytes()));
    }

    fn hear(&mut self, bytes: &[u8]) {
        let heard = self.conn.handle_input(self.now, Input::Bytes(bytes));
        assert!(
            !self.closed || heard.is_err(),
            "a closed connection takes input"
        );
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            assert!(!self.closed, "something behind the end: {output:?}");
            match output {
                Output::Transmit(bytes) => self.sent.extend(bytes),
                Output::Call(call) => {
                    assert_eq!(
                        self.running.insert(call.call_id.clone(), false),
                        None,
                        "it runs already"
                    );
                    assert!(self.running.len() <= 3, "more than may run");
                }
                Output::Cancel(id) => {
                    let stopped = self.running.get_mut(&id).expect("a tool that runs");
                    assert!(!std::mem::replace(stopped, true), "told to stop twice");
                }
                Output::Event(Event::Welcomed { .. }) => {}
                Output::Event(_) => {}
                Output::Close(_) => self.closed = true,
                _ => {}
            }
        }
    }

    fn end(mut self) {
        let _ = self.conn.handle_input(self.now, Input::Eof);
        self.drain();
        assert!(self.closed && self.conn.is_closed() && self.conn.poll_timeout().is_none());
        assert!(
            self.running.values().all(|stopped| *stopped),
            "a tool that nobody stopped"
        );
        let report = validate::stream(&self.sent, &Limits::default());
        assert!(report.is_valid(), "{report}");
    }
}
