//! Integration tests of ubos-common.

#[cfg(all(feature = "log", feature = "testing"))]
mod log;
