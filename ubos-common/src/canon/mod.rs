//! Canonical JSON (RFC 8785) and digests.
//!
//! One value, one text: members in the order of their names' UTF-16 code units, no white space,
//! one spelling a number and a string. Three sources give the same bytes: anything that
//! serializes, a [`serde_json::Value`], and JSON text, for which no value is built.
//!
//! ```
//! use ubos_common::canon::{self, Domain};
//!
//! let text = r#"{"b": 1.0, "a": ["\u00e9", 1e3]}"#;
//! assert_eq!(canon::str_to_vec(text)?, "{\"a\":[\"é\",1000],\"b\":1}".as_bytes());
//!
//! let parsed: serde_json::Value = serde_json::from_str(text)?;
//! let plain = Domain::plain();
//! assert_eq!(canon::digest_str(&plain, text)?, canon::digest_value(&plain, &parsed)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | refused | [`CanonFault`] |
//! |---|---|
//! | NaN, infinities, `1e400` | `NotFinite` |
//! | a number that would change its value, in [`Mode::Exact`] | `Inexact` |
//! | two members of one name | `DuplicateKey` |
//! | `"\ud800"` | `LoneSurrogate` |
//! | a map key that is no string | `KeyNotString` |
//! | more than [`MAX_DEPTH`] levels | `TooDeep` |
//! | text that is no JSON value, or more than one | `Malformed`, `TrailingBytes`, `NotUtf8` |
//!
//! Sizes are the caller's to bound: canonical text is at most six times as long as the text
//! it stands for, and memory grows with it.

mod digest;
mod error;
mod mode;
mod names;
mod number;
mod order;
mod ser;
mod text;
mod value;
mod wire;
mod writer;

use serde::Serialize;
use serde_json::Value;

pub use digest::{Digest, DigestError, Domain};
pub use error::{CanonError, CanonFault};
pub use mode::{MAX_DEPTH, Mode};

use digest::Hashing;
use writer::Writer;

/// Canonical form of anything that serializes, in [`Mode::Jcs`].
///
/// ```
/// # use ubos_common::canon;
/// let scores = std::collections::HashMap::from([("b", 0.5), ("a", 1e21)]);
/// assert_eq!(canon::to_vec(&scores)?, br#"{"a":1e+21,"b":0.5}"#);
/// # Ok::<(), canon::CanonError>(())
/// ```
///
/// # Errors
/// When the value has no canonical form: see [`CanonFault`].
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonError> {
    let mut out = Vec::with_capacity(128);
    write(&mut out, Mode::Jcs, value).map(|()| out)
}

/// Canonical form of a parsed value, in [`Mode::Jcs`]; the same as [`to_vec`] of it, faster.
///
/// # Errors
/// When the value is nested too deep: a parsed value has no other fault in this mode.
pub fn value_to_vec(value: &Value) -> Result<Vec<u8>, CanonError> {
    let mut out = Vec::with_capacity(128);
    append(&mut out, Mode::Jcs, |writer| value::write(writer, value)).map(|()| out)
}

/// Canonical form of JSON text, in [`Mode::Jcs`].
///
/// ```
/// # use ubos_common::canon::{self, CanonFault};
/// assert_eq!(canon::str_to_vec(r#" [ 1.50, "\/" ] "#)?, br#"[1.5,"/"]"#);
///
/// let error = canon::str_to_vec(r#"{"a": {"b": 1, "\u0062": 2}}"#).unwrap_err();
/// assert_eq!(error.fault(), &CanonFault::DuplicateKey);
/// assert_eq!(error.pointer(), "/a/b");
/// # Ok::<(), canon::CanonError>(())
/// ```
///
/// # Errors
/// When the text is not exactly one JSON value, or that value has no canonical form.
pub fn str_to_vec(json: &str) -> Result<Vec<u8>, CanonError> {
    let mut out = Vec::with_capacity(json.len());
    write_str(&mut out, Mode::Jcs, json).map(|()| out)
}

