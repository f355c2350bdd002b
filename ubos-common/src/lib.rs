//! Shared ground floor of the UBOS agent protocol crates.

#[cfg(feature = "canon")]
pub mod canon;
#[cfg(feature = "log")]
pub mod log;
