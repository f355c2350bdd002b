//! The learning loop: what results and operators say, gathered for decisions that are still to come.
//!
//! ```text
//! signal   what one result, or one operator, says
//! ```
//!
//! Nothing here changes a record that is there: what is learned is a value, for later alignments and writes.
//!
//! Spec: SAP 7

mod signal;

pub use signal::{
    Feedback, NoSignals, Observed, Rating, Signal, SignalError, SignalId, SignalSink, SignalSource,
};
