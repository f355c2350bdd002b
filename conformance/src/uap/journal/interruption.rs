//! The place at which a run is interrupted.

use core::fmt;

/// Where a run was interrupted.
// exhaustive: a write is lost, done unnoticed, or done
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// After this number of entries.
    After(usize),
    /// Before a write was done, counted from 0.
    BeforeWrite(usize),
    /// After a write was done, and before the run knew.
    AfterWrite(usize),
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(n) => write!(f, "after {n} entries"),
            Self::BeforeWrite(n) => write!(f, "before write {n} was done"),
            Self::AfterWrite(n) => write!(f, "after write {n} was done"),
        }
    }
}
