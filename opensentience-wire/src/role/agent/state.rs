//! What an agent's connection holds, and what comes out of it.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::ShortText;
use ubos_common::json::RawObject;
use ubos_common::time::{Mono, Now};
use ubos_common::trace_context::TraceContext;

use super::config::Config;
use crate::envelope::Correlation;
use crate::error::{ErrorCode, ErrorObject};
use crate::message::Actor;
use crate::message::{Health, Registered, ToolCall};
use crate::role::common::CommonState;
use crate::role::idempotency::{Key, Memory};
use crate::role::table::Table;
use crate::role::{CallId, CloseReason};
use crate::schema::InputSchema;

/// What comes out of an [`AgentConnection`].
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Send these bytes.
    Transmit(Vec<u8>),
    /// Run a tool, and say how it ended with [`AgentConnection::finish`], also when nobody waits for it.
    Call(Box<IncomingCall>),
    /// Stop a tool that runs.
    Cancel(CallId),
    /// Something the agent's application may want to know.
    Event(Event),
    /// The connection has ended: send what came before and close.
    Close(CloseReason),
}

/// Of bytes the size alone: they may be a hello with its token.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transmit(bytes) => write!(f, "Transmit({} bytes)", bytes.len()),
            Self::Call(call) => f.debug_tuple("Call").field(call).finish(),
            Self::Cancel(id) => f.debug_tuple("Cancel").field(id).finish(),
            Self::Event(event) => f.debug_tuple("Event").field(event).finish(),
            Self::Close(reason) => f.debug_tuple("Close").field(reason).finish(),
        }
    }
}

/// Events for the agent's application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The core took the agent in.
    Welcomed {
        /// The session.
        session_id: Box<str>,
    },
    /// What became of a registration.
    Registered(Registered),
    /// Tools are withdrawn.
    Unregistered(Vec<String>),
    /// The core is about to close.
    Goodbye {
        /// Why, in the core's words.
        reason: String,
        /// How long to wait before a new launch makes sense.
        retry_after: Option<Duration>,
    },
    /// A message, or a part of one, had no effect.
    Rejected {
        /// What was wrong.
        code: ErrorCode,
        /// The rule, in words of this library.
        rule: &'static str,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::role) enum Timer {
    Welcome,
    Heartbeat,
    Drain,
    Call(CallId),
}

/// An agent's connection to its core.
///
/// Its memory: one frame that is being received, the outputs that wait, the tools, and for each call that
/// runs the ids that its answers echo, all within [`Limits`](crate::limits::Limits).
///
/// Spec: OpenSentience 2 to 6
#[derive(Debug)]
pub struct AgentConnection {
    pub(super) config: Config,
    pub(super) common: CommonState<Timer, Output>,
    pub(super) started: Mono,
    pub(super) session_id: Box<str>,
    pub(super) heartbeat_interval: Duration,
    pub(super) health: Health,
    pub(super) end: CloseReason,
    pub(super) tools: BTreeMap<Box<str>, InputSchema>,
    pub(super) calls: Table<OpenCall>,
    /// The bytes that the calls hold.
    pub(super) held_bytes: usize,
    /// The bytes of results that were put among the outputs since these were last all taken.
    pub(super) unsent_bytes: usize,
    pub(super) memory: Memory<CallId, Ending>,
    /// There is room for what is sent.
    pub(super) writing: bool,
}

/// A call that wants a tool to run.
///
/// The input is an object within the limits that fits the tool's schema. Without the feature `schema`, or where
/// [`Config::with_tools_checking_inputs`](super::Config::with_tools_checking_inputs) is on, it is the tool that holds it against the schema,
/// and answers [`ErrorCode::ToolInvalidInput`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct IncomingCall {
    /// The call.
    pub call_id: CallId,
    /// What it asks.
    pub call: ToolCall,
    /// Who stands behind it; never a reason to permit anything.
    pub actor: Option<Actor>,
    /// The ids that all its answers echo; the library does that.
    pub ids: Correlation,
}

impl IncomingCall {
    /// The place in a distributed trace that the call is made from: its `correlation_id`, where that is a valid `traceparent`
    /// ([`CallRequest::with_trace`](crate::role::core::CallRequest::with_trace)). It is for what the tool asks of others.
    ///
    /// Spec: OpenSentience 3.1
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        TraceContext::read(self.ids.correlation_id.as_deref()?, [])
    }
}

/// A call whose tool has not come back.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) about: About,
    /// The bytes that it holds, those that its tool was given counted.
    pub(super) bytes: usize,
    pub(super) last_seq: u64,
    pub(super) stream_done: bool,
    pub(super) canceled: bool,
    /// The tool was told to stop.
    pub(super) stopped: bool,
    /// The result is sent; the tool has still to come back.
    pub(super) ended: bool,
    pub(super) timeout: Option<Mono>,
    /// Its tool and idempotency key.
    pub(super) key: Option<Key>,
    /// No tool runs for it: it waits for the end of another call with its key.
    pub(super) follows: bool,
}

/// How a tool came back.
pub(super) type Ending = Result<RawObject, ErrorObject>;

/// What a result says besides its outcome.
#[derive(Debug)]
pub(super) struct About {
    pub(super) ids: Correlation,
    pub(super) message_id: ShortText,
    pub(super) arrived: Now,
}
