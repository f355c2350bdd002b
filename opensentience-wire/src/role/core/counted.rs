//! The ledger against what a connection holds, counted again from the beginning after whatever happens.

use core::time::Duration;

use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

use super::request::RESULT_BYTES;
use super::*;
use crate::frame::encode_frame;
use crate::ledger::Share;
use crate::limits::Limits;
use crate::message::{ActorType, Caller};
use crate::token::SessionToken;

fn object(value: &Value) -> RawObject {
    RawObject::new(RawBuf::parse(&value.to_string()).unwrap()).unwrap()
}

/// A connection that is driven at random, and what its application has not dropped yet.
struct Play {
    conn: CoreConnection,
    dice: IdSource,
    now: Now,
    calls: Vec<CallId>,
    seq: u64,
    results: Vec<Outcome>,
    waiting: Option<SchemaCheck>,
    /// What has happened at a bound: tools rejected, calls refused, results that found no room.
    bounds: [usize; 3],
}

impl Play {
    fn new(seed: u64, schemas_apart: bool) -> Self {
        let limits = Limits::default()
            .with_max_frame_bytes(64 << 10)
            .with_max_inflight_requests(4)
            .with_max_agent_bytes(1_750_000);
        let config = Config::default()
            .with_limits(limits)
            .with_schemas_apart(schemas_apart);
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let token = || SessionToken::from_random([9; 32]);
        let grant = Grant::new(now.mono, token(), "a");
        let conn = CoreConnection::new(now, config, IdSource::seeded(1), Some(grant)).unwrap();
        let mut play = Self {
            conn,
            dice: IdSource::seeded(seed),
            now,
            calls: Vec::new(),
            seq: 0,
            results: Vec::new(),
            waiting: None,
            bounds: [0; 3],
        };
        let protocol = json!({"supported_versions": [1], "capabilities": []});
        let hello = json!({"session_token": token().expose(), "agent_id": "a", "agent_version": "1.0.0",
            "protocol": protocol});
        play.tell("agent.hello", &hello);
        let echo = json!({"tool_id": "a/t0", "name": "t0", "description": "d", "input_schema": {}});
        play.tell("agent.tools.register", &json!({"tools": [echo]}));
        play
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.dice.bits() % bound).unwrap()
    }

    fn text(&mut self, most: u64) -> String {
        "x".repeat(self.below(most))
    }

    fn tell(&mut self, kind: &str, payload: &Value) {
        let text = json!({"v": 1, "type": kind, "id": "m", "ts": "2026-01-16T12:00:00Z", "payload": payload});
        let (text, mut frame) = (text.to_string(), Vec::new());
        encode_frame(&mut frame, usize::MAX, |out| out.extend(text.bytes())).unwrap();
        // A connection that has ended hears nothing.
        let _ = self.conn.handle_input(self.now, Input::Bytes(&frame));
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.conn.poll_output() {
            match output {
                Output::Event(Event::Ended(id, outcome)) => {
                    self.calls.retain(|call| *call != id);
                    let code = outcome.error.as_ref().map(|error| error.code.clone());
                    if code == Some(ErrorCode::ToolOutputTooLarge) {
                        self.bounds[2] += 1;
                    }
                    self.results.push(*outcome);
                }
                Output::Event(Event::ToolRejected(rejected)) => {
                    self.bounds[0] += usize::from(rejected.error.message.contains("as many bytes"));
                }
                Output::CheckSchemas(check) => self.waiting = Some(check),
                _ => {}
            }
        }
    }

    fn step(&mut self) {
        match self.below(14) {
            0 | 1 => {
                let tools: Vec<_> = (0..self.below(3)).map(|_| self.tool()).collect();
                let replace = self.below(12) == 0;
                self.tell(
                    "agent.tools.register",
                    &json!({"tools": tools, "replace": replace}),
                );
            }
            2 => {
                let id = format!("a/t{}", self.below(6));
                self.tell("agent.tools.unregister", &json!({"tool_ids": [id]}));
            }
            3..=5 | 11 | 12 => self.call(),
            6 => {
                if let Some(id) = self.some_call() {
                    let _ = self.conn.cancel(self.now, &id, None);
                }
            }
            7 => {
                self.seq += 1;
                if let Some(id) = self.some_call() {
                    let chunk = json!({"call_id": id.to_string(), "seq": self.seq, "channel": "stdout",
                        "data": {"text": self.text(100)}});
                    self.tell("agent.tool.stream", &chunk);
                }
            }
            8 | 9 => self.end(),
            10 => {
                if self.below(5) == 0 {
                    let some = self.below(20);
                    self.results.truncate(some);
                }
                self.go_on();
            }
            _ => {
                let span = Duration::from_millis(self.dice.bits() % 3_000);
                self.now = self.now.plus(span);
                self.conn.handle_timeout(self.now);
                let session = self.conn.session_id.to_string();
                let beat = json!({"session_id": session, "uptime_ms": 1, "inflight_calls": 0, "status": "ok"});
                self.tell("agent.heartbeat", &beat);
            }
        }
        self.drain();
    }

    /// Gives the verdicts that a registration waits for.
    fn go_on(&mut self) {
        if let Some(check) = self.waiting.take() {
            let _ = self.conn.take_verdicts(self.now, check.run());
            self.drain();
        }
    }

    fn tool(&mut self) -> Value {
        let name = format!("t{}", self.below(12));
        let id = ["a", "a", "a", "b"][self.below(4)];
        json!({"tool_id": format!("{id}/{name}"), "name": name, "description": self.text(20_000),
            "input_schema": {"title": self.text(10_000)}, "tags": [self.text(100)]})
    }

    fn call(&mut self) {
        let input = object(&json!({"text": self.text(30_000)}));
        let count = self.conn.tools.len().max(1) as u64;
        let at = self.below(count);
        let tool = self.conn.tools.keys().nth(at);
        let tool = tool.map_or_else(|| "a/none".to_owned(), ToString::to_string);
        let mut request = CallRequest::new(tool, input);
        request.timeout =
            (self.below(4) == 0).then(|| Duration::from_millis(self.dice.bits() % 5_000));
        request.request_id = (self.below(2) == 0).then(|| self.text(500));
        request.causation_id = (self.below(2) == 0).then(|| self.text(500));
        request.caller =
            (self.below(2) == 0).then(|| Caller::new(ActorType::Human, self.text(500)));
        match self.conn.call_tool(self.now, request) {
            Ok(id) => self.calls.push(id),
            Err(CommandError::Busy) => self.bounds[1] += 1,
            Err(_) => {}
        }
    }

    fn end(&mut self) {
        // What waits has no result, and mostly most of them wait.
        let sent = self.conn.calls.iter().find(|(_, call)| call.is_sent());
        let sent = sent.map(|(id, _)| id.clone());
        let Some(id) = sent.or_else(|| self.some_call()) else {
            return;
        };
        let result = match self.below(4) {
            0 => json!({"call_id": id.to_string(), "status": "failed",
                "error": {"code": "tool.failed", "message": self.text(20_000)}}),
            1 => json!({"call_id": id.to_string(), "status": [7]}),
            _ => {
                json!({"call_id": id.to_string(), "status": "succeeded", "output": {"t": self.text(50_000)},
                "metrics": {"m": self.text(5_000)}})
            }
        };
        self.tell("agent.tool.result", &result);
    }

    fn some_call(&mut self) -> Option<CallId> {
        let count = self.calls.len().max(1) as u64;
        let at = self.below(count);
        self.calls.get(at).cloned()
    }

    fn check(&self) {
        let conn = &self.conn;
        let standing = conn.tools.values().map(|tool| tool.weight());
        let candidates = conn.registration.iter().flat_map(|waits| &waits.tools);
        let candidates = candidates.filter_map(|it| Some(it.tool.as_ref().ok()?.weight()));
        let calls = conn.calls.values().map(|call| {
            let waiting = call.waiting.as_ref().map_or(0, |request| request.weight());
            call.own_bytes() + waiting
        });
        let results = self.results.iter().filter(|outcome| outcome.by_agent);
        let results = results.map(|outcome| RESULT_BYTES + outcome.weight());
        let counted: [(Share, usize); 3] = [
            (Share::Tools, standing.chain(candidates).sum()),
            (Share::Calls, calls.sum()),
            (Share::Results, results.sum()),
        ];
        let ledger = conn.ledger();
        for (share, bytes) in counted {
            assert_eq!(ledger.held_bytes_of(share), bytes, "{share:?}");
            assert!(bytes <= ledger.max_bytes_of(share), "{share:?}");
        }
        let sum: usize = counted.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(ledger.held_bytes(), sum);
        assert!(sum <= ledger.max_bytes());
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn the_ledger_says_what_is_held_whatever_happens() {
    let mut bounds = [0; 3];
    for seed in 0..18 {
        let mut play = Play::new(seed, seed % 2 == 1);
        for _ in 0..300 {
            play.step();
            play.check();
        }
        while play.waiting.is_some() {
            play.go_on();
        }
        match seed % 3 {
            0 => drop(play.conn.handle_input(play.now, Input::Eof)),
            1 => drop(play.conn.goodbye(play.now, "enough", None)),
            _ => drop(play.conn.handle_input(play.now, Input::Bytes(&[0; 4]))),
        }
        play.drain();
        play.check();
        play.conn
            .handle_timeout(play.now.plus(Duration::from_secs(60)));
        play.drain();
        play.check();
        assert!(play.conn.is_closed());
        play.results.clear();
        assert_eq!(play.conn.ledger().held_bytes(), 0);
        for (sum, seen) in bounds.iter_mut().zip(play.bounds) {
            *sum += seen;
        }
    }
    assert!(
        bounds.iter().all(|seen| *seen > 10),
        "each bound was met: {bounds:?}"
    );
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn a_connection_that_is_dropped_gives_everything_back() {
    let mut play = Play::new(7, true);
    for _ in 0..200 {
        play.step();
    }
    let ledger = play.conn.ledger().clone();
    assert!(ledger.held_bytes() > 0);
    drop(play);
    assert_eq!(ledger.held_bytes(), 0);
}
