//! Canonical form of anything that serializes, written as serde hands it over.

mod text_only;

use core::fmt;

use serde::ser::{self, Serialize};

use self::text_only::TextOnly;
use super::writer::{Object, Sink, Writer};
use super::{CanonError, CanonFault, number, text, wire};

/// Names by which serde_json marks structs that hold JSON text: of any value, and of a number
/// (in a build with arbitrary precision).
const TOKENS: [&str; 2] = [
    "$serde_json::private::RawValue",
    "$serde_json::private::Number",
];

type Result<T> = core::result::Result<T, CanonError>;

/// Elements of an array, and the member it is the value of when a variant wraps it.
pub(super) struct Seq<'w, 's, S> {
    writer: &'w mut Writer<'s, S>,
    index: usize,
    variant: Option<Object>,
}

/// Members of an object, and the member it is the value of when a variant wraps it.
pub(super) struct MemberSerializer<'w, 's, S> {
    writer: &'w mut Writer<'s, S>,
    /// `None` for one of [`TOKENS`]: no object, but JSON text still to come.
    object: Option<Object>,
    variant: Option<Object>,
}

impl<'s, S: Sink> Writer<'s, S> {
    /// Opens `{"variant":`.
    fn variant(&mut self, variant: &str) -> Result<Object> {
        let mut object = self.begin_object()?;
        self.name(&mut object, variant)?;
        Ok(object)
    }

    fn seq(&mut self, variant: Option<Object>) -> Result<Seq<'_, 's, S>> {
        self.enter(b'[')?;
        Ok(Seq {
            writer: self,
            index: 0,
            variant,
        })
    }

    fn members(&mut self, variant: Option<Object>) -> Result<MemberSerializer<'_, 's, S>> {
        let object = Some(self.begin_object()?);
        Ok(MemberSerializer {
            writer: self,
            object,
            variant,
        })
    }
}

impl<S: Sink> Seq<'_, '_, S> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        if self.index > 0 {
            self.writer.out().push(b',');
        }
        let outcome = value.serialize(&mut *self.writer);
        outcome.map_err(|error| {
            let error = error.under_index(self.index);
            within(self.writer, self.variant.as_ref(), error)
        })?;
        self.index += 1;
        self.writer.settle();
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.writer.leave(b']');
        close_variant(self.writer, self.variant)
    }
}

impl<S: Sink> MemberSerializer<'_, '_, S> {
    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        let writer = &mut *self.writer;
        let Some(object) = &mut self.object else {
            return Ok(());
        };
        let write = |name: &str| writer.name(object, name);
        let outcome = key.serialize(TextOnly {
            write,
            otherwise: CanonFault::KeyNotString,
        });
        outcome.map_err(|error| within(self.writer, self.variant.as_ref(), error))
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let outcome = match &self.object {
            Some(_) => value.serialize(&mut *self.writer),
            None => value.serialize(TextOnly {
                write: |json: &str| wire::write(self.writer, json.as_bytes()),
                otherwise: CanonFault::Malformed {
                    wanted: "JSON text in a raw value",
                },
            }),
        };
        outcome.map_err(|error| {
            let error = within(self.writer, self.object.as_ref(), error);
            within(self.writer, self.variant.as_ref(), error)
        })
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        if let Some(object) = &mut self.object {
            let outcome = self.writer.field_name(object, name);
            outcome.map_err(|error| within(self.writer, self.variant.as_ref(), error))?;
        }
        self.value(value)
    }

    fn close(self) -> Result<()> {
        if let Some(object) = &self.object {
            let outcome = self.writer.end_object(object);
            outcome.map_err(|error| within(self.writer, self.variant.as_ref(), error))?;
        }
        close_variant(self.writer, self.variant)
    }
}

fn close_variant<S: Sink>(writer: &mut Writer<'_, S>, variant: Option<Object>) -> Result<()> {
    match variant {
        Some(variant) => writer.end_object(&variant),
        None => Ok(()),
    }
}

#[cold]
fn within<S: Sink>(
    writer: &mut Writer<'_, S>,
    object: Option<&Object>,
    error: CanonError,
) -> CanonError {
    match object {
        Some(object) => writer.locate(object, error),
        None => error,
    }
}

