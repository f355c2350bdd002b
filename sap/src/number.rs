//! Numbers that keep the text they were read from.

use core::fmt;

use ubos_common::json::{Fault, Read, Reader, Write};

use crate::ident::NameError;

/// The greatest whole number that every JSON reader holds exactly: 2^53 - 1.
pub(crate) const MAX_WHOLE: u64 = (1 << 53) - 1;

/// Declares a number with a rule; equal values are equal, however they are written.
macro_rules! number {
    ($(#[$meta:meta])* $name:ident, $wanted:literal, $lenient:literal, $holds:expr) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $name {
            value: f64,
            text: NumberText,
        }

        impl $name {
            pub(crate) const fn value(&self) -> f64 {
                self.value
            }
        }

        impl TryFrom<f64> for $name {
            type Error = NameError;

            // impl: SAP-4.1-15
            fn try_from(value: f64) -> Result<Self, NameError> {
                let holds: fn(f64) -> bool = $holds;
                if !value.is_finite() || !holds(value) {
                    return Err(NameError { wanted: $wanted });
                }
                let text = NumberText::of(&ubos_common::json::to_string(&value));
                Ok(Self { value, text })
            }
        }

        impl From<&$name> for f64 {
            fn from(number: &$name) -> Self {
                number.value
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.value == other.value
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&ubos_common::json::to_string(self))
            }
        }

        impl Read<'_> for $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let holds: fn(f64) -> bool = $holds;
                let at = reader.offset();
                let text = reader.number()?;
                let kept = NumberText::of(text);
                let value = kept.value(text);
                if !value.is_finite() {
                    return Err(reader.bad_value_seen(at, "a finite number", text));
                }
                if !holds(value) {
                    if !($lenient && reader.is_lenient()) {
                        return Err(reader.bad_value_seen(at, $wanted, text));
                    }
                    reader.tolerate(at, "out_of_range", concat!("outside ", $wanted));
                }
                Ok(Self { value, text: kept })
            }
        }

        impl Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                self.text.write(out);
            }

            fn is_strict(&self) -> bool {
                let holds: fn(f64) -> bool = $holds;
                holds(self.value)
            }
        }
    };
}

number! {
    /// Any finite number, such as a reading.
    Number, "a finite number", false, |_| true
}

number! {
    /// Pressure in PSI, 0 to 100, fractions allowed. The lenient profile lets others pass. Spec: SAP 4.1
    Psi, "a number from 0 to 100", true, |value| (0.0..=100.0).contains(&value)
}

number! {
    /// An amount of a budget, 0 or more. Spec: SAP 4.1
    Amount, "a number from 0", false, |value| value >= 0.0
}

impl From<&Psi> for Number {
    fn from(psi: &Psi) -> Self {
        Self {
            value: psi.value,
            text: psi.text.clone(),
        }
    }
}

/// How a number is written. Most are short whole ones, which need no memory of their own.
#[derive(Clone)]
enum NumberText {
    /// Digits, the first no needless zero.
    Digits(u32),
    /// Any other spelling.
    Other(Box<str>),
}

impl NumberText {
    fn of(text: &str) -> Self {
        let is_plain = text.len() <= 9
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text.len() == 1 || !text.starts_with('0'));
        match text.parse() {
            Ok(number) if is_plain => Self::Digits(number),
            _ => Self::Other(text.into()),
        }
    }

    /// The value of `text`, which this was made of; one that no double holds is infinite.
    fn value(&self, text: &str) -> f64 {
        match self {
            Self::Digits(number) => f64::from(*number),
            Self::Other(_) => text.parse().unwrap_or(f64::INFINITY),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Digits(number) => number.write(out),
            Self::Other(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// A whole number from 0 to 2^53 - 1, however it is spelt: `60`, `60.0` and `6e1` are one. Spec: SAP 4.1
#[derive(Clone)]
pub struct Whole {
    value: u64,
    text: NumberText,
}

impl Whole {
    pub(crate) const fn value(&self) -> u64 {
        self.value
    }
}

impl TryFrom<u64> for Whole {
    type Error = NameError;

    fn try_from(value: u64) -> Result<Self, NameError> {
        if value > MAX_WHOLE {
            return Err(NameError {
                wanted: WHOLE_WANTED,
            });
        }
        Ok(Self {
            value,
            text: NumberText::of(&value.to_string()),
        })
    }
}

const WHOLE_WANTED: &str = "a whole number from 0 to 2^53-1";

impl From<&Whole> for u64 {
    fn from(number: &Whole) -> Self {
        number.value
    }
}

impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ubos_common::json::to_string(self))
    }
}

impl Read<'_> for Whole {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let kept = NumberText::of(text);
        let value = match kept {
            NumberText::Digits(number) => Some(u64::from(number)),
            NumberText::Other(_) => whole(text),
        };
        match value {
            Some(value) => Ok(Self { value, text: kept }),
            None => Err(reader.bad_value_seen(at, WHOLE_WANTED, text)),
        }
    }
}

impl Write for Whole {
    fn write(&self, out: &mut Vec<u8>) {
        self.text.write(out);
    }
}

/// The whole number that a JSON number stands for. It is read digit by digit: a double would round
/// 9007199254740991.4 to one.
// impl: SAP-4.1-8
fn whole(text: &str) -> Option<u64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [before, behind].concat();
    let Some(first) = digits.find(|c| c != '0') else {
        return Some(0);
    };
    let last = digits.trim_end_matches('0').len();
    let point = i64::try_from(before.len())
        .ok()?
        .checked_add(exponent.parse().ok()?)?;
    let point = usize::try_from(point).ok()?;
    // Sixteen digits hold 2^53; more cannot be in range.
    if sign || last > point || point.checked_sub(first)? > 16 {
        return None;
    }
    let significant = digits.get(first..last)?;
    let zeroes = u32::try_from(point - last).ok()?;
    let value = significant
        .parse::<u64>()
        .ok()?
        .checked_mul(10_u64.checked_pow(zeroes)?)?;
    (value <= MAX_WHOLE).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SAP-4.1-8
    #[test]
    fn whole_numbers_are_read_exactly() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0e99999999999999999999", Some(0)),
            ("60", Some(60)),
            ("60.0", Some(60)),
            ("6e1", Some(60)),
            ("0.006e4", Some(60)),
            ("600e-1", Some(60)),
            ("9007199254740991", Some(MAX_WHOLE)),
            ("9007199254740992", None),
            ("9007199254740991.4", None),
            ("60.5", None),
            ("-1", None),
            ("1e400", None),
            ("1e-400", None),
            ("1e99999999999999999999", None),
        ] {
            assert_eq!(whole(text), value, "{text}");
        }
    }
}
