//! The hub on a port.
//!
//! ```
//! use uap_hub_proto::transport::server::{ServerConfig, serve_on};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?; // one of your own, or `serve` with an address
//! let hub = serve_on(listener, ServerConfig::default()).await?;
//! println!("agents connect to {}", hub.url());
//! hub.shutdown(std::time::Duration::ZERO).await
//! # }).unwrap();
//! ```

mod authorize;
mod call;
mod calls;
mod config;
mod connection;
mod handle;
mod keep;
mod prepare;
mod service;
mod shared;
mod steer;
mod unfinished;

use std::{io, net::SocketAddr};

use tokio::{net::TcpListener, sync::oneshot};
use tonic::transport::Server;
use tonic_health::ServingStatus;
#[cfg(feature = "reflection")]
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use ubos_common::id::IdSource;

pub use self::{
    authorize::{Caller, Denied},
    config::ServerConfig,
    handle::{HubHandle, JobHandle},
};
use self::{
    calls::{Calls, SERVICE},
    connection::incoming,
    handle::Serving,
    service::Service,
    shared::Shared,
};
use super::{CONNECTION_WINDOW, STREAM_WINDOW, spawn};

/// Starts a hub on a port (0 for any), on the current tokio runtime.
///
/// # Errors
///
/// The configuration cannot work, the port is taken, or the operating system gave no randomness.
pub async fn serve(addr: SocketAddr, config: ServerConfig) -> io::Result<HubHandle> {
    serve_on(TcpListener::bind(addr).await?, config).await
}

/// Starts a hub on a listener of the caller's, on the current tokio runtime.
///
/// # Errors
///
/// The configuration cannot work, a certificate or key cannot be read, the listener has no address, or the operating system
/// gave no randomness.
pub async fn serve_on(listener: TcpListener, config: ServerConfig) -> io::Result<HubHandle> {
    start(listener, config).await
}

/// A server without TLS or, where it is configured, with it; and the scheme of its URL.
fn builder(config: &ServerConfig) -> io::Result<(Server, &'static str)> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        let builder = Server::builder().tls_config(tls.of_hub().map_err(invalid)?);
        return Ok((builder.map_err(invalid)?, "https"));
    }
    let _ = config;
    Ok((Server::builder(), "http"))
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

async fn start(listener: TcpListener, mut config: ServerConfig) -> io::Result<HubHandle> {
    config.check().map_err(invalid)?;
    let (builder, scheme) = builder(&config)?;
    let ids = IdSource::from_os().map_err(io::Error::other)?;
    config.hub.prepare = config.prepare.is_some();
    config.hub.durable = config.store.is_some();
    let store = config.store.clone();
    let addr = listener.local_addr()?;
    let (most, most_control) = (
        config.hub.max_message_bytes,
        config.max_control_message_bytes,
    );
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status(SERVICE, ServingStatus::Serving)
        .await;
    let health = config.health.then_some(health);
    #[cfg(feature = "reflection")]
    let reflection = config.reflection.then(reflection).transpose()?;
    let builder = builder
        .http2_keepalive_interval(Some(config.keep_alive))
        .http2_keepalive_timeout(Some(config.keep_alive_timeout))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(config.max_streams);
    let (authorize, register_timeout) = (config.authorize.take(), config.register_timeout);
    let max_connections = config.max_connections;
    let (shared, records) = Shared::new(config, ids).map_err(invalid)?;
    let restored = match store {
        Some(store) => keep::start(&shared, store, records).await?,
        None => Vec::new(),
    };
    let service = Service::new(shared.clone());
    let calls = Calls::new(service, most_control, most, register_timeout, authorize);
    let (stop, stopped) = oneshot::channel::<()>();
    let services = { builder }.add_service(calls).add_optional_service(health);
    #[cfg(feature = "reflection")]
    let services = services.add_optional_service(reflection);
    let serving =
        services.serve_with_incoming_shutdown(incoming(listener, max_connections), async {
            let _ = stopped.await;
        });
    let server = spawn(async { serving.await.map_err(io::Error::other) });
    spawn(shared.clone().tick());
    let serving = Serving {
        server,
        stop,
        health: reporter,
    };
    Ok(HubHandle::new(scheme, addr, shared, serving, restored))
}

/// The files of `proto/`, as a compiler reads them; a test makes them again and compares.
#[cfg(feature = "reflection")]
const DESCRIPTORS: &[u8] = include_bytes!("../../generated/uap.v1.bin");

// impl: HUB-6-3
#[cfg(feature = "reflection")]
fn reflection() -> io::Result<ServerReflectionServer<impl ServerReflection>> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()
        .map_err(io::Error::other)
}
