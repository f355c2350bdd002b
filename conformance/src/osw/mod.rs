//! Kits for OpenSentience runtime v1.
//!
//! | kit | what is tested | how |
//! |---|---|---|
//! | [`agent_kit`] | an agent | the kit is the core: handshake, calls, cancels, timeouts, floods, malformed bytes |
//! | [`core_kit`] | a core | the kit is the agent that the core launches: wrong tokens, bad tools, answers that break the rules |
//! | [`vector_kit`] | a validator | it answers about the messages and streams of `vectors/` |
//! | [`Tap`] | both, at work | the judges of the first two kits read live traffic |
//!
//! The kits drive a [`Peer`]: it is launched, connected to again, and bytes go both ways. [`AgentUnderTest`] and
//! [`CoreUnderTest`] are peers that are programs; [`relay`] passes live traffic to a tap. A case whose tool or
//! call the peer does not have is not applicable and says why; [`OUT_OF_REACH`] lists what no peer can show.
//!
//! ```
//! use ubos_conformance::Expectations;
//! use ubos_conformance::osw::{agent_kit, core_kit};
//!
//! // Each case brings a reference that keeps its clause and a mutant that breaks it.
//! let some = |clause: &str| clause.starts_with("OSW-4.2");
//! assert_eq!(agent_kit().only(|case| some(case.clause())).prove(), Ok(()));
//! assert_eq!(core_kit().only(|case| some(case.clause())).prove(), Ok(()));
//!
//! // Any other agent is judged the same way; this one is the mutant of a case.
//! let kit = agent_kit().only(|case| case.clause() == "OSW-4.2-1");
//! let report = kit.run(&Expectations::new(), |case| Ok(case.mutant()));
//! assert!(!report.is_conformant(), "{report}");
//! ```
//!
//! Spec: OpenSentience 2 to 7

mod agents;
mod common_rules;
mod cores;
mod defaults;
mod malformed;
mod mutation;
mod observed;
#[cfg(unix)]
mod process;
mod recording;
mod rule;
mod tap;
mod test_peer;
mod vectors;
mod writer;

use core::time::Duration;

use ubos_common::time::Now;

pub use agents::{Agents, agent_kit};
pub use cores::{Cores, core_kit};
#[cfg(unix)]
pub use process::{AgentUnderTest, CoreUnderTest, relay, run_test_agent};
pub use recording::{FramingError, Launch, Line, LineKind, RecordedMessage};
pub use tap::{Tap, TapReports};
pub use vectors::{VECTORS, Vector, VectorKind, vector_kit};

/// Clauses that no kit here can test, and why. The crate's own core and agent are tested for them.
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
    ("OSW-7-2", "only people see what is shown to people"),
    ("OSW-7-4", "a kit cannot make a tool panic"),
    ("OSW-8-1", "a core's audit is its own"),
    ("OSW-9-1", "these kits themselves"),
];

/// An agent or a core under test, at the other end of a connection.
///
/// No method waits longer than it is told to.
pub trait Peer {
    /// Ends what was launched before, launches the peer anew, and connects to it. `None` where that cannot be done.
    fn launch(&mut self) -> Option<Launch>;

    /// Connects once more with the same launch; `false` where that cannot be done.
    fn reconnect(&mut self) -> bool;

    /// The time.
    fn now(&mut self) -> Now;

    /// Sends bytes; they may be no frames.
    fn send(&mut self, bytes: &[u8]);

    /// Takes what the peer sends next, and waits for it no longer than `within`.
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
