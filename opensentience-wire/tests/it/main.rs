//! What the crate promises, seen from outside.

mod agent_role;
mod bytes;
mod core_role;
mod kit;
mod lab;
#[cfg(all(feature = "tokio", unix))]
mod transport;
mod vectors;
