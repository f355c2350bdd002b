//! What secrets look like: one table of shapes for scans and for redaction.

mod assignment;
mod begin;
mod credentials;
mod invisible;
mod key;
mod kind;
mod name;
mod scan;

use core::ops::Range;

use self::begin::next_beginning;
use self::invisible::Visible;
pub use self::kind::SecretKind;
pub use self::name::is_secret_name;
use self::scan::{Barren, starts_word};
pub(super) use self::{
    assignment::{is_name_name, is_value_name},
    begin::look,
    key::{BLOCK_BYTES, block_end},
    name::{is_secret_name_of, may_name_secret},
};

/// A piece of text that looks like a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretShape {
    /// What it looks like.
    pub kind: SecretKind,
    /// Its bytes in the text: the secret itself, not the name or word before it.
    pub range: Range<usize>,
}

/// Finds what looks like a secret, from left to right, in linear time.
///
/// A heuristic. It knows:
///
/// | kind | shapes |
/// |---|---|
/// | `private_key` | PEM blocks with a private key |
/// | `authorization` | `Bearer` and `Basic` with credentials; a password in a URL |
/// | `jwt` | JSON web tokens |
/// | `api_key` | keys by their prefixes: AWS, Google, GitHub, GitLab, Hugging Face, npm, Slack, Stripe and others; the secret of an AWS key beside its id |
/// | `assignment` | literals behind a name such as `api_key`: in code, environment files, headers, flags, JSON (escaped, too), and in the `value` of a member named so |
///
/// Characters without width inside a secret do not hide it. The corpus in `corpus/secrets.txt` says what must be
/// found and what must not.
///
/// ```
/// use ubos_common::secret::{SecretKind, secret_shapes};
///
/// let text = "curl -H 'Authorization: Bearer abcdefghijklmnop123456'";
/// let found: Vec<_> = secret_shapes(text).collect();
/// assert_eq!(found[0].kind, SecretKind::Authorization);
/// assert_eq!(&text[found[0].range.clone()], "abcdefghijklmnop123456");
/// ```
pub fn secret_shapes(text: &str) -> impl Iterator<Item = SecretShape> + '_ {
    let text = if text.len() < SHORTEST { "" } else { text };
    let visible = Visible::of(text);
    let mut at = 0;
    let mut barren = Barren::default();
    core::iter::from_fn(move || {
        let seen = visible.text();
        let bytes = seen.as_bytes();
        while at < bytes.len() {
            at = next_beginning(&barren, bytes, at);
            if let Some((kind, mut range)) = shape_at(bytes, at, &mut barren) {
                // A block that is cut by its bound may end inside a character.
                while !seen.is_char_boundary(range.end) {
                    range.end += 1;
                }
                at = range.end.max(at + 1);
                return Some(SecretShape {
                    kind,
                    range: visible.original(range),
                });
            }
            at += 1;
        }
        None
    })
}

/// No shape has fewer bytes: a literal of eight behind a sign and a name.
pub(super) const SHORTEST: usize = 10;

fn shape_at(bytes: &[u8], at: usize, barren: &mut Barren) -> Option<(SecretKind, Range<usize>)> {
    let first = *bytes.get(at)?;
    match first {
        b'-' => {
            if let Some(range) = key::private_key(bytes, at) {
                return Some((SecretKind::PrivateKey, range));
            }
            assignment::flag(bytes, at, barren).map(|range| (SecretKind::Assignment, range))
        }
        b':' if let Some(range) = credentials::userinfo(bytes, at) => {
            Some((SecretKind::Authorization, range))
        }
        b'=' | b':' => assignment::assignment(bytes, at, barren),
        _ if !starts_word(bytes, at) => None,
        b'B' | b'b' if let Some(range) = credentials::authorization(bytes, at) => {
            Some((SecretKind::Authorization, range))
        }
        b'e' if at >= barren.jwt && bytes.get(at..)?.starts_with(b"eyJ") => {
            let range = key::jwt(bytes, at, &mut barren.jwt)?;
            Some((SecretKind::Jwt, range))
        }
        _ if at >= barren.api_key => {
            let range = key::api_key(bytes, at, barren)?;
            Some((SecretKind::ApiKey, range))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place is tried, so that what is passed over shows.
    #[test]
    fn a_shape_begins_only_where_it_is_looked_for() {
        let corpus = include_str!("../../../corpus/secrets.txt");
        let mut found = 0;
        for line in corpus.lines() {
            // Without the marks of what is to be found.
            let line = line.replace(['⟦', '⟧', '¦'], "").replace('␤', "\n");
            let bytes = line.as_bytes();
            let (mut at, mut barren) = (0, Barren::default());
            let mut ranges = Vec::new();
            while at < bytes.len() {
                let shape = shape_at(bytes, at, &mut barren);
                at += 1;
                if let Some((kind, range)) = shape {
                    at = at.max(range.end);
                    ranges.push((kind, range));
                }
            }
            let shapes = secret_shapes(&line).map(|shape| (shape.kind, shape.range));
            if line.is_ascii() {
                found += ranges.len();
                assert_eq!(shapes.collect::<Vec<_>>(), ranges, "{line}");
            }
        }
        assert!(found > 50, "{found}");
    }
}
