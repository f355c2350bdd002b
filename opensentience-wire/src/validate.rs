//! Messages and recorded streams, judged: every finding with its pointer and clause.
//!
//! ```
//! use opensentience_wire::Limits;
//! use opensentience_wire::validate::message;
//!
//! let report = message(br#"{"v":1,"type":"core.tool.call","id":"m","ts":"2026-01-16T12:00:00Z",
//!     "payload":{"call_id":"c","tool_id":"a/b","input":[]}}"#, &Limits::default());
//! let found: Vec<_> = report.iter().map(|f| (f.pointer.as_str(), &*f.clause)).collect();
//! assert_eq!(found, [("/request_id", "OSW-3-3"), ("/payload/input", "OSW-4.3-1")]);
//! ```
//!
//! Spec: OpenSentience 2 to 4

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::violation::{Level, Report, Violation};

use crate::envelope::{Envelope, VERSION};
use crate::error::{DecodeError, FrameError};
use crate::frame::FrameDecoder;
use crate::limits::Limits;
use crate::message::{
    Message, MessageType, Status, ToolOutcome, ToolSpec, ToolStream, is_tool_name,
};

/// Judges one message.
#[must_use]
pub fn message(bytes: &[u8], limits: &Limits) -> Report {
    if bytes.len() > limits.max_frame_bytes {
        let why = format!(
            "a message of {} bytes where {} are allowed",
            bytes.len(),
            limits.max_frame_bytes
        );
        return one("", "too_large", "OSW-2-3", why);
    }
    judge(bytes, limits).0
}

/// Judges what one side sent on a connection, frame by frame. Pointers begin with the frame's number, from 0.
///
/// Besides each message: ids that are used twice, the numbers of a call's pieces, pieces behind the last one, and a second
/// result.
#[must_use]
pub fn stream(mut bytes: &[u8], limits: &Limits) -> Report {
    let mut decoder = FrameDecoder::new(limits.max_frame_bytes);
    let (mut report, mut history, mut number) =
        (Report::default(), CallHistory::default(), 0_usize);
    loop {
        let place = format!("/{number}");
        match decoder.decode(bytes) {
            Ok((taken, Some(frame))) => {
                let (mut found, read) = judge(frame, limits);
                if let Some((id, read)) = read {
                    history.follow(&id, &read, &mut found);
                }
                report.extend_under(&place, found);
                bytes = bytes.get(taken..).unwrap_or_default();
                number += 1;
            }
            Ok((_, None)) => {
                if let Err(error) = decoder.finish() {
                    report.extend_under(&place, of_frame(&error));
                }
                return report;
            }
            Err(error) => {
                report.extend_under(&place, of_frame(&error));
                return report;
            }
        }
    }
}

fn one(pointer: &str, code: &'static str, clause: &'static str, why: impl Into<String>) -> Report {
    let mut report = Report::default();
    report.push(Violation::new(
        pointer,
        code,
        clause,
        Level::Must,
        why.into(),
    ));
    report
}

// impl: OSW-2-1, OSW-2-3, OSW-2-5
fn of_frame(error: &FrameError) -> Report {
    let (code, clause) = match error {
        FrameError::Empty => ("empty_frame", "OSW-2-4"),
        FrameError::TooLarge { .. } => ("too_large", "OSW-2-3"),
        FrameError::Truncated { .. } => ("truncated", "OSW-2-5"),
    };
    one("", code, clause, error.to_string())
}

/// The findings of a message, and its id and content where it could be read.
// impl: OSW-3-1, OSW-3-3
fn judge(bytes: &[u8], limits: &Limits) -> (Report, Option<(String, Message)>) {
    let (envelope, mut report) = match Envelope::decode(bytes, &limits.json) {
        Ok(read) => read,
        Err(error) => return (of_decode(error), None),
    };
    let mut must = |pointer: &str, code: &'static str, clause: &'static str, why: &str| {
        report.push(Violation::new(
            pointer.to_owned(),
            code,
            clause,
            Level::Must,
            why.to_owned(),
        ));
    };
    if envelope.v != VERSION {
        must(
            "/v",
            "version",
            "OSW-3-1",
            "version 1 is the one that is spoken",
        );
    }
    if envelope.message_type() == MessageType::ToolCall && envelope.request_id.is_none() {
        must(
            "/request_id",
            "missing",
            "OSW-3-3",
            "a core's call has a request_id",
        );
    }
    match envelope.message(&limits.json) {
        Ok((read, found)) => {
            report.extend_under("", found);
            of_content(&read, envelope.error.is_some(), &mut report);
            (report, Some((envelope.id.to_string(), read)))
        }
        Err(error) => {
            report.extend_under("", of_decode(error));
            (report, None)
        }
    }
}

fn of_decode(error: DecodeError) -> Report {
    match error {
        DecodeError::Invalid(report) => report,
        other => one("", "no_message", "OSW-2-1", other.to_string()),
    }
}

