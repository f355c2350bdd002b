//! Messages, registry and spawning from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, and says why"
)]

mod adapter;
mod alias;
mod answers;
mod check;
mod check_edges;
mod conformance;
mod converge;
mod draw;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "arbitrary")]
mod generated;
mod golden;
mod lab;
mod line;
mod message;
mod orchestrator;
mod prompt;
mod reference;
mod registry;
mod registry_edges;
mod roles;
mod run_v1;
mod runner;
mod runs;
#[cfg(feature = "tracing")]
mod tracing;
mod tracker;
mod v1;
mod v1_graph;
