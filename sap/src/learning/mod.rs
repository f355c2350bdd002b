//! The learning loop: what results and operators say, gathered for decisions that are still to come.
//!
//! ```text
//! signal      what one result, or one operator, says
//! aggregate   signals by capability, territory and fingerprint, in bounded memory
//! learner     those of the last while, of which the older weigh less
//! heuristics  what they teach: essences, thresholds, a catalogue, each with its evidence
//! support     how many signals a piece needs, and of how many issuers
//! trial       whether a suggested essence holds, tried in the shadow
//! knowledge   playbooks and punch-cards, for a librarian
//! ```
//!
//! Signals outlive the process in a log (`store::FileSignals`, feature `log`), which tells a learner and its trials
//! what it has when it is opened; `store::Library` keeps what a librarian is given, and answers tasks about it.
//!
//! Nothing here changes a record that is there: what is learned is a value, for later alignments and writes. A
//! policy is made anew with it ([`Rules::learned`](crate::alignment::Rules::learned)); an extractor of
//! other members has another version, so that records written before keep their keys and go on answering those.
//!
//! Spec: SAP 7
#![cfg_attr(all(feature = "driver", feature = "log"), doc = include_str!("closed_loop.md"))]

mod aggregate;
mod bounds;
mod essence;
mod evidence;
mod heuristics;
mod knowledge;
mod learner;
mod object;
mod signal;
mod support;
mod tally;
mod trial;
mod window;

pub use aggregate::{Aggregate, SignalKey};
pub use bounds::Bounds;
pub use essence::EssenceSuggestion;
pub use evidence::{Count, Evidence};
pub use heuristics::{CatalogueEntry, Heuristics, Threshold};
pub use knowledge::{Artifact, ArtifactKind, Librarian, Publisher};
pub use learner::Learner;
pub use signal::{
    Feedback, IssuerDigest, Observed, Rating, Signal, SignalId, SignalSink, SignalSource,
};
pub use support::Support;
pub use tally::{Metric, Readings, Tally};
pub use trial::{AdoptError, Trial, TrialState};
pub use window::Window;
