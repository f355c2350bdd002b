//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]

mod adversity;
#[cfg(feature = "testing")]
mod checkers;
#[cfg(feature = "conformance")]
mod conformance;
mod files;
#[cfg(all(feature = "testing", feature = "canon"))]
mod journal;
#[cfg(feature = "log")]
mod killed;
#[cfg(feature = "log")]
mod log_store;
mod middleware;
mod promises;
mod repair;
mod runs;
#[cfg(all(feature = "testing", feature = "log"))]
mod seals;
mod state;
#[cfg(all(feature = "testing", feature = "log"))]
mod stores;
mod stream;
mod subagent;
mod support;
mod trace;
mod tree;
