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
mod calls;
mod handle;
mod keep;
mod prepare;
mod service;
mod shared;
mod steer;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::oneshot};
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::ServingStatus;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use ubos_common::id::IdSource;

pub use self::{
    authorize::{Applicant, Authorize, Denied},
    handle::{HubHandle, JobHandle},
    prepare::Prepare,
};
use self::{calls::Calls, handle::Serving, service::Service, shared::Shared};
use super::{CONNECTION_WINDOW, KEEP_ALIVE_TIMEOUT, MIN_KEEP_ALIVE, STREAM_WINDOW, spawn};
use crate::{
    role::{hub, settings::settings},
    store::JobStore,
};

settings! {
    /// Settings of a hub on a port.
    ServerConfig {
        /// The hub's own settings; its `ids` always come from the operating system, and its `prepare`
        /// follows from the hook below.
        hub: hub::Config = hub::Config::default(),
        /// How often an idle connection is pinged, at least [`MIN_KEEP_ALIVE`]; 20 s.
        keep_alive: Duration = Duration::from_secs(20),
        /// How long an agent may take to answer a ping before its connection counts as dead; 20 s.
        keep_alive_timeout: Duration = KEEP_ALIVE_TIMEOUT,
        /// Events of one job that wait for its reader before its stream is not read any more; 256.
        max_waiting_events: usize = 256,
        /// Bytes of such events, one message more at most; 8 MiB.
        max_waiting_bytes: usize = 8 << 20,
        /// Messages that wait on a control stream; an agent that reads more slowly is disconnected. 1,024.
        max_control_messages: usize = 1024,
        /// Bytes of a registration or of a message on a control stream, larger ones are
        /// `RESOURCE_EXHAUSTED`; 64 MiB, and never more than [`hub::Config::max_message_bytes`], which bounds those of
        /// sessions. Anybody may register: where strangers reach the port, 1 MiB is plenty.
        max_control_message_bytes: usize = 64 << 20,
        /// Streams of one connection at once; 256, which keeps their windows within the connection's.
        max_streams: u32 = 256,
        /// Where jobs and their ends are kept, so that they survive this process; nowhere.
        store: Option<Arc<dyn JobStore>> = None,
        /// What is done between an agent's acceptance and its session being ready; nothing.
        prepare: Option<Prepare> = None,
        /// Who may register; anybody.
        authorize: Option<Authorize> = None,
        /// Whether gRPC's health service says how the hub is (`grpc.health.v1`); yes.
        health: bool = true,
        /// Whether gRPC's reflection service tells tools of the calls and messages (`grpc.reflection.v1`); yes.
        reflection: bool = true,
    }
}

/// Starts a hub on a port (0 for any), on the current tokio runtime.
///
/// # Errors
///
/// The port cannot be had, or the operating system gave no randomness.
pub async fn serve(addr: SocketAddr, config: ServerConfig) -> io::Result<HubHandle> {
    serve_on(TcpListener::bind(addr).await?, config).await
}

/// Starts a hub on a listener of the caller's, on the current tokio runtime.
///
/// # Errors
///
/// The listener has no address, or the operating system gave no randomness.
pub async fn serve_on(listener: TcpListener, config: ServerConfig) -> io::Result<HubHandle> {
    start(listener, config, Server::builder(), "http").await
}

/// As [`serve_on`], over TLS.
///
/// # Errors
///
/// As [`serve_on`], or a certificate or key that cannot be read.
#[cfg(feature = "tls")]
pub async fn serve_tls(
    listener: TcpListener,
    config: ServerConfig,
    tls: &super::tls::ServerTls,
) -> io::Result<HubHandle> {
    let builder = Server::builder().tls_config(tls.to_tonic());
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    start(listener, config, builder.map_err(wrong)?, "https").await
}

async fn start(
    listener: TcpListener,
    mut config: ServerConfig,
    builder: Server,
    scheme: &'static str,
) -> io::Result<HubHandle> {
    config.hub.ids = IdSource::from_os().map_err(io::Error::other)?;
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
    let reflection = config.reflection.then(reflection).transpose()?;
    let builder = builder
        .http2_keepalive_interval(Some(config.keep_alive.max(MIN_KEEP_ALIVE)))
        .http2_keepalive_timeout(Some(config.keep_alive_timeout))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(config.max_streams);
    let authorize = config.authorize.take();
    let (shared, records) = Shared::new(config);
    let restored = match store {
        Some(store) => keep::start(&shared, store, records).await?,
        None => Vec::new(),
    };
    let calls = Calls::new(Service::new(shared.clone(), authorize), most_control, most);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = { builder }
        .add_service(calls)
        .add_optional_service(health)
        .add_optional_service(reflection)
        .serve_with_incoming_shutdown(incoming(listener), async {
            let _ = stopped.await;
        });
    let server = spawn(async { serving.await.map_err(io::Error::other) });
    let timer = spawn(shared.clone().tick());
    let serving = Serving {
        server,
        stop,
        health: reporter,
    };
    Ok(HubHandle::new(
        scheme, addr, shared, serving, timer, restored,
    ))
}

/// The service's full name.
const SERVICE: &str = crate::wire::agent_hub_server::SERVICE_NAME;

/// The files of `proto/`, as a compiler reads them; a test makes them again and compares.
const DESCRIPTORS: &[u8] = include_bytes!("../../generated/uap.v1.bin");

fn reflection() -> io::Result<ServerReflectionServer<impl ServerReflection>> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()
        .map_err(io::Error::other)
}

/// Accepted sockets send at once: else each small message waits 40 ms for the acknowledgement of the last.
fn incoming(listener: TcpListener) -> TcpIncoming {
    TcpIncoming::from(listener).with_nodelay(Some(true))
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut incoming = incoming(listener);
        let _client = tokio::net::TcpStream::connect(addr).await.unwrap();
        assert!(incoming.next().await.unwrap().unwrap().nodelay().unwrap());
    }
}
