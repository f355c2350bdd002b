//! Kits for UAP hub v1: one judges hubs, one judges agents.
//!
//! Both drive their peer through a trait ([`HubPeer`], [`AgentPeer`]), so that they run over sockets ([`TestFleet`],
//! [`TestHub`]) or in memory.
//!
//! ```
//! use ubos_conformance::Expectations;
//! use ubos_conformance::hub::{HubReference, hub_kit};
//!
//! let kit = hub_kit();
//! let expectations = Expectations::new().with_floor(kit.cases().len());
//! let report = kit.run(&expectations, |_| Ok(Box::new(HubReference::new())));
//! assert!(report.is_conformant(), "{report}");
//! ```

mod agents;
mod hostile;
mod hubs;

use std::time::Duration;

use crate::{Judge, Verdict};
pub use agents::{
    AgentAction, AgentLine, AgentPeer, AgentReference, Agents, LineKind, TestHub, agent_kit,
};
pub use hostile::{Attack, HostileReport, HostileRound, HostileRun, Latency};
pub use hubs::{HubAction, HubLine, HubPeer, HubReference, Hubs, TestFleet, hub_kit};

/// How long a peer may take for an immediate answer, on a machine as busy as it may be.
const SOON: Duration = Duration::from_secs(60);

/// How long a peer must do nothing for it to count as silence.
const SILENCE: Duration = Duration::from_millis(500);

/// Reads a whole recording, then judges it.
struct Reads<L> {
    lines: Vec<L>,
    read: fn(&[L]) -> Verdict,
}

impl<L> Reads<L> {
    /// The lines that are kept; a judge of live traffic judges the first ones.
    const BOUND: usize = 10_000;

    fn new(read: fn(&[L]) -> Verdict) -> Self {
        Self {
            lines: Vec::new(),
            read,
        }
    }
}

impl<L: Clone> Judge<L> for Reads<L> {
    fn see(&mut self, line: &L) {
        if self.lines.len() < Self::BOUND {
            self.lines.push(line.clone());
        }
    }

    fn verdict(&mut self) -> Verdict {
        (self.read)(&self.lines)
    }
}

/// The first requirement that does not hold fails; otherwise it is a pass.
fn all(requirements: impl IntoIterator<Item = (bool, &'static str, String)>) -> Verdict {
    requirements
        .into_iter()
        .find(|(holds, ..)| !holds)
        .map_or(Verdict::Pass, |(_, place, seen)| Verdict::fail(place, seen))
}

/// Starts a task of a test peer.
#[expect(clippy::disallowed_methods, reason = "test peers on sockets run tasks")]
fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}
