//! Best-effort redaction, for what a person or an audit sees.

use core::ops::Range;
use std::borrow::Cow;
use std::collections::BTreeSet;

use super::shape::{is_name_name, is_secret_name, is_value_name};
use super::stream::{PLACEHOLDER, Redactor};
use crate::json::{Fault, Kind, Limits, Raw, RawBuf, Reader, Write, escape_into};
use crate::violation::Profile;

/// How much of a value redaction keeps.
///
/// | bound | unit | default |
/// |---|---|---|
/// | `depth` | arrays and objects inside one another; deeper ones are replaced | 6 |
/// | `members` | members of one object; further ones are dropped, and counted in `…` | 200 |
/// | `elements` | elements of one array; likewise | 200 |
/// | `chars` | characters of one string; the rest is cut off | 2,000 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Arrays and objects inside one another.
    pub depth: usize,
    /// Members of one object.
    pub members: usize,
    /// Elements of one array.
    pub elements: usize,
    /// Characters of one string.
    pub chars: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            depth: 6,
            members: 200,
            elements: 200,
            chars: 2_000,
        }
    }
}

/// Replaces what looks like a secret and cuts the text to `chars` characters.
///
/// ```
/// use ubos_common::secret::redact_text;
///
/// assert_eq!(redact_text("password='hunter2hunter2' ok", 100), "password='[REDACTED]' ok");
/// assert_eq!(redact_text("a plain text", 7), "a plain…");
/// ```
#[must_use]
pub fn redact_text(text: &str, chars: usize) -> Cow<'_, str> {
    let redacted = Redactor::whole(text);
    match redacted.char_indices().nth(chars) {
        Some((end, _)) => Cow::Owned(format!("{}…", redacted.get(..end).unwrap_or_default())),
        None => redacted,
    }
}

/// The same for a JSON value: strings as [`redact_text`], values of members with a secret's name replaced,
/// and everything cut to `bounds`.
///
/// ```
/// use ubos_common::json::RawBuf;
/// use ubos_common::secret::{Bounds, redact_json};
///
/// let value = RawBuf::parse(r#"{"user":"u","password":"p","tokens":7}"#)?;
/// let shown = redact_json(value.as_raw(), &Bounds::default());
/// assert_eq!(shown.as_str(), r#"{"user":"u","password":"[REDACTED]","tokens":7}"#);
/// # Ok::<(), ubos_common::json::JsonError>(())
/// ```
#[must_use]
pub fn redact_json(value: Raw<'_>, bounds: &Bounds) -> RawBuf {
    let limits = Limits::default()
        .with_max_depth(Limits::DEEPEST)
        .with_max_members(usize::MAX)
        .with_max_array_len(usize::MAX)
        .with_max_string_bytes(usize::MAX);
    let mut out = Vec::new();
    let mut reader = Reader::of_raw(value, &limits, Profile::Strict);
    let written = redact_value(&mut reader, bounds, 0, &mut out);
    let text = written.ok().and_then(|()| String::from_utf8(out).ok());
    // What cannot be walked is not shown at all.
    text.and_then(|text| RawBuf::parse(&text).ok())
        .unwrap_or_else(placeholder)
}

fn placeholder() -> RawBuf {
    let mut out = Vec::new();
    PLACEHOLDER.write(&mut out);
    String::from_utf8(out)
        .ok()
        .and_then(|text| RawBuf::parse(&text).ok())
        .unwrap_or_else(|| Raw::NULL.to_owned())
}

fn redact_value(
    reader: &mut Reader<'_>,
    bounds: &Bounds,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    match reader.peek()? {
        Kind::String => {
            let text = reader.str()?;
            escape_into(out, &redact_text(&text, bounds.chars));
        }
        Kind::Array | Kind::Object if depth >= bounds.depth => {
            reader.skip()?;
            "…".write(out);
        }
        Kind::Array => redact_array(reader, bounds, depth, out)?,
        Kind::Object => redact_object(reader, bounds, depth, out)?,
        Kind::Null | Kind::Bool | Kind::Number => reader.raw()?.write(out),
    }
    Ok(())
}

fn redact_array(
    reader: &mut Reader<'_>,
    bounds: &Bounds,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.push(b'[');
    let mut dropped = 0;
    reader.array(|reader, index| {
        if index >= bounds.elements {
            dropped += 1;
            return reader.skip();
        }
        if index > 0 {
            out.push(b',');
        }
        redact_value(reader, bounds, depth + 1, out)
    })?;
    if dropped > 0 {
        out.extend_from_slice(if bounds.elements > 0 { b"," } else { b"" });
        format!("… {dropped} more").write(out);
    }
    out.push(b']');
    Ok(())
}

