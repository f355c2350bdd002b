//! Kits that test anybody's hub and anybody's agent of this protocol, clause by clause.
//!
//! [`hub`] plays a fleet against a hub, [`agent`] plays a hub against an agent; both are driven through a
//! trait, so that a kit runs over sockets
//! ([`transport::client::probe`](crate::transport::client::probe), [`transport::server::stage`](crate::transport::server::stage))
//! or in memory. [`prove`](ubos_common::conformance::prove) shows that each case passes our own machine and
//! finds one that breaks its clause.
//!
//! ```
//! use uap_hub_proto::conformance::{agent, hub};
//! use ubos_common::conformance::{prove, run};
//!
//! prove(hub::CASES).unwrap();
//! prove(agent::CASES).unwrap();
//! let report = run(hub::CASES, hub::CASES.len(), |_| Ok(Box::new(hub::Reference::new())));
//! assert!(report.is_conformant(), "{report}");
//! ```

pub mod agent;
pub mod hub;

use std::time::Duration;

use ubos_common::conformance::{Judge, Verdict};

/// How long a peer may take where it should answer at once.
const SOON: Duration = Duration::from_secs(5);

/// How long nothing must happen for it to count as silence.
const SILENCE: Duration = Duration::from_millis(500);

/// Reads a whole recording, then says what it comes to.
struct Reads<L> {
    lines: Vec<L>,
    read: fn(&[L]) -> Verdict,
}

impl<L> Reads<L> {
    /// Lines that are kept; a judge of live traffic says what the first so many came to.
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

/// A verdict for each of a list of wants: the first that fails, else a pass.
fn all(wants: impl IntoIterator<Item = (bool, &'static str, String)>) -> Verdict {
    wants
        .into_iter()
        .find(|(holds, ..)| !holds)
        .map_or(Verdict::Pass, |(_, place, seen)| Verdict::fail(place, seen))
}
