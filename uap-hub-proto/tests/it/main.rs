//! Integration tests: the wire files, the machines in virtual time, and the transports over loopback.

mod generated;
#[cfg(all(feature = "client", feature = "server"))]
mod loopback;
mod world;
