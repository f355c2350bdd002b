//! Time as an argument: calendar time for the wire, a monotonic count for deadlines.
//!
//! Nothing here reads a clock. A driver makes a [`Now`] and hands it to a machine; tests make their own.

mod rfc3339;
mod timestamp;
mod whole_second;

use core::time::Duration;

pub use rfc3339::{Rfc3339, rfc3339};
pub use timestamp::Timestamp;
pub(crate) use timestamp::{LONGEST as LONGEST_TEXT, to_text};
pub use whole_second::WholeSecond;

/// A reading of the driver's monotonic clock, in nanoseconds from a zero of its choice.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Mono(u64);

impl Mono {
    /// The driver's zero.
    pub const ZERO: Self = Self(0);
    /// Later than any reading: 584 years after the zero.
    pub const MAX: Self = Self(u64::MAX);

    /// The reading `nanos` nanoseconds after the zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The reading `millis` milliseconds after the zero, at most [`Mono::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This reading plus a span, at most [`Mono::MAX`].
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// This reading plus a span, or `None` past [`Mono::MAX`].
    #[must_use]
    pub fn checked_add(self, span: Duration) -> Option<Self> {
        let nanos = u64::try_from(span.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Self)
    }

    /// The span from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The time of an input: `mono` for deadlines, `wall` for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Now {
    /// The monotonic clock; never goes back.
    pub mono: Mono,
    /// The calendar clock; may jump either way.
    pub wall: Timestamp,
}

impl Now {
    /// Both clocks, read at one moment.
    #[must_use]
    pub const fn new(mono: Mono, wall: Timestamp) -> Self {
        Self { mono, wall }
    }

    /// The same moment `span` later on both clocks.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self {
            mono: self.mono.saturating_add(span),
            wall: self.wall.saturating_add(span),
        }
    }
}

/// Why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The text is shorter or longer than any time of this form.
    #[error("{seen} bytes are too few or too many for a time")]
    Length {
        /// Bytes of the text.
        seen: usize,
    },
    /// A digit or separator is not where it belongs.
    #[error("a digit or separator is not where a time has one")]
    Shape,
    /// The form is right, but no such moment exists in the years 0000 to 9999.
    #[error("no such moment in the calendar")]
    Range,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_spans_saturate() {
        assert_eq!(Mono::MAX.saturating_add(Duration::from_secs(1)), Mono::MAX);
        assert_eq!(Mono::MAX.checked_add(Duration::from_nanos(1)), None);
        let second = Duration::from_secs(1);
        assert_eq!(
            Mono::ZERO.checked_add(second).map(Mono::as_nanos),
            Some(1_000_000_000)
        );
        assert_eq!(Mono::ZERO.saturating_since(Mono::MAX), Duration::ZERO);
    }
}
