//! Connections, of which a port and an address have a bounded number, and which are there to make calls.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{codegen::http::Extensions, transport::server::Connected};

use super::{
    budget::Held,
    open::{OpenCall, OpenCalls},
    places::{Place, Places},
};
use crate::{trace::debug, transport::STREAM_WINDOW};

/// Calls of health and reflection that a connection may have open.
const MAX_BESIDE: usize = 8;
/// How long nothing is accepted after the operating system had nothing to accept with.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection with its place among those that the port may have.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    peer: Peer,
    /// When it is looked at for calls; for the first time when TLS and HTTP/2 have begun and a call must have come.
    late: Pin<Box<Sleep>>,
    /// How many calls had been made when it was last looked at.
    made: usize,
    /// Whether it had none open then.
    was_idle: bool,
    /// How many bytes its peer has taken since.
    taken: usize,
    /// How long it may have no call, or take next to nothing of what it has to read.
    idle: Duration,
    /// How long its peer may take nothing.
    patience: Duration,
    /// When that is over; set while something waits to be written.
    stuck: Option<Pin<Box<Sleep>>>,
    _place: Place,
}

/// What calls know of their connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) addr: Option<SocketAddr>,
    /// Set when the connection ends, before its calls are told.
    is_lost: Arc<AtomicBool>,
    calls: OpenCalls,
    /// The places of its calls of health and reflection.
    beside: Arc<Semaphore>,
    /// Bytes of unfinished messages, of control calls and of sessions; and of messages that are not read.
    pub(super) held: [Held; 3],
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

    /// Whether it had large messages to read all the time since this was asked last.
    fn has_left_unread(&self) -> bool {
        let [.., unread] = &self.held;
        unread.least() > 0
    }

    /// A call has come that keeps the connection until what is returned is dropped.
    pub(super) fn call(&self) -> OpenCall {
        self.calls.add()
    }

    /// A place for a call of health or reflection, if there is one left.
    pub(super) fn call_beside(&self) -> Option<OwnedSemaphorePermit> {
        self.beside.clone().try_acquire_owned().ok()
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

/// How long a connection is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// For its first call.
    pub(super) first_call: Duration,
    /// For another, where it has none open.
    pub(super) idle: Duration,
    /// For its peer to take what is written.
    pub(super) patience: Duration,
}

/// The connections of a listener. One that has no place is closed at once, one that makes no first call, or no other for long,
/// after a time, and so is one whose peer reads nothing.
pub(super) fn incoming(
    accepted: impl Stream<Item = io::Result<TcpStream>>,
    places: Arc<Places>,
    Times {
        first_call,
        idle,
        patience,
    }: Times,
) -> impl Stream<Item = io::Result<Connection>> {
    let accepted = accepted.then(async |accepted| {
        // Without descriptors each attempt fails at once, and the loop would do nothing else.
        if accepted.as_ref().is_err_and(|error| !is_of_peer(error)) {
            sleep(PAUSE).await;
        }
        accepted
    });
    accepted.filter_map(move |accepted| {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        let addr = stream.peer_addr().ok();
        let Some(place) = places.take(addr.map(|addr| addr.ip())) else {
            debug!("connection closed: there are too many");
            return None;
        };
        let peer = Peer {
            addr,
            is_lost: Arc::default(),
            calls: OpenCalls::default(),
            beside: Arc::new(Semaphore::new(MAX_BESIDE)),
            held: place.held(),
        };
        Some(Ok(Connection {
            stream,
            peer,
            late: Box::pin(sleep(first_call)),
            made: 0,
            was_idle: true,
            taken: 0,
            idle,
            patience,
            stuck: None,
            _place: place,
        }))
    })
}

/// Whether a connection was closed before it was accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

impl Connection {
    /// Notes what became of a write. One that waits for longer than the peer may take fails: what is to be said last, even that the
    /// connection ends, would wait with it for ever.
    fn note(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = match written {
            Poll::Ready(written) => written,
            Poll::Pending => {
                let patience = self.patience;
                let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(stuck.as_mut().poll(cx));
                Err(io::ErrorKind::TimedOut.into())
            }
        };
        self.stuck = None;
        if let Ok(bytes) = &written {
            self.taken = self.taken.saturating_add(*bytes);
        }
        if written.is_err() {
            self.peer.is_lost.store(true, Ordering::Relaxed);
        }
        Poll::Ready(written)
    }

