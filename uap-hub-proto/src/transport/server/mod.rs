//! The hub on a port.

mod handle;
mod keep;
mod service;
mod shared;
mod steer;

use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::oneshot};
use tonic::transport::{Server, server::TcpIncoming};
use ubos_common::id::IdSource;

pub use self::handle::{HubHandle, JobHandle};
use self::{service::Service, shared::Shared};
use super::{CONNECTION_WINDOW, KEEP_ALIVE_TIMEOUT, MIN_KEEP_ALIVE, STREAM_WINDOW, spawn};
use crate::{
    id::{JobId, SessionId},
    role::{hub, settings::settings},
    store::JobStore,
    wire::agent_hub_server::AgentHubServer,
};

settings! {
    /// Settings of a hub on a port.
    ServerConfig {
        /// The hub's own settings; its `ids` always come from the operating system, and its `prepare`
        /// follows from the hook below.
        hub: hub::Config = hub::Config::default(),
        /// How often an idle connection is pinged, at least [`MIN_KEEP_ALIVE`]; 20 s.
        keep_alive: Duration = Duration::from_secs(20),
        /// Events of one job that wait for its reader before its stream is not read any more; 256.
        max_waiting_events: usize = 256,
        /// Bytes of such events, one message more at most; 8 MiB.
        max_waiting_bytes: usize = 8 << 20,
        /// Messages that wait on a control stream; an agent that reads more slowly is disconnected. 1,024.
        max_control_messages: usize = 1024,
        /// Streams of one connection at once; 256, which keeps their windows within the connection's.
        max_streams: u32 = 256,
        /// Where jobs and their ends are kept, so that they survive this process; nowhere.
        store: Option<Arc<dyn JobStore>> = None,
        /// What is done between an agent's acceptance and its session being ready; nothing.
        prepare: Option<Prepare> = None,
    }
}

/// Makes ready what a session needs, or says why it cannot.
///
/// Spec: UAP hub 3
#[derive(Clone)]
pub struct Prepare(Arc<PrepareFn>);

type PrepareFn = dyn Fn(JobId, SessionId) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>
    + Send
    + Sync;

impl Prepare {
    /// A hook made of an async function.
    pub fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(JobId, SessionId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move |job, session| Box::pin(hook(job, session))))
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}

/// Starts a hub on a port (0 for any), on the current tokio runtime.
///
/// # Errors
///
/// The port cannot be had, or the operating system gave no randomness.
pub async fn serve(addr: SocketAddr, mut config: ServerConfig) -> io::Result<HubHandle> {
    config.hub.ids = IdSource::from_os().map_err(io::Error::other)?;
    config.hub.prepare = config.prepare.is_some();
    config.hub.durable = config.store.is_some();
    let store = config.store.clone();
    let most = config.hub.max_message_bytes;
    let keep_alive = config.keep_alive.max(MIN_KEEP_ALIVE);
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let max_streams = config.max_streams;
    let (shared, records) = Shared::new(config);
    let restored = match store {
        Some(store) => keep::start(&shared, store, records).await?,
        None => Vec::new(),
    };
    let service = AgentHubServer::new(Service::new(shared.clone()))
        .max_decoding_message_size(most)
        .max_encoding_message_size(most);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(keep_alive))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(max_streams)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming(listener), async {
            let _ = stopped.await;
        });
    let server = spawn(async { serving.await.map_err(io::Error::other) });
    let timer = spawn(shared.clone().tick());
    Ok(HubHandle::new(addr, shared, server, timer, stop, restored))
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
