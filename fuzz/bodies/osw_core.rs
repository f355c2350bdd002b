//! The core's machine against an agent that does anything: one end a call, sound frames, behind the end nothing but records.

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use opensentience_wire::Limits;
use opensentience_wire::encode_frame;
use opensentience_wire::role::core::{
    CallRequest, Config, CoreConnection, Event, Output, SchemaCheck,
};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Grant, SessionToken, validate};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

/// A connection, and what is known of it.
struct Play {
    now: Now,
    conn: CoreConnection,
    session: String,
    /// Every call that was taken, and how many ends it had.
    calls: BTreeMap<CallId, usize>,
    sent: Vec<u8>,
    closed: bool,
    messages: usize,
    /// Schemas that are compiled apart, as the transport has it.
    check: Option<SchemaCheck>,
}

/// The bytes are a list of things that happen.
pub fn check(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    let limits = Limits::default()
        .with_max_inflight_requests(3)
        .with_max_queued_calls(2)
        .with_max_tool_output_bytes(256)
        .with_max_waiting_outputs(64);
    let config = Config::default()
        .with_limits(limits)
        .with_schemas_apart(true);
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let grant = Grant::new(now.mono, token(), "a");
    let conn = CoreConnection::new(now, config, IdSource::seeded(7), Some(grant))
        .expect("limits within their ranges");
    let mut play = Play {
        now,
        conn,
        session: String::new(),
        calls: BTreeMap::new(),
        sent: Vec::new(),
        closed: false,
        messages: 0,
        check: None,
    };
    for _ in 0..200 {
        if source.is_empty() || play.step(&mut source).is_err() {
            break;
        }
    }
    play.end();
}

fn token() -> SessionToken {
    SessionToken::from_random([9; 32])
}

fn frame(body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, usize::MAX, |out| {
        out.extend_from_slice(body.as_bytes())
    })
    .expect("it fits");
    out
}

fn object(text: &str) -> RawObject {
    RawObject::new(RawBuf::parse(text).expect("ours")).expect("ours")
}

