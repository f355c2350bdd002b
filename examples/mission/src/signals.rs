//! Ctrl-C and requests to end, with the exit codes that tell of them.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code after Ctrl-C.
pub const INTERRUPTED: u8 = 130;
/// The exit code after SIGTERM.
pub const TERMINATED: u8 = 143;

/// Ctrl-C (SIGINT) and requests to end (SIGTERM), heard from the moment this is made: also those that come while nobody waits.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on, with a task beside the caller's. Neither signal ends the process by itself any more, but who sends two is not kept waiting: a second after
    /// the second one it ends, whatever it waits for (a reader of its output, mostly).
    #[expect(clippy::disallowed_methods, reason = "it must end what waits")]
    pub fn listen() -> io::Result<Self> {
        const LAST_ACTS: Duration = Duration::from_secs(1);
        let mut seconds = Self::first()?;
        tokio::spawn(async move {
            seconds.came().await;
            let code = seconds.came().await;
            tokio::time::sleep(LAST_ACTS).await;
            std::process::exit(code.into());
        });
        Self::first()
    }

    fn first() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one; gives the exit code that tells which. May be dropped at any time: none is lost.
    pub async fn came(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}
