//! One suite for all transports: the same task means the same, whatever carries it.

mod about;
mod bus;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "external-tests")]
mod nats;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_again;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_away;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_cancel;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_faults;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_ids;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_said;
#[cfg(all(feature = "nats", feature = "external-tests"))]
mod nats_waits;
#[cfg(all(unix, feature = "http"))]
mod peers;
mod service;
mod suite;
#[cfg(feature = "tracing")]
mod tracing;
mod world;
