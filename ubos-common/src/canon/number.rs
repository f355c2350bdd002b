//! Numbers: the shortest digits of a double, laid out as ECMAScript does. Spec: RFC 8785 3.2.2.3

use super::{CanonFault, Mode, text};

/// Integers up to here are doubles without rounding, and so are all smaller ones.
const MAX_EXACT: u64 = 1 << 53;

/// Any decimal of so many digits survives the way to a double and back to the shortest digits.
const SAFE_DIGITS: usize = 15;

pub(super) fn write_u64(out: &mut Vec<u8>, value: u64, mode: Mode) -> Result<(), CanonFault> {
    if value <= MAX_EXACT {
        digits(out, &value);
        return Ok(());
    }
    write_rounded(out, value as f64, &value, mode)
}

pub(super) fn write_i64(out: &mut Vec<u8>, value: i64, mode: Mode) -> Result<(), CanonFault> {
    if value.unsigned_abs() <= MAX_EXACT {
        digits(out, &value);
        return Ok(());
    }
    write_rounded(out, value as f64, &value, mode)
}

pub(super) fn write_u128(out: &mut Vec<u8>, value: u128, mode: Mode) -> Result<(), CanonFault> {
    match u64::try_from(value) {
        Ok(value) => write_u64(out, value, mode),
        Err(_) => write_rounded(out, value as f64, &value, mode),
    }
}

pub(super) fn write_i128(out: &mut Vec<u8>, value: i128, mode: Mode) -> Result<(), CanonFault> {
    match i64::try_from(value) {
        Ok(value) => write_i64(out, value, mode),
        Err(_) => write_rounded(out, value as f64, &value, mode),
    }
}

/// Fractions that every writer of JSON writes with a decimal point and without an exponent.
const PLAIN: core::ops::Range<f64> = 1e-3..1e15;

/// Appends a double; it is by definition the value that it has.
pub(super) fn write_f64(out: &mut Vec<u8>, value: f64) -> Result<(), CanonFault> {
    if !value.is_finite() {
        return Err(CanonFault::NotFinite);
    }
    if let Some(integer) = as_integer(value) {
        digits(out, &integer);
        return Ok(());
    }
    let start = out.len();
    digits(out, &value);
    if PLAIN.contains(&value.abs()) {
        return Ok(());
    }
    let text = out.get(start..).unwrap_or_default();
    // Both write a plain decimal point for middling values, and there they agree.
    if value.abs() >= 1e-6 && !text.contains(&b'e') {
        if text.ends_with(b".0") {
            out.truncate(out.len() - 2);
        }
        return Ok(());
    }
    let mut copy = [0; LONGEST];
    let copy = copy.get_mut(..text.len()).unwrap_or_default();
    copy.copy_from_slice(text);
    out.truncate(start);
    Decimal::parse(copy).write(out);
    Ok(())
}

/// Appends a float of 32 bits: the double nearest to its shortest decimal, which is what a reader of its JSON
/// text gets.
pub(super) fn write_f32(out: &mut Vec<u8>, value: f32) -> Result<(), CanonFault> {
    if !value.is_finite() {
        return Err(CanonFault::NotFinite);
    }
    let mut shortest = Vec::with_capacity(LONGEST);
    digits(&mut shortest, &value);
    let shortest = core::str::from_utf8(&shortest).ok();
    let double = shortest.and_then(|text| text.parse().ok());
    write_f64(out, double.unwrap_or_else(|| f64::from(value)))
}

/// Appends the canonical form of a JSON number; `given` must follow the grammar.
pub(super) fn write_text(out: &mut Vec<u8>, given: &[u8], mode: Mode) -> Result<(), CanonFault> {
    if is_canonical(given) {
        text::append(out, given);
        return Ok(());
    }
    let value: f64 = core::str::from_utf8(given)
        .ok()
        .and_then(|given| given.parse().ok())
        .ok_or(CanonFault::Malformed { wanted: "a number" })?;
    let start = out.len();
    write_f64(out, value)?;
    check(given, out.get(start..).unwrap_or_default(), mode)
}

/// True for the short decimals without exponent that are most of all traffic: for these the
/// shortest digits of the nearest double are the digits written. False proves nothing.
fn is_canonical(text: &[u8]) -> bool {
    let body = text.strip_prefix(b"-").unwrap_or(text);
    if body.len() > SAFE_DIGITS {
        return false;
    }
    let Some(point) = body.iter().position(|byte| !byte.is_ascii_digit()) else {
        return text != b"-0";
    };
    let Some((whole, [b'.', fraction @ ..])) = body.split_at_checked(point) else {
        return false;
    };
    // From 1e-7 on down there would be an exponent; a trailing zero would go.
    let plain = whole != b"0" || !fraction.starts_with(b"000000");
    plain && fraction.iter().all(u8::is_ascii_digit) && !fraction.ends_with(b"0")
}

