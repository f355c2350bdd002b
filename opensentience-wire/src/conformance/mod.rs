//! Tests of anybody's agent and anybody's core, clause by clause.
//!
//! | kit | what is tested | how |
//! |---|---|---|
//! | [`AGENTS`] | an agent | the kit plays the core: handshake, calls, cancels, timeouts, floods, bytes that are no messages |
//! | [`CORES`] | a core | the kit plays the agent that this core launches: false tokens, bad tools, answers that break the rules |
//! | [`VECTORS`] | a validator | it is asked for its verdict on the messages and streams of `vectors/` |
//! | [`Tap`] | both, at work | the judges of the first two kits listen to live traffic |
//!
//! A kit plays against a [`Peer`]: four calls that move bytes, one that launches, one that connects again. With the feature
//! `tokio` peers are programs: `AgentUnderTest`, `CoreUnderTest`, and `relay` for a tap. What is not put to the test, since a
//! peer has no such tool or makes no such call, is not applicable and says why; [`OUT_OF_REACH`] lists what no peer can show.
//!
//! ```
//! use opensentience_wire::conformance::{AGENTS, CORES};
//! use ubos_common::conformance::{prove, run};
//!
//! // Each case brings an agent or core that keeps its clause, and one that breaks it and little else.
//! let (mut agents, mut cores) = (AGENTS.to_vec(), CORES.to_vec());
//! agents.truncate(3);
//! cores.truncate(3);
//! assert_eq!((prove(&agents), prove(&cores)), (Ok(()), Ok(())));
//!
//! // A stranger is judged the same way; here it is the twin of another case, which does not heed broken frames.
//! let deaf = agents[1].bad;
//! let report = run(&agents, 1, |_| Ok(deaf()));
//! assert!(report.to_string().contains("fail"), "{report}");
//! ```
//!
//! Spec: OpenSentience 2 to 7

mod agents;
mod both;
mod cores;
mod course;
mod fault;
mod faults;
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

/// Clauses that no kit here shows, and why. Our own core and agent are tested for them.
pub const OUT_OF_REACH: &[(&str, &str)] = &[
    ("OSW-1-1", "a kit has one transport at a time"),
    ("OSW-2-9", "beyond the specification"),
    ("OSW-3-8", "beyond the specification, and of proxies alone"),
    ("OSW-4.1-8", "beyond the specification"),
    ("OSW-4.1-9", "only a core knows which manifest it enabled"),
    ("OSW-4.3-2", "only a core knows who asked it for a call"),
    ("OSW-4.3-11", "beyond the specification"),
    ("OSW-4.5-3", "a policy of launchers, over minutes"),
    ("OSW-4.5-5", "told to the core's own application"),
    ("OSW-7-2", "what is shown to people is seen by them alone"),
    ("OSW-7-4", "no stranger's tool can be made to panic"),
    ("OSW-8-1", "a core's audit is its own"),
    ("OSW-9-1", "these kits themselves"),
];

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
