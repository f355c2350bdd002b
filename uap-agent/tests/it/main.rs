//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]

mod adversity;
mod checkers;
mod conformance;
#[cfg(any(feature = "sqlite", feature = "external-tests"))]
mod databases;
mod files;
#[cfg(feature = "canon")]
mod journal;
#[cfg(feature = "log")]
mod killed;
#[cfg(feature = "canon")]
mod lab;
mod limits;
#[cfg(feature = "log")]
mod log_forks;
#[cfg(feature = "log")]
mod log_store;
mod middleware;
mod order;
mod promises;
mod repair;
mod runs;
#[cfg(feature = "log")]
mod seals;
mod sessions;
mod state;
#[cfg(feature = "log")]
mod stores;
mod stream;
mod subagent;
mod support;
mod tools;
mod trace;
mod trace_context;
#[cfg(all(feature = "tracing", feature = "canon"))]
mod tracing;
mod tree;
#[cfg(feature = "canon")]
mod unasked;
