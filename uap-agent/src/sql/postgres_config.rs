//! How PostgreSQL is reached.

use core::fmt;
use core::str::FromStr as _;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};
use ubos_common::ConfigError;

use super::error::OpenError;
use super::pg::{Connect, fault};

/// How PostgreSQL is reached.
///
/// | setting | default |
/// |---|---|
/// | connections | 4, at most 64 |
/// | TLS | none: a server that demands it refuses |
///
/// ```
/// use uap_agent::sql::PostgresConfig;
///
/// let config = PostgresConfig::new("host=db.internal user=agents dbname=agents password=secret");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    address: Arc<str>,
    connections: usize,
    connect: Connect,
}

impl PostgresConfig {
    const MOST: usize = 64;

    /// A database by its connection string: `host=… user=… dbname=…`, or `postgresql://user@host/database`. The tables are
    /// made in the first schema of its search path, which `options='-c search_path=…'` sets.
    #[must_use]
    pub fn new(address: impl Into<Arc<str>>) -> Self {
        Self {
            address: address.into(),
            connections: 4,
            connect: connect_with(NoTls),
        }
    }

    /// Sets how many connections are open. All work on one session or run goes through one of them.
    #[must_use]
    pub const fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets what makes connections secure: a connector for the crate `tokio-postgres` 0.7, such as `MakeRustlsConnect` of
    /// `tokio-postgres-rustls` 0.14. Say `sslmode=require` in the address, so that none is made without it.
    #[must_use]
    pub fn with_tls<T>(mut self, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.connect = connect_with(tls);
        self
    }

    pub(super) fn checked(&self) -> Result<(usize, Config, Connect), OpenError> {
        let (seen, most) = (self.connections, Self::MOST);
        let wanted = format!("must be from 1 to {most}");
        ConfigError::require((1..=most).contains(&seen), "connections", seen, wanted)?;
        let config =
            Config::from_str(&self.address).map_err(|error| OpenError::of(fault(error)))?;
        Ok((seen, config, Arc::clone(&self.connect)))
    }
}

fn connect_with<T>(tls: T) -> Connect
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    Arc::new(move |config: Config| {
        let tls = tls.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let moving: BoxFuture<'static, ()> = Box::pin(async move {
                // The client tells whoever asks next.
                let _ = connection.await;
            });
            Ok((client, moving))
        })
    })
}

impl fmt::Debug for PostgresConfig {
    /// The address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