/// As [`str_to_vec`], for bytes off the wire.
///
/// # Errors
/// Those of [`str_to_vec`], and when the bytes are not UTF-8.
pub fn slice_to_vec(json: &[u8]) -> Result<Vec<u8>, CanonError> {
    str_to_vec(utf8(json)?)
}

/// Appends the canonical form of anything that serializes. An error leaves `out` as it was.
///
/// # Errors
/// When the value has no canonical form: see [`CanonFault`].
pub fn write<T: Serialize + ?Sized>(
    out: &mut Vec<u8>,
    mode: Mode,
    value: &T,
) -> Result<(), CanonError> {
    append(out, mode, |writer| value.serialize(writer))
}

/// Appends the canonical form of JSON text. An error leaves `out` as it was.
///
/// # Errors
/// When the text is not exactly one JSON value, or that value has no canonical form.
pub fn write_str(out: &mut Vec<u8>, mode: Mode, json: &str) -> Result<(), CanonError> {
    append(out, mode, |writer| wire::write(writer, json.as_bytes()))
}

/// As [`write_str`], for bytes off the wire.
///
/// # Errors
/// Those of [`write_str`], and when the bytes are not UTF-8.
pub fn write_slice(out: &mut Vec<u8>, mode: Mode, json: &[u8]) -> Result<(), CanonError> {
    write_str(out, mode, utf8(json)?)
}

/// Digest of the canonical form of anything that serializes, in [`Mode::Exact`].
///
/// ```
/// # use ubos_common::canon::{self, Digest, Domain};
/// let key = canon::digest(&Domain::plain(), &[("a", 1)])?;
/// assert_eq!(key, Digest::of_bytes(br#"[["a",1]]"#));
/// assert!(canon::digest(&Domain::plain(), &u64::MAX).is_err());
/// # Ok::<(), canon::CanonError>(())
/// ```
///
/// # Errors
/// When the value has no exact canonical form: see [`CanonFault`].
pub fn digest<T: Serialize + ?Sized>(domain: &Domain, value: &T) -> Result<Digest, CanonError> {
    hash(domain, |writer| value.serialize(writer))
}

/// Digest of the canonical form of a parsed value, in [`Mode::Exact`].
///
/// # Errors
/// When the value is nested too deep, or a number has no exact canonical form.
pub fn digest_value(domain: &Domain, value: &Value) -> Result<Digest, CanonError> {
    hash(domain, |writer| value::write(writer, value))
}

/// Digest of the canonical form of JSON text, in [`Mode::Exact`].
///
/// # Errors
/// When the text is not exactly one JSON value, or that value has no exact canonical form.
pub fn digest_str(domain: &Domain, json: &str) -> Result<Digest, CanonError> {
    hash(domain, |writer| wire::write(writer, json.as_bytes()))
}

/// As [`digest_str`], for bytes off the wire.
///
/// # Errors
/// Those of [`digest_str`], and when the bytes are not UTF-8.
pub fn digest_slice(domain: &Domain, json: &[u8]) -> Result<Digest, CanonError> {
    digest_str(domain, utf8(json)?)
}

fn append(
    out: &mut Vec<u8>,
    mode: Mode,
    write: impl FnOnce(&mut Writer<'_, Vec<u8>>) -> Result<(), CanonError>,
) -> Result<(), CanonError> {
    let start = out.len();
    let outcome = write(&mut Writer::new(out, mode));
    if outcome.is_err() {
        out.truncate(start);
    }
    outcome
}

fn hash(
    domain: &Domain,
    write: impl FnOnce(&mut Writer<'_, Hashing>) -> Result<(), CanonError>,
) -> Result<Digest, CanonError> {
    let mut hashing = Hashing::new(domain);
    write(&mut Writer::new(&mut hashing, Mode::Exact))?;
    Ok(hashing.finish())
}

fn utf8(json: &[u8]) -> Result<&str, CanonError> {
    core::str::from_utf8(json)
        .map_err(|error| CanonError::from(CanonFault::NotUtf8).at(error.valid_up_to()))
}