fn redact_object(
    reader: &mut Reader<'_>,
    bounds: &Bounds,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.push(b'{');
    let mut members = 0;
    let mut shown = BTreeSet::new();
    let mut pair = Pair::default();
    reader.object(|reader, name| {
        members += 1;
        if members > bounds.members {
            return reader.skip();
        }
        if members > 1 {
            out.push(b',');
        }
        escape_into(
            out,
            &fresh(&mut shown, redact_text(name, bounds.chars), members),
        );
        out.push(b':');
        if is_secret_name(name) && !matches!(reader.peek()?, Kind::Null | Kind::Bool) {
            PLACEHOLDER.write(out);
            return reader.skip();
        }
        if is_name_name(name) && reader.peek()? == Kind::String {
            let names = reader.str()?;
            pair.names_secret |= is_secret_name(&names);
            escape_into(out, &redact_text(&names, bounds.chars));
            return Ok(());
        }
        let start = out.len();
        let is_hidden = is_value_name(name) && !matches!(reader.peek()?, Kind::Null | Kind::Bool);
        redact_value(reader, bounds, depth + 1, out)?;
        if is_hidden {
            pair.values.push(start..out.len());
        }
        Ok(())
    })?;
    pair.hide(out);
    if members > bounds.members {
        out.extend_from_slice(if bounds.members > 0 { b"," } else { b"" });
        escape_into(out, &fresh(&mut shown, "…".into(), members));
        out.push(b':');
        (members - bounds.members).write(out);
    }
    out.push(b'}');
    Ok(())
}

/// `{"name":"password","value":"…"}`, in any order.
#[derive(Default)]
struct Pair {
    names_secret: bool,
    /// Where values were written.
    values: Vec<Range<usize>>,
}

impl Pair {
    fn hide(self, out: &mut Vec<u8>) {
        if self.names_secret {
            let mut hidden = Vec::new();
            PLACEHOLDER.write(&mut hidden);
            for value in self.values.into_iter().rev() {
                out.splice(value, hidden.iter().copied());
            }
        }
    }
}

/// A name that was not shown yet in its object: two that look alike when redacted are told apart by the
/// number of the member.
fn fresh(shown: &mut BTreeSet<String>, name: Cow<'_, str>, member: usize) -> String {
    let mut name = name.into_owned();
    while shown.contains(&name) {
        name.push_str(&format!("… {member}"));
    }
    shown.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, bounds: &Bounds) -> String {
        redact_json(RawBuf::parse(text).unwrap().as_raw(), bounds)
            .as_str()
            .to_owned()
    }

    #[test]
    fn names_and_shapes_are_replaced_at_every_depth() {
        let bounds = Bounds::default();
        assert_eq!(
            shown(
                r#"[{"api_key":{"a":[1]},"note":"password=\"hunter2hunter2\"","n":1.50,"token":null}]"#,
                &bounds
            ),
            r#"[{"api_key":"[REDACTED]","note":"password=\"[REDACTED]\"","n":1.50,"token":null}]"#
        );
    }

    #[test]
    fn values_of_members_that_are_named_beside_are_replaced() {
        let bounds = Bounds::default();
        assert_eq!(
            shown(
                r#"[{"name":"password","value":"x"},{"value":[1],"n":0,"key":"apiKey"},{"name":"n","value":"x"}]"#,
                &bounds
            ),
            r#"[{"name":"password","value":"[REDACTED]"},{"value":"[REDACTED]","n":0,"key":"apiKey"},{"name":"n","value":"x"}]"#
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn text_behind_a_block_that_is_cut_stays() {
        let header = format!("-----BEGIN {} KEY-----", "PRIVATE");
        for pad in ["", " ", "  "] {
            let text = format!("{header}{pad}{} end", "\u{20ac}".repeat(20_000));
            assert!(redact_text(&text, 100_000).ends_with("\u{20ac} end"));
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        let unsound = RawBuf::assume_sound("[1,".to_owned());
        let shown = redact_json(unsound.as_raw(), &Bounds::default());
        assert_eq!(shown.as_str(), "\"[REDACTED]\"");
    }

    #[test]
    fn names_that_look_alike_when_redacted_hide_nothing_else() {
        let bounds = Bounds {
            members: 3,
            chars: 3,
            ..Bounds::default()
        };
        assert_eq!(
            shown(r#"{"abcd":1,"abce":2,"…":3,"z":4}"#, &bounds),
            r#"{"abc…":1,"abc…… 2":2,"…":3,"…… 4":1}"#
        );
    }

    #[test]
    fn each_bound_cuts() {
        let bounds = Bounds {
            depth: 2,
            members: 2,
            elements: 2,
            chars: 3,
        };
        assert_eq!(
            shown(r#"[[[1]],"abcdé",3]"#, &bounds),
            r#"[["…"],"abc…","… 1 more"]"#
        );
        assert_eq!(
            shown(r#"{"a":1,"b":2,"c":3,"d":4}"#, &bounds),
            r#"{"a":1,"b":2,"…":2}"#
        );
        assert_eq!(shown(r#"{"a":1,"b":2}"#, &bounds), r#"{"a":1,"b":2}"#);
        let none = Bounds {
            members: 0,
            elements: 0,
            ..bounds
        };
        assert_eq!(shown("[1]", &none), r#"["… 1 more"]"#);
        assert_eq!(shown(r#"{"a":1}"#, &none), r#"{"…":1}"#);
    }
}
