//! Time for services that run on tokio.

use futures::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now};

/// The system's clocks and tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock(Clock);

impl Sleep for TokioClock {
    fn now(&self) -> Now {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let span = deadline.saturating_since(self.0.now().mono);
        Box::pin(tokio::time::sleep(span))
    }
}
