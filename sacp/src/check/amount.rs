//! Amounts, compared digit by digit: no amount is too large or too exact to be held against a limit.

use core::cmp::Ordering;

use ubos_common::json::{Kind, RawBuf};

/// A number of JSON, as written: zero point its digits, times ten to its power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: Box<[u8]>,
    power: i64,
}

impl Amount {
    /// The amount of a number; `None` for another kind of value, or a number of more than 4,096 bytes.
    pub(super) fn of(value: &RawBuf) -> Option<Self> {
        /// Bytes of a number that is read.
        const LONGEST: usize = 4096;
        let text = value.as_str();
        if value.kind() != Kind::Number || text.len() > LONGEST {
            return None;
        }
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
            return Some(Self {
                negative: false,
                digits: Box::default(),
                power: 0,
            });
        };
        let last = digits.iter().rposition(|digit| *digit != b'0')?;
        let exponent: i64 = exponent.parse().ok()?;
        let before_point = i64::try_from(whole.len()).ok()? - i64::try_from(first).ok()?;
        Some(Self {
            negative,
            digits: digits.get(first..=last)?.into(),
            power: exponent.checked_add(before_point)?,
        })
    }

    const fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |amount: &Self| match (amount.is_zero(), amount.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let size = || (self.power, &self.digits).cmp(&(other.power, &other.digits));
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            -1 => size().reverse(),
            _ => size(),
        })
    }
}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Option<Amount> {
        Amount::of(&RawBuf::parse(text).unwrap())
    }

    #[test]
    fn amounts_are_ordered_digit_by_digit() {
        let nines = "9".repeat(400);
        let rising = [
            "-1e999",
            "-1.5",
            "-1",
            "0",
            "1e-400",
            "0.09",
            "0.1",
            "9",
            "10.5",
            "99.999",
            "9007199254740992",
            "9007199254740993",
            &nines,
            "1e999",
            "1E+1000",
        ];
        for (n, low) in rising.iter().enumerate() {
            for (m, high) in rising.iter().enumerate() {
                assert_eq!(amount(low).cmp(&amount(high)), n.cmp(&m), "{low} {high}");
            }
        }
        for (a, b) in [
            ("100", "1e2"),
            ("0.10", "1E-1"),
            ("-0", "0e99"),
            ("120", "1.2e2"),
        ] {
            assert_eq!(amount(a), amount(b), "{a} {b}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_long_is_no_amount() {
        let long = "9".repeat(4097);
        for text in [
            "\"100\"",
            "null",
            "[1]",
            "true",
            "1e99999999999999999999",
            &long,
        ] {
            assert_eq!(amount(text), None, "{}", text.len());
        }
    }
}
