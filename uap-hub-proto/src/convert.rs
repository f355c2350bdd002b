//! Conversion of protobuf's free-form values from and to JSON, and of its times.
//!
//! A protobuf number is a double: an integer that a double cannot hold exactly, and a double that JSON
//! cannot say, are errors rather than other numbers.

use std::time::Duration;

use prost_types::{ListValue, Struct, value::Kind};
use serde_json::{Map, Number, Value};
use ubos_common::time::Timestamp;

/// The depth of values, the value itself included.
pub(crate) const MAX_DEPTH: usize = 64;

/// The largest integer below which a double holds every integer.
const MAX_EXACT: u64 = 1 << 53;

/// Makes a protobuf `Struct` of a JSON object.
///
/// ```
/// use serde_json::json;
/// use uap_hub_proto::convert;
///
/// let object = json!({"rows": 3, "unit": null, "tags": ["a", true]});
/// let wire = convert::to_struct(object.as_object().unwrap())?;
/// assert_eq!(serde_json::Value::Object(convert::from_struct(&wire)?), object);
/// # Ok::<(), convert::ConvertError>(())
/// ```
///
/// # Errors
///
/// An integer beyond 2^53 either way, or nesting beyond 64 levels; with a JSON pointer to it.
// impl: HUB-4-9
pub fn to_struct(object: &Map<String, Value>) -> Result<Struct, ConvertError> {
    object_to_struct(object, &mut Path::default())
}

/// Makes a JSON object of a protobuf `Struct`. Whole doubles up to 2^53 become integers.
///
/// # Errors
///
/// A NaN, an infinity, a value with no kind, or nesting beyond 64 levels; with a JSON pointer to it.
pub fn from_struct(object: &Struct) -> Result<Map<String, Value>, ConvertError> {
    struct_to_object(object, &mut Path::default())
}

/// Makes a protobuf timestamp of ours.
#[must_use]
pub fn to_timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix(),
        // Always below 1,000,000,000.
        nanos: i32::try_from(at.subsec_nanos()).unwrap_or(0),
    }
}

/// Makes our timestamp of a protobuf one.
///
/// # Errors
///
/// A moment outside the years 0000 to 9999, or nanoseconds outside 0 to 999 999 999.
pub fn from_timestamp(at: &prost_types::Timestamp) -> Result<Timestamp, ConvertError> {
    u32::try_from(at.nanos)
        .ok()
        .and_then(|nanos| Timestamp::new(at.seconds, nanos))
        .ok_or(ConvertError::TimeRange)
}

/// Makes a protobuf duration of a span.
///
/// # Errors
///
/// The duration exceeds 315,576,000,000 seconds, protobuf's limit.
pub fn to_duration(span: Duration) -> Result<prost_types::Duration, ConvertError> {
    prost_types::Duration::try_from(span)
        .ok()
        .filter(|made| made.seconds <= MAX_DURATION_SECONDS)
        .ok_or(ConvertError::DurationRange)
}

/// Makes a span of a protobuf duration.
///
/// # Errors
///
/// The duration is negative or beyond 315,576,000,000 seconds, or its nanoseconds are outside one second.
pub fn from_duration(span: &prost_types::Duration) -> Result<Duration, ConvertError> {
    let nanos = u32::try_from(span.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    let seconds = u64::try_from(span.seconds)
        .ok()
        .filter(|_| span.seconds <= MAX_DURATION_SECONDS);
    match (seconds, nanos) {
        (Some(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(ConvertError::DurationRange),
    }
}

/// About ten thousand years, as protobuf says.
const MAX_DURATION_SECONDS: i64 = 315_576_000_000;

/// Why a value cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// A double cannot hold the integer exactly.
    #[error("{pointer}: an integer beyond 2^53 does not fit a protobuf number")]
    BigInteger {
        /// JSON pointer to it.
        pointer: String,
    },
    /// JSON has no NaN and no infinities.
    #[error("{pointer}: a number that is not finite has no JSON form")]
    NotFinite {
        /// JSON pointer to it.
        pointer: String,
    },
    /// A protobuf value must have a kind.
    #[error("{pointer}: the value has no kind")]
    NoKind {
        /// JSON pointer to it.
        pointer: String,
    },
    /// Nested too deep.
    #[error("{pointer}: nested deeper than {MAX_DEPTH}")]
    TooDeep {
        /// JSON pointer to it.
        pointer: String,
    },
    /// The time is outside the calendar.
    #[error("the time is outside the years 0000 to 9999, or has nanoseconds outside one second")]
    TimeRange,
    /// The duration is outside its range.
    #[error(
        "the duration is negative, longer than 315,576,000,000 s, or has nanoseconds outside one second"
    )]
    DurationRange,
}

