//! Integration tests of ubos-common, in one binary.

#[cfg(feature = "canon")]
mod canon;
#[cfg(feature = "canon")]
mod canon_numbers;
#[cfg(feature = "driver")]
mod driver;
mod json;
#[cfg(feature = "testing")]
mod lab;
#[cfg(all(feature = "log", feature = "testing"))]
mod log;
