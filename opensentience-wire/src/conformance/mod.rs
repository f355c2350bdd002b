//! Tests of anybody's agent and anybody's core, clause by clause.
//!
//! [`AGENTS`] plays the core to an agent, [`CORES`] plays the agent to a core, raw bytes included: whatever is behind
//! [`Peer`] is driven. The same judges listen to live traffic between two others: see [`Tap`]. [`VECTORS`] asks a validator
//! for its verdict on messages and frames.
//!
//! ```
//! use opensentience_wire::conformance::{AGENTS, CORES};
//! use ubos_common::conformance::prove;
//!
//! // Each case brings an agent or core that keeps its clause, and one that breaks it and little else.
//! let (mut agents, mut cores) = (AGENTS.to_vec(), CORES.to_vec());
//! agents.truncate(3);
//! cores.truncate(3);
//! assert_eq!((prove(&agents), prove(&cores)), (Ok(()), Ok(())));
//! ```
//!
//! Spec: OpenSentience 2 to 7

mod agents;
mod both;
mod cores;
mod course;
mod fault;
mod junk;
mod line;
mod rule;
mod session;
mod tap;
mod vectors;

use ::core::time::Duration;

use ubos_common::time::Now;

pub use agents::{AGENTS, Agents};
pub use cores::{CORES, Cores};
pub use line::{Broken, Launch, Line, Said, What};
pub use tap::{Tap, Verdicts};
pub use vectors::{FILES, Kind, VECTORS, Validators, Vector};

/// What is tested: an agent or a core at the other end of a connection.
///
/// Nothing here waits longer than it is told to.
pub trait Peer {
    /// Ends what was launched before, launches the peer anew, and connects to it. `None` where that cannot be done.
    fn launch(&mut self) -> Option<Launch>;

    /// Connects once more with the same launch; `false` where that cannot be done.
    fn again(&mut self) -> bool;

    /// The time.
    fn now(&mut self) -> Now;

    /// Sends bytes; they may be no frames.
    fn send(&mut self, bytes: &[u8]);

    /// Takes what the peer sends next, waiting for it no longer than `within`.
    fn receive(&mut self, within: Duration) -> Received;

    /// Sends nothing more.
    fn close(&mut self);
}

/// What a peer did.
#[derive(Debug)]
#[non_exhaustive]
pub enum Received {
    /// It sent bytes.
    Bytes(Vec<u8>),
    /// It closed the connection, or it is gone.
    End,
    /// It did nothing in that time.
    Nothing,
}
