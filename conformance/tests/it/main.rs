//! Integration tests of the kits' interface, and of all kits together.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, and says why"
)]

#[cfg(all(
    feature = "hub",
    feature = "osw",
    feature = "sacp",
    feature = "sap",
    feature = "uap"
))]
mod levels;
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
mod toy;
