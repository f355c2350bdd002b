//! JSON of models that is kept in messages.

use ubos_common::json::{Limits, Raw, RawBuf, decode};
use ubos_common::violation::Profile;

/// The maximum size of a response, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// A text as a JSON value: as large as a response, and no deeper than `serde_json` can follow.
pub(crate) fn value_of(text: &str) -> Option<RawBuf> {
    let (raw, _) = decode::<Raw<'_>>(text.as_bytes(), &kept_limits(), Profile::Strict).ok()?;
    Some(raw.to_owned())
}

/// The limits of [`value_of`].
pub(crate) fn kept_limits() -> Limits {
    Limits::default()
        .with_max_bytes(MAX_BYTES)
        .with_max_string_bytes(MAX_BYTES)
        .with_max_array_len(MAX_BYTES)
        .with_max_members(MAX_BYTES)
        .with_max_depth(Limits::SERDE_JSON_DEPTH)
}
