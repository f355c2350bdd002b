//! The message and its codec.

use std::collections::BTreeMap;

use ubos_common::json::{self, DecodeError, Fault, Kind, Limits, RawBuf, Read, Reader};
use ubos_common::violation::Profile;

use crate::limits::MAX_SUBTASK_DEPTH;
use crate::plan::Plan;

ubos_common::wire! {
    /// A SACP 0.1 message. Built with its goal and plan; everything else may be absent.
    ///
    /// Members that the specification does not name are kept in `extra` and written back.
    ///
    /// Spec: SACP 2
    pub struct Message {
        /// Names the message; every message written here has one of its own.
        optional msg_id: NonEmpty = "msg_id", "SACP-2-4";
        /// The message that this one answers.
        optional reply_to: NonEmpty = "reply_to", "SACP-2-4";
        /// The goal.
        required g: Goal = "g", "SACP-2-1";
        /// Circumstances and results, by name.
        optional context: BTreeMap<String, RawBuf> = "ctx", "SACP-2-4";
        /// What is to be done, in order.
        required plan: Plan = "plan", "SACP-2-2";
        /// How the answer is wanted; absent means raw.
        optional out_fmt: OutFmt = "out_fmt", "SACP-2-5";
        /// How far the message is; absent is acted on as pending.
        optional state: State = "state", "SACP-2-6";
        /// The version of the protocol; absent means 0.1.
        optional proto_ver: Version = "proto_ver", "SACP-2-8";
        /// A message inside this one, run after the plan.
        optional subtask: Box<Subtask> = "subtask", "SACP-2-9";
        /// Whether acts are only simulated.
        optional test_mode: bool = "test_mode", "SACP-2-4";
    }
}

impl Message {
    /// A pending message with nothing but a goal and a plan.
    #[must_use]
    pub fn with_goal(goal: &str, plan: Plan) -> Self {
        Self::new(Goal(goal.to_owned()), plan)
    }

    /// Reads a message with the default limits.
    ///
    /// # Errors
    ///
    /// No sound JSON, or findings: [`validate`](mod@crate::validate) makes the answer of them.
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

    /// The goal.
    #[must_use]
    pub fn goal(&self) -> &str {
        &self.g.0
    }

    /// The answer's format that is in force.
    #[must_use]
    pub fn out_fmt(&self) -> OutFmt {
        self.out_fmt.clone().unwrap_or(OutFmt::Raw)
    }

    /// The state that is in force.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.clone().unwrap_or(State::Pending)
    }

    /// Whether acts are only simulated: the top level or `ctx` says so.
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

ubos_common::words! {
    /// How an answer is wanted.
    ///
    /// Spec: SACP 3
    closed pub enum OutFmt {
        /// Prose for a person.
        Human = "human",
        /// Structured, as it is: the default.
        Raw = "raw",
        /// Structured and short.
        Summary = "summary",
    }
}

ubos_common::words! {
    /// How far a message is.
    ///
    /// ```text
    /// PENDING -> IN_PROGRESS -> DONE
    ///    |            |
    ///    +------------+-------> FAILED
    /// ```
    ///
    /// Spec: SACP 1
    closed pub enum State {
        /// Nothing has begun.
        Pending = "PENDING",
        /// An agent has it.
        InProgress = "IN_PROGRESS",
        /// It went well.
        Done = "DONE",
        /// It did not.
        Failed = "FAILED",
    }
}

impl State {
    /// Whether a message may go from this state to another.
    ///
    /// Spec: SACP 1
    #[must_use]
    pub const fn may_become(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (Self::Pending, Self::InProgress | Self::Failed)
                | (Self::InProgress, Self::Done | Self::Failed)
        )
    }
}

macro_rules! text {
    ($(#[$meta:meta])* $name:ident, |$reader:ident, $at:ident, $text:ident| $check:expr) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl core::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Read<'_> for $name {
            fn read($reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let $at = $reader.offset();
                let $text = $reader.str()?;
                $check
                Ok(Self($text.into_owned()))
            }
        }

        impl json::Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
        }
    };
}

text! {
    /// A text that is not empty.
    NonEmpty, |reader, at, text| if text.is_empty() {
        return Err(reader.bad_value(at, "a text that is not empty"));
    }
}

text! {
    /// A goal: a text that is not empty.
    Goal, |reader, at, text| if text.is_empty() {
        return Err(reader.bad_value(at, "a goal that is not empty"));
    }
}

text! {
    /// A version that is spoken here: 0.1.
    Version, |reader, at, text| if text != "0.1" {
        return Err(reader.bad_value_seen(at, "version 0.1", &text));
    }
}

impl NonEmpty {
    /// The text, unless it is empty.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }
}

/// A message inside another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Subtask(Message);

impl Subtask {
    /// A message to be nested.
    #[must_use]
    pub const fn new(message: Message) -> Self {
        Self(message)
    }

    /// The message.
    #[must_use]
    pub const fn message(&self) -> &Message {
        &self.0
    }
}

impl Read<'_> for Subtask {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mark = reader.mark();
        if reader.peek()? != Kind::Object {
            let seen = reader.peek()?;
            return Err(reader.wrong_type(mark, "a message", seen));
        }
        // Each message is one object below the other; no other member of a message nests messages here.
        if reader.depth() >= MAX_SUBTASK_DEPTH {
            return Err(reader.bad_value(
                reader.offset_here(),
                "at most 8 messages inside one another",
            ));
        }
        Message::read(reader).map(Self)
    }
}

impl json::Write for Subtask {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
