//! Tasks over HTTP: one POST, answered by a result, by a receipt, or by a stream of lines.
//!
//! | what is said | status | body |
//! |---|---|---|
//! | a result, whatever its status | 200 | the result |
//! | everything, where `Accept` names `application/x-ndjson` and prefers nothing to it | 200 | Ack and results, a line each, as they come |
//! | an Ack alone, because results go to an endpoint | 202 | the Ack; nothing where none is wanted |
//! | Nack `INVALID_TASK` | 400, for a long body 413 | the Nack |
//! | Nack `UNAUTHORIZED`, `FORBIDDEN`, `NOT_FOUND` | 401, 403, 404 | the Nack |
//! | Nack `UNPROCESSABLE`, `RATE_LIMIT` | 422, 429 | the Nack |
//! | nothing, because it could not be written down | 500 | – |
//!
//! A task that was sent before is asked about below that path, by whoever may send it:
//!
//! | request | answer |
//! |---|---|
//! | `GET /<taskId>?issuer=<agentId>` | its latest result, or the Ack where it has none yet |
//! | `DELETE /<taskId>?issuer=<agentId>` | the same; a task that runs is stopped, and ends CANCELLED |
//! | `GET /<taskId>/events?issuer=<agentId>` | the same and all that follows, as lines; else the last as a whole |
//!
//! A task that is not known, or that the one who asks may not send, is a Nack `NOT_FOUND` and 404.
//!
//! `X-Correlation-Id` is sent and echoed. Absent is fine; one that is not the task's is a Nack.
//!
//! A client that goes does not end its task: sent again, it is answered with what came of it.

mod about;
mod accept;
mod admission;
mod body;
mod client;
mod closing;
mod config;
mod connections;
mod lines;
mod patience;
mod replies;
mod request;
mod response;
mod server;
mod shares;

pub use client::{ClientError, HttpClient};
#[cfg(feature = "mcp")]
pub(super) use closing::{Closing, Running};
pub use config::Config;
pub use connections::Listener;
#[cfg(feature = "sign")]
pub use replies::signed_inbox;
pub use replies::{HttpReplies, inbox};
#[cfg(feature = "mcp")]
pub(super) use request::asking;
pub use server::{router, serve, serve_with};

/// Lines of JSON.
const LINES: &str = "application/x-ndjson";
const JSON: &str = "application/json";
/// The parameter of a request about a task: whose task it is.
const ISSUER: &str = "issuer";
/// The header as it is sent; it is read in any case.
const CORRELATION: &str = "x-correlation-id";
