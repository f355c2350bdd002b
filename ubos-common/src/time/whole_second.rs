//! The strict text form with whole seconds.

use core::fmt;
use core::str::FromStr;

use super::TimeError;
use super::timestamp::{self, Timestamp};

/// A moment in UTC, to the second, written `YYYY-MM-DDTHH:MM:SSZ`.
///
/// The text form is strict: 20 bytes, no fraction, no offset, upper-case `T` and `Z`, a real calendar date,
/// seconds 00 to 59. What was read is written as the same 20 bytes. A [`Timestamp`] becomes one by cutting
/// its fraction off.
///
/// ```
/// use ubos_common::time::{Timestamp, WholeSecond};
///
/// let at: WholeSecond = "2025-10-01T12:00:00Z".parse()?;
/// assert_eq!(at.to_string(), "2025-10-01T12:00:00Z");
/// assert_eq!(at.timestamp().unix(), 1_759_320_000);
/// assert!("2025-10-01T12:00:00.5Z".parse::<WholeSecond>().is_err());
///
/// let with_fraction: Timestamp = "2025-10-01T12:00:00.900Z".parse()?;
/// assert_eq!(WholeSecond::from(with_fraction), at);
/// # Ok::<(), ubos_common::time::TimeError>(())
/// ```
///
/// Spec: SAP 3
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WholeSecond(Timestamp);

impl WholeSecond {
    /// The moment as a timestamp, whose fraction is zero.
    #[must_use]
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }

    /// The 20 bytes of the text form.
    // impl: SAP-3-3
    #[must_use]
    pub fn to_bytes(self) -> [u8; 20] {
        let mut text = *b"0000-00-00T00:00:00Z";
        if let Some(digits) = text.first_chunk_mut() {
            *digits = timestamp::date_and_time(self.0);
        }
        text
    }

    // impl: SAP-3-2
    fn from_bytes(text: &[u8]) -> Result<Self, TimeError> {
        let text: &[u8; 20] = text
            .try_into()
            .map_err(|_| TimeError::Length { seen: text.len() })?;
        let (moment, b"Z") = text.split_at(19) else {
            return Err(TimeError::Shape);
        };
        let moment = moment.try_into().map_err(|_| TimeError::Shape)?;
        timestamp::read_date_and_time(moment).map(Self)
    }
}

impl From<Timestamp> for WholeSecond {
    fn from(at: Timestamp) -> Self {
        Self(at.truncated_to_second())
    }
}

impl From<WholeSecond> for Timestamp {
    fn from(at: WholeSecond) -> Self {
        at.0
    }
}

impl FromStr for WholeSecond {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for WholeSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(core::str::from_utf8(&self.to_bytes()).unwrap_or_default())
    }
}

impl fmt::Debug for WholeSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::text::serde_as_text!(WholeSecond, "a time written YYYY-MM-DDTHH:MM:SSZ");

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
            assert!(bad.parse::<WholeSecond>().is_err(), "{bad}");
        }
        for good in [
            "0000-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2024-02-29T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(good.parse::<WholeSecond>().unwrap().to_string(), good);
        }
        let read = |text: &str| text.parse::<WholeSecond>().unwrap().timestamp();
        assert_eq!(read("0000-01-01T00:00:00Z"), Timestamp::MIN);
        assert_eq!(
            read("9999-12-31T23:59:59Z"),
            Timestamp::MAX.truncated_to_second()
        );
    }

    proptest! {
        // spec: SAP-3-3
        #[test]
        fn every_second_is_read_back(at in Timestamp::MIN.unix()..=Timestamp::MAX.unix(), nanos in 0..1_000_000_000_u32) {
            let cut = WholeSecond::from(Timestamp::new(at, nanos).unwrap());
            prop_assert_eq!(cut.timestamp().unix(), at);
            prop_assert_eq!(cut.to_string().parse::<WholeSecond>(), Ok(cut));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            if let Ok(at) = text.parse::<WholeSecond>() {
                prop_assert_eq!(at.to_string(), text);
            }
        }
    }
}