/// Rules over several members of a payload.
fn of_content(message: &Message, has_error: bool, report: &mut Report) {
    match message {
        Message::ToolStream(chunk) => of_chunk(chunk, report),
        Message::ToolResult(outcome) => of_outcome(outcome, has_error, report),
        Message::Register(register) => {
            for (n, tool) in register.tools.iter().enumerate() {
                if let Ok(tool) =
                    ToolSpec::read(tool.as_raw(), &ubos_common::json::Limits::default())
                {
                    report.extend_under(&format!("/payload/tools/{n}"), of_tool(&tool));
                }
            }
        }
        Message::Hello(hello) if hello.protocol.supported_versions.is_empty() => {
            let why = "no version is offered, so none is in common";
            let pointer = "/payload/protocol/supported_versions".to_owned();
            report.push(Violation::new(
                pointer,
                "empty",
                "OSW-4.1-6",
                Level::Should,
                why,
            ));
        }
        _ => {}
    }
}

fn of_chunk(chunk: &ToolStream, report: &mut Report) {
    if !chunk.fits_channel() {
        let why = "a text on each channel but partial_result, which has an object";
        report.push(Violation::new(
            "/payload/data",
            "data",
            "OSW-4.3-5",
            Level::Must,
            why,
        ));
    }
    if chunk.seq == 0 {
        report.push(Violation::new(
            "/payload/seq",
            "seq",
            "OSW-4.3-5",
            Level::Must,
            "numbers begin at 1",
        ));
    }
}

/// `status` decides: what does not go with it is dropped by a reader, and told here.
// impl: OSW-4.3-8
fn of_outcome(outcome: &ToolOutcome, has_error: bool, report: &mut Report) {
    let good = outcome.status == Status::Succeeded;
    let mut should = |pointer: &str, code: &'static str, why: &'static str| {
        report.push(Violation::new(
            pointer.to_owned(),
            code,
            "OSW-4.3-8",
            Level::Should,
            why,
        ));
    };
    if good && outcome.error.is_some() {
        should(
            "/payload/error",
            "status",
            "an error of a call that succeeded",
        );
    }
    if !good && outcome.output.is_some() {
        should(
            "/payload/output",
            "status",
            "an output of a call that did not succeed",
        );
    }
    if !good && outcome.error.is_none() && !has_error {
        should(
            "/payload/error",
            "missing",
            "a call that did not succeed says why",
        );
    }
}

fn of_tool(tool: &ToolSpec) -> Report {
    let name = tool.tool_id.split_once('/').map(|(_, name)| name);
    if name == Some(tool.name.as_str()) && is_tool_name(&tool.name) {
        Report::default()
    } else {
        one(
            "/tool_id",
            "tool_id",
            "OSW-4.2-1",
            "the agent's id, one slash, and the tool's name",
        )
    }
}

/// What the messages so far say of the calls.
#[derive(Default)]
struct CallHistory {
    ids: BTreeSet<String>,
    seqs: BTreeMap<String, u64>,
    done: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl CallHistory {
    // impl: OSW-3-9, OSW-4.3-7
    fn follow(&mut self, id: &str, message: &Message, report: &mut Report) {
        if !self.ids.insert(id.to_owned()) {
            let why = "an id that an earlier message has";
            must(report, "/id", "used_twice", "OSW-3-9", why);
        }
        match message {
            Message::ToolStream(chunk) => self.follow_chunk(chunk, report),
            Message::ToolResult(outcome) if !self.ended.insert(outcome.call_id.clone()) => {
                let why = "a second result of the call";
                must(
                    report,
                    "/payload/call_id",
                    "second_result",
                    "OSW-4.3-7",
                    why,
                );
            }
            _ => {}
        }
    }

    // impl: OSW-4.3-6
    fn follow_chunk(&mut self, chunk: &ToolStream, report: &mut Report) {
        let call = &chunk.call_id;
        let last = self.seqs.insert(call.clone(), chunk.seq);
        match last {
            Some(last) if chunk.seq <= last => {
                must(
                    report,
                    "/payload/seq",
                    "seq",
                    "OSW-4.3-5",
                    "numbers increase",
                );
            }
            None if chunk.seq > 1 => {
                must(
                    report,
                    "/payload/seq",
                    "seq",
                    "OSW-4.3-5",
                    "numbers begin at 1",
                );
            }
            _ => {}
        }
        if self.done.contains(call) {
            let why = "a piece after the last one";
            must(report, "/payload", "after_done", "OSW-4.3-6", why);
        }
        if self.ended.contains(call) {
            let why = "a piece after the result";
            must(
                report,
                "/payload/call_id",
                "after_result",
                "OSW-4.3-12",
                why,
            );
        }
        if chunk.done == Some(true) {
            self.done.insert(call.clone());
        }
    }
}

fn must(
    report: &mut Report,
    pointer: &'static str,
    code: &'static str,
    clause: &'static str,
    why: &'static str,
) {
    report.push(Violation::new(pointer, code, clause, Level::Must, why));
}
