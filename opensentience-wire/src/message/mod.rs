//! The messages: one type a payload, one module a family.

mod actor;
mod call;
mod cancel;
mod health;
mod session;
mod tools;

pub use actor::{Actor, ActorType};
pub(crate) use call::AboutCall;
pub use call::{
    CallContext, Caller, Channel, ChunkData, Status, ToolCall, ToolOutcome, ToolStream,
};
pub use cancel::{CancelAck, ToolCancel};
pub use health::{Health, Heartbeat};
pub use session::{Goodbye, Hello, ProtocolOffer, Sdk, SemVer, SemVerError, Server, Welcome};
#[cfg(feature = "tokio")]
pub(crate) use tools::SharedTools;
pub use tools::{Register, Registered, Rejected, ToolSpec, Unregister, Unregistered, is_tool_name};

use ubos_common::json::{RawObject, Write};

use crate::error::ErrorObject;

ubos_common::words! {
    /// What a payload is. The set is open: messages of other types may come.
    ///
    /// Spec: OpenSentience 4
    open pub enum MessageType {
        /// The agent begins.
        Hello = "agent.hello",
        /// The core's answer, also where it refuses.
        Welcome = "core.welcome",
        /// The core is about to close.
        Goodbye = "core.goodbye",
        /// The agent offers tools.
        Register = "agent.tools.register",
        /// Which of them the core takes.
        Registered = "core.tools.registered",
        /// The agent withdraws tools.
        Unregister = "agent.tools.unregister",
        /// Which of them were there.
        Unregistered = "core.tools.unregistered",
        /// The core calls a tool.
        ToolCall = "core.tool.call",
        /// A piece of a call's output.
        ToolStream = "agent.tool.stream",
        /// The end of a call.
        ToolResult = "agent.tool.result",
        /// The core cancels a call.
        ToolCancel = "core.tool.cancel",
        /// The agent acknowledges a cancel.
        CancelAck = "agent.tool.cancel_ack",
        /// The agent is alive.
        Heartbeat = "agent.heartbeat",
        /// Does the agent live?
        Ping = "core.ping",
        /// It does.
        Pong = "agent.pong",
        /// A fault that no other message carries, from the core.
        CoreError = "core.error",
        /// The same from the agent.
        AgentError = "agent.error",
    }
}

/// Which side sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The core.
    Core,
    /// The agent.
    Agent,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Core => Self::Agent,
            Self::Agent => Self::Core,
        }
    }
}

impl MessageType {
    /// Which side may send it, by its first part; `None` where that says nothing.
    #[must_use]
    pub fn sender(&self) -> Option<Side> {
        match self.as_str().split('.').next() {
            Some("core") => Some(Side::Core),
            Some("agent") => Some(Side::Agent),
            _ => None,
        }
    }
}

/// A message's payload, by its type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// [`MessageType::Hello`]
    Hello(Hello),
    /// [`MessageType::Welcome`]
    Welcome(Welcome),
    /// [`MessageType::Welcome`] with an error: the hello is refused.
    Refused(Box<ErrorObject>),
    /// [`MessageType::Goodbye`]
    Goodbye(Goodbye),
    /// [`MessageType::Register`]
    Register(Register),
    /// [`MessageType::Registered`]
    Registered(Registered),
    /// [`MessageType::Unregister`]
    Unregister(Unregister),
    /// [`MessageType::Unregistered`]
    Unregistered(Unregistered),
    /// [`MessageType::ToolCall`]
    ToolCall(ToolCall),
    /// [`MessageType::ToolStream`]
    ToolStream(ToolStream),
    /// [`MessageType::ToolResult`]
    ToolResult(ToolOutcome),
    /// [`MessageType::ToolCancel`]
    ToolCancel(ToolCancel),
    /// [`MessageType::CancelAck`]
    CancelAck(CancelAck),
    /// [`MessageType::Heartbeat`]
    Heartbeat(Heartbeat),
    /// [`MessageType::Ping`], [`MessageType::Pong`], [`MessageType::CoreError`],
    /// [`MessageType::AgentError`] and all unknown types: the payload as it is.
    Plain(MessageType, RawObject),
}

impl Message {
    /// The type that stands in the envelope.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        match self {
            Self::Hello(_) => MessageType::Hello,
            Self::Welcome(_) | Self::Refused(_) => MessageType::Welcome,
            Self::Goodbye(_) => MessageType::Goodbye,
            Self::Register(_) => MessageType::Register,
            Self::Registered(_) => MessageType::Registered,
            Self::Unregister(_) => MessageType::Unregister,
            Self::Unregistered(_) => MessageType::Unregistered,
            Self::ToolCall(_) => MessageType::ToolCall,
            Self::ToolStream(_) => MessageType::ToolStream,
            Self::ToolResult(_) => MessageType::ToolResult,
            Self::ToolCancel(_) => MessageType::ToolCancel,
            Self::CancelAck(_) => MessageType::CancelAck,
            Self::Heartbeat(_) => MessageType::Heartbeat,
            Self::Plain(kind, _) => kind.clone(),
        }
    }
}

/// The payload alone.
impl Write for Message {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(payload) => payload.write(out),
            Self::Welcome(payload) => payload.write(out),
            Self::Refused(_) => out.extend_from_slice(b"{}"),
            Self::Goodbye(payload) => payload.write(out),
            Self::Register(payload) => payload.write(out),
            Self::Registered(payload) => payload.write(out),
            Self::Unregister(payload) => payload.write(out),
            Self::Unregistered(payload) => payload.write(out),
            Self::ToolCall(payload) => payload.write(out),
            Self::ToolStream(payload) => payload.write(out),
            Self::ToolResult(payload) => payload.write(out),
            Self::ToolCancel(payload) => payload.write(out),
            Self::CancelAck(payload) => payload.write(out),
            Self::Heartbeat(payload) => payload.write(out),
            Self::Plain(_, payload) => payload.write(out),
        }
    }
}
