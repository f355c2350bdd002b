//! Tests of the whole workspace.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, and says why"
)]

#[cfg(unix)]
mod agent_chat;
mod bounded;
mod cache_keys;
mod conformance;
#[cfg(unix)]
mod core;
mod corpus;
mod dependencies;
#[cfg(unix)]
mod hub;
#[cfg(unix)]
mod hub_agent;
#[cfg(unix)]
mod hub_hostile;
#[cfg(all(unix, feature = "external-tests"))]
mod hub_nats;
#[cfg(unix)]
mod hub_programs;
#[cfg(all(unix, feature = "external-tests"))]
mod hub_python;
#[cfg(unix)]
mod hub_resume;
#[cfg(unix)]
mod hub_secured;
mod one_dependency;
#[cfg(unix)]
mod pipe;
mod plan;
mod registers;
#[cfg(feature = "external-tests")]
mod sap_mcp;
mod sap_programs;
mod simulation;
#[cfg(all(unix, feature = "external-tests"))]
mod strangers;
mod validate;
