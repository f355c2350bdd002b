//! An executor that keeps every rule, and one that breaks a rule on purpose.

use std::collections::BTreeMap;
use std::sync::Arc;

use core::num::NonZeroUsize;
use sacp::role::{Arrival, Inbox, Tracker};
use sacp::runner::{Cause, Config, Input, Output, Runner, Ticket};
use sacp::validate::admit;
use sacp::{AnyMessage, Code, MessageRef, Reply};
use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

use super::flaw::Flaw;
use super::script::Executor;

/// Runs plans with the machine of the crate.
pub(super) struct Reference {
    flaw: Option<Flaw>,
    now: Now,
    ids: IdSource,
    inbox: Inbox,
    tracker: Tracker,
    run: Option<(AnyMessage, Runner)>,
    calls: BTreeMap<u64, Ticket>,
}

impl Reference {
    pub(super) fn new(flaw: Option<Flaw>) -> Self {
        let bound = NonZeroUsize::MIN.saturating_add(15);
        Self {
            flaw,
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            ids: IdSource::seeded(1),
            inbox: Inbox::new(bound),
            tracker: Tracker::new(bound),
            run: None,
            calls: BTreeMap::new(),
        }
    }

    fn start(&mut self, message: &Value) -> Vec<Value> {
        let text = message.to_string();
        let message = match admit(text.as_bytes()) {
            Ok(message) => message,
            Err(reply) => return vec![answer(&reply)],
        };
        if self.flaw == Some(Flaw::Forgetful) {
            self.inbox = Inbox::new(NonZeroUsize::MIN);
        }
        match self.inbox.receive(&message) {
            Ok(Arrival::Answered(reply)) => return vec![answer(&reply)],
            Ok(Arrival::Underway) => return Vec::new(),
            Ok(_) => {}
            Err(refused) => return vec![answer(&Reply::Err(refused))],
        }
        match Runner::new(&message, Config::default()) {
            Ok(mut runner) => {
                runner.start(self.now);
                self.run = Some((message, runner));
                self.drain()
            }
            Err(refused) => vec![answer(&refused.reply(&message))],
        }
    }

    fn heard(&mut self, message: &Value) -> Value {
        let Ok(message) = admit(message.to_string().as_bytes()) else {
            return json!({ "refused": Code::MalformedMessage.as_str() });
        };
        let (state, code) = match &message {
            AnyMessage::V01(message) => (message.state().as_str().to_owned(), "INVALID_STATE"),
            AnyMessage::V10(message) => {
                let state = message.state.as_str().to_owned();
                (state, "INVALID_STATE_TRANSITION")
            }
            _ => return json!({ "refused": Code::UnsupportedVersion.as_str() }),
        };
        match self.tracker.follow(&message) {
            Ok(()) => json!({ "state": state }),
            Err(_) => json!({ "refused": code }),
        }
    }

    /// Reports the end of a call.
    fn report(&mut self, id: &Value, input: impl FnOnce(Ticket) -> Input) -> Vec<Value> {
        let ticket = id.as_u64().and_then(|id| self.calls.remove(&id));
        if let (Some(ticket), Some((_, runner))) = (ticket, &mut self.run) {
            // A call that has ended meanwhile tells nothing.
            let _ = runner.handle_input(self.now, input(ticket));
        }
        self.drain()
    }

    fn drain(&mut self) -> Vec<Value> {
        let mut said = Vec::new();
        let Some((message, runner)) = &mut self.run else {
            return said;
        };
        let mut reply = None;
        while let Some(output) = runner.poll_output() {
            match output {
                Output::Dispatch {
                    ticket,
                    act,
                    inputs,
                    ..
                } if runner.is_running(ticket) => {
                    self.calls.insert(ticket.id(), ticket);
                    let value = |text: &RawBuf| text.deserialize::<Value>().unwrap_or_default();
                    let inputs: Vec<Value> =
                        inputs.iter().map(|(_, output)| value(output)).collect();
                    said.push(json!({"call": ticket.id(), "verb": act.verb, "tool": act.tool, "inputs": inputs}));
                }
                Output::Cancel { ticket } => {
                    self.calls.remove(&ticket.id());
                    said.push(json!({ "stop": ticket.id() }));
                }
                Output::Ended(outcome) => {
                    reply = Some(outcome.answer(self.now.wall, &*message, &mut self.ids));
                }
                _ => {}
            }
        }
        if let Some(reply) = reply {
            said.push(answer(&reply));
            if let Some(msg_id) = MessageRef::from(&*message).msg_id() {
                self.inbox.answered(msg_id, Arc::new(reply));
            }
            self.run = None;
        }
        said
    }

    fn take(&mut self, line: &Value) -> Option<Vec<Value>> {
        if let Some(message) = line.get("start") {
            return Some(self.start(message));
        }
        if let Some(message) = line.get("heard") {
            return Some(vec![self.heard(message)]);
        }
        if let Some(id) = line.get("succeed") {
            let output = RawBuf::parse(&line["output"].to_string()).ok()?;
            return Some(self.report(id, |ticket| Input::Succeeded { ticket, output }));
        }
        if let Some(id) = line.get("fail") {
            let cause = Cause::tool(line["message"].as_str().unwrap_or_default());
            return Some(self.report(id, |ticket| Input::Failed { ticket, cause }));
        }
        if let Some(ms) = line.get("time").and_then(Value::as_u64) {
            self.now = Now::new(Mono::from_millis(ms), Timestamp::EPOCH);
            if let Some((_, runner)) = &mut self.run {
                runner.handle_timeout(self.now);
            }
            return Some(self.drain());
        }
        line.get("cancel")?;
        if let Some((_, runner)) = &mut self.run {
            // A run that has ended cannot be called off.
            let _ = runner.cancel(self.now);
        }
        Some(self.drain())
    }
}

impl Executor for Reference {
    fn tell(&mut self, line: &str) -> Option<Vec<String>> {
        let mut told: Value = serde_json::from_str(line).ok()?;
        if let Some(flaw) = self.flaw {
            flaw.hears(&mut told);
        }
        let mut said = self.take(&told)?;
        if let Some(flaw) = self.flaw {
            flaw.says(&told, &mut said);
        }
        Some(said.iter().map(Value::to_string).collect())
    }
}

fn answer(reply: &Reply) -> Value {
    let text = match reply {
        Reply::Message(message) => message.encode(),
        Reply::V10(message) => message.encode(),
        other => ubos_common::json::to_vec(other),
    };
    json!({ "answer": serde_json::from_slice::<Value>(&text).unwrap_or_default() })
}
