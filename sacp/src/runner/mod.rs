//! Runs a plan: dispatches acts, and takes their results.
//!
//! A [`Runner`] holds the [`Graph`](crate::graph::Graph) of a message of either edition. Its driver runs the act of each
//! [`Output::Dispatch`] and reports the result as an [`Input`]. A step starts as soon as all steps that it waits for are
//! done, whatever its siblings do. In test mode no step is dispatched: the runner simulates it,
//! and the output of each act names it.
//!
//! ```text
//!         a free slot, dependencies done         result
//! waiting -----------------------------> running -------> done
//!    |                                    |  ^ |            ^ value of a skip, or output of the fallback step
//!    | a dependency                       |  | | no         |
//!    | failed                      failed |  | | recovery   |
//!    v                                    v  | +---------> failed
//! skipped                              backing off
//! ```
//!
//! | bound | default | at the bound |
//! |---|---|---|
//! | steps of a run | 10,000 | the run is refused |
//! | steps that run at the same time | 64 | further steps wait |
//! | bytes of one output | 4 MiB | the attempt fails |
//! | bytes of all outputs | 64 MiB | the attempt fails |
//!
//! Spec: SACP 3, 4, 5; SACP 1.0, 5, 6

pub(crate) mod answer_v1;
mod attempt;
mod config;
mod event;
mod failure;
mod machine;
mod outcome;
mod recover;
mod report;
mod resume;
mod schedule;
mod state;
mod steps;
mod stop;

pub use crate::draw::StepState;
pub use attempt::{StepInputs, Ticket};
pub use config::{Config, Recovery, Rule};
pub use event::{Input, Output, RunnerError, StartError};
pub use failure::{Cause, Failure};
pub use outcome::{End, Outcome, StepReport};
pub use resume::ResumeError;
pub(crate) use resume::saved_limits;
pub use state::Runner;
