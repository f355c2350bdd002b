//! What a log is for.

use std::fmt;
use std::str::FromStr;

/// The kind of a log: which program's records it holds. It stands in every segment, and a log is opened as the kind
/// that it was created as. 1 to 16 characters `a`-`z`, `0`-`9`, `-`; the default is no kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kind([u8; 16]);

impl Kind {
    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The kind that these bytes of a segment name.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        let length = bytes.iter().take_while(|byte| **byte != 0).count();
        let (name, rest) = bytes.split_at_checked(length)?;
        (name.iter().all(is_allowed) && rest.iter().all(|byte| *byte == 0)).then_some(Self(bytes))
    }
}

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(name: &str) -> Result<Self, KindError> {
        let mut bytes = [0; 16];
        let place = bytes
            .get_mut(..name.len())
            .filter(|place| !place.is_empty());
        place.ok_or(KindError)?.copy_from_slice(name.as_bytes());
        name.bytes()
            .all(|byte| is_allowed(&byte))
            .then_some(Self(bytes))
            .ok_or(KindError)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::str::from_utf8(&self.0).unwrap_or_default();
        match name.trim_end_matches('\0') {
            "" => f.write_str("(none)"),
            name => f.write_str(name),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}

/// Why a text names no [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kind of a log has 1 to 16 characters a-z, 0-9 or -")]
#[non_exhaustive]
pub struct KindError;

fn is_allowed(byte: &u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn bytes_of_a_segment_that_name_no_kind_are_refused() {
        let kind = |name: &[u8; 4]| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(name);
            Kind::from_bytes(bytes)
        };
        assert_eq!(kind(b"hub\0"), "hub".parse().ok());
        assert_eq!((kind(b"Hub\0"), kind(b"hu\0b")), (None, None));
    }
}
