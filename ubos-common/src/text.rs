//! Serde for types whose wire form is a text.

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
