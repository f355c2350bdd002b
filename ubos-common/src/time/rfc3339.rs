//! RFC 3339 times as peers write them.

use core::fmt;
use core::str::FromStr;

use time::format_description::well_known;

use super::TimeError;
use super::timestamp::{self, Timestamp};
use crate::text::ShortText;

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
/// assert_eq!(at.timestamp().to_string(), "2025-10-01T12:00:00.250Z");
/// # Ok::<(), ubos_common::time::TimeError>(())
/// ```
///
/// Spec: OpenSentience 3
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Rfc3339 {
    text: ShortText,
    at: Timestamp,
}

impl Rfc3339 {
    /// The text, as it was read.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The moment in UTC; digits of its fraction beyond the ninth are cut off.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        self.at
    }
}

impl FromStr for Rfc3339 {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        Ok(Self {
            text: text.into(),
            at: rfc3339(text)?,
        })
    }
}

impl From<Timestamp> for Rfc3339 {
    fn from(at: Timestamp) -> Self {
        Self {
            text: core::str::from_utf8(timestamp::to_text(at, &mut [0; timestamp::LONGEST]))
                .unwrap_or_default()
                .into(),
            at,
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
/// # Errors
///
/// Whatever is not RFC 3339, a space for `T`, second 60, and moments outside the years 0000 to 9999 UTC.
pub fn rfc3339(text: &str) -> Result<Timestamp, TimeError> {
    /// More digits of a fraction than this length allows are padding.
    const LONGEST: usize = 64;
    let bytes = text.as_bytes();
    if bytes.len() < 20 || bytes.len() > LONGEST {
        return Err(TimeError::Length { seen: bytes.len() });
    }
    if let Some(at) = utc(bytes) {
        return Ok(at);
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
    Timestamp::new(utc.unix_timestamp(), utc.nanosecond()).ok_or(TimeError::Range)
}

/// Reads the common form, UTC with a `Z` and up to nine digits of a fraction, without a calendar library's parser; `None` for
/// every other one, sound or not.
fn utc(text: &[u8]) -> Option<Timestamp> {
    let (moment, rest) = text.split_first_chunk::<19>()?;
    let digits = match rest {
        b"Z" => &[][..],
        [b'.', digits @ .., b'Z'] if matches!(digits.len(), 1..=9) => digits,
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = digits
        .iter()
        .fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    let unused = u32::try_from(9 - digits.len()).ok()?;
    let second = timestamp::read_date_and_time(moment).ok()?;
    Timestamp::new(second.unix(), fraction * 10_u32.pow(unused))
}

impl FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        rfc3339(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept() {
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
        let at: Rfc3339 = "2025-10-01T14:00:00.25+02:00".parse().unwrap();
        assert_eq!(at.timestamp().subsec_nanos(), 250_000_000);
        assert_eq!(at.timestamp(), "2025-10-01T12:00:00.250Z".parse().unwrap());
    }

    #[test]
    fn a_fraction_is_as_long_as_the_longest_time() {
        let of = |length: usize| format!("2025-10-01T12:00:00.{}Z", "0".repeat(length - 21));
        assert!(rfc3339(&of(64)).is_ok());
        assert_eq!(rfc3339(&of(65)), Err(TimeError::Length { seen: 65 }));
    }
}
