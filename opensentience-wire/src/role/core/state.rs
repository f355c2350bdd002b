//! What a core's connection holds, and what comes out of it.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::config::Config;
use super::request::{Outcome, PendingCall};
use super::schemas::{Registration, SchemaCheck};
use super::throttle::Throttle;
use crate::audit::AuditEvent;
use crate::error::ErrorCode;
use crate::ledger::{Charge, Ledger};
use crate::message::{Health, Rejected, ToolSpec, ToolStream};
use crate::role::common::CommonState;
use crate::role::rate::Bucket;
use crate::role::table::Table;
use crate::role::{CallId, CloseReason};
use crate::token::Grant;

/// What comes out of a [`CoreConnection`].
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Send these bytes.
    Transmit(Vec<u8>),
    /// Something the core's application wants to know.
    Event(Event),
    /// Compile schemas, and give the verdicts to [`CoreConnection::take_verdicts`]: no input is read before. Only where
    /// [`Config::with_schemas_apart`] asks for it.
    CheckSchemas(SchemaCheck),
    /// The connection has ended: send what came before and close. Behind it comes nothing but records of calls that are
    /// refused since ([`Event::Audit`]).
    Close(CloseReason),
}

/// Of bytes the size alone: they may be a hello with its token.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transmit(bytes) => write!(f, "Transmit({} bytes)", bytes.len()),
            Self::Event(event) => f.debug_tuple("Event").field(event).finish(),
            Self::CheckSchemas(check) => write!(f, "CheckSchemas({} tools)", check.tools.len()),
            Self::Close(reason) => f.debug_tuple("Close").field(reason).finish(),
        }
    }
}

/// Events for the core's application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The agent's hello was accepted.
    Connected {
        /// The session.
        session_id: Box<str>,
        /// The agent's version.
        agent_version: Box<str>,
    },
    /// The tools of the session are others now: see [`CoreConnection::tools`].
    ToolsChanged,
    /// A tool was not taken, and why.
    ToolRejected(Rejected),
    /// A piece of a call's output, in order.
    Stream(CallId, ToolStream),
    /// A call has ended; there is exactly one for each call.
    Ended(CallId, Box<Outcome>),
    /// The agent acknowledged a cancel.
    CancelAck {
        /// The call.
        call_id: CallId,
        /// Whether there was something to stop.
        accepted: bool,
    },
    /// The agent's health changed.
    Health(Health),
    /// The agent answered a ping.
    Pong,
    /// A record for the audit.
    Audit(Box<AuditEvent>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::role) enum Timer {
    Handshake,
    Health,
    /// The agent has waited long enough for what it sent too much.
    Throttle,
    Drain,
    Call(CallId),
}

/// One agent's connection, seen from the core.
///
/// Its memory: one frame that is being received, the outputs that wait, and what the [`Ledger`] of its agent counts, all
/// within [`Limits`](crate::limits::Limits).
///
/// Spec: OpenSentience 2 to 6
#[derive(Debug)]
pub struct CoreConnection {
    pub(super) config: Config,
    pub(super) grant: Option<Grant>,
    pub(super) common: CommonState<Timer, Output>,
    pub(super) session_id: Box<str>,
    pub(super) agent_id: Box<str>,
    pub(super) tools: BTreeMap<Box<str>, Arc<ToolSpec>>,
    /// What is kept for the agent.
    pub(super) ledger: Ledger,
    /// What the tools hold.
    pub(super) tool_charge: Charge,
    /// A registration that waits for the verdicts about its schemas: one at most, for nothing is read meanwhile.
    pub(super) registration: Option<Box<Registration>>,
    pub(super) calls: Table<PendingCall>,
    pub(super) queue: VecDeque<CallId>,
    /// What was taken of the rates of calls.
    pub(super) called: [Bucket; 2],
    pub(super) health: Health,
    pub(super) reading: bool,
    pub(super) throttle: Throttle,
    pub(super) records_calls: bool,
    pub(super) routed_bytes: usize,
}

/// The message that the peer gets with a code. It says nothing about the case, so it leaks nothing.
pub(super) const fn public_message(code: &ErrorCode) -> &'static str {
    match code {
        ErrorCode::Unauthorized => "this token does not open this connection",
        ErrorCode::UnsupportedVersion => "no protocol version in common",
        ErrorCode::HandshakeRequired => "a hello was expected first",
        ErrorCode::HandshakeTimeout => "no hello in time",
        ErrorCode::ManifestMismatch => "another manifest than the one enabled",
        ErrorCode::FrameTooLarge => "a frame over the limit",
        ErrorCode::UnknownType => "a message of an unknown type",
        ErrorCode::InvalidFrame => "a frame that is no message",
        _ => "a message that breaks the rules",
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
