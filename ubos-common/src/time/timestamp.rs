//! Moments in UTC.

use core::fmt;
use core::time::Duration;

use time::Month;

use super::TimeError;

/// A moment in UTC, to the nanosecond, in the years 0000 to 9999.
///
/// It is written with milliseconds, as `2025-10-01T12:00:00.250Z`, and with microseconds or nanoseconds
/// where it has them; any RFC 3339 text is read. Protocols with a text form of their own have a type for
/// it: [`WholeSecond`](super::WholeSecond) cuts the fraction off, [`Rfc3339`](super::Rfc3339) keeps the
/// text of a peer.
///
/// ```
/// use core::time::Duration;
/// use ubos_common::time::Timestamp;
///
/// let at: Timestamp = "2025-10-01T14:00:00.25+02:00".parse()?;
/// assert_eq!(at.to_string(), "2025-10-01T12:00:00.250Z");
/// assert_eq!((at.unix(), at.subsec_nanos()), (1_759_320_000, 250_000_000));
/// let later = at.saturating_add(Duration::from_micros(1));
/// assert_eq!(later.to_string(), "2025-10-01T12:00:00.250001Z");
/// assert_eq!(later.saturating_since(at), Duration::from_micros(1));
/// # Ok::<(), ubos_common::time::TimeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since the epoch, rounded down.
    seconds: i64,
    /// Below one second.
    nanos: u32,
}

/// Nanoseconds of one second.
const SECOND: u32 = 1_000_000_000;

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self {
        seconds: 0,
        nanos: 0,
    };
    /// 0000-01-01T00:00:00Z, the first moment that the text form can hold.
    pub const MIN: Self = Self {
        seconds: -62_167_219_200,
        nanos: 0,
    };
    /// 9999-12-31T23:59:59.999999999Z, the last moment that the text form can hold.
    pub const MAX: Self = Self {
        seconds: 253_402_300_799,
        nanos: SECOND - 1,
    };

    /// The moment `nanos` nanoseconds after the second `seconds` since the epoch, or `None` outside the
    /// years 0000 to 9999 or with a full second or more of nanoseconds.
    #[must_use]
    pub const fn new(seconds: i64, nanos: u32) -> Option<Self> {
        if seconds < Self::MIN.seconds || seconds > Self::MAX.seconds || nanos >= SECOND {
            return None;
        }
        Some(Self { seconds, nanos })
    }

    /// The moment `seconds` after the epoch, or `None` outside the years 0000 to 9999.
    #[must_use]
    pub const fn from_unix(seconds: i64) -> Option<Self> {
        Self::new(seconds, 0)
    }

    /// The moment `millis` milliseconds after the epoch, or `None` outside the years 0000 to 9999.
    #[must_use]
    pub fn from_unix_millis(millis: i64) -> Option<Self> {
        let nanos = u32::try_from(millis.rem_euclid(1_000)).ok()? * 1_000_000;
        Self::new(millis.div_euclid(1_000), nanos)
    }

    /// Whole seconds since the epoch, rounded down; negative before it.
    #[must_use]
    pub const fn unix(self) -> i64 {
        self.seconds
    }

    /// Whole milliseconds since the epoch, rounded down; negative before it.
    #[must_use]
    pub fn unix_millis(self) -> i64 {
        self.seconds * 1_000 + i64::from(self.nanos / 1_000_000)
    }

    /// Nanoseconds since the second of [`Timestamp::unix`], below 1,000,000,000.
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// The second in which this moment lies.
    #[must_use]
    pub const fn truncated_to_second(self) -> Self {
        Self { nanos: 0, ..self }
    }

    /// The millisecond in which this moment lies.
    #[must_use]
    pub const fn truncated_to_millis(self) -> Self {
        Self {
            nanos: self.nanos - self.nanos % 1_000_000,
            ..self
        }
    }

    /// The span from `earlier` to `self`, zero when `earlier` lies in the future.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        if self <= earlier {
            return Duration::ZERO;
        }
        // Not negative, since `self` is later.
        let seconds = Duration::from_secs(self.seconds.abs_diff(earlier.seconds));
        seconds + Duration::from_nanos(self.nanos.into())
            - Duration::from_nanos(earlier.nanos.into())
    }

    /// This moment plus a span, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        let nanos = self.nanos + span.subsec_nanos();
        let seconds = i64::try_from(span.as_secs())
            .ok()
            .and_then(|span| self.seconds.checked_add(span))
            .and_then(|seconds| seconds.checked_add(i64::from(nanos / SECOND)));
        seconds
            .and_then(|seconds| Self::new(seconds, nanos % SECOND))
            .unwrap_or(Self::MAX)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; LONGEST];
        f.pad(core::str::from_utf8(to_text(*self, &mut text)).unwrap_or_default())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::text::serde_as_text!(Timestamp, "an RFC 3339 time");

