//! Attempts, and the inputs of a step.

use std::sync::Arc;

use ubos_common::json::RawBuf;

/// Names one attempt of a step. The result of an attempt that is over is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// exhaustive: the numbers that name an attempt
pub struct Ticket {
    /// The step's number.
    pub step: usize,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// How often the run has been restored: the attempts of a life before are over.
    pub epoch: u32,
}

impl Ticket {
    /// The numbers as one id: it differs for up to 16 million steps, 65,536 lives and 16 million attempts.
    #[must_use]
    pub const fn id(self) -> u64 {
        ((self.step as u64) << 40)
            | ((self.epoch as u64 & 0xffff) << 24)
            | (self.attempt as u64 & 0xff_ffff)
    }
}

/// The outputs of the steps that a step waited for, each with its step's number, in plan order. Cheap to clone.
pub type StepInputs = Arc<[(usize, Arc<RawBuf>)]>;
