//! Between a core and an agent: bytes pass as they are, and are judged.

use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use ubos_common::os::Clock;

use crate::osw::Tap;
use opensentience_wire::message::Side;

/// Relays between a core and an agent until both have ended; `tap` hears everything.
///
/// Bytes pass as they came, whatever they are. May be dropped at any time; the tap keeps what it heard.
pub async fn relay<C, A>(core: C, agent: A, clock: Clock, tap: &Mutex<Tap>)
where
    C: AsyncRead + AsyncWrite,
    A: AsyncRead + AsyncWrite,
{
    let (core_read, core_write) = tokio::io::split(core);
    let (agent_read, agent_write) = tokio::io::split(agent);
    tokio::join!(
        pass(core_read, agent_write, Side::Core, clock, tap),
        pass(agent_read, core_write, Side::Agent, clock, tap),
    );
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    side: Side,
    clock: Clock,
    tap: &Mutex<Tap>,
) {
    let mut buffer = vec![0; 64 << 10];
    let tap = || tap.lock().unwrap_or_else(PoisonError::into_inner);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        tap().bytes(clock.now().mono, side, bytes);
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
    tap().end(clock.now().mono, side);
    // The other side may be gone already.
    let _ = to.shutdown().await;
}
