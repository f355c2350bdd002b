//! The machine that runs a plan: it asks for acts to be dispatched, and takes their outcomes.
//!
//! ```text
//! start ──> IN_PROGRESS ──every step done──> DONE
//!                │
//!                └──a step failed, or cancel──> FAILED (running steps are cancelled first)
//! ```

mod machine;
#[cfg(test)]
mod tests;

pub use machine::{Config, Input, Output, Reply, Runner, RunnerError};
