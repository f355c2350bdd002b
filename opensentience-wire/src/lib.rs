//! OpenSentience runtime protocol v1: framed JSON between a core and the processes of its agents.
//!
//! Both roles are here whole: types, validation, framing, and machines that keep every promise of the
//! protocol without doing IO.
//!
//! ```text
//! transport::tokio   Launcher, CoreHandle, Agent        feature `tokio`: sockets, processes, clocks
//! role               CoreConnection, AgentConnection, Router    (now, input) -> outputs, no IO
//! message, envelope  typed payloads, findings           unknown members kept
//! frame              length and bytes                   any split, bounded
//! validate, redact   strangers' messages judged; their texts made fit to be shown
//! ```
//!
//! # Driving a machine
//!
//! Any loop that moves bytes will do; here two machines talk to each other.
//!
//! ```
//! use opensentience_wire::message::{SemVer, ToolSpec};
//! use opensentience_wire::role::{Input, agent, core};
//! use opensentience_wire::{Grant, SessionToken};
//! use ubos_common::id::IdSource;
//! use ubos_common::json::RawObject;
//! //! use ubos_common::time::{Mono, Now, Timestamp};
//!
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! let token = || SessionToken::from_random([7; 32]); // from the operating system, outside of examples
//! let grant = Grant::new(now.mono, token(), "com.example.a");
//! let mut core = core::CoreConnection::new(now, core::Config::default(), IdSource::seeded(1), Some(grant));
//! let config = agent::Config::new("com.example.a", SemVer::parse("1.0.0").ok_or("version")?, token());
//! let mut agent = agent::AgentConnection::new(now, config, IdSource::seeded(2))?;
//!
//! for _ in 0..3 {
//!     while let Some(out) = agent.poll_output() {
//!         match out {
//!             agent::Output::Transmit(bytes) => core.handle_input(now, Input::Bytes(&bytes))?,
//!             agent::Output::Event(agent::Event::Welcomed { .. }) => {
//!                 let echo = ToolSpec::local("echo", "gives its input back", RawObject::empty());
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
//! | `schema` (default) | inputs are held against the schemas of their tools; without it the tools must do so |
//! | `arbitrary` | generators of messages, for fuzzing |
//! | `mcp` | an MCP server's tools as an agent |
//! | `tokio` | launching agents, calling their tools, being an agent |
//! | `tracing` | spans with ids for handshakes, calls and tools; the audit and the queues as events |
//!
//! # Limits
//!
//! See [`limits::Limits`]; every queue and table has a bound and says what happens there.

#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod audit;
pub mod envelope;
pub mod error;
pub mod frame;
pub mod limits;
pub mod manifest;
pub mod message;
pub mod redact;
pub mod role;
pub mod schema;
mod token;
mod trace;
#[cfg(feature = "tokio")]
pub mod transport;
pub mod validate;

pub use token::{Grant, SessionToken};
pub use ubos_common;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
