//! What the crate promises, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]

mod json;
#[cfg(feature = "openai")]
mod openai;
mod retry;
mod tools;
