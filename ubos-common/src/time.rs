//! Time as an argument: wall-clock seconds for the wire, a monotonic count for deadlines.
//!
//! Nothing here reads a clock. A driver makes a [`Now`] and hands it to a machine; tests make their own.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use time::{Date, Month, PrimitiveDateTime, Time, UtcDateTime, format_description::well_known};

/// A moment in UTC, to the second, written `YYYY-MM-DDTHH:MM:SSZ`.
///
/// The text form is strict: 20 bytes, no fraction, no offset, upper-case `T` and `Z`, a real calendar
/// date, seconds 00 to 59. What was read is written as the same 20 bytes.
///
/// ```
/// use ubos_common::time::Timestamp;
///
/// let at: Timestamp = "2025-10-01T12:00:00Z".parse()?;
/// assert_eq!(at.to_string(), "2025-10-01T12:00:00Z");
/// assert_eq!(at.unix(), 1_759_320_000);
/// assert!("2025-10-01T12:00:00.5Z".parse::<Timestamp>().is_err());
/// # Ok::<(), ubos_common::time::TimeError>(())
/// ```
///
/// Spec: SAP 3
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// 0000-01-01T00:00:00Z, the first moment that the text form can say.
    pub const MIN: Self = Self(-62_167_219_200);
    /// 9999-12-31T23:59:59Z, the last moment that the text form can say.
    pub const MAX: Self = Self(253_402_300_799);

    /// The moment `seconds` after the epoch, or `None` outside the years 0000 to 9999.
    #[must_use]
    pub const fn from_unix(seconds: i64) -> Option<Self> {
        if seconds < Self::MIN.0 || seconds > Self::MAX.0 {
            return None;
        }
        Some(Self(seconds))
    }

    /// Whole seconds since the epoch, negative before it.
    #[must_use]
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// Whole seconds from `earlier` to `self`, zero when `earlier` lies in the future.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        if self.0 > earlier.0 {
            self.0.abs_diff(earlier.0)
        } else {
            0
        }
    }

    /// This moment plus a span, cut to whole seconds and to [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(seconds).min(Self::MAX.0))
    }

    /// The 20 bytes of the text form.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 20] {
        let days = self.0.div_euclid(86_400);
        let second = u32::try_from(self.0.rem_euclid(86_400)).unwrap_or(0);
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00Z";
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
                *tens = digit(value / 10);
                *ones = digit(value % 10);
            }
        }
        text
    }

    fn from_bytes(text: &[u8]) -> Result<Self, TimeError> {
        let text: &[u8; 20] = text
            .try_into()
            .map_err(|_| TimeError::Length { seen: text.len() })?;
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
            b'Z',
        ] = *text
        else {
            return Err(TimeError::Shape);
        };
        let year = i32::from(pair(y1, y2)?) * 100 + i32::from(pair(y3, y4)?);
        let month = Month::try_from(pair(mo1, mo2)?).map_err(|_| TimeError::Range)?;
        let date =
            Date::from_calendar_date(year, month, pair(d1, d2)?).map_err(|_| TimeError::Range)?;
        let time = Time::from_hms(pair(h1, h2)?, pair(mi1, mi2)?, pair(s1, s2)?)
            .map_err(|_| TimeError::Range)?;
        Ok(Self(
            PrimitiveDateTime::new(date, time)
                .assume_utc()
                .unix_timestamp(),
        ))
    }
}

impl FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(core::str::from_utf8(&self.to_bytes()).unwrap_or_default())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::text::serde_as_text!(Timestamp, "a timestamp written YYYY-MM-DDTHH:MM:SSZ");

/// An RFC 3339 time that keeps the text it was read from.
///
/// Any offset and fraction is taken; a space for `T` and second 60 are not. Two values are equal when
/// their texts are.
///
/// ```
/// use ubos_common::time::Rfc3339;
///
/// let at: Rfc3339 = "2025-10-01T14:00:00.25+02:00".parse()?;
/// assert_eq!(at.as_str(), "2025-10-01T14:00:00.25+02:00");
/// assert_eq!(at.timestamp().to_string(), "2025-10-01T12:00:00Z");
/// # Ok::<(), ubos_common::time::TimeError>(())
/// ```
///
/// Spec: OpenSentience 3
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Rfc3339 {
    text: Box<str>,
    at: Timestamp,
    nanosecond: u32,
}

impl Rfc3339 {
    /// The text, as it was read.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The moment in UTC, its fraction cut off.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        self.at
    }

    /// The fraction that [`Rfc3339::timestamp`] cuts off, in nanoseconds.
    #[must_use]
    pub const fn nanosecond(&self) -> u32 {
        self.nanosecond
    }
}

impl FromStr for Rfc3339 {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let (at, nanosecond) = rfc3339(text)?;
        Ok(Self {
            text: text.into(),
            at,
            nanosecond,
        })
    }
}