/// Bytes of the text with nanoseconds.
pub(crate) const LONGEST: usize = 30;

/// Writes the text form into `text`: 24, 27 or 30 bytes.
pub(crate) fn to_text(at: Timestamp, text: &mut [u8; LONGEST]) -> &[u8] {
    *text = *b"0000-00-00T00:00:00.000000000Z";
    if let Some(digits) = text.first_chunk_mut() {
        *digits = date_and_time(at);
    }
    let (digits, mut rest) = match at.nanos {
        nanos if nanos.is_multiple_of(1_000_000) => (3, nanos / 1_000_000),
        nanos if nanos.is_multiple_of(1_000) => (6, nanos / 1_000),
        nanos => (9, nanos),
    };
    for digit in text.iter_mut().take(20 + digits).skip(20).rev() {
        *digit = ascii(rest);
        rest /= 10;
    }
    if let Some(end) = text.get_mut(20 + digits) {
        *end = b'Z';
    }
    text.get(..21 + digits).unwrap_or_default()
}

/// `YYYY-MM-DDTHH:MM:SS`.
pub(super) fn date_and_time(at: Timestamp) -> [u8; 19] {
    let days = at.seconds.div_euclid(86_400);
    let second = u32::try_from(at.seconds.rem_euclid(86_400)).unwrap_or(0);
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00";
    for (at, value) in [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, second / 3600),
        (14, second / 60 % 60),
        (17, second % 60),
    ] {
        if let Some([tens, ones]) = text.get_mut(at..at + 2) {
            *tens = ascii(value / 10);
            *ones = ascii(value);
        }
    }
    text
}

/// Reads `YYYY-MM-DDTHH:MM:SS`.
pub(super) fn read_date_and_time(text: &[u8; 19]) -> Result<Timestamp, TimeError> {
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        mo1,
        mo2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        mi1,
        mi2,
        b':',
        s1,
        s2,
    ] = *text
    else {
        return Err(TimeError::Shape);
    };
    let year = i32::from(pair(y1, y2)?) * 100 + i32::from(pair(y3, y4)?);
    let month = Month::try_from(pair(mo1, mo2)?).map_err(|_| TimeError::Range)?;
    let day = pair(d1, d2)?;
    let (hour, minute, second) = (pair(h1, h2)?, pair(mi1, mi2)?, pair(s1, s2)?);
    let is_day = (1..=month.length(year)).contains(&day);
    if !is_day || hour > 23 || minute > 59 || second > 59 {
        return Err(TimeError::Range);
    }
    let minutes = days(year, month, day) * 1_440 + i64::from(hour) * 60 + i64::from(minute);
    Timestamp::from_unix(minutes * 60 + i64::from(second)).ok_or(TimeError::Range)
}

fn pair(tens: u8, ones: u8) -> Result<u8, TimeError> {
    match (tens, ones) {
        (b'0'..=b'9', b'0'..=b'9') => Ok((tens - b'0') * 10 + (ones - b'0')),
        _ => Err(TimeError::Shape),
    }
}

/// The last decimal digit of a number.
fn ascii(value: u32) -> u8 {
    b'0' + u8::try_from(value % 10).unwrap_or(0)
}

/// Days from 1 March 400 years before the year 0 to the epoch. Counted from a March, the day that some years have more is the
/// last of its year.
const MARCH: i64 = 865_565;

/// Days of 400 years, after which the calendar repeats itself.
const CYCLE: u32 = 146_097;

