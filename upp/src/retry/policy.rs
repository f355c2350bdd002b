//! Retry strategies.

use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use ubos_common::time::Mono;

use super::{Failure, RetryStrategy};
use crate::error::ErrorCode;

/// Declares the setting that all strategies share.
macro_rules! max_attempts {
    ($($strategy:ty),*) => {
        $(impl $strategy {
            /// Sets the attempts after the first.
            #[must_use]
            pub const fn with_max_attempts(mut self, attempts: u32) -> Self {
                self.max_attempts = attempts;
                self
            }
        })*
    };
}
max_attempts!(ExponentialBackoff, LinearBackoff, RetryAfter, TokenBucket);

/// Never retries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRetry;

// impl: UPP-9
impl RetryStrategy for NoRetry {
    fn on_retry(&self, _: Failure<'_>) -> Option<Duration> {
        None
    }
}

/// Doubles the delay each time. Retries temporary failures only.
///
/// | option | default |
/// |---|---|
/// | `max_attempts` | 3, that is up to 4 requests |
/// | `base_delay` | 1 s |
/// | `max_delay` | 30 s, jitter included |
/// | `jitter` | true: half to one and a half times the delay |
#[derive(Clone, Copy, Debug)]
pub struct ExponentialBackoff {
    max_attempts: u32,
    base_delay: Duration,
    max_delay: Duration,
    jitter: bool,
}

impl Default for ExponentialBackoff {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            jitter: true,
        }
    }
}

impl ExponentialBackoff {
    /// Sets the first delay and the longest.
    #[must_use]
    pub const fn with_delays(mut self, base: Duration, max: Duration) -> Self {
        self.base_delay = base;
        self.max_delay = max;
        self
    }

    /// Sets whether delays are spread at random.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: bool) -> Self {
        self.jitter = jitter;
        self
    }
}

// impl: UPP-9
impl RetryStrategy for ExponentialBackoff {
    fn on_retry(&self, failure: Failure<'_>) -> Option<Duration> {
        if failure.attempt > self.max_attempts || !failure.is_passing() {
            return None;
        }
        let doublings = failure.attempt.saturating_sub(1);
        let delay = self
            .base_delay
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(self.max_delay);
        let delay = if self.jitter {
            (delay / 2).saturating_add(share(delay, failure.random))
        } else {
            delay
        };
        Some(delay.min(self.max_delay))
    }
}

/// A part of a span, from nothing to just below all of it.
fn share(span: Duration, random: u64) -> Duration {
    let part = span
        .as_nanos()
        .min(u128::from(u64::MAX))
        .saturating_mul(random.into())
        >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

/// Adds the delay once more each time. Retries temporary failures only.
///
/// | option | default |
/// |---|---|
/// | `max_attempts` | 3, that is up to 4 requests |
/// | `delay` | 1 s |
#[derive(Clone, Copy, Debug)]
pub struct LinearBackoff {
    max_attempts: u32,
    delay: Duration,
}

impl Default for LinearBackoff {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            delay: Duration::from_secs(1),
        }
    }
}

impl LinearBackoff {
    /// Sets the first delay, and what each further one adds.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

impl RetryStrategy for LinearBackoff {
    fn on_retry(&self, failure: Failure<'_>) -> Option<Duration> {
        let again = failure.attempt <= self.max_attempts && failure.is_passing();
        again.then(|| self.delay.saturating_mul(failure.attempt))
    }
}

/// Waits as long as the vendor requests after a rate limit. Retries nothing else.
///
/// | option | default |
/// |---|---|
/// | `max_attempts` | 3, that is up to 4 requests |
/// | `fallback_delay` | 5 s, where the vendor does not say how long |
#[derive(Clone, Copy, Debug)]
pub struct RetryAfter {
    max_attempts: u32,
    fallback_delay: Duration,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            fallback_delay: Duration::from_secs(5),
        }
    }
}

impl RetryAfter {
    /// Sets the delay where the vendor says none.
    #[must_use]
    pub const fn with_fallback_delay(mut self, delay: Duration) -> Self {
        self.fallback_delay = delay;
        self
    }
}

// impl: UPP-9
impl RetryStrategy for RetryAfter {
    fn on_retry(&self, failure: Failure<'_>) -> Option<Duration> {
        let again =
            failure.attempt <= self.max_attempts && failure.error.code == ErrorCode::RateLimited;
        again.then(|| failure.error.retry_after.unwrap_or(self.fallback_delay))
    }
}

/// Limits how many requests are sent at once and in a time, over all requests of one strategy. After a rate limit it waits
/// for two tokens.
///
/// Waiting requests are served in the order in which they arrived.
#[derive(Debug)]
pub struct TokenBucket {
    max_tokens: NonZeroU32,
    refill: Duration,
    max_attempts: u32,
    /// When the bucket will be full again. The number of tokens follows from it.
    full_at: Mutex<Mono>,
}

impl Default for TokenBucket {
    fn default() -> Self {
        const TOKENS: NonZeroU32 = NonZeroU32::new(10).expect("10 is not 0");
        Self::new(TOKENS, Duration::from_secs(1))
    }
}

