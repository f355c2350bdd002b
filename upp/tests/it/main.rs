//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]
#![cfg_attr(
    not(all(
        feature = "driver",
        feature = "openai",
        feature = "anthropic",
        feature = "google"
    )),
    allow(dead_code, reason = "not every helper is for every feature")
)]

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod back;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod bodies;
#[cfg(feature = "external-tests")]
mod external;
#[cfg(feature = "google")]
mod google;
#[cfg(feature = "openai")]
mod http;
mod json;
mod lab;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod limits;
#[cfg(feature = "external-tests")]
mod litellm;
#[cfg(all(feature = "mcp", feature = "driver"))]
mod mcp;
#[cfg(feature = "openai")]
mod openai;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod quirks;
#[cfg(feature = "openai")]
mod responses;
mod retry;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod secrets;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod structure;
#[cfg(feature = "driver")]
mod tool_loop;
mod tools;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod trace_context;
#[cfg(all(feature = "tracing", feature = "driver"))]
mod tracing;
#[cfg(all(feature = "openai", feature = "anthropic", feature = "google"))]
mod transcripts;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod vendor;

/// What the messages of a test are marked with.
fn stamp(n: u32) -> upp::Stamp {
    upp::Stamp::with_id(format!("m-{n}"), ubos_common::time::Timestamp::EPOCH)
}