/// Days from the epoch to a day of the years 0000 to 9999.
fn days(year: i32, month: Month, day: u8) -> i64 {
    let month = i64::from(u8::from(month));
    let year = i64::from(year) + 400 - i64::from(month < 3);
    let months = (month + 9) % 12;
    let in_year = (153 * months + 2) / 5 + i64::from(day) - 1;
    365 * year + year / 4 - year / 100 + year / 400 + in_year - MARCH
}

/// Year, month and day of a count of days since the epoch, in years 0000 to 9999.
fn civil(days: i64) -> (u32, u32, u32) {
    let days = u32::try_from(days + MARCH).unwrap_or(0);
    let (cycles, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let months = (5 * in_year + 2) / 153;
    let day = in_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = (cycles * 400 + year + u32::from(month < 3)).saturating_sub(400);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::super::rfc3339;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fraction_has_three_six_or_nine_digits() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:07.000Z"),
            (250_000_000, "1970-01-01T00:00:07.250Z"),
            (1_000, "1970-01-01T00:00:07.000001Z"),
            (999_999_999, "1970-01-01T00:00:07.999999999Z"),
        ] {
            let at = Timestamp::new(7, nanos).unwrap();
            assert_eq!(at.to_string(), text);
            assert_eq!(text.parse(), Ok(at));
        }
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(Timestamp::from_unix(Timestamp::MAX.unix() + 1), None);
        assert_eq!(Timestamp::new(0, 1_000_000_000), None);
    }

    #[test]
    fn the_short_way_of_reading_is_as_strict_as_the_long_one() {
        for bad in [
            "2025-02-29T00:00:00.000Z",
            "2025-10-01T12:00:60.000Z",
            "2025-10-01T12:00:00.0a0Z",
            "2025-10-01 12:00:00.000Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_before_the_epoch_are_rounded_down() {
        let at = Timestamp::from_unix_millis(-1).unwrap();
        assert_eq!((at.unix(), at.subsec_nanos()), (-1, 999_000_000));
        assert_eq!(at.unix_millis(), -1);
        assert_eq!(at.to_string(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn spans_saturate() {
        let at = |seconds, nanos| Timestamp::new(seconds, nanos).unwrap();
        assert_eq!(
            at(5, 1).saturating_since(at(3, 999_999_999)),
            Duration::new(1, 2)
        );
        assert_eq!(at(3, 0).saturating_since(at(3, 1)), Duration::ZERO);
        assert_eq!(at(3, 0).saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(
            at(3, 999_999_999).saturating_add(Duration::from_nanos(1)),
            at(4, 0)
        );
    }

    #[test]
    fn serde_writes_the_text() {
        let text = "\"1970-01-01T00:00:00.000Z\"";
        assert_eq!(serde_json::to_string(&Timestamp::EPOCH).unwrap(), text);
        assert_eq!(
            serde_json::from_str::<Timestamp>(text).unwrap(),
            Timestamp::EPOCH
        );
    }

    proptest! {
        #[test]
        fn every_moment_is_read_back(seconds in Timestamp::MIN.unix()..=Timestamp::MAX.unix(), nanos in 0..SECOND) {
            let at = Timestamp::new(seconds, nanos).unwrap();
            prop_assert_eq!(at.to_string().parse::<Timestamp>(), Ok(at));
            prop_assert_eq!(rfc3339(&at.to_string()), Ok(at));
        }

        /// Against a calendar that others wrote, every day that is none as well.
        #[test]
        fn the_calendar_is_the_common_one(seconds in Timestamp::MIN.unix()..=Timestamp::MAX.unix(), year in 0i32..=9999, month in 1u8..=12, day in 0u8..40) {
            let at = time::UtcDateTime::from_unix_timestamp(seconds).unwrap();
            let date = (at.year().cast_unsigned(), u32::from(u8::from(at.month())), u32::from(at.day()));
            prop_assert_eq!(civil(seconds.div_euclid(86_400)), date);
            let month = Month::try_from(month).unwrap();
            let date = time::Date::from_calendar_date(year, month, day);
            let text = format!("{year:04}-{:02}-{day:02}T00:00:00Z", u8::from(month));
            let second = date.map(|date| date.midnight().assume_utc().unix_timestamp());
            prop_assert_eq!(text.parse::<Timestamp>().map(Timestamp::unix).ok(), second.ok());
        }
    }
}
