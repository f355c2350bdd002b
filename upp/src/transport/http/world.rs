//! The operating system's clock and randomness.

use core::time::Duration;

use futures_core::future::BoxFuture;
use ubos_common::os::{Clock, fill_random};
use ubos_common::time::{Mono, Timestamp};

use crate::retry::RetryWorld;

pub(super) struct TokioWorld(Clock);

impl TokioWorld {
    pub(super) fn new() -> Self {
        Self(Clock::start())
    }

    pub(super) fn wall(&self) -> Timestamp {
        self.0.now().wall
    }
}

impl RetryWorld for TokioWorld {
    fn now(&self) -> Mono {
        self.0.now().mono
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness delays are spread less, and nothing else suffers.
        let _ = fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::time::sleep(span).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    // spec: UPP-9
    #[tokio::test]
    async fn a_sleep_is_not_over_at_once() {
        let hour = Duration::from_secs(3_600);
        assert!(TokioWorld::new().sleep(hour).now_or_never().is_none());
    }

    #[test]
    fn two_random_numbers_differ() {
        let world = TokioWorld::new();
        assert_ne!(world.random(), world.random());
    }
}
