//! The message and its codec.

use std::collections::BTreeMap;

use ubos_common::json::{
    self, DecodeError, Fault, Limits, MemberWriter, Members, Raw, RawBuf, Read, Reader, Write,
};
use ubos_common::violation::Profile;

use crate::plan::Plan;
use crate::view::MessageView;

pub use crate::state::{OutFmt, State};

/// A message of SACP 0.1. Only goal and plan are required.
///
/// Members that the specification does not name are kept in `extra` and written back.
/// [`MessageView`] is its borrowed form.
///
/// Spec: SACP 2
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// The id of the message.
    pub msg_id: Option<NonEmpty>,
    /// The id of the message that this one answers.
    pub reply_to: Option<NonEmpty>,
    /// The goal. A message with an empty one is refused when it is read.
    pub g: String,
    /// Context and results, by name.
    pub context: Option<BTreeMap<String, RawBuf>>,
    /// The plan.
    pub plan: Plan,
    /// The format of the answer; absent means raw.
    pub out_fmt: Option<OutFmt>,
    /// The state; absent means pending.
    pub state: Option<State>,
    /// The version of the protocol; absent means 0.1.
    pub proto_ver: Option<Version>,
    /// A message inside this one, run after the plan. The reader limits the depth.
    pub subtask: Option<Box<Self>>,
    /// Whether acts are only simulated.
    pub test_mode: Option<bool>,
    /// Members that this type does not know, kept and written back.
    pub extra: Members<'static>,
}

impl Message {
    /// A message with a goal, which must not be empty, and a plan.
    #[must_use]
    pub fn new(goal: impl Into<String>, plan: Plan) -> Self {
        Self {
            msg_id: None,
            reply_to: None,
            g: goal.into(),
            context: None,
            plan,
            out_fmt: None,
            state: None,
            proto_ver: None,
            subtask: None,
            test_mode: None,
            extra: Members::new(),
        }
    }

    /// Reads a message with the default limits.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has findings: [`validate`](mod@crate::validate) turns them into the answer.
    ///
    /// Spec: SACP 8
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        json::decode(bytes, &Limits::default(), Profile::Strict).map(|(message, _)| message)
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }

    /// The format of the answer: raw if absent.
    // impl: SACP-2-5
    #[must_use]
    pub fn out_fmt(&self) -> OutFmt {
        self.out_fmt.clone().unwrap_or(OutFmt::Raw)
    }

    /// The state: pending if absent.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.clone().unwrap_or(State::Pending)
    }

    /// Whether acts are only simulated: `test_mode` is true at the top level or in `ctx`.
    ///
    /// Spec: SACP 5
    #[must_use]
    pub fn is_test(&self) -> bool {
        let in_ctx = self.context.as_ref().and_then(|ctx| ctx.get("test_mode"));
        self.test_mode == Some(true) || in_ctx.is_some_and(|value| value.as_str() == "true")
    }

    /// Sets a member of `ctx`.
    pub fn set_context(&mut self, name: &str, value: RawBuf) {
        self.context
            .get_or_insert_default()
            .insert(name.to_owned(), value);
    }
}

// impl: SACP-6-1
impl Read<'_> for Message {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        MessageView::read(reader).map(Self::from)
    }
}

impl From<MessageView<'_>> for Message {
    fn from(view: MessageView<'_>) -> Self {
        let context = |members: Members<'_>| {
            let owned = |(name, value): (&str, Raw<'_>)| (name.to_owned(), value.to_owned());
            members.iter().map(owned).collect()
        };
        Self {
            msg_id: view.msg_id.map(|text| NonEmpty(text.into_owned())),
            reply_to: view.reply_to.map(|text| NonEmpty(text.into_owned())),
            g: view.g.into_owned(),
            context: view.ctx.map(context),
            plan: view.plan.into(),
            out_fmt: view.out_fmt,
            state: view.state,
            proto_ver: view.proto_ver.map(|text| Version(text.into_owned())),
            subtask: view.subtask.map(|nested| Box::new(Self::from(*nested))),
            test_mode: view.test_mode,
            extra: view.extra.into_owned(),
        }
    }
}

// impl: SACP-6-1
impl Write for Message {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.optional("msg_id", self.msg_id.as_ref());
        object.optional("reply_to", self.reply_to.as_ref());
        object.member("g", &self.g);
        object.optional("ctx", self.context.as_ref());
        object.member("plan", &self.plan);
        object.optional("out_fmt", self.out_fmt.as_ref());
        object.optional("state", self.state.as_ref());
        object.optional("proto_ver", self.proto_ver.as_ref());
        object.optional("subtask", self.subtask.as_ref());
        object.optional("test_mode", self.test_mode.as_ref());
        for (name, value) in self.extra.iter() {
            object.member(name, &value);
        }
        object.end();
    }
}

/// A text that is not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NonEmpty(String);

impl NonEmpty {
    /// The text; `None` if it is empty.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }
}

impl core::ops::Deref for NonEmpty {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Display for NonEmpty {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.0)
    }
}

impl Read<'_> for NonEmpty {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        Self::new(text).ok_or_else(|| reader.bad_value(at, "a text that is not empty"))
    }
}

impl Write for NonEmpty {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A supported version. By default it is 0.1, the only one that this crate writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

impl Default for Version {
    fn default() -> Self {
        Self("0.1".to_owned())
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.0)
    }
}

impl Write for Version {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
