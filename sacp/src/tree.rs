//! A value as a tree that can be changed: numbers and texts stay as they are written, and members in their order.

use ubos_common::json::{
    self, DecodeError, Fault, Kind, Limits, Raw, Read, Reader, Write, escape_into,
};
use ubos_common::violation::Profile;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// A number, boolean or null, as it is written.
    Plain(Box<str>),
    /// A text, its escapes read.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl Node {
    /// The tree of a value that is known to be sound.
    pub(crate) fn of_raw(raw: Raw<'_>) -> Result<Self, DecodeError> {
        json::read_raw(raw, &Limits::default(), Profile::Strict).map(|(node, _)| node)
    }

    /// The tree of what a type writes.
    pub(crate) fn of<T: Write + ?Sized>(value: &T) -> Result<Self, DecodeError> {
        let text = json::to_vec(value);
        json::decode(&text, &Limits::default(), Profile::Strict).map(|(node, _)| node)
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(crate) fn as_list_mut(&mut self) -> Option<&mut Vec<Self>> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_object_mut(&mut self) -> Option<&mut Vec<(String, Self)>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        let members = self.as_object()?;
        members.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    pub(crate) fn member_mut(&mut self, name: &str) -> Option<&mut Self> {
        let members = self.as_object_mut()?;
        members.iter_mut().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Sets a member: in its place, or behind the others.
    pub(crate) fn set(&mut self, name: &str, value: Self) -> Option<()> {
        let members = self.as_object_mut()?;
        match members.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => members.push((name.to_owned(), value)),
        }
        Some(())
    }

    /// Takes a member out.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Self> {
        let members = self.as_object_mut()?;
        let at = members.iter().position(|(n, _)| n == name)?;
        Some(members.remove(at).1)
    }

    /// The value that an RFC 6901 pointer names.
    pub(crate) fn at_mut(&mut self, pointer: &str) -> Option<&mut Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer
            .strip_prefix('/')?
            .split('/')
            .try_fold(self, |node, token| {
                let token = token.replace("~1", "/").replace("~0", "~");
                match node {
                    Self::Object(_) => node.member_mut(&token),
                    Self::List(items) => items.get_mut(token.parse::<usize>().ok()?),
                    _ => None,
                }
            })
    }
}

impl Read<'_> for Node {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match reader.peek()? {
            Kind::String => Self::Text(reader.str()?.into_owned()),
            Kind::Array => {
                let mut items = Vec::new();
                reader.array(|reader, _| {
                    items.push(Self::read(reader)?);
                    Ok(())
                })?;
                Self::List(items)
            }
            Kind::Object => {
                let mut members = Vec::new();
                reader.object(|reader, name| {
                    let value = Self::read(reader)?;
                    members.push((name.clone().into_owned(), value));
                    Ok(())
                })?;
                Self::Object(members)
            }
            Kind::Null | Kind::Bool | Kind::Number => Self::Plain(reader.raw()?.as_str().into()),
        })
    }
}

impl Write for Node {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => text.write(out),
            Self::List(items) => items.write(out),
            Self::Object(members) => {
                out.push(b'{');
                for (n, (name, value)) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    escape_into(out, name);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}
