//! Streams that keep what is written until they are flushed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use opensentience_wire::Grant;
use opensentience_wire::message::{SemVer, Status};
use opensentience_wire::role::{CloseReason, agent};
use opensentience_wire::transport::tokio::{AuditSink, attach};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, BufStream, DuplexStream, ReadBuf};
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use super::{AGENT, PATIENCE, patient, request, token, tools};

/// A stream that passes on what it was given only where it is flushed, each time on the second attempt.
struct Late {
    stream: DuplexStream,
    held: Vec<u8>,
    was_asked: bool,
}

impl Late {
    fn new(stream: DuplexStream) -> Self {
        Self {
            stream,
            held: Vec::new(),
            was_asked: false,
        }
    }
}

impl AsyncRead for Late {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Late {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.held.is_empty() && !core::mem::replace(&mut this.was_asked, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        while !this.held.is_empty() {
            let count = ready!(Pin::new(&mut this.stream).poll_write(context, &this.held))?;
            this.held.drain(..count);
        }
        this.was_asked = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A session with calls one after another and at once, from the hello to the farewell.
async fn session<A, C>(agent_end: A, core_end: C)
where
    A: AsyncRead + AsyncWrite + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + 'static,
{
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let served = tokio::spawn(tools().serve(agent_end, config));
    let session = async {
        let clock = Clock::start();
        let grant = Grant::new(clock.now().mono, token(), AGENT);
        let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
        let core = attach(core_end, clock, patient(), ids, grant, audit);
        let mut core = core.await.unwrap();
        assert!(core.tools_changed().await);
        let echo = || core.call(request("echo", json!({"text": "x".repeat(9_000)})));
        for _ in 0..3 {
            let outcome = echo().await.unwrap().result().await;
            assert_eq!(outcome.status, Status::Succeeded);
        }
        let mut counting = core.call(request("count", json!({"n": 9}))).await.unwrap();
        let other = echo().await.unwrap();
        while counting.next_chunk().await.is_some() {}
        assert_eq!(counting.result().await.status, Status::Succeeded);
        assert_eq!(other.result().await.status, Status::Succeeded);
        assert_eq!(core.shutdown().await, CloseReason::Goodbye);
        assert_eq!(served.await.unwrap().unwrap(), CloseReason::Goodbye);
    };
    let ended = tokio::time::timeout(PATIENCE, session).await;
    ended.expect("nothing stays in a stream");
}

#[tokio::test]
async fn frames_do_not_stay_in_a_stream_that_keeps_them() {
    let (near, far) = tokio::io::duplex(4_096);
    session(BufStream::new(far), near).await;
    let (near, far) = tokio::io::duplex(4_096);
    session(far, BufStream::new(near)).await;
}

#[tokio::test]
async fn a_stream_is_flushed_though_that_takes_more_than_one_attempt() {
    let (near, far) = tokio::io::duplex(4_096);
    session(Late::new(far), near).await;
    let (near, far) = tokio::io::duplex(4_096);
    session(far, Late::new(near)).await;
}

/// A stream that counts its writes and its flushes.
struct Counted(DuplexStream, Arc<[AtomicUsize; 2]>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1[0].fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.1[1].fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[tokio::test]
async fn a_stream_that_has_been_flushed_is_not_flushed_again() {
    let counts = [(), ()].map(|()| Arc::<[AtomicUsize; 2]>::default());
    let (near, far) = tokio::io::duplex(1 << 20);
    let [agent, core] = counts.each_ref().map(Arc::clone);
    session(Counted(far, agent), Counted(near, core)).await;
    for counts in counts {
        let [writes, flushes] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert!((1..=writes).contains(&flushes), "{flushes} of {writes}");
    }
}
