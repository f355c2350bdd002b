//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]

#[cfg(feature = "testing")]
mod files;
#[cfg(all(feature = "testing", feature = "canon"))]
mod journal;
mod runs;
mod state;
mod stream;
mod support;
mod trace;
mod tree;
