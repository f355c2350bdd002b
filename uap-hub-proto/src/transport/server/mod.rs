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
mod beside;
mod budget;
mod call;
mod calls;
mod config;
mod connection;
mod handle;
mod keep;
mod open;
mod places;
mod prepare;
mod routes;
mod service;
mod shared;
mod steer;
mod unfinished;
mod unread;

use std::{io, net::SocketAddr};

use tokio::{net::TcpListener, sync::oneshot};
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::ServingStatus;
use ubos_common::id::IdSource;

pub use self::{
    authorize::{Caller, Denied},
    config::ServerConfig,
    handle::{HubHandle, JobHandle},
};
use self::{
    beside::Beside,
    budget::Pool,
    calls::{Calls, Control, SERVICE},
    connection::{Times, incoming},
    handle::Serving,
    places::Places,
    routes::{Route, Routes},
    service::Service,
    shared::Shared,
    unfinished::Pace,
    unread::Unread,
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
    let builder = Server::builder()
        .http2_keepalive_interval(Some(config.keep_alive))
        .http2_keepalive_timeout(Some(config.keep_alive_timeout))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(config.max_streams);
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        let builder = builder.tls_config(tls.of_hub().map_err(invalid)?);
        return Ok((builder.map_err(invalid)?, "https"));
    }
    Ok((builder, "http"))
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

async fn start(listener: TcpListener, mut config: ServerConfig) -> io::Result<HubHandle> {
    config.check().map_err(invalid)?;
    let (builder, scheme) = builder(&config)?;
    let ids = IdSource::from_os_without_forks().map_err(io::Error::other)?;
    config.hub.prepare = config.prepare.is_some();
    config.hub.durable = config.store.is_some();
    let store = config.store.clone();
    let addr = listener.local_addr()?;
    let most = config.hub.max_message_bytes;
    let most_control = config.max_control_message_bytes.min(most);
    let connections = config.max_connections;
    let control = Control {
        bytes: Pool::new(most_control, 4, 64, connections),
        time: config.register_timeout,
        authorize: config.authorize.take(),
        keeps: true,
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status(SERVICE, ServingStatus::Serving)
        .await;
    let health = health.max_decoding_message_size(beside::MAX_BYTES);
    // Balancers that ask for it have no token.
    let health = (config.health).then(|| Route::to(Beside::new(health, control.open())));
    #[cfg(feature = "reflection")]
    let reflection = (config.reflection).then(|| reflection(control.clone()));
    let places = Places::new(connections, config.max_connections_per_address);
    let times = times_of(&config);
    let session_bytes = Pool::new(most, 4, 16, connections);
    let sessions = (session_bytes, Pace::steps(config.session_message_timeout));
    let unread = Unread::pool(&config);
    let (shared, records) = Shared::new(config, ids).map_err(invalid)?;
    let restored = match store {
        Some(store) => keep::start(&shared, store, records).await?,
        None => Vec::new(),
    };
    let service = Service::new(shared.clone(), unread);
    let calls = Calls::new(service, (most_control, most), control, sessions);
    let (stop, stopped) = oneshot::channel::<()>();
    let routes = [Some(Route::to(calls)), health];
    #[cfg(feature = "reflection")]
    let routes = routes.into_iter().chain([reflection.transpose()?]);
    let routes: Routes = routes.into_iter().flatten().collect();
    // Accepted sockets send at once: otherwise each small message waits 40 ms for the acknowledgement of the last.
    let accepted = TcpIncoming::from(listener).with_nodelay(Some(true));
    let connections = incoming(accepted, places, times);
    let serving = builder.serve_with_incoming_shutdown(routes, connections, async {
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

const fn times_of(config: &ServerConfig) -> Times {
    Times {
        first_call: config.first_call_timeout,
        idle: config.idle_timeout,
        // By then the keep-alive has found that nothing comes back.
        patience: config.keep_alive.saturating_add(config.keep_alive_timeout),
    }
}

/// The files of `proto/`, as a compiler reads them; a test makes them again and compares.
#[cfg(feature = "reflection")]
const DESCRIPTORS: &[u8] = include_bytes!("../../generated/uap.v1.bin");

// impl: HUB-6-3
#[cfg(feature = "reflection")]
fn reflection(control: Control) -> io::Result<Route> {
    let service = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()
        .map_err(io::Error::other)?;
    let service = service.max_decoding_message_size(beside::MAX_BYTES);
    Ok(Route::to(Beside::new(service, control)))
}
