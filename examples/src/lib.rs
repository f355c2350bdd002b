//! Programs that put the crates to work.

pub mod mission;
