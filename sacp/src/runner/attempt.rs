//! Attempts, and the inputs of a step.

use std::sync::Arc;

use ubos_common::json::RawBuf;

/// Names one attempt of a step. The result of an attempt that is over is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// exhaustive: two numbers that name an attempt
pub struct Ticket {
    /// The step's number.
    pub step: usize,
    /// The attempt's number, from 1.
    pub attempt: u32,
}

impl Ticket {
    /// Both numbers as one id.
    #[must_use]
    pub const fn id(self) -> u64 {
        ((self.step as u64) << 32) | self.attempt as u64
    }
}

/// The outputs of the steps that a step waited for, each with its step's number, in plan order. Cheap to clone.
pub type StepInputs = Arc<[(usize, Arc<RawBuf>)]>;
