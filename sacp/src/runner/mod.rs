//! Runs a plan: dispatch out, outcomes in.
//!
//! A [`Runner`] holds the [`Graph`](crate::graph::Graph) of a message of either profile. Its driver carries out what
//! [`Output::Dispatch`] asks for and answers with an [`Input`]; a step starts as soon as all that it waits for has
//! ended, whatever its siblings do. No step is dispatched in test mode: the runner simulates it.
//!
//! ```text
//!            room, all before it done           outcome
//! waiting -----------------------> running ------------------> done
//!    |                              |  ^ |                       ^ value of a skip, or its stand-in's output
//!    | something before it          |  | | no more resort        |
//!    | failed for good       failed |  | +--------------> failed +
//!    v                              v  |
//! skipped                          resting
//! ```
//!
//! | bound | default | at the bound |
//! |---|---|---|
//! | steps in a run | 10,000 | the run is refused |
//! | steps that run at once | 64 | further ones wait |
//! | bytes of one output | 4 MiB | the attempt fails |
//! | bytes of all outputs | 64 MiB | the attempt fails |
//!
//! Spec: SACP 3, 4, 5; SACP 1.0, 5, 6

mod answer_v1;
mod config;
mod failure;
mod machine;
mod outcome;
mod recover;
mod resume;
mod schedule;
mod steps;
mod stop;

pub use crate::draw::StepState;
pub use config::{Config, Echo, Recovery, Rule, Simulate};
pub use failure::{Cause, Failure};
pub use machine::{Input, Output, Runner, RunnerError, StartError};
pub use outcome::{End, Outcome, StepReport};
pub use resume::ResumeError;
pub use steps::{Given, Ticket};

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
