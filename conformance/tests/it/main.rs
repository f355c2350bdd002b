//! Integration tests of the kits' interface, and of all kits together.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, and says why"
)]

#[cfg(feature = "sap")]
mod endpoint;
#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod levels;
#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod listed;
#[cfg(feature = "uap")]
mod model;
#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod program;
#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod resume;
#[cfg(all(unix, feature = "external-tests"))]
#[path = "../../../uap-agent/tests/it/databases/server.rs"]
#[allow(dead_code, reason = "the tests of that crate need more of it")]
mod server;
#[cfg(feature = "osw")]
mod silent;
mod toy;
#[cfg(all(feature = "osw", feature = "sacp", feature = "sap", feature = "uap"))]
mod words;
