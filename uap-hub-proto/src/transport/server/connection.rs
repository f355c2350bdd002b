//! Connections, of which a port has a bounded number.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{
    codegen::http::Extensions,
    transport::server::{Connected, TcpIncoming},
};

use super::unfinished::Held;
use crate::trace::debug;

/// A connection with its place among those that the port may have.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    peer: Peer,
    _place: OwnedSemaphorePermit,
}

/// What calls know of their connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) addr: Option<SocketAddr>,
    /// Set when the connection ends, before its calls are told.
    is_lost: Arc<AtomicBool>,
    /// Bytes of unfinished messages, of control calls and of sessions.
    pub(super) held: [Held; 2],
}

impl Peer {
    /// The peer of a call; `None` where the service is not behind a listener of ours.
    pub(super) fn of(extensions: &Extensions) -> Option<&Self> {
        #[cfg(feature = "tls")]
        if let Some(tls) = extensions.get::<tonic::transport::server::TlsConnectInfo<Self>>() {
            return Some(tls.get_ref());
        }
        extensions.get()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

/// The certificate chain (DER) that the peer of a call proved to hold; empty without mutual TLS.
pub(super) fn certificates(extensions: &Extensions) -> Vec<Vec<u8>> {
    #[cfg(feature = "tls")]
    if let Some(chain) = extensions
        .get::<tonic::transport::server::TlsConnectInfo<Peer>>()
        .and_then(|tls| tls.peer_certs())
    {
        return chain.iter().map(|one| one.as_ref().to_vec()).collect();
    }
    let _ = extensions;
    Vec::new()
}

/// The connections of a listener; one beyond `most` is closed at once. Accepted sockets send at once: otherwise each small
/// message waits 40 ms for the acknowledgement of the last.
pub(super) fn incoming(
    listener: TcpListener,
    most: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let accepted = TcpIncoming::from(listener).with_nodelay(Some(true));
    accepted.filter_map(move |accepted| {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        let Ok(_place) = Arc::clone(&places).try_acquire_owned() else {
            debug!(most, "connection closed: there are too many");
            return None;
        };
        let peer = Peer {
            addr: stream.peer_addr().ok(),
            is_lost: Arc::default(),
            held: Default::default(),
        };
        Some(Ok(Connection {
            stream,
            peer,
            _place,
        }))
    })
}

impl Connection {
    fn note(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if written.is_err() {
            self.peer.is_lost.store(true, Ordering::Relaxed);
        }
        Poll::Ready(written)
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if read.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0) {
            self.peer.is_lost.store(true, Ordering::Relaxed);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_sockets_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut incoming = std::pin::pin!(incoming(listener, 1));
        let _client = TcpStream::connect(addr).await.unwrap();
        let accepted = incoming.next().await.unwrap().unwrap();
        assert!(accepted.stream.nodelay().unwrap());
    }
}