impl ConvertError {
    /// JSON pointer to the value, where there is one.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::BigInteger { pointer }
            | Self::NotFinite { pointer }
            | Self::NoKind { pointer }
            | Self::TooDeep { pointer } => Some(pointer),
            Self::TimeRange | Self::DurationRange => None,
        }
    }
}

fn object_to_struct(object: &Map<String, Value>, path: &mut Path) -> Result<Struct, ConvertError> {
    path.deeper()?;
    let mut fields = std::collections::BTreeMap::new();
    for (name, value) in object {
        let value = path.at(name, |path| to_value(value, path))?;
        fields.insert(name.clone(), value);
    }
    path.depth -= 1;
    Ok(Struct { fields })
}

fn to_value(value: &Value, path: &mut Path) -> Result<prost_types::Value, ConvertError> {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(to_double(number, path)?),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            path.deeper()?;
            let values = items.iter().enumerate();
            let values =
                values.map(|(at, item)| path.at(&at.to_string(), |path| to_value(item, path)));
            let values = values.collect::<Result<_, _>>()?;
            path.depth -= 1;
            Kind::ListValue(ListValue { values })
        }
        Value::Object(object) => Kind::StructValue(object_to_struct(object, path)?),
    };
    Ok(prost_types::Value { kind: Some(kind) })
}

fn to_double(number: &Number, path: &Path) -> Result<f64, ConvertError> {
    let integer = number
        .as_u64()
        .or_else(|| number.as_i64().map(i64::unsigned_abs));
    match number.as_f64() {
        Some(double) if integer.is_none_or(|size| size <= MAX_EXACT) => Ok(double),
        _ => Err(ConvertError::BigInteger {
            pointer: path.pointer(),
        }),
    }
}

fn struct_to_object(object: &Struct, path: &mut Path) -> Result<Map<String, Value>, ConvertError> {
    path.deeper()?;
    let mut map = Map::new();
    for (name, value) in &object.fields {
        let value = path.at(name, |path| from_value(value, path))?;
        map.insert(name.clone(), value);
    }
    path.depth -= 1;
    Ok(map)
}

fn from_value(value: &prost_types::Value, path: &mut Path) -> Result<Value, ConvertError> {
    Ok(match value.kind.as_ref() {
        None => {
            return Err(ConvertError::NoKind {
                pointer: path.pointer(),
            });
        }
        Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => Value::Bool(*flag),
        Some(Kind::NumberValue(double)) => Value::Number(from_double(*double, path)?),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => {
            path.deeper()?;
            let values = list.values.iter().enumerate();
            let values =
                values.map(|(at, item)| path.at(&at.to_string(), |path| from_value(item, path)));
            let values = values.collect::<Result<_, _>>()?;
            path.depth -= 1;
            Value::Array(values)
        }
        Some(Kind::StructValue(object)) => Value::Object(struct_to_object(object, path)?),
    })
}

fn from_double(double: f64, path: &Path) -> Result<Number, ConvertError> {
    /// [`MAX_EXACT`] as a double.
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    let is_integer = double.fract() == 0.0
        && double.abs() <= LIMIT
        && !(double == 0.0 && double.is_sign_negative());
    if is_integer {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        return Ok(Number::from(double as i64));
    }
    Number::from_f64(double).ok_or_else(|| ConvertError::NotFinite {
        pointer: path.pointer(),
    })
}

/// The position in a value.
#[derive(Default)]
struct Path {
    names: Vec<String>,
    depth: usize,
}