    /// Ready if it had no call open since it was last looked at, or took less than a stream's window of the large messages that it
    /// has to read: those of calls that are over wait as well, and would for ever.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.late.as_mut().poll(cx));
            let calls = &self.peer.calls;
            let (made, is_idle) = (calls.made(), calls.is_empty());
            if is_idle && self.was_idle && made == self.made {
                return Poll::Ready(());
            }
            let has_left = self.peer.has_left_unread();
            if has_left && self.taken < STREAM_WINDOW as usize {
                return Poll::Ready(());
            }
            (self.made, self.was_idle) = (made, is_idle);
            self.taken = 0;
            self.late = Box::pin(sleep(self.idle));
        }
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
        if self.poll_late(cx).is_ready() {
            self.peer.is_lost.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
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
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(cx, written)
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::{
        super::budget::{Account, Pool},
        *,
    };

    const NOW: Times = Times {
        first_call: PAUSE,
        idle: PAUSE,
        patience: PAUSE,
    };

    async fn connected(times: Times) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await;
        let accepted = tokio_stream::once(Ok(listener.accept().await.unwrap().0));
        let mut incoming = std::pin::pin!(incoming(accepted, Places::new(1, 1), times));
        (incoming.next().await.unwrap().unwrap(), peer.unwrap())
    }

    #[tokio::test]
    async fn a_connection_is_lost_at_its_end_and_not_where_nothing_was_asked_for() {
        let first_call = Duration::from_secs(300);
        let (mut connection, mut peer) = connected(Times { first_call, ..NOW }).await;
        peer.write_all(b"a").await.unwrap();
        assert_eq!(connection.read(&mut []).await.unwrap(), 0);
        assert!(!connection.peer.is_lost());
        drop(peer);
        connection.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(connection.peer.is_lost());
    }

    // spec: HUB-4-6
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_whose_peer_reads_nothing() {
        let patience = Duration::from_secs(40);
        let (mut connection, mut peer) = connected(Times { patience, ..NOW }).await;
        let begun = tokio::time::Instant::now();
        let mut written = 0;
        let failed = loop {
            match connection.write(&[0; 64 << 10]).await {
                Ok(bytes) => written += bytes,
                Err(failed) => break failed,
            }
        };
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= patience && connection.peer.is_lost());
        // What is taken ends the wait.
        peer.read_exact(&mut vec![0; written]).await.unwrap();
        connection.write_all(b"more").await.unwrap();
        assert!(connection.stuck.is_none());
    }

    // spec: HUB-4-6
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_whose_peer_leaves_large_messages_unread() {
        const WINDOW: usize = STREAM_WINDOW as usize;
        let idle = Duration::from_secs(300);
        // What its peer has to read, what it takes from one look to the next, and whether it has read all in between.
        for (unread, taken, reads, ends) in [
            (9_000, 0, false, true),
            (9_000, WINDOW - 1, false, true),
            (9_000, WINDOW, false, false),
            (9_000, 0, true, false),
            (0, 0, false, false),
        ] {
            let (mut connection, mut peer) = connected(Times { idle, ..NOW }).await;
            let _call = connection.peer.call();
            let mut account =
                Account::new(Pool::new(1 << 20, 1, 1, 1), connection.peer.held[2].clone());
            account.add(unread).unwrap();
            let mut has_ended = false;
            for _ in 0..4 {
                let read = tokio::time::timeout(idle, connection.read_u8()).await;
                has_ended |= read.is_ok_and(|read| read.is_err());
                let (bytes, mut came) = (vec![0; taken], vec![0; taken]);
                let write = connection.write_all(&bytes);
                let (written, read) = tokio::join!(write, peer.read_exact(&mut came));
                assert!(written.is_ok() && read.is_ok());
                if reads {
                    account.give_back();
                    account.add(unread).unwrap();
                }
            }
            assert_eq!(has_ended, ends, "{unread} {taken} {reads}");
            assert_eq!(connection.peer.is_lost(), ends);
        }
    }

    // spec: HUB-4-6
    #[tokio::test(start_paused = true)]
    async fn nothing_is_accepted_for_a_while_where_there_is_nothing_to_accept_with() {
        let tried = Cell::new(0);
        for (kind, most) in [
            (io::ErrorKind::Other, 11),
            (io::ErrorKind::ConnectionAborted, 1000),
        ] {
            tried.set(0);
            let failing = std::iter::repeat_with(|| {
                tried.set(tried.get() + 1);
                Err(kind.into())
            });
            let failing = tokio_stream::iter(failing.take(1000));
            let places = Places::new(1, 1);
            let mut incoming = std::pin::pin!(incoming(failing, places, NOW));
            let drained = async { while incoming.next().await.is_some() {} };
            // Where time stands still it passes only when nothing else is to be done.
            let _ = tokio::time::timeout(10 * PAUSE, drained).await;
            assert!(tried.get() <= most && tried.get() > 5, "{kind}: {tried:?}");
            assert!(tried.get() < 1000 || most == 1000);
        }
    }
}
