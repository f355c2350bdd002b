//! Integration tests of ubos-common, in one binary.

#[cfg(feature = "canon")]
mod canon;
#[cfg(all(feature = "log", feature = "testing"))]
mod log;
