//! Programs that put the crates to work.
