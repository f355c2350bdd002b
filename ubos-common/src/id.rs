//! Identifiers: newtypes over UUID, and the source that makes them.

use core::fmt;

/// Declares an identifier: a newtype over [`Uuid`] with the strict text form.
///
/// Read: the 36-character hyphenated form, either case, any version, nil too. Written: lower case.
/// Braced, URN and unhyphenated texts are refused.
///
/// ```
/// ubos_common::id_type! {
///     /// Names one task.
///     pub struct TaskId;
/// }
///
/// let id: TaskId = "A1B2C3D4-0000-4000-8000-000000000001".parse()?;
/// assert_eq!(id.to_string(), "a1b2c3d4-0000-4000-8000-000000000001");
/// assert!("{a1b2c3d4-0000-4000-8000-000000000001}".parse::<TaskId>().is_err());
/// # Ok::<(), ubos_common::id::IdError>(())
/// ```
#[macro_export]
macro_rules! id_type {
    ($(#[$meta:meta])* $vis:vis struct $name:ident;) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        $vis struct $name($crate::id::Uuid);

        // As the bytes compare, and as one number: maps compare and hash ids more than they do anything else.
        #[automatically_derived]
        impl ::core::cmp::Ord for $name {
            fn cmp(&self, other: &Self) -> ::core::cmp::Ordering {
                self.0.as_u128().cmp(&other.0.as_u128())
            }
        }

        #[automatically_derived]
        impl ::core::cmp::PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> ::core::option::Option<::core::cmp::Ordering> {
                ::core::option::Option::Some(::core::cmp::Ord::cmp(self, other))
            }
        }

        #[automatically_derived]
        impl ::core::hash::Hash for $name {
            fn hash<__H: ::core::hash::Hasher>(&self, state: &mut __H) {
                state.write_u128(self.0.as_u128());
            }
        }

        #[allow(dead_code, unreachable_pub, reason = "a private type may use less than a public one offers")]
        impl $name {
            /// The UUID inside.
            #[must_use]
            pub const fn as_uuid(&self) -> &$crate::id::Uuid {
                &self.0
            }
        }

        impl ::core::convert::From<$crate::id::Uuid> for $name {
            fn from(uuid: $crate::id::Uuid) -> Self {
                Self(uuid)
            }
        }

        impl ::core::convert::From<$name> for $crate::id::Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::id::IdError;

            fn from_str(text: &str) -> ::core::result::Result<Self, $crate::id::IdError> {
                $crate::id::parse_hyphenated(text).map(Self)
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(&self.0, f)
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(&self.0, f)
            }
        }

        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> $crate::__private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                deserializer.deserialize_str($crate::__private::FromText::<Self>::new("a hyphenated UUID"))
            }
        }

        impl<'a> $crate::json::Read<'a> for $name {
            fn read(
                reader: &mut $crate::json::Reader<'a>,
            ) -> ::core::result::Result<Self, $crate::json::Fault> {
                $crate::json::read_uuid(reader).map(Self)
            }
        }

        impl $crate::json::Write for $name {
            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                $crate::json::Write::write(&self.0, out);
            }
        }
    };
}

pub use uuid::Uuid;

/// Reads the 36-character hyphenated form of a UUID, either case.
///
/// # Errors
///
/// Any other form, also those that the `uuid` crate would take.
///
/// Spec: SAP 3
// impl: SAP-3-1
pub fn parse_hyphenated(text: &str) -> Result<Uuid, IdError> {
    /// `8-4-4-4-12` hexadecimal digits.
    const LENGTH: usize = 36;
    if text.len() != LENGTH {
        return Err(IdError::Length { seen: text.len() });
    }
    Uuid::try_parse(text).map_err(|_| IdError::Shape)
}

/// Why a text is not an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// A hyphenated UUID has 36 bytes.
    #[error("an id of {seen} bytes where 36 are wanted")]
    Length {
        /// Bytes of the text.
        seen: usize,
    },
    /// A digit or hyphen is not where it belongs.
    #[error("not laid out like a hyphenated UUID")]
    Shape,
}

/// Makes identifiers and random numbers, one after the other.
///
/// A machine is given one in its configuration, so that the same inputs give the same ids. A seeded source
/// is for tests, replay and simulation: whoever knows the seed knows the ids.
///
/// ```
/// use ubos_common::id::IdSource;
///
/// let mut ids = IdSource::seeded(7);
/// let first = ids.uuid();
/// assert_eq!(first.get_version_num(), 4);
/// assert_eq!(IdSource::seeded(7).uuid(), first);
/// ```
pub struct IdSource(Source);

