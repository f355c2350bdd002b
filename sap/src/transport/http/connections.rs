//! The connections of a server: as many as it may have, each read in time.

use core::future::Future;
use core::pin::pin;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::config::Config;
use super::patience::Patient;
use super::shares::Shares;
use crate::processor::Peer;

/// Where connections come from: a TCP address or a Unix socket, in the clear or with TLS.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tls: Option<Arc<ServerConfig>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self {
            socket: Socket::Tcp(listener),
            tls: None,
        }
    }
}

#[cfg(unix)]
impl From<tokio::net::UnixListener> for Listener {
    /// The user at the other end is known: [`Peer::unix_user`].
    fn from(listener: tokio::net::UnixListener) -> Self {
        Self {
            socket: Socket::Unix(listener),
            tls: None,
        }
    }
}

impl Listener {
    /// Speaks TLS. Where the settings ask clients for a certificate, the peer is known by it
    /// ([`Peer::certificate`]).
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<ServerConfig>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The address, where it is one of TCP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Socket::Unix(_) => None,
        }
    }

    pub(super) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The next connection, with the address at its other end where it has one. One that failed before it was taken is passed
    /// over; where the system has no room, this waits.
    async fn accept(&self) -> (Stream, Peer, Option<IpAddr>) {
        loop {
            let accepted = match &self.socket {
                Socket::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                    let stream: Stream = Box::new(stream);
                    (stream, Peer::default(), Some(from.ip()))
                }),
                #[cfg(unix)]
                Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                    let user = stream.peer_cred().ok().map(|user| user.uid());
                    let stream: Stream = Box::new(stream);
                    (stream, Peer::unix(user), None)
                }),
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_of_one(&error) => {}
                Err(_) => tokio::time::sleep(NO_ROOM).await,
            }
        }
    }
}

/// A connection, whatever it is made of.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

type Stream = Box<dyn Connection>;

/// Answers on every connection until `shutdown` is ready; then takes no more, and waits for the last answers.
///
/// At the bound the next connection waits in the queue of the system. One of an address that has as many as it may is closed
/// at once, so that it holds up nobody else. One without a whole head in time is closed, also between two requests; so is one
/// whose client does not read.
pub(super) async fn take(
    listener: Listener,
    routes: Router,
    config: &Config,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let shares = Shares::new(config.max_of_address());
    let (head_timeout, write_timeout) = (config.head_timeout, config.write_timeout);
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_HEAD_BYTES);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            // The places are never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, (stream, peer, address)) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let share = address.map(|address| shares.take(address));
        if let Some(None) = share {
            continue;
        }
        let (server, routes) = (server.clone(), routes.clone());
        let (watcher, tls) = (graceful.watcher(), listener.tls.clone());
        #[expect(clippy::disallowed_methods, reason = "a transport runs on its runtime")]
        tokio::spawn(async move {
            let _held = (place, share);
            let shaken = timeout(head_timeout, secured(stream, peer, tls)).await;
            if let Ok(Some((stream, peer))) = shaken {
                let service = TowerToHyperService::new(routes.layer(Extension(peer)));
                let stream = TokioIo::new(Patient::new(stream, write_timeout));
                let connection = server.serve_connection(stream, service);
                // A connection that fails is the client's affair.
                let _ = watcher.watch(connection).await;
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The connection after its handshake, where there is one; nothing where that failed.
async fn secured(
    stream: Stream,
    mut peer: Peer,
    tls: Option<Arc<ServerConfig>>,
) -> Option<(Stream, Peer)> {
    let Some(tls) = tls else {
        return Some((stream, peer));
    };
    let stream = TlsAcceptor::from(tls).accept(stream).await.ok()?;
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    peer.certificate = chain.first().map(|leaf| Arc::from(leaf.as_ref()));
    Some((Box::new(stream), peer))
}

/// Whether an error is that of the connection, and not of the listener.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Bytes of the head of a request, and of what is read or written at a time.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Between two attempts where the system has no room for a connection.
const NO_ROOM: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_failed_is_no_fault_of_the_listener() {
        let is_of_one = |kind: io::ErrorKind| is_of_one(&kind.into());
        assert!(is_of_one(io::ErrorKind::ConnectionAborted));
        assert!(is_of_one(io::ErrorKind::ConnectionReset));
        assert!(!is_of_one(io::ErrorKind::OutOfMemory));
    }
}
