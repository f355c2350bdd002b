//! The pattern that all word sets of the wire are declared with.

/// Declares an enum of wire words that ends in `Other`, so that no word is lost.
///
/// `open` sets take every word. `closed` sets refuse an unknown word with a MUST finding in the strict
/// profile, and keep it with advice in the lenient one. Words match exactly, case included.
///
/// ```
/// use ubos_common::json::{self, Limits};
/// use ubos_common::violation::Profile;
///
/// ubos_common::words! {
///     /// Who a message comes from.
///     closed pub enum AgentKind {
///         /// A person.
///         User = "user",
///         /// A program.
///         Agent = "agent",
///     }
/// }
///
/// assert_eq!(AgentKind::User.as_str(), "user");
/// assert_eq!(AgentKind::from("robot"), AgentKind::Other("robot".into()));
/// assert!(json::decode::<AgentKind>(br#""robot""#, &Limits::default(), Profile::Strict).is_err());
/// let (kept, report) = json::decode::<AgentKind>(br#""robot""#, &Limits::default(), Profile::Lenient)?;
/// assert_eq!((kept.as_str(), report.len()), ("robot", 1));
/// assert!(!json::Write::is_strict(&kept));
/// # Ok::<(), json::DecodeError>(())
/// ```
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $policy:ident $vis:vis enum $name:ident {
            $( $(#[$word_meta:meta])* $word:ident = $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        $vis enum $name {
            $( $(#[$word_meta])* $word, )*
            /// A word that the specification does not list, as it was read.
            Other(::std::boxed::Box<str>),
        }

        #[allow(dead_code, unreachable_pub, reason = "a private type may use less than a public one offers")]
        impl $name {
            /// The listed words, in the order of the specification.
            pub const WORDS: &'static [&'static str] = &[$($text),*];

            /// The word on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$word => $text, )*
                    Self::Other(word) => word,
                }
            }

            /// Whether the specification lists the word.
            #[must_use]
            pub const fn is_listed(&self) -> bool {
                !::core::matches!(self, Self::Other(_))
            }
        }

        impl ::core::convert::From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $( $text => Self::$word, )*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl<'a> $crate::json::Read<'a> for $name {
            fn read(
                reader: &mut $crate::json::Reader<'a>,
            ) -> ::core::result::Result<Self, $crate::json::Fault> {
                let at = reader.offset();
                let text = reader.str()?;
                let word = Self::from(text.as_ref());
                $crate::__words_check!($policy reader, at, text, word, [$($text),*]);
                ::core::result::Result::Ok(word)
            }
        }

        impl $crate::json::Write for $name {
            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                $crate::json::escape_into(out, self.as_str());
            }

            fn is_strict(&self) -> bool {
                $crate::__words_strict!($policy self)
            }
        }

        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __words_strict {
    (open $word:expr) => {
        true
    };
    (closed $word:expr) => {
        $word.is_listed()
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __words_check {
    (open $reader:ident, $at:ident, $text:ident, $word:ident, [$($listed:literal),*]) => {};
    (closed $reader:ident, $at:ident, $text:ident, $word:ident, [$($listed:literal),*]) => {
        if !$word.is_listed() {
            if !$reader.is_lenient() {
                let wanted = ::core::concat!("one of", $(" ", $listed),*);
                return ::core::result::Result::Err($reader.bad_value_seen($at, wanted, &$text));
            }
            $reader.tolerate($at, "unknown_word", "a word that is not in the closed list");
        }
    };
}
