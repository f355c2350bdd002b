//! OpenSentience runtime protocol v1: framed JSON between a core and the processes of its agents.
//!
//! Both roles are here: types, validation, framing, and machines that keep every promise of the protocol
//! without IO.
//!
//! ```text
//! transport::tokio   Launcher, CoreHandle, Agent, ToolRouter    feature `tokio`: sockets, processes, clocks
//! role               CoreConnection, AgentConnection, Router    (now, input) -> outputs, no IO
//! validate, schema   findings with pointer and clause           tools and their inputs
//! message, envelope  typed payloads                             unknown members kept
//! frame, limits      length and bytes                           any split, bounded
//! ```
//!
//! # Driving a machine
//!
//! Any loop that moves bytes can drive the machines; here two of them are connected to each other.
//!
//! ```
//! use opensentience_wire::message::{SemVer, ToolSpec};
//! use opensentience_wire::role::{Input, agent, core};
//! use opensentience_wire::ubos_common::id::IdSource;
//! use opensentience_wire::ubos_common::json::RawObject;
//! use opensentience_wire::ubos_common::time::{Mono, Now, Timestamp};
//! use opensentience_wire::{Grant, SessionToken};
//!
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! let token = || SessionToken::from_random([7; 32]); // drawn from the operating system in a program
//! let grant = Grant::new(now.mono, token(), "com.example.a");
//! let mut core = core::CoreConnection::new(now, core::Config::default(), IdSource::seeded(1), Some(grant))?;
//! let config = agent::Config::new("com.example.a", "1.0.0".parse()?, token());
//! let mut agent = agent::AgentConnection::new(now, config, IdSource::seeded(2))?;
//!
//! for _ in 0..3 {
//!     while let Some(out) = agent.poll_output() {
//!         match out {
//!             agent::Output::Transmit(bytes) => core.handle_input(now, Input::Bytes(&bytes))?,
//!             agent::Output::Event(agent::Event::Welcomed { .. }) => {
//!                 let echo = ToolSpec::local("echo", "returns its input", RawObject::empty());
//!                 agent.register(now, vec![echo], false)?;
//!             }
//!             _ => {}
//!         }
//!     }
//!     while let Some(out) = core.poll_output() {
//!         if let core::Output::Transmit(bytes) = out {
//!             agent.handle_input(now, Input::Bytes(&bytes))?;
//!         }
//!     }
//! }
//! assert_eq!(core.tools().next().map(|tool| tool.tool_id.as_str()), Some("com.example.a/echo"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | (none) | types, validation, framing and all three machines; compiles for wasm32 |
//! | `schema` (default) | checks inputs against the schemas of their tools; without it the tools must do so |
//! | `tokio` | launching agents, calling their tools, many agents behind one handle, being an agent |
//! | `manifest` | reads manifests from files, and their hashes |
//! | `schemars` | declares tools by the types of their inputs and outputs |
//! | `mcp` | the tools of an MCP server as an agent |
//! | `tracing` | records of the machines, spans for handshakes, calls and tools; ids and sizes, never payloads |
//! | `arbitrary` | generators of messages, for fuzzing and property tests |
//!
//! # Limits
//!
//! See [`Limits`]; every queue and table has a bound and a stated behaviour at the bound.

#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod audit;
mod envelope;
mod error;
mod frame;
mod ledger;
mod limits;
mod manifest;
pub mod message;
mod redact;
pub mod role;
mod schema;
mod token;
mod trace;
#[cfg(feature = "tokio")]
pub mod transport;
pub mod validate;

pub use audit::{AuditEvent, AuditName, Severity};
pub use envelope::{Correlation, Envelope, Payload, Text, Time};
pub use error::{
    CommandError, ConfigError, ConnectionError, DecodeError, EncodeError, ErrorCode, ErrorObject,
    FrameError,
};
pub use frame::{FrameDecoder, encode_frame};
pub use ledger::{Ledger, Share};
pub use limits::{Limits, MAX_FRAME_BYTES};
pub use manifest::{Entrypoint, ExecutionLimits, Manifest, ManifestError};
pub use redact::Redact;
pub use schema::{InputSchema, check_schemas};
pub use token::{Grant, SessionToken};
pub use ubos_common;

/// The examples of the README compile.
#[cfg(all(doctest, feature = "manifest", unix))]
#[doc = include_str!("../README.md")]
struct Readme;