impl From<Timestamp> for Rfc3339 {
    fn from(at: Timestamp) -> Self {
        Self {
            text: at.to_string().into(),
            at,
            nanosecond: 0,
        }
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::text::serde_as_text!(Rfc3339, "an RFC 3339 time");

/// Reads an RFC 3339 time and checks it, without keeping its text.
///
/// Gives the moment to the second and the nanoseconds cut off.
///
/// # Errors
///
/// Whatever is not RFC 3339, a space for `T`, second 60, and moments outside the years 0000 to 9999 UTC.
pub fn rfc3339(text: &str) -> Result<(Timestamp, u32), TimeError> {
    /// The longest text with nine digits of fraction; more digits are padding that an attacker pays for.
    const LONGEST: usize = 64;
    let bytes = text.as_bytes();
    if bytes.len() < 20 || bytes.len() > LONGEST {
        return Err(TimeError::Length { seen: bytes.len() });
    }
    if bytes.get(10).is_none_or(|b| !b.eq_ignore_ascii_case(&b'T')) {
        return Err(TimeError::Shape);
    }
    // The library reads second 60 as 59.999999999; two texts would then mean one moment.
    if bytes.get(17..19) == Some(b"60") {
        return Err(TimeError::Range);
    }
    let parsed =
        time::OffsetDateTime::parse(text, &well_known::Rfc3339).map_err(|_| TimeError::Shape)?;
    // The offset may carry the last day over the end of the calendar.
    let utc = parsed.checked_to_utc().ok_or(TimeError::Range)?;
    let at = Timestamp::from_unix(utc.unix_timestamp()).ok_or(TimeError::Range)?;
    Ok((at, utc.nanosecond()))
}

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

/// What a driver says of time with every input: `mono` for deadlines, `wall` for the wire.
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

/// Why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The text has a length that no such time has.
    #[error("a time of {seen} bytes")]
    Length {
        /// Bytes of the text.
        seen: usize,
    },
    /// A digit or separator is not where it belongs.
    #[error("not laid out like a time")]
    Shape,
    /// Laid out like a time, but no such moment exists or can be said.
    #[error("no such moment in the calendar")]
    Range,
}

fn pair(tens: u8, ones: u8) -> Result<u8, TimeError> {
    match (tens, ones) {
        (b'0'..=b'9', b'0'..=b'9') => Ok((tens - b'0') * 10 + (ones - b'0')),
        _ => Err(TimeError::Shape),
    }
}

fn digit(value: u32) -> u8 {
    b'0' + u8::try_from(value % 10).unwrap_or(0)
}

/// Year, month and day of a count of days since the epoch, in years 0000 to 9999.
fn civil(days: i64) -> (u32, u32, u32) {
    let at = UtcDateTime::from_unix_timestamp(days * 86_400).unwrap_or(UtcDateTime::UNIX_EPOCH);
    (
        u32::try_from(at.year()).unwrap_or(0),
        u32::from(u8::from(at.month())),
        u32::from(at.day()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // spec: SAP-3-2
    #[test]
    fn strict_texts_only() {
        for bad in [
            "",
            "2025-10-01",
            "2025-10-01T12:00:00",
            "2025-10-01T12:00:00.5Z",
            "2025-10-01T12:00:00+00:00",
            "2025-10-01 12:00:00Z",
            "2025-10-01t12:00:00Z",
            "2025-10-01T12:00:00z",
            "2025-02-29T00:00:00Z",
            "2025-10-01T24:00:00Z",
            "2025-10-01T12:60:00Z",
            "2025-10-01T12:00:60Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "-025-10-01T12:00:00Z",
            "2025-1a-01T12:00:00Z",
            "２025-10-01T12:00:0Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
        for good in [
            "0000-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2024-02-29T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(good.parse::<Timestamp>().unwrap().to_string(), good);
        }
        assert_eq!(
            "0000-01-01T00:00:00Z".parse::<Timestamp>().unwrap(),
            Timestamp::MIN
        );
        assert_eq!(
            "9999-12-31T23:59:59Z".parse::<Timestamp>().unwrap(),
            Timestamp::MAX
        );
        assert_eq!(Timestamp::from_unix(Timestamp::MAX.unix() + 1), None);
    }

    #[test]
    fn rfc3339_keeps_its_text() {
        for good in [
            "2025-10-01T12:00:00Z",
            "2025-10-01t12:00:00.123456789z",
            "2025-10-01T00:00:00-23:59",
        ] {
            assert_eq!(good.parse::<Rfc3339>().unwrap().as_str(), good);
        }
        for bad in [
            "2025-10-01 12:00:00Z",
            "2025-10-01T12:00:60Z",
            "2025-10-01T12:00:00",
            "-001-09-28T10:15:23Z",
            "0000-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-00:01",
        ] {
            assert!(bad.parse::<Rfc3339>().is_err(), "{bad}");
        }
        let cut: Rfc3339 = "2025-10-01T14:00:00.25+02:00".parse().unwrap();
        assert_eq!(
            (cut.timestamp().to_string().as_str(), cut.nanosecond()),
            ("2025-10-01T12:00:00Z", 250_000_000)
        );
    }

    #[test]
    fn serde_writes_the_text() {
        let at = Timestamp::EPOCH;
        assert_eq!(
            serde_json::to_string(&at).unwrap(),
            "\"1970-01-01T00:00:00Z\""
        );
        assert_eq!(
            serde_json::from_str::<Timestamp>("\"1970-01-01T00:00:00Z\"").unwrap(),
            at
        );
        assert!(serde_json::from_str::<Timestamp>("\"1970-01-01\"").is_err());
    }

    #[test]
    fn spans_saturate() {
        assert_eq!(Mono::MAX.saturating_add(Duration::from_secs(1)), Mono::MAX);
        assert_eq!(Mono::MAX.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(Mono::ZERO.saturating_since(Mono::MAX), Duration::ZERO);
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.saturating_since(Timestamp::MAX), 0);
    }

    proptest! {
        // spec: SAP-3-3
        #[test]
        fn every_second_reads_back(unix in Timestamp::MIN.unix()..=Timestamp::MAX.unix()) {
            let at = Timestamp::from_unix(unix).unwrap();
            prop_assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            if let Ok(at) = text.parse::<Timestamp>() {
                prop_assert_eq!(at.to_string(), text);
            }
        }
    }
}
