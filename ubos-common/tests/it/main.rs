//! Integration tests of ubos-common, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed, and says why"
)]

#[cfg(feature = "canon")]
mod canon;
#[cfg(feature = "canon")]
mod canon_numbers;
mod config;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod driver_model;
mod json;
mod json_write;
#[cfg(feature = "testing")]
mod lab;
#[cfg(all(feature = "log", feature = "testing"))]
mod log;
#[cfg(feature = "schema")]
mod schema;
mod secret;
#[cfg(all(feature = "driver", feature = "tracing"))]
mod tracing;
