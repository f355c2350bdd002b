#![cfg_attr(all(feature = "client", feature = "log", feature = "server"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "client", feature = "log", feature = "server")),
    doc = "UAP hub v1: a hub offers jobs to a fleet of agents and follows their sessions. Its whole documentation comes with the features `client`, `log` and `server`."
)]

#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod capability;
mod config;
pub mod convert;
mod generated;
mod hash;
pub mod id;
pub mod message;
pub mod role;
pub mod state;
pub mod status;
pub mod store;
mod trace;
#[cfg(any(feature = "client", feature = "server"))]
pub mod transport;
pub mod validate;

pub use config::ConfigError;
pub use ubos_common;

/// The protobuf types of package `uap.v1`, and the gRPC client and server by feature.
///
/// Spec: UAP hub 1, 2
pub mod wire {
    pub use crate::generated::*;
}
