//! Peers that are processes, and a relay for taps.
//!
//! Kits drive a peer one step at a time and wait for it, so these block: use them outside of a runtime.

mod agent;
mod core;
mod relay;

pub use agent::AgentUnderTest;
pub use core::{CoreUnderTest, run_test_agent};
pub use relay::relay;

use ::core::time::Duration;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::osw::Received;

/// How long a peer may take to take what it is sent.
const WRITING: Duration = Duration::from_secs(5);

/// How long a process may take to end when it is asked to.
const STOPPING: Duration = Duration::from_millis(300);

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// One connection to a peer.
#[derive(Default)]
struct Wire {
    stream: Option<UnixStream>,
    buffer: Vec<u8>,
}

impl Wire {
    const fn new(stream: UnixStream) -> Self {
        Self {
            stream: Some(stream),
            buffer: Vec::new(),
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.stream {
            // A peer that is gone, or does not read, shows that by what it sends.
            let _ = tokio::time::timeout(WRITING, stream.write_all(bytes)).await;
        }
    }

    async fn receive(&mut self, within: Duration) -> Received {
        let Some(stream) = &mut self.stream else {
            return Received::End;
        };
        self.buffer.resize(64 << 10, 0);
        match tokio::time::timeout(within, stream.read(&mut self.buffer)).await {
            Err(_) => Received::Nothing,
            Ok(Ok(count @ 1..)) => {
                Received::Bytes(self.buffer.get(..count).unwrap_or_default().to_vec())
            }
            Ok(_) => Received::End,
        }
    }

    async fn close(&mut self) {
        if let Some(stream) = &mut self.stream {
            // It may have closed before.
            let _ = stream.shutdown().await;
        }
    }
}
