//! Integration tests: the wire files, the machines in virtual time, and the transports over loopback.

#[cfg(test)]
mod agent;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "reflection", feature = "server"))]
mod beside;
#[cfg(test)]
mod conformance;
#[cfg(test)]
#[cfg(feature = "arbitrary")]
mod drawn;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod dropped;
#[cfg(test)]
mod fleet;
#[cfg(test)]
#[cfg(all(feature = "log", feature = "server"))]
mod full;
#[cfg(test)]
mod generated;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod handles;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod hostile;
#[cfg(test)]
mod hub;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod identity;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod judged;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "log", feature = "server"))]
mod kill;
#[cfg(test)]
mod lab;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod loopback;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "external-tests"))]
mod nats;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "external-tests"))]
mod nats_away;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "external-tests"))]
mod nats_leaving;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod resume;
#[cfg(test)]
#[cfg(all(
    feature = "client",
    feature = "reflection",
    feature = "server",
    feature = "tls"
))]
mod secured;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod silent;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod traced;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server", feature = "tracing"))]
mod tracing;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod unread;
#[cfg(test)]
mod validate;
#[cfg(test)]
mod vectors;
#[cfg(test)]
#[cfg(all(feature = "client", feature = "server"))]
mod wires;
#[cfg(test)]
mod world;
