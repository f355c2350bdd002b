//! Texts that are mostly short, serde for types whose wire form is a text, and characters that nobody sees.

/// Whether a character leaves no mark on what is read: Unicode calls these default ignorable. Joiners, marks of direction,
/// variation selectors and tags are among them; control characters are not.
///
/// ```
/// use ubos_common::is_unseen;
///
/// let text: String = "pass\u{200b}wo\u{202e}rd".chars().filter(|letter| !is_unseen(*letter)).collect();
/// assert_eq!(text, "password");
/// ```
#[must_use]
pub const fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFF8}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}

/// A text that is kept in place where it has at most 38 bytes, as times and UUIDs have.
#[derive(Clone)]
pub struct ShortText(Kept);

#[derive(Clone)]
enum Kept {
    Here {
        length: u8,
        bytes: [u8; ShortText::HERE],
    },
    There(Box<str>),
}

impl ShortText {
    const HERE: usize = 38;

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kept::Here { length, bytes } => {
                let text = bytes.get(..usize::from(*length)).unwrap_or_default();
                // What was put in was a text.
                core::str::from_utf8(text).unwrap_or_default()
            }
            Kept::There(text) => text,
        }
    }

    /// The bytes of the text, which is not looked at again for them.
    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Here { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Kept::There(text) => text.as_bytes(),
        }
    }
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        let mut bytes = [0; Self::HERE];
        Self(
            match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
                (Some(place), Ok(length)) => {
                    place.copy_from_slice(text.as_bytes());
                    Kept::Here { length, bytes }
                }
                _ => Kept::There(text.into()),
            },
        )
    }
}

impl core::ops::Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for ShortText {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for ShortText {}

impl PartialOrd for ShortText {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By their bytes, as texts are ordered.
impl Ord for ShortText {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl core::hash::Hash for ShortText {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl core::fmt::Debug for ShortText {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(&**self, f)
    }
}

/// Implements `Serialize` by `Display` and `Deserialize` by `FromStr`.
macro_rules! serde_as_text {
    ($type:ty, $expecting:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::text::FromText::<Self>::new($expecting))
            }
        }
    };
}
pub(crate) use serde_as_text;

/// The visitor behind [`serde_as_text`] and `id_type!`: a string, read by `FromStr`.
#[doc(hidden)]
#[derive(Debug)]
pub struct FromText<T> {
    expecting: &'static str,
    _type: core::marker::PhantomData<fn() -> T>,
}

impl<T> FromText<T> {
    /// A visitor whose error says `expecting`.
    #[must_use]
    pub const fn new(expecting: &'static str) -> Self {
        Self {
            expecting,
            _type: core::marker::PhantomData,
        }
    }
}

impl<T> serde::de::Visitor<'_> for FromText<T>
where
    T: core::str::FromStr,
    T::Err: core::fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, ShortText};
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn short_and_long_texts_are_kept() {
        for length in [0, 1, 37, 38, 39, 255, 256, 300] {
            let text = "é".repeat(length / 2) + &"a".repeat(length % 2);
            let kept = ShortText::from(text.as_str());
            assert_eq!(&*kept, text);
            let is_here = matches!(kept.0, Kept::Here { .. });
            assert_eq!(is_here, length <= ShortText::HERE, "{length}");
            assert_eq!(kept.clone(), kept);
            let hasher = RandomState::new();
            assert_eq!(hasher.hash_one(&kept), hasher.hash_one(&text), "{length}");
            for other in ["", "a", "é", &*"é".repeat(100)] {
                let wanted = text.as_str().cmp(other);
                let other = ShortText::from(other);
                let orders = (kept.cmp(&other), kept.partial_cmp(&other));
                assert_eq!(orders, (wanted, Some(wanted)), "{length} {other:?}");
            }
        }
    }
}
