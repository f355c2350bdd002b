//! Borrowed messages, and the parser that every message goes through.
//!
//! [`MessageView`] reads and validates in one pass and borrows from the text wherever it can;
//! [`Message`](crate::Message) is its owned form.

mod plan;

use std::borrow::Cow;

use ubos_common::json::{
    self, DecodeError, Fault, JsonError, Kind, Limits, Members, Presence, Read, Reader, Slot,
};
use ubos_common::violation::{Level, Profile, Report};

use crate::limits::MAX_SUBTASK_DEPTH;
use crate::state::{OutFmt, State};

pub(crate) use plan::read_plan;
pub use plan::{ActView, ItemView};

/// A message of 0.1, borrowed from its text.
///
/// ```
/// use sacp::{ItemView, MessageView};
///
/// let text = br#"{"g":"ADD","plan":[["get","ONE",{"n":1}]]}"#;
/// let (message, findings) = MessageView::decode(text)?;
/// assert!(findings.is_empty());
/// let ItemView::Act(act) = &message.plan[0] else { unreachable!() };
/// assert_eq!((act.verb.as_ref(), act.params.as_str()), ("get", r#"{"n":1}"#));
/// # Ok::<(), ubos_common::json::DecodeError>(())
/// ```
///
/// Spec: SACP 2
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MessageView<'a> {
    /// The id of the message.
    pub msg_id: Option<Cow<'a, str>>,
    /// The id of the message that this one answers.
    pub reply_to: Option<Cow<'a, str>>,
    /// The goal.
    pub g: Cow<'a, str>,
    /// Context and results, by name.
    pub ctx: Option<Members<'a>>,
    /// The plan.
    pub plan: Vec<ItemView<'a>>,
    /// The format of the answer; absent means raw.
    pub out_fmt: Option<OutFmt>,
    /// The state; absent means pending.
    pub state: Option<State>,
    /// The version of the protocol; absent means 0.1.
    pub proto_ver: Option<Cow<'a, str>>,
    /// A message inside this one, run after the plan.
    pub subtask: Option<Box<Self>>,
    /// Whether acts are only simulated.
    pub test_mode: Option<bool>,
    /// Members that 0.1 does not name.
    pub extra: Members<'a>,
}

impl<'a> MessageView<'a> {
    /// Reads and validates a message with the default limits, by the strict profile. For others there is
    /// [`json::decode`](ubos_common::json::decode).
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has a finding that is a MUST.
    ///
    /// Spec: SACP 8
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, Report), DecodeError> {
        // As `json::decode` does, without moving the view between functions.
        let place = |fault| JsonError::new(fault, bytes);
        let limits = Limits::default();
        let mut reader = Reader::new(bytes, &limits, Profile::Strict).map_err(place)?;
        let mark = reader.mark();
        match read_message(&mut reader, 1) {
            Ok(view) => {
                let report = reader.finish().map_err(place)?;
                if report.is_valid() {
                    Ok((view, report))
                } else {
                    Err(DecodeError::Invalid(report))
                }
            }
            Err(fault) => {
                reader.settle::<()>(mark, Err(fault)).map_err(place)?;
                Err(DecodeError::Invalid(reader.finish().map_err(place)?))
            }
        }
    }
}

impl<'a> Read<'a> for MessageView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        read_message(reader, 1)
    }
}

/// Reads a message at a depth of nesting.
// impl: SACP-2-1, SACP-2-4, SACP-2-9
fn read_message<'a>(reader: &mut Reader<'a>, depth: usize) -> Result<MessageView<'a>, Fault> {
    let object_at = reader.offset();
    let mut m = Slots::default();
    let mut extra = Members::new();
    let mut extra_at = Vec::new();
    reader.fields(|reader, name, name_at| match name.as_ref() {
        "g" => {
            m.g.read(reader, name_at, Presence::Required, "SACP-2-1", false)
        }
        "plan" => {
            refuse_second(reader, &mut m.plan_seen, name_at)?;
            m.plan = reader.under("SACP-2-2", false, |r| read_plan(r, depth))?;
            Ok(())
        }
        "msg_id" => optional(&mut m.msg_id, reader, name_at, "SACP-2-4"),
        "reply_to" => optional(&mut m.reply_to, reader, name_at, "SACP-2-4"),
        "ctx" => optional(&mut m.ctx, reader, name_at, "SACP-2-4"),
        "out_fmt" => optional(&mut m.out_fmt, reader, name_at, "SACP-2-5"),
        "state" => optional(&mut m.state, reader, name_at, "SACP-2-6"),
        "proto_ver" => optional(&mut m.proto_ver, reader, name_at, "SACP-2-8"),
        "test_mode" => optional(&mut m.test_mode, reader, name_at, "SACP-2-4"),
        "subtask" => {
            refuse_second(reader, &mut m.subtask_seen, name_at)?;
            m.subtask = reader.under("SACP-2-9", false, |r| read_subtask(r, depth))?;
            Ok(())
        }
        _ => {
            note_unknown(reader, name_at, &name)?;
            extra_at.push(name_at);
            extra.keep(reader, name)
        }
    })?;
    json::refuse_double(reader, &extra, &extra_at)?;
    m.close(reader, object_at);
    m.finish(reader, extra)
}

