//! `Read` for the types that wire objects are made of, and the way in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{DecodeError, Fault, JsonError};
use super::limits::Limits;
use super::raw::Raw;
use super::reader::Reader;
use crate::time::{Rfc3339, Timestamp, WholeSecond};
use crate::violation::{Level, Profile, Report};

/// A type that can be read from JSON.
///
/// An implementation takes exactly one value. It returns a recoverable [`Fault`] for sound JSON of another
/// shape, and the reader then goes on behind the value, so that one pass finds every breach.
pub trait Read<'a>: Sized {
    /// Takes one value.
    ///
    /// # Errors
    ///
    /// A recoverable fault for another shape, any other for no sound JSON or a limit.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault>;
}

/// Reads a whole document: the value, and what was found and let pass.
///
/// # Errors
///
/// [`DecodeError::Json`] where it is no sound JSON within `limits`, [`DecodeError::Invalid`] with every
/// finding where a MUST rule is broken.
pub fn decode<'a, T: Read<'a>>(
    bytes: &'a [u8],
    limits: &Limits,
    profile: Profile,
) -> Result<(T, Report), DecodeError> {
    let place = |fault| JsonError::new(fault, bytes);
    let mut reader = Reader::new(bytes, limits, profile).map_err(place)?;
    finish(read_top(&mut reader), reader)
}

/// As [`decode`], for one who does not want to know what was let pass: that is not looked up, which may take longer than
/// reading.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_alone<'a, T: Read<'a>>(
    bytes: &'a [u8],
    limits: &Limits,
    profile: Profile,
) -> Result<T, DecodeError> {
    let place = |fault| JsonError::new(fault, bytes);
    let mut reader = Reader::new(bytes, limits, profile).map_err(place)?;
    let value = read_top(&mut reader);
    reader.forget_advice();
    finish(value, reader).map(|(value, _)| value)
}

/// Reads a value that was kept raw: the second step of a decode.
///
/// Pointers begin at the value itself; [`Report::extend_under`] puts them below another.
///
/// # Errors
///
/// As [`decode`]; also a value of more than [`Limits::max_bytes`].
pub fn read_raw<'a, T: Read<'a>>(
    raw: Raw<'a>,
    limits: &Limits,
    profile: Profile,
) -> Result<(T, Report), DecodeError> {
    let bytes = raw.as_str().as_bytes();
    super::reader::refuse_size(bytes, limits).map_err(|fault| JsonError::new(fault, bytes))?;
    let mut reader = Reader::of_raw(raw, limits, profile);
    finish(read_top(&mut reader), reader)
}

fn read_top<'a, T: Read<'a>>(reader: &mut Reader<'a>) -> Result<Option<T>, Fault> {
    reader.under("", false, T::read)
}

fn finish<T>(
    result: Result<Option<T>, Fault>,
    reader: Reader<'_>,
) -> Result<(T, Report), DecodeError> {
    let place = reader.placer();
    let value = result.map_err(&place)?;
    let report = reader.finish().map_err(&place)?;
    match value {
        Some(value) if report.is_valid() => Ok((value, report)),
        _ => Err(DecodeError::Invalid(report)),
    }
}

/// Reads one value of a text with the default limits, by a function.
pub(super) fn read_one<T>(
    text: &str,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, JsonError> {
    let place = |fault| JsonError::new(fault, text.as_bytes());
    let mut reader =
        Reader::new(text.as_bytes(), &Limits::default(), Profile::Strict).map_err(place)?;
    let value = read(&mut reader).map_err(place)?;
    reader.finish().map_err(place)?;
    Ok(value)
}

impl Read<'_> for bool {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        reader.bool()
    }
}

macro_rules! read_integer {
    ($($type:ty, $wanted:literal;)*) => {$(
        impl Read<'_> for $type {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let at = reader.offset();
                let text = reader.number()?;
                text.parse().map_err(|_| reader.bad_value_seen(at, $wanted, text))
            }
        }
    )*};
}

read_integer! {
    u8, "an integer from 0 to 255";
    u16, "an integer from 0 to 65535";
    u32, "an integer from 0 to 4294967295";
    u64, "an integer from 0 to 18446744073709551615";
    usize, "a whole number from 0";
    i32, "an integer from -2147483648 to 2147483647";
    i64, "an integer from -9223372036854775808 to 9223372036854775807";
}

impl Read<'_> for f64 {
    /// Any number that a double can hold; one too large is a bad value, not infinity.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let value: Self = text.parse().unwrap_or(Self::INFINITY);
        if value.is_finite() {
            return Ok(value);
        }
        Err(reader.bad_value_seen(at, "a number within the range of a double", text))
    }
}