impl Play {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=17)? {
            0 => {
                let bytes = u.arbitrary_len::<u8>()?.min(64);
                let bytes = u.bytes(bytes)?.to_vec();
                self.hear(&bytes);
            }
            1 => {
                let body = opensentience_wire::arbitrary::message(u)?;
                self.hear(&frame(&String::from_utf8(body).expect("text")));
            }
            2 => self.say("agent.hello", &format!(
                r#"{{"session_token":"{}","agent_id":"a","agent_version":"1.0.0","protocol":{{"supported_versions":[1],"capabilities":[]}}}}"#,
                token().expose()
            )),
            3 => self.say("agent.tools.register", &format!(
                r#"{{"tools":[{{"tool_id":"a/echo","name":"echo","description":"","input_schema":{{}}}}],"replace":{}}}"#,
                u.arbitrary::<bool>()?
            )),
            4 => {
                let health = u.choose(&["ok", "degraded", "unhealthy"])?;
                let session = self.session.clone();
                self.say("agent.heartbeat", &format!(
                    r#"{{"session_id":"{session}","uptime_ms":1,"inflight_calls":0,"status":"{health}"}}"#
                ));
            }
            5 => {
                let (id, seq) = (self.some_call(u)?, u.int_in_range(0..=4)?);
                let done = u.ratio(1, 8)?;
                self.say("agent.tool.stream", &format!(
                    r#"{{"call_id":"{id}","seq":{seq},"channel":"stdout","data":{{"text":"x"}},"done":{done}}}"#
                ));
            }
            6 | 7 => {
                let id = self.some_call(u)?;
                let rest = u.choose(&[
                    r#""status":"succeeded","output":{}"#,
                    r#""status":"failed","error":{"code":"tool.failed","message":""}"#,
                    r#""status":"canceled""#,
                    r#""status":"other""#,
                ])?;
                self.say("agent.tool.result", &format!(r#"{{"call_id":"{id}",{rest}}}"#));
            }
            8 => {
                let id = self.some_call(u)?;
                self.say("agent.tool.cancel_ack", &format!(r#"{{"call_id":"{id}","accepted":true}}"#));
            }
            9..=11 => {
                let mut request = CallRequest::new("a/echo", object("{}"));
                request.timeout = u.arbitrary::<bool>()?.then_some(Duration::from_millis(700));
                if let Ok(id) = self.conn.call_tool(self.now, request) {
                    assert_eq!(self.calls.insert(id, 0), None, "an id twice");
                }
            }
            12 => {
                let id = self.some_call(u)?;
                let _ = self.conn.cancel(self.now, &CallId::from(id.as_str()), None);
            }
            13 => {
                self.now = self.now.plus(Duration::from_millis(u.int_in_range(0..=9_000)?));
                self.conn.handle_timeout(self.now);
                assert!(self.conn.poll_timeout().is_none_or(|at| at > self.now.mono));
            }
            14 => {
                self.conn.set_reading(self.now, u.arbitrary()?);
                let _ = self.conn.ping(self.now);
            }
            15 | 16 => self.take_verdicts(),
            _ if u.ratio(1, 8)? => drop(self.conn.goodbye(self.now, "done", None)),
            _ if u.ratio(1, 8)? => drop(self.conn.handle_input(self.now, Input::Eof)),
            _ => {}
        }
        self.drain();
        Ok(())
    }

    fn some_call(&self, u: &mut Unstructured<'_>) -> Result<String> {
        let n = u.int_in_range(0..=self.calls.len())?;
        let id = self.calls.keys().nth(n);
        Ok(id.map_or_else(|| "none".to_owned(), ToString::to_string))
    }

    fn say(&mut self, kind: &str, payload: &str) {
        self.messages += 1;
        let n = self.messages;
        let body = format!(
            r#"{{"v":1,"type":"{kind}","id":"m-{n}","ts":"2026-01-16T12:00:00Z","payload":{payload}}}"#
        );
        self.hear(&frame(&body));
    }

    fn hear(&mut self, bytes: &[u8]) {
        let heard = self.conn.handle_input(self.now, Input::Bytes(bytes));
        assert!(
            !self.closed || heard.is_err(),
            "a closed connection takes input"
        );
    }

    /// Compiles the schemas that are waited for, if there are some; what came behind them is handled then.
    fn take_verdicts(&mut self) {
        if let Some(check) = self.check.take() {
            let _ = self.conn.take_verdicts(self.now, check.run());
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            // Behind the end come the records of refused calls alone.
            let is_record = matches!(output, Output::Event(Event::Audit(_)));
            assert!(
                !self.closed || is_record,
                "something behind the end: {output:?}"
            );
            match output {
                Output::Transmit(bytes) => self.sent.extend(bytes),
                Output::Event(Event::Connected { session_id, .. }) => {
                    self.session = session_id.into();
                }
                Output::Event(Event::Ended(id, _)) => {
                    let ends = self.calls.get_mut(&id).expect("a call that was taken");
                    *ends += 1;
                    assert_eq!(*ends, 1, "a second end");
                }
                Output::Event(_) => {}
                Output::Close(_) => self.closed = true,
                Output::CheckSchemas(check) => {
                    assert_eq!(self.check.replace(check), None, "two at a time");
                }
                _ => {}
            }
        }
        let open = self.calls.values().filter(|ends| **ends == 0).count();
        assert_eq!(self.conn.pending_calls(), open);
    }

    fn end(mut self) {
        let _ = self.conn.handle_input(self.now, Input::Eof);
        self.drain();
        while self.check.is_some() {
            self.take_verdicts();
            self.drain();
        }
        assert!(self.closed && self.conn.is_closed() && self.conn.poll_timeout().is_none());
        assert!(
            self.calls.values().all(|ends| *ends == 1),
            "a call without an end"
        );
        let report = validate::stream(&self.sent, &Limits::default());
        assert!(report.is_valid(), "{report}");
    }
}
