//! Settings of the answering side.

use core::time::Duration;
use std::net::SocketAddr;

use crate::ConfigError;

/// Settings of a server.
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `path`, where tasks are posted | `/sap/tasks` | |
/// | `max_connections`, open at the same time; below the descriptors that the process may have | 200 | the next one waits |
/// | `max_connections_of_address`, of those open from one IP address; of version 6 from one network of 64 bits | half of `max_connections`, rounded up | the next one is closed at once |
/// | `head_timeout`, for the head of a request to come whole, and for the next request of a connection | 10 s | the connection is closed |
/// | `max_body_bytes`, of one task | 1 MiB | Nack and 413, at once where the head says so |
/// | `body_timeout`, for a body to come whole | 30 s | Nack and 408 |
/// | `write_timeout`, for a client to take some of an answer | 30 s | the connection is closed |
/// | `hosts`, as clients name this server | those of the address; on every address (`0.0.0.0`) each that is an address, and `localhost`; any on a Unix socket | Nack and 403 |
/// | `origins`, pages in browsers that may send requests beside those of this server | none | Nack and 403 |
/// | `shutdown_grace`, for tasks that run when the server is to end | 10 s | they are cancelled; after as long again, and at least 10 s, they are dropped |
///
/// The head of a request has at most about 64 KiB, and 100 headers; a longer one is answered 431. A body that is not said to be JSON is a Nack
/// and 415: a page of somebody else can have a browser send others
/// without asking. One line waits at most 30 s for a client that is slow to read; then the client counts as gone.
///
/// The address of a connection is that of who opened it: all clients of a proxy have the proxy's. Behind one, set
/// `max_connections_of_address` to `max_connections`, and have the proxy bound its clients; headers in which a proxy names a client
/// are not read, for anybody can send them. A Unix socket has no addresses, and no such bound.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) path: String,
    pub(super) max_connections: usize,
    max_connections_of_address: Option<usize>,
    pub(super) head_timeout: Duration,
    pub(super) max_body_bytes: usize,
    pub(super) body_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) hosts: Hosts,
    pub(super) origins: Vec<String>,
    pub(super) shutdown_grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: "/sap/tasks".into(),
            max_connections: 200,
            max_connections_of_address: None,
            head_timeout: Duration::from_secs(10),
            max_body_bytes: 1 << 20,
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            hosts: Hosts::Any,
            origins: Vec::new(),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Sets where tasks are posted: a path that begins with `/`.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets how many connections may be open at the same time; at least 1. [`router`](super::router) has none of
    /// its own.
    #[must_use]
    pub const fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets how many connections may be open at the same time from one IP address; at least 1. [`router`](super::router) has none
    /// of its own.
    #[must_use]
    pub const fn with_max_connections_of_address(mut self, connections: usize) -> Self {
        self.max_connections_of_address = Some(connections);
        self
    }

    /// Connections of one address.
    pub(super) fn max_of_address(&self) -> usize {
        self.max_connections_of_address
            .unwrap_or_else(|| self.max_connections.div_ceil(2))
    }

    /// Sets how long the head of a request may take to come whole; more than none.
    #[must_use]
    pub const fn with_head_timeout(mut self, timeout: Duration) -> Self {
        self.head_timeout = timeout;
        self
    }

    /// Sets the bytes of one task; at least 1.
    #[must_use]
    pub const fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets how long a body may take to come whole.
    #[must_use]
    pub const fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// Sets how long a client may take none of an answer; more than none. [`router`](super::router) has no connections.
    #[must_use]
    pub const fn with_write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// Sets how clients name this server, such as `agent.example:8080`; no other host is answered. Clients leave out port 80
    /// of HTTP and port 443 of HTTPS.
    #[must_use]
    pub fn with_hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.hosts = Hosts::These(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// Sets which pages in browsers may send requests, such as `https://desk.example`.
    #[must_use]
    pub fn with_origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// The hosts of an address, in the clear or with TLS, where none are set: a name that somebody else points at it is no
    /// host.
    pub(super) fn on(mut self, address: Option<SocketAddr>, is_tls: bool) -> Self {
        if let (Hosts::Any, Some(address)) = (&self.hosts, address) {
            self.hosts = Hosts::of(address, is_tls);
        }
        self
    }

    /// Sets how long tasks may go on when the server is to end; 0 cancels them at once.
    #[must_use]
    pub const fn with_shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        // The router panics on a path that it cannot read.
        let is_plain = self.path.starts_with('/') && !self.path.contains(['{', '}', '*', ':']);
        ConfigError::require(
            is_plain,
            "path",
            &self.path,
            "a path begins with / and has none of { } * :",
        )?;
        let connections = 1..=MAX_CONNECTIONS;
        ConfigError::require(
            connections.contains(&self.max_connections),
            "max_connections",
            self.max_connections,
            "a server has from 1 to 1,000,000",
        )?;
        ConfigError::at_least("max_connections_of_address", self.max_of_address(), 1)?;
        ConfigError::require(
            self.head_timeout > Duration::ZERO,
            "head_timeout",
            self.head_timeout,
            "a head takes some time",
        )?;
        ConfigError::require(
            self.write_timeout > Duration::ZERO,
            "write_timeout",
            self.write_timeout,
            "a client takes some time to read",
        )?;
        ConfigError::require(
            self.max_body_bytes > 0,
            "max_body_bytes",
            self.max_body_bytes,
            "a task has at least 1 byte",
        )
    }
}

/// The hosts that a server answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    Any,
    These(Vec<String>),
    /// Addresses, and `localhost`. Nobody can have a name of theirs lead here under one of these.
    Addresses,
}

impl Hosts {
    fn of(address: SocketAddr, is_tls: bool) -> Self {
        let (ip, port) = (address.ip(), address.port());
        if ip.is_unspecified() {
            return Self::Addresses;
        }
        let mut hosts = vec![address.to_string()];
        if ip.is_loopback() {
            let names = ["localhost", "127.0.0.1", "[::1]"];
            hosts.extend(names.map(|name| format!("{name}:{port}")));
        }
        // The port of the scheme, which nobody writes.
        let port = if is_tls { ":443" } else { ":80" };
        let bare = hosts.iter().filter_map(|host| host.strip_suffix(port));
        let bare: Vec<String> = bare.map(str::to_owned).collect();
        hosts.extend(bare);
        Self::These(hosts)
    }
}

/// More are no bound.
const MAX_CONNECTIONS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_that_nobody_writes_is_left_out_and_no_other() {
        let hosts =
            |scheme, address: &str| match Hosts::of(address.parse().unwrap(), scheme == "https") {
                Hosts::These(hosts) => hosts,
                hosts => panic!("{hosts:?}"),
            };
        for (scheme, default, other) in [("http", 80, 443), ("https", 443, 80)] {
            for host in ["192.0.2.7", "[2001:db8::80]"] {
                let with_port = format!("{host}:{default}");
                assert_eq!(hosts(scheme, &with_port), [&with_port, host]);
                for port in [other, 8_080] {
                    let with_port = format!("{host}:{port}");
                    assert_eq!(hosts(scheme, &with_port), [with_port]);
                }
            }
            let local = hosts(scheme, &format!("127.0.0.1:{default}"));
            assert!(local.contains(&"localhost".to_owned()), "{local:?}");
        }
    }
}