enum Source {
    Seeded(SplitMix64),
    #[cfg(feature = "os")]
    Os(Box<dyn Generator>),
}

/// A generator that only the operating system can seed.
#[cfg(feature = "os")]
pub(crate) trait Generator: Send + Sync {
    /// The next 64 random bits.
    fn next(&mut self) -> u64 {
        self.next_two()[0]
    }

    /// The next 128 random bits.
    fn next_two(&mut self) -> [u64; 2];
}

impl IdSource {
    /// A source that gives the same values for the same seed on every platform. Not for secrets.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(SplitMix64(seed)))
    }

    #[cfg(feature = "os")]
    pub(crate) fn from_generator(generator: impl Generator + 'static) -> Self {
        Self(Source::Os(Box::new(generator)))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seeded(generator) => generator.next(),
            #[cfg(feature = "os")]
            Source::Os(generator) => generator.next(),
        }
    }

    /// The next random UUID (version 4).
    // impl: UAP-3-1
    pub fn uuid(&mut self) -> Uuid {
        let [low, high] = match &mut self.0 {
            Source::Seeded(generator) => [generator.next(), generator.next()],
            #[cfg(feature = "os")]
            Source::Os(generator) => generator.next_two(),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The next identifier of a type declared with [`id_type!`].
    pub fn next_id<I: From<Uuid>>(&mut self) -> I {
        self.uuid().into()
    }

    /// The source as it stands, to run a machine twice from one point; `None` where the operating system
    /// seeded it, because two holders would make the same ids.
    #[must_use]
    pub const fn snapshot(&self) -> Option<Self> {
        match &self.0 {
            Source::Seeded(SplitMix64(state)) => Some(Self::seeded(*state)),
            #[cfg(feature = "os")]
            Source::Os(_) => None,
        }
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Seeded(_) => "IdSource(seeded)",
            #[cfg(feature = "os")]
            Source::Os(_) => "IdSource(operating system)",
        })
    }
}

/// Steele, Lea and Flood's `SplitMix64`: small, and passes the usual statistical tests.
struct SplitMix64(u64);

impl SplitMix64 {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    id_type! {
        /// For the tests.
        pub(crate) struct TestId;
    }

    #[test]
    fn one_text_form_only() {
        let text = "a1b2c3d4-0000-4000-8000-00000000000f";
        assert_eq!(text.parse::<TestId>().unwrap().to_string(), text);
        assert_eq!(
            text.to_uppercase().parse::<TestId>().unwrap().to_string(),
            text
        );
        assert!(
            "00000000-0000-0000-0000-000000000000"
                .parse::<TestId>()
                .is_ok()
        );
        for bad in [
            format!("{{{text}}}"),
            format!("urn:uuid:{text}"),
            text.replace('-', ""),
            text[..35].to_owned(),
            text.replace('f', "g"),
            "a1b2c3d40-000-4000-8000-00000000000f".to_owned(),
            String::new(),
        ] {
            assert!(bad.parse::<TestId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_seed_is_a_stream() {
        let (mut one, mut two) = (IdSource::seeded(1), IdSource::seeded(1));
        let made: Vec<TestId> = (0..1000).map(|_| one.next_id()).collect();
        assert!(made.iter().all(|id| *id == two.next_id::<TestId>()));
        let distinct: std::collections::BTreeSet<_> = made.iter().collect();
        assert_eq!(distinct.len(), made.len());
        assert_eq!(one.snapshot().unwrap().uuid(), one.uuid());
    }

    #[test]
    fn serde_is_the_text() {
        let id: TestId = IdSource::seeded(3).next_id();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<TestId>(&json).unwrap(), id);
        assert!(
            serde_json::from_str::<TestId>("\"urn:uuid:a1b2c3d4-0000-4000-8000-00000000000f\"")
                .is_err()
        );
    }

    #[test]
    fn an_id_is_made_of_two_draws() {
        let (mut ids, mut same) = (IdSource::seeded(7), IdSource::seeded(7));
        let mut bytes = [same.bits().to_le_bytes(), same.bits().to_le_bytes()].concat();
        // Version 4, and the variant of RFC 9562.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        assert_eq!(ids.uuid().as_bytes()[..], bytes);
        assert_eq!(ids.bits(), same.bits());
    }
}
