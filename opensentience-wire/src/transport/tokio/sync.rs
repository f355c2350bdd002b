//! The locks of what tasks share: those of the standard library, or under `cfg(shuttle)` those of a scheduler that tries every
//! order of their threads.

#[cfg(not(all(test, shuttle)))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
pub(super) use shuttle::sync::{Mutex, MutexGuard};