impl Read<'_> for String {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        reader.str().map(Cow::into_owned)
    }
}

impl Read<'_> for Box<str> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match reader.str()? {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        })
    }
}

impl Read<'_> for Arc<str> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match reader.str()? {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        })
    }
}

impl<'a> Read<'a> for Cow<'a, str> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        reader.str()
    }
}

impl<'a, T: Read<'a>> Read<'a> for Box<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        T::read(reader).map(Self::new)
    }
}

impl<'a, T: Read<'a>> Read<'a> for Option<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        if reader.null()? {
            Ok(None)
        } else {
            T::read(reader).map(Some)
        }
    }
}

impl<'a, T: Read<'a>> Read<'a> for Vec<T> {
    /// Every element that is refused is a finding of its own.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut elements = Self::new();
        let mut refused = false;
        reader.array(|reader, _| {
            let mark = reader.mark();
            let element = T::read(reader);
            match reader.settle(mark, element)? {
                Some(element) => elements.push(element),
                None => refused = true,
            }
            Ok(())
        })?;
        if refused {
            Err(reader.noted())
        } else {
            Ok(elements)
        }
    }
}

impl<'a, T: Read<'a>> Read<'a> for BTreeMap<String, T> {
    /// Every member that is refused is a finding of its own.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut members = Self::new();
        let mut refused = false;
        reader.object(|reader, name| {
            let mark = reader.mark();
            let value = T::read(reader);
            match reader.settle(mark, value)? {
                Some(value) => drop(members.insert(name.clone().into_owned(), value)),
                None => refused = true,
            }
            Ok(())
        })?;
        if refused {
            Err(reader.noted())
        } else {
            Ok(members)
        }
    }
}

impl Read<'_> for uuid::Uuid {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        read_uuid(reader)
    }
}

/// Reads a UUID: strictly, or with advice in any spelling that the lenient profile accepts.
#[doc(hidden)]
pub fn read_uuid(reader: &mut Reader<'_>) -> Result<uuid::Uuid, Fault> {
    let at = reader.offset();
    let text = reader.str()?;
    if let Ok(uuid) = crate::id::parse_hyphenated(&text) {
        return Ok(uuid);
    }
    match uuid::Uuid::try_parse(&text) {
        Ok(uuid) if reader.is_lenient() => {
            reader.tolerate(
                at,
                "id_form",
                "an id in another form than the hyphenated one",
            );
            Ok(uuid)
        }
        _ => Err(reader.bad_value(at, "a hyphenated UUID")),
    }
}

impl Read<'_> for Timestamp {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        text.parse()
            .map_err(|_| reader.bad_value_seen(at, "an RFC 3339 time", &text))
    }
}

impl Read<'_> for WholeSecond {
    /// Strictly the 20 bytes; leniently any RFC 3339 time, to UTC, its fraction cut, second 60 as 59.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        if let Ok(time) = text.parse() {
            return Ok(time);
        }
        let wanted = "a time written YYYY-MM-DDTHH:MM:SSZ";
        if !reader.is_lenient() {
            return Err(reader.bad_value_seen(at, wanted, &text));
        }
        let Some(time) = lenient_time(&text) else {
            return Err(reader.bad_value_seen(at, wanted, &text));
        };
        reader.tolerate(
            at,
            "time_form",
            "a time in another form than YYYY-MM-DDTHH:MM:SSZ",
        );
        Ok(time)
    }
}

fn lenient_time(text: &str) -> Option<WholeSecond> {
    if text.get(17..19) == Some("60") {
        let mut earlier = text.to_owned();
        earlier.replace_range(17..19, "59");
        return crate::time::rfc3339(&earlier).ok().map(WholeSecond::from);
    }
    crate::time::rfc3339(text).ok().map(WholeSecond::from)
}

impl Read<'_> for Rfc3339 {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        text.parse()
            .map_err(|_| reader.bad_value_seen(at, "an RFC 3339 time", &text))
    }
}

impl Read<'_> for serde_json::Value {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let raw = reader.raw()?;
        raw.deserialize()
            .map_err(|_| reader.bad_value(at, "a number within the range of a double"))
    }
}

/// A finding that is no fault of the shape, for rules that read one value.
impl Reader<'_> {
    /// Notes a MUST finding at the value that began at `at`, filed under the clause in force.
    pub fn reject(&mut self, at: usize, code: &'static str, message: impl Into<Cow<'static, str>>) {
        self.note(at, None, code, Level::Must, message);
    }
}