impl Path {
    fn deeper(&mut self) -> Result<(), ConvertError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ConvertError::TooDeep {
                pointer: self.pointer(),
            });
        }
        Ok(())
    }

    fn at<T>(
        &mut self,
        name: &str,
        go: impl FnOnce(&mut Self) -> Result<T, ConvertError>,
    ) -> Result<T, ConvertError> {
        self.names.push(name.to_owned());
        let made = go(self)?;
        self.names.pop();
        Ok(made)
    }

    fn pointer(&self) -> String {
        self.names
            .iter()
            .map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn round(value: &Value) -> Result<Value, ConvertError> {
        from_struct(&to_struct(value.as_object().unwrap())?).map(Value::Object)
    }

    // spec: HUB-4-9
    #[test]
    fn json_comes_back_equal() {
        let value = json!({
            "n": null, "t": true, "i": -3, "max": 9_007_199_254_740_992_u64, "f": 0.5, "s": "ä", "l": [1, [2.25], {}],
            "o": {"a/b": {"~": ""}}, "z": -0.0, "tiny": 5e-324, "huge": 1e300,
            "many": [vec![json!({}); MAX_DEPTH], vec![json!([]); MAX_DEPTH]],
        });
        assert_eq!(round(&value).unwrap(), value);
    }

    #[test]
    fn what_has_no_counterpart_is_an_error_with_its_place() {
        for big in [
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX),
            json!(i64::MIN),
        ] {
            let error = round(&json!({"a/b": [0, big]})).unwrap_err();
            assert_eq!(
                error,
                ConvertError::BigInteger {
                    pointer: "/a~1b/1".into()
                }
            );
        }
        let wire = |kind| Struct {
            fields: [("x".to_owned(), prost_types::Value { kind })].into(),
        };
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = from_struct(&wire(Some(Kind::NumberValue(bad)))).unwrap_err();
            assert_eq!(
                error,
                ConvertError::NotFinite {
                    pointer: "/x".into()
                }
            );
        }
        assert_eq!(
            from_struct(&wire(None)),
            Err(ConvertError::NoKind {
                pointer: "/x".into()
            })
        );
    }

    #[test]
    fn depth_is_bounded() {
        let nest = |depth| (1..depth).fold(json!({}), |inner, _| json!({ "d": inner }));
        assert!(round(&nest(MAX_DEPTH)).is_ok());
        assert!(matches!(
            round(&nest(MAX_DEPTH + 1)),
            Err(ConvertError::TooDeep { .. })
        ));
        let wire = |value| Struct {
            fields: [("l".to_owned(), value)].into(),
        };
        let list = |inner| prost_types::Value {
            kind: Some(Kind::ListValue(ListValue {
                values: vec![inner],
            })),
        };
        let null = prost_types::Value {
            kind: Some(Kind::NullValue(0)),
        };
        let deep = (0..MAX_DEPTH).fold(null, |inner, _| list(inner));
        assert!(matches!(
            from_struct(&wire(deep)),
            Err(ConvertError::TooDeep { .. })
        ));
    }

    #[test]
    fn times_and_spans_keep_their_fraction() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999999999Z",
            "2025-01-02T03:04:05.010Z",
        ] {
            let at = to_timestamp(ubos_common::time::rfc3339(text).unwrap());
            assert_eq!(from_timestamp(&at).unwrap().to_string(), text);
        }
        let longest = Duration::new(315_576_000_000, 999_999_999);
        for span in [Duration::ZERO, Duration::from_nanos(1_000_000_001), longest] {
            assert_eq!(from_duration(&to_duration(span).unwrap()), Ok(span));
        }
        assert_eq!(
            to_duration(longest + Duration::from_secs(1)),
            Err(ConvertError::DurationRange)
        );
        let span = |seconds, nanos| prost_types::Duration { seconds, nanos };
        for bad in [
            span(-1, 0),
            span(0, -1),
            span(0, 1_000_000_000),
            span(i64::MAX, 0),
        ] {
            assert_eq!(from_duration(&bad), Err(ConvertError::DurationRange));
        }
    }

    #[test]
    fn times_keep_their_nanoseconds_and_are_checked() {
        let at = |seconds, nanos| prost_types::Timestamp { seconds, nanos };
        let last = at(Timestamp::MAX.unix(), 999_999_999);
        assert_eq!(from_timestamp(&last), Ok(Timestamp::MAX));
        assert_eq!(to_timestamp(Timestamp::MAX), last);
        for bad in [
            at(Timestamp::MAX.unix() + 1, 0),
            at(i64::MIN, 0),
            at(0, -1),
            at(0, 1_000_000_000),
        ] {
            assert_eq!(from_timestamp(&bad), Err(ConvertError::TimeRange));
        }
    }
}