/// The integer that `value` is, if it is one that doubles hold without gaps.
#[expect(
    clippy::cast_possible_truncation,
    reason = "compared with the original"
)]
fn as_integer(value: f64) -> Option<i64> {
    let integer = value as i64;
    (integer.unsigned_abs() <= MAX_EXACT && integer as f64 == value).then_some(integer)
}

fn write_rounded(
    out: &mut Vec<u8>,
    nearest: f64,
    integer: &impl serde::Serialize,
    mode: Mode,
) -> Result<(), CanonFault> {
    let start = out.len();
    write_f64(out, nearest)?;
    if mode == Mode::Jcs {
        return Ok(());
    }
    let mut written = Vec::with_capacity(40);
    digits(&mut written, integer);
    check(&written, out.get(start..).unwrap_or_default(), mode)
}

/// In exact mode, refuses a canonical form that is another decimal than the one given.
fn check(given: &[u8], canonical: &[u8], mode: Mode) -> Result<(), CanonFault> {
    let same = || given == canonical || Decimal::parse(given) == Decimal::parse(canonical);
    if mode == Mode::Exact && !same() {
        return Err(CanonFault::Inexact);
    }
    Ok(())
}

/// Appends the digits that serde_json prints: of an integer all, of a double the shortest that
/// read back as the same double.
#[inline]
fn digits(out: &mut Vec<u8>, number: &impl serde::Serialize) {
    let written = serde_json::to_writer(out, number);
    debug_assert!(written.is_ok(), "a vector takes every finite number");
}

/// Longer than any double that serde_json prints: sign, 17 digits, point, five characters of
/// exponent; the plain notation, used for middling values only, pads less than that.
const LONGEST: usize = 40;

/// A decimal number as its significant digits and the place of the point:
/// `0.d1d2d3... * 10^point`, where neither the first nor the last digit is zero.
struct Decimal<'a> {
    negative: bool,
    /// From the first to the last significant digit; may have a point among them.
    mantissa: &'a [u8],
    point: i64,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a [u8]) -> Self {
        let (negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match exponent_at.and_then(|at| text.split_at_checked(at)) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)),
            None => (text, 0),
        };
        let significant = |byte: &u8| matches!(byte, b'1'..=b'9');
        let Some(first) = mantissa.iter().position(significant) else {
            let (negative, mantissa, point) = (false, [].as_slice(), 0);
            return Self {
                negative,
                mantissa,
                point,
            };
        };
        let last = mantissa.iter().rposition(significant).unwrap_or(first);
        let point = mantissa.iter().position(|byte| *byte == b'.');
        let whole = point.unwrap_or(mantissa.len());
        let before = distance(whole, first) + i64::from(whole < first);
        Self {
            negative,
            mantissa: mantissa.get(first..=last).unwrap_or_default(),
            point: exponent.saturating_add(before),
        }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.mantissa.iter().copied().filter(|byte| *byte != b'.')
    }

    /// Appends Number::toString, of a number other than zero. Spec: ECMA-262 6.1.6.1.20
    fn write(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        let count = distance(self.digits().count(), 0);
        let zeros = |count: i64| core::iter::repeat_n(b'0', usize::try_from(count).unwrap_or(0));
        let head = usize::try_from(self.point).unwrap_or(0);
        match self.point {
            point if (count..=21).contains(&point) => {
                out.extend(self.digits());
                out.extend(zeros(point - count));
            }
            1..=21 => {
                out.extend(self.digits().take(head));
                out.push(b'.');
                out.extend(self.digits().skip(head));
            }
            point @ -5..=0 => {
                out.extend_from_slice(b"0.");
                out.extend(zeros(-point));
                out.extend(self.digits());
            }
            point => {
                out.extend(self.digits().take(1));
                if count > 1 {
                    out.push(b'.');
                    out.extend(self.digits().skip(1));
                }
                out.extend_from_slice(if point > 0 { b"e+" } else { b"e" });
                digits(out, &(point - 1));
            }
        }
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative
            && self.point == other.point
            && self.digits().eq(other.digits())
    }
}

/// Reads `e-12`. Beyond any exponent of a double it is enough to be far away.
fn exponent_of(text: &[u8]) -> i64 {
    const FAR: i64 = 1 << 40;
    let digits = text.get(1..).unwrap_or_default();
    let size = digits.iter().filter(|byte| byte.is_ascii_digit());
    let size = size.fold(0, |sum: i64, byte| {
        (sum * 10 + i64::from(byte - b'0')).min(FAR)
    });
    if digits.starts_with(b"-") {
        -size
    } else {
        size
    }
}

fn distance(a: usize, b: usize) -> i64 {
    let as_i64 = |count| i64::try_from(count).unwrap_or(i64::MAX);
    as_i64(a).saturating_sub(as_i64(b))
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    /// Doubles of this size are printed without an exponent, and copied.
    #[test]
    fn a_point_among_the_digits_is_written_whatever_the_notation_was() {
        for given in ["12.5", "1.25e1", "0.125E+2"] {
            let mut out = Vec::new();
            Decimal::parse(given.as_bytes()).write(&mut out);
            assert_eq!(out, b"12.5", "{given}");
        }
    }
}
