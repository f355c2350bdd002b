//! Integration tests of ubos-common, in one binary.

#[cfg(feature = "canon")]
mod canon;
