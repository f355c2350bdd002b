//! The pattern that all wire structs are declared with.

use super::error::Fault;
use super::read::Read;
use super::reader::Reader;
use crate::violation::Level;

/// What is asked of a member's presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Absence and null are MUST findings.
    Required,
    /// May be absent; null is a MUST finding, which the lenient profile reads as absent.
    Optional,
    /// May be absent; null reads as absent.
    Nullable,
    /// May be absent; null is a value like any other, which the type takes or refuses.
    Verbatim,
    /// As [`Presence::Optional`], and absence is a SHOULD finding.
    Advised,
}

/// One known member while its object is read.
#[doc(hidden)]
#[derive(Debug)]
pub struct Slot<T> {
    pub value: Option<T>,
    seen: bool,
}

impl<T> Slot<T> {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            value: None,
            seen: false,
        }
    }

    /// Takes the member's value.
    ///
    /// # Errors
    ///
    /// A second value for the member, no sound JSON, or a limit.
    #[inline]
    pub fn read<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        name_at: usize,
        presence: Presence,
        clause: &'static str,
        secret: bool,
    ) -> Result<(), Fault>
    where
        T: Read<'a>,
    {
        if self.seen {
            return Err(reader.duplicate(name_at));
        }
        self.seen = true;
        let taken_by_type = matches!(presence, Presence::Required | Presence::Verbatim);
        if !taken_by_type && reader.null()? {
            return null(reader, presence, clause);
        }
        self.value = reader.under(clause, secret, T::read)?;
        Ok(())
    }

    /// Notes the member's absence where that matters.
    #[inline]
    pub fn close(
        &self,
        reader: &mut Reader<'_>,
        object_at: usize,
        presence: Presence,
        name: &'static str,
        clause: &'static str,
        advised: Option<&'static str>,
    ) {
        if self.seen {
            return;
        }
        match presence {
            Presence::Required => reader.missing(object_at, name, clause, Level::Must),
            // impl: SAP-4-2
            Presence::Advised => {
                reader.missing(object_at, name, advised.unwrap_or(clause), Level::Should)
            }
            Presence::Optional | Presence::Nullable | Presence::Verbatim => {}
        }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A null has been taken where a value may be absent.
// impl: SAP-2-6, SAP-4-1
fn null(reader: &mut Reader<'_>, presence: Presence, clause: &'static str) -> Result<(), Fault> {
    if presence == Presence::Nullable {
        return Ok(());
    }
    let at = reader.offset_here() - "null".len();
    let lenient = reader.is_lenient();
    reader
        .under(clause, false, |reader| {
            if lenient {
                reader.tolerate(at, "null", "null read as absent");
            } else {
                reader.note(
                    at,
                    None,
                    "null",
                    Level::Must,
                    "null where the member may only be absent",
                );
            }
            Ok(())
        })
        .map(drop)
}

/// Refuses an unknown member that stands twice.
#[doc(hidden)]
pub fn refuse_double(
    reader: &Reader<'_>,
    extra: &super::Members<'_>,
    names_at: &[usize],
) -> Result<(), Fault> {
    match extra.double().and_then(|n| names_at.get(n)) {
        Some(at) => Err(reader.duplicate(*at)),
        None => Ok(()),
    }
}

/// Declares a wire struct: its members, what is asked of each, and the clause that asks it.
///
/// ```
/// use ubos_common::json::{self, Limits};
/// use ubos_common::violation::Profile;
///
/// ubos_common::wire! {
///     /// Who asks.
///     pub struct Issuer {
///         /// The agent.
///         required agent_id: String = "agentId", "SAP-4.1-3";
///         /// A name to show; absent where there is none.
///         optional name: String = "name", "SAP-4.1-3";
///         /// Never shown in a finding.
///         optional @secret token: String = "token", "SAP-4.1-3";
///     }
/// }
///
/// let mut issuer = Issuer::new("agent-7".into());
/// issuer.name = Some("Seven".into());
/// assert_eq!(json::to_string(&issuer), r#"{"agentId":"agent-7","name":"Seven"}"#);
///
/// let (read, _) = json::decode::<Issuer>(br#"{"agentId":"a","later":[1]}"#, &Limits::default(), Profile::Strict)?;
/// assert_eq!(read.extra.value("later").unwrap().as_str(), "[1]");
/// # Ok::<(), json::DecodeError>(())
/// ```
///
/// The words before a member:
///
/// | word | type of the field | absent | null |
/// |---|---|---|---|
/// | `required` | `T` | MUST finding | MUST finding unless `T` takes it |
/// | `optional` | `Option<T>` | `None` | MUST finding; lenient: `None`, with advice |
/// | `nullable` | `Option<T>` | `None` | `None` |
/// | `verbatim` | `Option<T>` | `None` | what `T` makes of it, so that null and absence are told apart |
/// | `advised` | `Option<T>` | `None`, SHOULD finding under the second clause | as `optional` |
///
/// `@secret` behind the word keeps a bad value out of findings, and any value out of `Debug`. A struct with a lifetime borrows its
/// strings, raw values and unknown members from the text: `pub struct Envelope<'a> { … }`. It may have a member of any type
/// behind that: `pub struct Envelope<'a, P = Payload<'a>> { … }`.
///
/// `pub struct Step checked by check { … }` refuses values whose members do not agree: `check` takes the reader, the
/// offset of the object and the value, and returns a [`Fault`] if it noted a MUST finding.
///
/// Made are the struct (`#[non_exhaustive]`, with `extra` for unknown members), `new` with the required
/// members in order, [`Read`], and [`Write`](super::Write), which leaves absent members out.
#[macro_export]
macro_rules! wire {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(<$lt:lifetime $(, $param:ident = $default:ty)?>)? $(checked by $check:path)? {
            $(
                $(#[$field_meta:meta])*
                $mode:ident $(@$secret:ident)? $field:ident : $ty:ty = $json:literal, $clause:literal $(, $advised:literal)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        $vis struct $name $(<$lt $(, $param = $default)?>)? {
            $(
                $(#[$field_meta])*
                pub $field: $crate::__wire_type!($mode $ty),
            )*
            /// Members that this type does not know, kept and written back.
            pub extra: $crate::__wire_members!($($lt)?),
        }

        #[allow(dead_code, unreachable_pub, reason = "a private type may use less than a public one offers")]
        impl $(<$lt $(, $param)?>)? $name $(<$lt $(, $param)?>)? {
            $crate::__wire_new! { [] [] $( { $mode $field : $ty } )* }
        }

        $crate::__wire_read! {
            [$name $($lt $(, $param)?)?] [$($check)?]
            $( { $mode [$($secret)?] $field : $ty = $json, $clause, [$($advised)?] } )*
        }

        // What `derive` would make, were the types of the fields no macros.
        impl $(<$lt $(, $param: ::core::clone::Clone)?>)? ::core::clone::Clone for $name $(<$lt $(, $param)?>)? {
            fn clone(&self) -> Self {
                Self {
                    $( $field: ::core::clone::Clone::clone(&self.$field), )*
                    extra: ::core::clone::Clone::clone(&self.extra),
                }
            }
        }

        impl $(<$lt $(, $param: ::core::cmp::PartialEq)?>)? ::core::cmp::PartialEq for $name $(<$lt $(, $param)?>)? {
            fn eq(&self, other: &Self) -> bool {
                $( self.$field == other.$field && )* self.extra == other.extra
            }
        }

        impl $(<$lt $(, $param: ::core::fmt::Debug)?>)? ::core::fmt::Debug for $name $(<$lt $(, $param)?>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(::core::stringify!($name))
                    $( .field(::core::stringify!($field), $crate::__wire_shown!([$($secret)?] &self.$field)) )*
                    .field("extra", &self.extra)
                    .finish()
            }
        }

        impl $(<$lt $(, $param: $crate::json::Write)?>)? $crate::json::Write for $name $(<$lt $(, $param)?>)? {
            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                let mut object = $crate::json::MemberWriter::begin(out);
                $( $crate::__wire_write!($mode object, self.$field, ::core::concat!("\"", $json, "\":")); )*
                self.extra.write_into(&mut object);
                object.end();
            }

            fn is_strict(&self) -> bool {
                $( $crate::__wire_strict!($mode self.$field) && )* true
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_strict {
    (required $field:expr) => {
        $crate::json::Write::is_strict(&$field)
    };
    ($mode:ident $field:expr) => {
        $field.as_ref().is_none_or($crate::json::Write::is_strict)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_type {
    (required $ty:ty) => { $ty };
    ($mode:ident $ty:ty) => { ::core::option::Option<$ty> };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_members {
    () => { $crate::json::Members<'static> };
    ($lt:lifetime) => { $crate::json::Members<$lt> };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_new {
    ([$($param:ident : $pty:ty,)*] [$($absent:ident,)*]) => {
        /// A value with its required members, in the order of the fields; the others are absent.
        #[must_use]
        #[allow(clippy::too_many_arguments, reason = "one for each required member")]
        pub fn new($($param: $pty),*) -> Self {
            Self {
                $($param,)*
                $($absent: ::core::option::Option::None,)*
                extra: $crate::json::Members::new(),
            }
        }
    };
    ([$($param:tt)*] [$($absent:tt)*] { required $field:ident : $ty:ty } $($rest:tt)*) => {
        $crate::__wire_new! { [$($param)* $field : $ty,] [$($absent)*] $($rest)* }
    };
    ([$($param:tt)*] [$($absent:tt)*] { $mode:ident $field:ident : $ty:ty } $($rest:tt)*) => {
        $crate::__wire_new! { [$($param)*] [$($absent)* $field,] $($rest)* }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_read {
    ([$name:ident] $check:tt $($field:tt)*) => {
        impl<'wire> $crate::json::Read<'wire> for $name {
            $crate::__wire_read_body! { 'wire, $check, keep_owned, as_ref, $($field)* }
        }
    };
    ([$name:ident $lt:lifetime $(, $param:ident)?] $check:tt $($field:tt)*) => {
        impl<$lt $(, $param: $crate::json::Read<$lt>)?> $crate::json::Read<$lt> for $name<$lt $(, $param)?> {
            $crate::__wire_read_body! { $lt, $check, keep, clone, $($field)* }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_read_body {
    (
        $lt:lifetime, [$($check:path)?], $keep:ident, $as:ident,
        $( { $mode:ident [$($secret:ident)?] $field:ident : $ty:ty = $json:literal, $clause:literal, [$($advised:literal)?] } )*
    ) => {
        fn read(
            reader: &mut $crate::json::Reader<$lt>,
        ) -> ::core::result::Result<Self, $crate::json::Fault> {
            let object_at = reader.offset();
            $( let mut $field = $crate::json::Slot::<$ty>::new(); )*
            let mut extra = $crate::json::Members::new();
            let mut extra_at = ::std::vec::Vec::new();
            reader.fields(|reader, name, name_at| match name.as_ref() {
                $(
                    $json => $field.read(
                        reader,
                        name_at,
                        $crate::__wire_presence!($mode),
                        $clause,
                        $crate::__wire_secret!($($secret)?),
                    ),
                )*
                _ => {
                    extra_at.push(name_at);
                    extra.$keep(reader, name.$as())
                }
            })?;
            $crate::__private::refuse_double(reader, &extra, &extra_at)?;
            $(
                $field.close(
                    reader,
                    object_at,
                    $crate::__wire_presence!($mode),
                    $json,
                    $clause,
                    $crate::__wire_advised!($($advised)?),
                );
            )*
            let value = Self {
                $( $field: $crate::__wire_take!($mode reader $field), )*
                extra,
            };
            $( $check(reader, object_at, &value)?; )?
            ::core::result::Result::Ok(value)
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_presence {
    (required) => {
        $crate::json::Presence::Required
    };
    (optional) => {
        $crate::json::Presence::Optional
    };
    (nullable) => {
        $crate::json::Presence::Nullable
    };
    (verbatim) => {
        $crate::json::Presence::Verbatim
    };
    (advised) => {
        $crate::json::Presence::Advised
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_secret {
    () => {
        false
    };
    (secret) => {
        true
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_shown {
    ([] $field:expr) => {
        $field
    };
    ([secret] $field:expr) => {
        &::core::format_args!("…")
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_advised {
    () => {
        ::core::option::Option::None
    };
    ($clause:literal) => {
        ::core::option::Option::Some($clause)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_take {
    (required $reader:ident $field:ident) => {
        match $field.value {
            ::core::option::Option::Some(value) => value,
            ::core::option::Option::None => return ::core::result::Result::Err($reader.noted()),
        }
    };
    ($mode:ident $reader:ident $field:ident) => {
        $field.value
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __wire_write {
    (required $object:ident, $value:expr, $quoted:expr) => {
        $object.known($quoted, &$value)
    };
    ($mode:ident $object:ident, $value:expr, $quoted:expr) => {
        if let ::core::option::Option::Some(value) = &$value {
            $object.known($quoted, value);
        }
    };
}
