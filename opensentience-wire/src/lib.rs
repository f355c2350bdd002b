//! OpenSentience runtime protocol v1: framed JSON between a core and its agents, both roles, sans-IO.

pub mod audit;
pub mod envelope;
pub mod error;
pub mod frame;
pub mod limits;
pub mod message;
pub mod role;
mod token;
#[cfg(feature = "tokio")]
pub mod transport;

pub use token::{Grant, SessionToken};
