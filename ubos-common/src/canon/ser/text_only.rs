//! A serializer that takes text and refuses all else: for map keys and raw JSON.

use serde::ser::{Impossible, Serialize, Serializer};

use crate::canon::{CanonError, CanonFault};

/// Hands a string to `write`; anything else is the fault `otherwise`.
pub(super) struct TextOnly<F> {
    pub(super) write: F,
    pub(super) otherwise: CanonFault,
}

type Result<T> = core::result::Result<T, CanonError>;

macro_rules! refuse {
    ($($method:ident($($arg:ty),*) -> $ok:ty;)*) => {$(
        fn $method(self, $(_: $arg),*) -> Result<$ok> {
            Err(self.otherwise.into())
        }
    )*};
}

impl<F: FnOnce(&str) -> Result<()>> Serializer for TextOnly<F> {
    type Ok = ();
    type Error = CanonError;
    type SerializeSeq = Impossible<(), CanonError>;
    type SerializeTuple = Impossible<(), CanonError>;
    type SerializeTupleStruct = Impossible<(), CanonError>;
    type SerializeTupleVariant = Impossible<(), CanonError>;
    type SerializeMap = Impossible<(), CanonError>;
    type SerializeStruct = Impossible<(), CanonError>;
    type SerializeStructVariant = Impossible<(), CanonError>;

    fn serialize_str(self, value: &str) -> Result<()> {
        (self.write)(value)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        (self.write)(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<()> {
        (self.write)(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<()> {
        Err(self.otherwise.into())
    }

    refuse! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_i128(i128) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_u128(u128) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}
