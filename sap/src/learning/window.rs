//! For how long signals count.

use core::time::Duration;

use ubos_common::ConfigError;
use ubos_common::time::Timestamp;

use super::evidence::Count;

/// For how long signals count, and how much less the older ones do.
///
/// | setting | default | what it is |
/// |---|---|---|
/// | `period` | 7 days | what is forgotten, and fades, at once; at least 1 s |
/// | `periods` | 13 | periods that count, the one of today among them; at least 1 |
/// | `half_life` | 28 days | the age at which a signal weighs half; `None`: all weigh the same |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    period: Duration,
    periods: u32,
    half_life: Option<Duration>,
}

impl Default for Window {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            period: day * 7,
            periods: 13,
            half_life: Some(day * 28),
        }
    }
}

impl Window {
    /// Sets how long a period is; at least 1 s.
    #[must_use]
    pub const fn with_period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Sets how many periods count; at least 1.
    #[must_use]
    pub const fn with_periods(mut self, periods: u32) -> Self {
        self.periods = periods;
        self
    }

    /// Sets the age at which a signal weighs half; more than none.
    #[must_use]
    pub const fn with_half_life(mut self, half_life: Option<Duration>) -> Self {
        self.half_life = half_life;
        self
    }

    /// When the first period begins that counts now. What was said before it need not be read back.
    #[must_use]
    pub fn begins(&self, now: Timestamp) -> Timestamp {
        let seconds = self.first(now).saturating_mul(self.seconds());
        Timestamp::from_unix(seconds).unwrap_or(Timestamp::MIN)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::at_least("period", self.period, Duration::from_secs(1))?;
        ConfigError::at_least("periods", self.periods, 1)?;
        let is_some = self.half_life != Some(Duration::ZERO);
        ConfigError::require(is_some, "half_life", self.half_life, "more than none")
    }

    /// The number of the period of a time.
    pub(super) fn period(&self, at: Timestamp) -> i64 {
        at.unix().div_euclid(self.seconds())
    }

    /// The number of the first period that counts.
    pub(super) fn first(&self, now: Timestamp) -> i64 {
        let before = i64::from(self.periods).saturating_sub(1);
        self.period(now).saturating_sub(before)
    }

    /// What a signal of a period weighs now, in thousandths; one of the future weighs all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "from 0 to 1000, rounded"
    )]
    pub(super) fn weight(&self, period: i64, now: Timestamp) -> u64 {
        let age = self.period(now).saturating_sub(period).max(0);
        let Some(half_life) = self.half_life else {
            return Count::WHOLE;
        };
        let halves = age as f64 * self.period.as_secs_f64() / half_life.as_secs_f64();
        (0.5_f64.powf(halves) * Count::WHOLE as f64).round() as u64
    }

    /// Whole seconds of a period.
    fn seconds(&self) -> i64 {
        i64::try_from(self.period.as_secs())
            .unwrap_or(i64::MAX)
            .max(1)
    }
}
