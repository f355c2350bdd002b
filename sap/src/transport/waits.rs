//! How a client waits.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::driver::Sleep;

use super::exchange::Exchange;
use super::{SendError, TokioClock};
use crate::dispatch::dispatch_apart;
use crate::role::producer::Config;
use crate::task::Task;

/// How a client waits: by which clock, for how long, and how often it sends a task again.
#[derive(Clone)]
pub(crate) struct Waits {
    clock: Arc<dyn Sleep + Send + Sync>,
    config: Config,
}

impl Waits {
    pub(super) fn new(config: Config) -> Self {
        Self {
            clock: Arc::new(TokioClock::default()),
            config,
        }
    }

    pub(super) fn set_clock(&mut self, clock: Arc<dyn Sleep + Send + Sync>) {
        self.clock = clock;
    }

    pub(super) const fn set_patience(&mut self, patience: Duration) {
        self.config = self
            .config
            .with_patience(patience, patience)
            .with_deadline_patience(patience);
    }

    #[cfg(any(feature = "http", feature = "nats"))]
    pub(super) const fn set_resends(&mut self, resends: u32) {
        self.config = self.config.with_resends(resends);
    }

    pub(super) const fn set_default_time(&mut self, time: Duration) {
        self.config = self.config.with_default_time(time);
    }

    pub(super) fn clock(&self) -> &(dyn Sleep + Send + Sync) {
        self.clock.as_ref()
    }

    /// The same, without patience for silence: for one whose other side says nothing before the end.
    #[cfg(feature = "mcp")]
    pub(super) fn for_the_end(&self) -> Self {
        let config = self.config.with_patience(Duration::MAX, Duration::MAX);
        Self {
            config,
            ..self.clone()
        }
    }

    /// Checks a task; gives its bytes and the exchange that its answers go to.
    ///
    /// A task that holds a secret is not sent, and answers are read strictly.
    pub(super) async fn begin(&self, task: &Task) -> Result<(Vec<u8>, Exchange), SendError> {
        let bytes = dispatch_apart(task).await?;
        let exchange = Exchange::new(task, self.clock.now(), self.config)?;
        Ok((bytes, exchange))
    }

    /// The exchange about a task that was sent before, which this client does not send.
    pub(super) fn about(&self, task: &Task) -> Result<Exchange, SendError> {
        Exchange::new(task, self.clock.now(), self.config.with_resends(0))
    }
}

/// The settings of a client that say how it waits, each with what it means there.
macro_rules! waiting {
    ($client:ident: $($(#[$about:meta])* $setter:ident($value:ident: $of:ty) by $set:ident;)+) => {
        impl $client {
            $(
                $(#[$about])*
                #[must_use]
                pub const fn $setter(mut self, $value: $of) -> Self {
                    self.waits.$set($value);
                    self
                }
            )+

            /// Sets the clock by which it waits, in the place of [`TokioClock`](crate::transport::TokioClock).
            #[must_use]
            pub fn with_clock(
                mut self,
                clock: std::sync::Arc<dyn ubos_common::driver::Sleep + Send + Sync>,
            ) -> Self {
                self.waits.set_clock(clock);
                self
            }
        }
    };
}

pub(super) use waiting;

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