impl TokenBucket {
    /// A full bucket: the maximum number of tokens, and the time after which one comes back. Three attempts after the first.
    #[must_use]
    pub fn new(max_tokens: NonZeroU32, refill: Duration) -> Self {
        Self {
            max_tokens,
            refill,
            max_attempts: 3,
            full_at: Mutex::new(Mono::ZERO),
        }
    }
}

// impl: UPP-9
impl RetryStrategy for TokenBucket {
    fn before_request(&self, now: Mono) -> Duration {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = full_at.saturating_since(now);
        *full_at = now.saturating_add(missing).saturating_add(self.refill);
        // One token is there as soon as no more than the others are missing.
        missing.saturating_sub(self.refill.saturating_mul(self.max_tokens.get() - 1))
    }

    fn on_retry(&self, failure: Failure<'_>) -> Option<Duration> {
        let again =
            failure.attempt <= self.max_attempts && failure.error.code == ErrorCode::RateLimited;
        again.then(|| self.refill.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::UppError;

    fn waits(strategy: &dyn RetryStrategy, error: &UppError, random: u64) -> Vec<u128> {
        (1..=10)
            .map_while(|n| strategy.on_retry(Failure::new(Mono::ZERO, error, n, random)))
            .map(|wait| wait.as_millis())
            .collect()
    }

    fn error(code: ErrorCode) -> UppError {
        UppError::new(code, "p", "m")
    }

    // spec: UPP-9
    #[test]
    fn delays_and_attempts_are_those_of_the_protocol() {
        let limited = error(ErrorCode::RateLimited);
        let exact = ExponentialBackoff::default().with_jitter(false);
        assert_eq!(waits(&exact, &limited, 7), [1000, 2000, 4000]);
        assert_eq!(
            waits(&exact.with_max_attempts(7), &limited, 7),
            [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        );
        let spread = ExponentialBackoff::default();
        assert_eq!(waits(&spread, &limited, 0), [500, 1000, 2000]);
        assert_eq!(waits(&spread, &limited, u64::MAX), [1499, 2999, 5999]);
        // Jitter does not carry a delay over the longest.
        let long = spread.with_delays(Duration::from_secs(29), Duration::from_secs(30));
        assert_eq!(waits(&long, &limited, u64::MAX), [30_000; 3]);
        assert_eq!(
            waits(&LinearBackoff::default(), &limited, 7),
            [1000, 2000, 3000]
        );
        assert!(waits(&NoRetry, &limited, 7).is_empty());
        assert_eq!(waits(&RetryAfter::default(), &limited, 7), [5000; 3]);
        let mut asked = limited;
        asked.retry_after = Some(Duration::from_secs(17));
        assert_eq!(waits(&RetryAfter::default(), &asked, 7), [17_000; 3]);
        assert_eq!(waits(&TokenBucket::default(), &asked, 7), [2000; 3]);
    }

    // spec: UPP-9
    #[test]
    fn only_what_may_pass_is_tried_again() {
        use ErrorCode as E;
        for code in [
            E::AuthenticationFailed,
            E::RateLimited,
            E::ContextLengthExceeded,
            E::ModelNotFound,
            E::InvalidRequest,
            E::InvalidResponse,
            E::ContentFiltered,
            E::QuotaExceeded,
            E::ProviderError,
            E::NetworkError,
            E::Timeout,
            E::Cancelled,
        ] {
            let limited = code == E::RateLimited;
            let passing =
                limited || matches!(code, E::NetworkError | E::Timeout | E::ProviderError);
            let error = error(code);
            let tried = |strategy: &dyn RetryStrategy| !waits(strategy, &error, 1).is_empty();
            assert_eq!(tried(&ExponentialBackoff::default()), passing, "{error}");
            assert_eq!(tried(&LinearBackoff::default()), passing, "{error}");
            assert_eq!(tried(&RetryAfter::default()), limited, "{error}");
            assert_eq!(tried(&TokenBucket::default()), limited, "{error}");
        }
    }

    #[test]
    fn extremes_stop_at_the_longest_span() {
        let vast = ExponentialBackoff::default()
            .with_max_attempts(u32::MAX)
            .with_delays(Duration::MAX, Duration::MAX);
        let limited = error(ErrorCode::RateLimited);
        let failure = Failure::new(Mono::MAX, &limited, u32::MAX, u64::MAX);
        assert!(vast.on_retry(failure).is_some());
        let bucket = TokenBucket::new(NonZeroU32::MAX, Duration::MAX);
        bucket.before_request(Mono::MAX);
        bucket.before_request(Mono::ZERO);
    }

    // spec: UPP-9
    #[test]
    fn a_bucket_lets_its_tokens_go_and_then_one_at_a_time() {
        let bucket = TokenBucket::new(NonZeroU32::new(2).unwrap(), Duration::from_secs(1));
        let at = |ms| bucket.before_request(Mono::from_millis(ms)).as_millis();
        assert_eq!([at(0), at(0), at(0), at(0)], [0, 0, 1000, 2000]);
        assert_eq!(at(3500), 0);
        // A long pause fills it, and no more than that.
        assert_eq!([at(60_000), at(60_000), at(60_000)], [0, 0, 1000]);
    }
}
