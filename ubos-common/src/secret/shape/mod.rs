//! What secrets look like: one table of shapes for scans and for redaction.

mod assignment;
mod azure;
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
/// | `authorization` | `Bearer` and `Basic` with credentials; a password in a URL, or what signs one of Azure |
/// | `jwt` | JSON web tokens |
/// | `api_key` | keys by their prefixes: AWS, Google, GitHub, GitLab, Hugging Face, npm, Slack, Stripe and others; the secret of an AWS key beside its id; the secret of an application of Azure; a key of AWS or Azure behind a name such as `AccountKey` |
/// | `assignment` | other literals behind a name such as `api_key`: in code, environment files, headers, flags, JSON (escaped, too), and in the `value` of a member named so |
///
/// A literal behind a name that is of another kind by itself is of that kind. Characters that [nobody
/// sees](crate::is_unseen) do not hide a secret that they are in. The corpus in `corpus/secrets.txt` says what must be
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
    let (mut at, mut last) = (0, 0);
    let mut barren = Barren::default();
    core::iter::from_fn(move || {
        let seen = visible.text();
        let bytes = seen.as_bytes();
        while at < bytes.len() {
            at = next_beginning(&barren, bytes, at);
            if let Some((kind, mut range)) = shape_at(bytes, at, &mut barren) {
                // One that shows only in its middle begins behind the last one.
                range.start = range.start.max(last);
                // A block that is cut by its bound may end inside a character.
                while !seen.is_char_boundary(range.end) {
                    range.end += 1;
                }
                at = range.end.max(at + 1);
                last = range.end;
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

/// No shape has fewer bytes: a URL with a password of two, such as `a://:p1@`.
const SHORTEST: usize = 8;

fn shape_at(bytes: &[u8], at: usize, barren: &mut Barren) -> Option<(SecretKind, Range<usize>)> {
    let assigned = match *bytes.get(at)? {
        b'=' if let Some(range) = azure::signature(bytes, at) => {
            return Some((SecretKind::Authorization, range));
        }
        b':' if let Some(range) = credentials::userinfo(bytes, at) => {
            return Some((SecretKind::Authorization, range));
        }
        b'=' | b':' => assignment::assignment(bytes, at, barren),
        b'~' => return azure::client_secret(bytes, at).map(|range| (SecretKind::ApiKey, range)),
        b'-' => match known_at(bytes, at, barren) {
            None => assignment::flag(bytes, at, barren),
            known => return known,
        },
        _ if starts_word(bytes, at) => return known_at(bytes, at, barren),
        _ => None,
    };
    let (kind, range) = assigned?;
    // A literal that is known by itself weighs what it is, whatever it is assigned to.
    let known = match kind {
        SecretKind::Assignment => {
            known_at(bytes, range.start, barren).or_else(|| azure_at(bytes, range.start))
        }
        _ => None,
    };
    Some(match known {
        Some((kind, known)) => (kind, range.start..range.end.max(known.end)),
        None => (kind, range),
    })
}

/// What begins at a place and is known without a name.
fn known_at(bytes: &[u8], at: usize, barren: &mut Barren) -> Option<(SecretKind, Range<usize>)> {
    match *bytes.get(at)? {
        b'-' => key::private_key(bytes, at).map(|range| (SecretKind::PrivateKey, range)),
        b'B' | b'b' if let Some(range) = credentials::authorization(bytes, at) => {
            Some((SecretKind::Authorization, range))
        }
        b'e' if at >= barren.jwt && bytes.get(at..)?.starts_with(b"eyJ") => {
            let range = key::jwt(bytes, at, &mut barren.jwt)?;
            Some((SecretKind::Jwt, range))
        }
        _ => key::api_key(bytes, at, barren).map(|range| (SecretKind::ApiKey, range)),
    }
}

/// The same of a secret that shows only behind its first characters.
fn azure_at(bytes: &[u8], at: usize) -> Option<(SecretKind, Range<usize>)> {
    let range = azure::client_secret(bytes, at + azure::BEFORE)?;
    Some((SecretKind::ApiKey, range))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place is tried, so that what is passed over shows.
    #[test]
    fn a_shape_begins_only_where_it_is_looked_for() {
        let corpus = include_str!("../../../corpus/secrets.txt");
        let mut found = 0;
        // An interpreter that looks for undefined behaviour is too slow for all of them.
        let (step, at_least) = if cfg!(miri) { (40, 1) } else { (1, 51) };
        for line in corpus.lines().step_by(step) {
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
        assert!(found >= at_least, "{found}");
    }
}
