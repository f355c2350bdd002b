//! How often an agent writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use opensentience_wire::Grant;
use opensentience_wire::message::{SemVer, Status};
use opensentience_wire::role::agent;
use opensentience_wire::transport::tokio::{AuditSink, attach};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use super::{AGENT, patient, request, token, tools};

/// A stream that counts what is written at once.
struct Counted(DuplexStream, Arc<AtomicUsize>);

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
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

// All on one thread: how busy the machine is changes nothing.
#[tokio::test]
async fn pieces_that_are_there_are_sent_by_one_write() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    tokio::spawn(tools().serve(Counted(far, Arc::clone(&writes)), config));
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
    let core = attach(near, clock, patient(), ids, grant, audit);
    let mut core = core.await.unwrap();
    core.tools_changed().await;
    let mut calls = Vec::new();
    for _ in 0..32 {
        let call = core.call(request("count", json!({"n": 50}))).await;
        calls.push(call.unwrap());
    }
    for mut call in calls {
        while call.next_chunk().await.is_some() {}
        assert_eq!(call.result().await.status, Status::Succeeded);
    }
    let writes = writes.load(Ordering::Relaxed);
    assert!(writes < 32 * 50 / 4, "{writes} writes of 1600 pieces");
}
