//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::result_large_err,
    clippy::print_stderr,
    reason = "helpers of tests are tests"
)]

mod agent_role;
mod bytes;
mod config;
mod conformance;
mod core_handshake;
mod core_role;
#[cfg(feature = "arbitrary")]
mod generated;
mod idempotency;
#[cfg(feature = "schema")]
mod inputs;
mod kit;
mod lab;
#[cfg(feature = "mcp")]
mod mcp_bridge;
mod redaction;
mod router;
#[cfg(all(feature = "tokio", unix))]
mod same_bytes;
mod simulation;
mod tables;
#[cfg(all(feature = "tokio", unix))]
mod tool_router;
#[cfg(all(feature = "tokio", feature = "tracing"))]
mod tracing;
#[cfg(all(feature = "tokio", unix))]
mod transport;
mod validate;
mod vectors;
