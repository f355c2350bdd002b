//! What happens, as JSON lines: ids, codes, status and sizes. Of payloads the output alone, as the agent wrote it.

use std::io::Write as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opensentience_wire::message::{Health, ToolStream};
use opensentience_wire::role::CloseReason;
use opensentience_wire::role::core::{Event, Outcome};
use opensentience_wire::{AuditEvent, AuditName};
use serde_json::{Value, json};

/// Prints lines, and remembers what the exit code depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The agent broke the protocol for good.
    broken: AtomicBool,
}

impl Lines {
    /// Whether the agent broke the protocol for good.
    #[must_use]
    pub(super) fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Relaxed)
    }

    /// An event of the connection.
    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Connected {
                session_id,
                agent_version,
            } => {
                self.print(&json!({"event": "connected"}));
                self.print(&json!({"event": "authenticated", "session_id": session_id, "agent_version": agent_version}));
            }
            Event::ToolRejected(rejected) => {
                let code = rejected.error.code.as_str();
                self.print(
                    &json!({"event": "rejected", "tool_id": rejected.tool_id, "code": code}),
                );
            }
            Event::Stream(call, chunk) => self.stream(call.as_ref(), chunk),
            Event::Ended(call, outcome) => self.result(call.as_ref(), outcome),
            Event::CancelAck { call_id, accepted } => {
                self.print(&json!({"event": "cancel-ack", "call_id": call_id.to_string(), "accepted": accepted}));
            }
            Event::Health(Health::Unhealthy) => self.print(&json!({"event": "unhealthy"})),
            Event::Health(health) => {
                self.print(&json!({"event": "healthy", "status": health.as_str()}))
            }
            Event::Audit(audit) => self.audit(audit),
            _ => {}
        }
    }

    /// The tools that the agent offers now.
    pub(super) fn registered<'a>(&self, tools: impl Iterator<Item = &'a str>) {
        self.print(&json!({"event": "registered", "tools": tools.collect::<Vec<_>>()}));
    }

    /// A call that was not sent.
    pub(super) fn refused(&self, tool_id: &str, code: &str) {
        self.print(&json!({"event": "refused", "what": "call", "tool_id": tool_id, "code": code}));
    }

    /// The connection has ended.
    pub(super) fn disconnected(&self, reason: &CloseReason) {
        let (reason, code) = match reason {
            CloseReason::Goodbye => ("goodbye", None),
            CloseReason::Shutdown => ("shutdown", None),
            CloseReason::Protocol(code) => {
                self.0.broken.store(true, Ordering::Relaxed);
                ("protocol", Some(code.as_str()))
            }
            _ => ("gone", None),
        };
        self.print(&with(
            json!({"event": "disconnected", "reason": reason}),
            "code",
            code,
        ));
    }

    /// The process has ended.
    pub(super) fn exited(&self, status: Option<ExitStatus>) {
        use std::os::unix::process::ExitStatusExt as _;

        let line = json!({"event": "exited"});
        let line = with(line, "code", status.and_then(|status| status.code()));
        self.print(&with(
            line,
            "signal",
            status.and_then(|status| status.signal()),
        ));
    }

    fn stream(&self, call: &str, chunk: &ToolStream) {
        let bytes = match (&chunk.data.text, &chunk.data.json) {
            (Some(text), _) => text.len(),
            (None, json) => json.as_ref().map_or(0, |json| json.as_str().len()),
        };
        let line = json!({"event": "stream", "call_id": call, "seq": chunk.seq, "channel": chunk.channel.as_str(), "bytes": bytes});
        self.print(&with(line, "done", chunk.done.filter(|done| *done)));
    }

    fn result(&self, call: &str, outcome: &Outcome) {
        let by = if outcome.by_agent { "agent" } else { "core" };
        let millis = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
        let line = json!({"event": "result", "call_id": call, "status": outcome.status.as_str(), "by": by, "duration_ms": millis});
        let line = with(
            line,
            "code",
            outcome.error.as_ref().map(|error| error.code.as_str()),
        );
        let output = outcome.output.as_ref().map(|output| output.as_str());
        let line = with(line, "output_bytes", output.map(str::len));
        let mut text = event_first(&line);
        if let Some(output) = output {
            // Read into values, a number might become another.
            text.truncate(text.len() - 1);
            text.push_str(",\"output\":");
            text.push_str(output);
            text.push('}');
        }
        print_text(&text);
    }

    /// Of the audit what is no event of its own.
    fn audit(&self, audit: &AuditEvent) {
        match audit.name {
            AuditName::CallRouted => {
                let line = json!({"event": "call"});
                let line = with(line, "call_id", audit.call_id.as_deref());
                let line = with(line, "tool_id", audit.tool_id.as_deref());
                let line = with(line, "request_id", audit.request_id.as_deref());
                self.print(&with(line, "bytes", audit.bytes));
            }
            AuditName::HandshakeFailed | AuditName::ManifestDrift => {
                self.0.broken.store(true, Ordering::Relaxed);
                self.print(&json!({"event": "connected"}));
                let line = json!({"event": "refused", "what": "handshake"});
                let line = with(line, "code", audit.code.as_ref().map(|code| code.as_str()));
                self.print(&with(line, "detail", audit.detail.as_deref()));
            }
            AuditName::FrameRejected | AuditName::MessageRejected => {
                let line = json!({"event": "protocol-error"});
                let line = with(line, "code", audit.code.as_ref().map(|code| code.as_str()));
                let line = with(line, "bytes", audit.bytes);
                self.print(&with(line, "detail", audit.detail.as_deref()));
            }
            _ => {}
        }
    }

    fn print(&self, line: &Value) {
        print_text(&event_first(line));
    }
}

fn print_text(text: &str) {
    // Whoever reads the lines may have gone; the calls are made all the same.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The line with its event in front, where a person looks first.
fn event_first(line: &Value) -> String {
    let mut rest = line.as_object().cloned().unwrap_or_default();
    let event = rest.remove("event").unwrap_or_default();
    let rest = Value::Object(rest).to_string();
    match rest.strip_prefix('{') {
        Some("}") | None => format!("{{\"event\":{event}}}"),
        Some(rest) => format!("{{\"event\":{event},{rest}"),
    }
}

/// A line with one more member, where there is a value.
fn with(mut line: Value, name: &str, value: Option<impl Into<Value>>) -> Value {
    if let (Some(value), Value::Object(members)) = (value, &mut line) {
        members.insert(name.to_owned(), value.into());
    }
    line
}