/// Numbers of one type, each by the function of [`number`] that takes it.
macro_rules! numbers {
    ($($method:ident($type:ty) => $write:ident as $wide:ty,)*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<()> {
            let mode = self.mode();
            Ok(number::$write(self.out(), <$wide>::from(value), mode)?)
        }
    )*};
}

impl<'w, 's, S: Sink> ser::Serializer for &'w mut Writer<'s, S> {
    type Ok = ();
    type Error = CanonError;
    type SerializeSeq = Seq<'w, 's, S>;
    type SerializeTuple = Seq<'w, 's, S>;
    type SerializeTupleStruct = Seq<'w, 's, S>;
    type SerializeTupleVariant = Seq<'w, 's, S>;
    type SerializeMap = MemberSerializer<'w, 's, S>;
    type SerializeStruct = MemberSerializer<'w, 's, S>;
    type SerializeStructVariant = MemberSerializer<'w, 's, S>;

    numbers! {
        serialize_u8(u8) => write_u64 as u64,
        serialize_u16(u16) => write_u64 as u64,
        serialize_u32(u32) => write_u64 as u64,
        serialize_u64(u64) => write_u64 as u64,
        serialize_u128(u128) => write_u128 as u128,
        serialize_i8(i8) => write_i64 as i64,
        serialize_i16(i16) => write_i64 as i64,
        serialize_i32(i32) => write_i64 as i64,
        serialize_i64(i64) => write_i64 as i64,
        serialize_i128(i128) => write_i128 as i128,
    }

    // choice: a float of 32 bits is the decimal that JSON writers print for it, so that a type and its wire
    // form have one digest: `0.1`, not the double `0.10000000149011612`.
    fn serialize_f32(self, value: f32) -> Result<()> {
        Ok(number::write_f32(self.out(), value)?)
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        Ok(number::write_f64(self.out(), value)?)
    }

    fn serialize_bool(self, value: bool) -> Result<()> {
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.out().extend_from_slice(word);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        text::write_str(self.out(), value);
        Ok(())
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<()> {
        struct Body<'o>(&'o mut Vec<u8>);
        impl fmt::Write for Body<'_> {
            fn write_str(&mut self, part: &str) -> fmt::Result {
                text::write_body(self.0, part.as_bytes());
                Ok(())
            }
        }
        self.out().push(b'"');
        fmt::Write::write_fmt(&mut Body(self.out()), format_args!("{value}"))
            .map_err(<CanonError as ser::Error>::custom)?;
        self.out().push(b'"');
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.out().extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let object = self.variant(variant)?;
        let outcome = value.serialize(&mut *self);
        outcome.map_err(|error| self.locate(&object, error))?;
        self.end_object(&object)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Self::SerializeSeq> {
        self.seq(None)
    }

    fn serialize_tuple(self, _len: usize) -> Result<Self::SerializeTuple> {
        self.seq(None)
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeTupleStruct> {
        self.seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        let object = self.variant(variant)?;
        self.seq(Some(object))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Self::SerializeMap> {
        self.members(None)
    }

    fn serialize_struct(self, name: &'static str, _len: usize) -> Result<Self::SerializeStruct> {
        if TOKENS.contains(&name) {
            return Ok(MemberSerializer {
                writer: self,
                object: None,
                variant: None,
            });
        }
        self.members(None)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeStructVariant> {
        let object = self.variant(variant)?;
        self.members(Some(object))
    }
}

macro_rules! compound {
    ($($trait:ident for $type:ident { $($method:ident($($arg:ident: $kind:ty),*) => $to:ident)* })*) => {$(
        impl<S: Sink> ser::$trait for $type<'_, '_, S> {
            type Ok = ();
            type Error = CanonError;

            $(#[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, $($arg: $kind,)* value: &T) -> Result<()> {
                self.$to($($arg,)* value)
            })*

            fn end(self) -> Result<()> {
                self.close()
            }
        }
    )*};
}

compound! {
    SerializeSeq for Seq { serialize_element() => element }
    SerializeTuple for Seq { serialize_element() => element }
    SerializeTupleStruct for Seq { serialize_field() => element }
    SerializeTupleVariant for Seq { serialize_field() => element }
    SerializeMap for MemberSerializer { serialize_key() => key serialize_value() => value }
    SerializeStruct for MemberSerializer { serialize_field(name: &'static str) => field }
    SerializeStructVariant for MemberSerializer { serialize_field(name: &'static str) => field }
}
