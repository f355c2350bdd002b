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

/// The outputs of the steps that a step waited for, in plan order. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepInputs(Arc<[(usize, Arc<RawBuf>)]>);

impl StepInputs {
    pub(super) fn new(outputs: Vec<(usize, Arc<RawBuf>)>) -> Self {
        Self(outputs.into())
    }

    /// The number and output of each step.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &RawBuf)> {
        self.0.iter().map(|(step, output)| (*step, output.as_ref()))
    }

    /// The outputs alone.
    #[must_use]
    pub fn to_vec(&self) -> Vec<RawBuf> {
        self.iter().map(|(_, output)| output.clone()).collect()
    }

    /// The number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the step waited for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
