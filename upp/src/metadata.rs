//! Metadata of messages and tools.

use std::borrow::Cow;

use ubos_common::json::{Fault, MemberWriter, Members, Raw, RawObject, Read, Reader, Write};

/// Metadata of a message or tool: one object for each vendor or protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Members<'static>);

impl Metadata {
    /// The object of a vendor or protocol.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Raw<'_>> {
        self.0.value(name)
    }

    /// The objects of all vendors and protocols.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Raw<'_>> {
        self.0.iter().map(|(_, object)| object)
    }

    /// Sets the object of a vendor or protocol.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: RawObject) {
        self.0.insert(name, value.into());
    }
}

impl<'a> Read<'a> for Metadata {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut members = Members::new();
        let mut places = Vec::new();
        reader.fields(|reader, name, at| {
            places.push(at);
            members.keep_owned(reader, &name)
        })?;
        ubos_common::json::refuse_double(reader, &members, &places)?;
        Ok(Self(members))
    }
}

impl Write for Metadata {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        self.0.write_into(&mut object);
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::json::{DecodeError, Limits, decode};
    use ubos_common::violation::Profile;

    use super::*;

    #[test]
    fn an_object_that_stands_twice_is_refused_where_it_stands_again() {
        let twice = br#"{"a":{},"b":{},"a":{}}"#;
        let read = decode::<Metadata>(twice, &Limits::default(), Profile::Strict);
        let refused = read.unwrap_err();
        let DecodeError::Json(refused) = refused else {
            panic!("{refused}");
        };
        assert_eq!((&*refused.pointer, refused.offset), ("/a", 15));
    }
}
