//! Shared ground floor of the UBOS agent protocol crates.
//!
//! Six crates stand on it: each implements one agent protocol as types, validation, codecs and state
//! machines without IO. Here is what they share, and nothing that only one of them needs. Use it directly
//! to drive those machines from your own runtime, to test your agents in the lab, or to keep a log that
//! shows tampering.
//!
//! | module | feature | what is in it |
//! |---|---|---|
//! | [`time`] | – | strict timestamps, RFC 3339 that keeps its text, `Now` as an argument |
//! | [`id`] | – | identifiers over UUID, and the source that makes them |
//! | [`json`] | – | bounded JSON: a pull parser with limits, the pattern of all wire structs |
//! | [`trace_context`] | – | the place of a message in a distributed trace, as W3C writes it |
//! | [`violation`] | – | findings with pointer, clause and level |
//! | [`secret`] | – | secrets that cannot be printed; redaction of text |
//! | [`machine`] | – | the trait of all state machines, their output queue, backoff |
//! | `canon` | `canon` | canonical JSON (RFC 8785), BLAKE3 digests |
//! | `log` | `log` | the append-only, hash-chained log |
//! | `os` | `os` | randomness and clocks of the operating system |
//! | `driver` | `driver` | runs a machine's effects on any async runtime |
//! | `testing` | `testing` | the lab: machines on virtual time over links that fail |
//! | `schema` | `schema` | JSON Schemas of strangers, bounded and compiled once |
//! | – | `tracing` | events of driver and log: ids and sizes, never what is inside |
//!
//! Nothing in the default modules reads a clock, draws randomness, opens a file or starts a thread.

pub mod id;
pub mod json;
pub mod machine;
pub mod secret;
pub mod time;
pub mod trace_context;
pub mod violation;

#[cfg(feature = "canon")]
pub mod canon;
#[cfg(feature = "driver")]
pub mod driver;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "os")]
pub mod os;
#[cfg(feature = "schema")]
pub mod schema;
#[cfg(feature = "testing")]
pub mod testing;

mod config;
mod plain;
mod text;
mod trace;

pub use config::ConfigError;
pub use text::{ShortText, is_unseen};

/// What the macros of this crate expand to. No part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::json::refuse_double;
    pub use crate::text::FromText;
    pub use serde;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
