//! Adapters that reach a model over a network, one feature each.

#[cfg(feature = "openai")]
pub mod openai;
mod sse;

pub use sse::{SseError, SseReader};
