//! Retry policies. They take time and randomness as arguments.

mod model;
mod policy;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google", test))]
mod retry_after;

use core::time::Duration;
use std::sync::Arc;

use ubos_common::time::Mono;

pub use model::{RetryModel, RetryWorld};
pub use policy::{ExponentialBackoff, LinearBackoff, NoRetry, RetryAfter, TokenBucket};
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
pub(crate) use retry_after::{retry_after, seconds};

use crate::error::{ErrorCode, UppError};
use crate::trace::debug;

/// One failed attempt, as a strategy sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failure<'a> {
    /// The time of the failure.
    pub now: Mono,
    /// The error.
    pub error: &'a UppError,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// 64 random bits.
    pub random: u64,
}

impl<'a> Failure<'a> {
    /// A failed attempt.
    #[must_use]
    pub const fn new(now: Mono, error: &'a UppError, attempt: u32, random: u64) -> Self {
        Self {
            now,
            error,
            attempt,
            random,
        }
    }

    /// Whether the failure may be temporary: a rate limit, a network error, a timeout, an error of the vendor, or a
    /// conflict with another request (status 409).
    pub(crate) const fn is_passing(&self) -> bool {
        matches!(self.error.status_code, Some(409))
            || matches!(
                self.error.code,
                ErrorCode::RateLimited
                    | ErrorCode::NetworkError
                    | ErrorCode::Timeout
                    | ErrorCode::ProviderError
            )
    }
}

/// Decides how long to wait before and between the attempts of a request. A strategy may serve many requests at once.
///
/// Spec: UPP-1.3 retry strategies
// impl: UPP-9
pub trait RetryStrategy: Send + Sync {
    /// How long to wait before a request is sent, the first attempt included.
    fn before_request(&self, _now: Mono) -> Duration {
        Duration::ZERO
    }

    /// How long to wait before the next attempt; `None` returns the error to the caller. It is not asked about an error that
    /// lasts ([`ErrorCode::is_lasting`]), such as a key that is refused: that is never retried.
    fn on_retry(&self, failure: Failure<'_>) -> Option<Duration>;

    /// A request succeeded.
    fn reset(&self) {}
}

/// The attempts of one request.
#[derive(Clone)]
pub(crate) struct Attempts {
    strategy: Arc<dyn RetryStrategy>,
    failed: u32,
}

impl Attempts {
    /// No attempts yet.
    pub(crate) fn new(strategy: Arc<dyn RetryStrategy>) -> Self {
        Self {
            strategy,
            failed: 0,
        }
    }

    /// How long to wait before the next attempt is sent.
    pub(crate) fn before(&self, now: Mono) -> Duration {
        self.strategy.before_request(now)
    }

    /// An attempt failed: how long to wait before the next; `None` returns the error. A request whose failure lasts is never sent
    /// again, whatever the strategy says.
    pub(crate) fn failed(&mut self, now: Mono, error: &UppError, random: u64) -> Option<Duration> {
        self.failed = self.failed.saturating_add(1);
        if error.code.is_lasting() {
            return None;
        }
        let wait = self
            .strategy
            .on_retry(Failure::new(now, error, self.failed, random));
        debug!(
            attempt = self.failed,
            code = error.code.as_str(),
            ?wait,
            "attempt failed"
        );
        wait
    }

    /// The request succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.failed = 0;
        self.strategy.reset();
    }
}

impl core::fmt::Debug for Attempts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Attempts(failed: {})", self.failed)
    }
}