// impl: SACP-2-10
fn note_unknown(reader: &mut Reader<'_>, at: usize, name: &str) -> Result<(), Fault> {
    let note = |reader: &mut Reader<'_>| {
        let name = Some(Cow::Owned(name.to_owned()));
        let what = "not named by version 0.1";
        reader.note(at, name, "unknown_member", Level::Advice, what);
        Ok(())
    };
    reader.under("SACP-2-10", false, note).map(drop)
}

/// The members while their object is read.
#[derive(Default)]
struct Slots<'a> {
    msg_id: Slot<Filled<'a>>,
    reply_to: Slot<Filled<'a>>,
    g: Slot<Goal<'a>>,
    ctx: Slot<Context<'a>>,
    plan: Option<Vec<ItemView<'a>>>,
    plan_seen: bool,
    out_fmt: Slot<OutFmt>,
    state: Slot<State>,
    proto_ver: Slot<ProtoVer<'a>>,
    subtask: Option<Box<MessageView<'a>>>,
    subtask_seen: bool,
    test_mode: Slot<bool>,
}

impl<'a> Slots<'a> {
    fn close(&self, reader: &mut Reader<'_>, at: usize) {
        self.g
            .close(reader, at, Presence::Required, "g", "SACP-2-1", None);
        if !self.plan_seen {
            reader.missing(at, "plan", "SACP-2-1", Level::Must);
        }
    }

    #[inline]
    fn finish(self, reader: &Reader<'_>, extra: Members<'a>) -> Result<MessageView<'a>, Fault> {
        let (Some(g), Some(plan)) = (self.g.value, self.plan) else {
            return Err(reader.noted());
        };
        Ok(MessageView {
            msg_id: self.msg_id.value.map(|text| text.0),
            reply_to: self.reply_to.value.map(|text| text.0),
            g: g.0,
            ctx: self.ctx.value.map(|ctx| ctx.0),
            plan,
            out_fmt: self.out_fmt.value,
            state: self.state.value,
            proto_ver: self.proto_ver.value.map(|text| text.0),
            subtask: self.subtask,
            test_mode: self.test_mode.value,
            extra,
        })
    }
}

#[inline]
fn optional<'a, T: Read<'a>>(
    slot: &mut Slot<T>,
    reader: &mut Reader<'a>,
    name_at: usize,
    clause: &'static str,
) -> Result<(), Fault> {
    slot.read(reader, name_at, Presence::Optional, clause, false)
}

fn refuse_second(reader: &Reader<'_>, seen: &mut bool, name_at: usize) -> Result<(), Fault> {
    if core::mem::replace(seen, true) {
        return Err(reader.duplicate(name_at));
    }
    Ok(())
}

/// Reads a subtask of a message at a depth of nesting.
fn read_subtask<'a>(reader: &mut Reader<'a>, depth: usize) -> Result<Box<MessageView<'a>>, Fault> {
    let mark = reader.mark();
    let seen = reader.peek()?;
    if seen != Kind::Object {
        return Err(reader.wrong_type(mark, "a message", seen));
    }
    if depth >= MAX_SUBTASK_DEPTH {
        let at = reader.offset_here();
        return Err(reader.bad_value(at, "at most 8 messages inside one another"));
    }
    read_message(reader, depth + 1).map(Box::new)
}

/// A text that is not empty.
struct Filled<'a>(Cow<'a, str>);

impl<'a> Read<'a> for Filled<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        filled(reader, "a text that is not empty").map(Self)
    }
}

struct Goal<'a>(Cow<'a, str>);

impl<'a> Read<'a> for Goal<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        filled(reader, "a goal that is not empty").map(Self)
    }
}

fn filled<'a>(reader: &mut Reader<'a>, wanted: &'static str) -> Result<Cow<'a, str>, Fault> {
    let at = reader.offset();
    let text = reader.str()?;
    if text.is_empty() {
        return Err(reader.bad_value(at, wanted));
    }
    Ok(text)
}

/// The supported version.
struct ProtoVer<'a>(Cow<'a, str>);

impl<'a> Read<'a> for ProtoVer<'a> {
    // impl: SACP-2-8
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        if text != "0.1" {
            return Err(reader.bad_value_seen(at, "version 0.1", &text));
        }
        Ok(Self(text))
    }
}

/// `ctx`: any members, of which `test_mode` is a boolean.
struct Context<'a>(Members<'a>);

impl<'a> Read<'a> for Context<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut members = Members::new();
        let mut refused = false;
        reader.object(|reader, name| {
            if name == "test_mode" {
                let (mark, seen) = (reader.mark(), reader.peek()?);
                if seen != Kind::Bool {
                    let fault = reader.wrong_type(mark, "a boolean", seen);
                    refused = true;
                    return reader.settle::<()>(mark, Err(fault)).map(drop);
                }
            }
            members.keep(reader, name.clone())
        })?;
        if refused {
            return Err(reader.noted());
        }
        Ok(Self(members))
    }
}
