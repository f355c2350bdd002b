//! Carrying tasks and results between agents, with the same meaning whatever carries them.
//!
//! ```text
//! bus    in process, no runtime                                        feature `driver`
//! http   a POST, answered by a result or by a stream of lines           feature `http`
//! mcp    capabilities as MCP tools                                      feature `mcp`
//! nats   a durable work queue on JetStream                              feature `nats`
//! ```
//!
//! A server is a [`Service`] behind one of them: it reads the task, has it answered by its processor, and passes
//! on what is said. A client checks a task before it leaves, and holds every answer against it.
//!
//! | who gets what | without `replyTo.endpoint` | with it |
//! |---|---|---|
//! | the caller | Ack, then every result, or a Nack | Ack or Nack |
//! | the endpoint | – | every result |
//!
//! A task that was sent is asked about by whoever may send it: how far it is, what follows, and its [cancel](About).
//!
//! An endpoint that cannot be reached is [reported](Service::on_warning), and the result stays in the transcript.
//! While 64 messages wait for one that is slow to take them, caller or endpoint, the task waits, too, and the end of its time is
//! noticed later, by at most 1 s. It does not wait for one who takes more than 1 s for one message: results on the way are left
//! out then, with a warning, and the end is sent. An endpoint, and a caller over HTTP or MCP, has 30 s for one message.
//! MCP has neither Ack nor results on the way: the caller gets the last one.

mod about;
#[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
mod beside;
pub mod bus;
#[cfg(feature = "tokio")]
mod clock;
mod endpoint;
mod exchange;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
mod message;
#[cfg(feature = "nats")]
pub mod nats;
mod sent;
mod service;
#[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
mod waits;

pub use about::About;
#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use endpoint::{Replies, ToEndpoint};
pub use message::Message;
pub use service::{Caller, Service};

use crate::dispatch::DispatchError;
use crate::lifecycle::LifecycleError;
use crate::processor::ProcessError;

/// Why a task has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It may not be sent; nothing left.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// It could not be written down, so it was not delivered.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// What came back is no message of this protocol.
    #[error("the answer is not a message of this protocol")]
    Answer(#[source] ubos_common::json::DecodeError),
    /// What came back is not of this task, or may not follow what came before.
    #[error("the answer does not belong to the task, or does not follow")]
    Refused(#[source] LifecycleError),
    /// The other side ended without an answer.
    #[error("no answer: {what}")]
    NoAnswer {
        /// What came instead, without text of the other side.
        what: String,
    },
    /// The server, or one before it, refuses who asks, and says nothing of the task. They are not sent again by themselves.
    #[cfg(feature = "http")]
    #[error("the server refuses the credentials: status {status}")]
    Credentials {
        /// The status of HTTP: 401, or 407 of a proxy.
        status: u16,
    },
    /// A result is not signed by its producer, which this client asks for.
    #[cfg(feature = "sign")]
    #[error("the result is not signed by its producer")]
    Unsigned(#[source] crate::sign::SignatureError),
    /// Carrying it failed.
    #[error("the transport failed")]
    Carrier(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
impl SendError {
    pub(crate) fn carrier(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Carrier(error.into())
    }
}
