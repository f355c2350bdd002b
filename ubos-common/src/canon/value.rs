//! Canonical form of a parsed value: names are put in order before anything is written, so the
//! text is final as it appears and a hash of it needs no more memory than one block.

use serde::Serialize;
use serde_json::{Map, Value};

use super::writer::{Sink, Writer};
use super::{CanonError, order, text};

pub(super) fn write<S: Sink>(writer: &mut Writer<'_, S>, value: &Value) -> Result<(), CanonError> {
    match value {
        Value::Null => writer.out().extend_from_slice(b"null"),
        Value::Bool(true) => writer.out().extend_from_slice(b"true"),
        Value::Bool(false) => writer.out().extend_from_slice(b"false"),
        // By way of serde, for a number is text when somebody's build has arbitrary precision.
        Value::Number(number) => number.serialize(&mut *writer)?,
        Value::String(string) => text::write_str(writer.out(), string),
        Value::Array(items) => array(writer, items)?,
        Value::Object(members) => object(writer, members)?,
    }
    Ok(())
}

fn array<S: Sink>(writer: &mut Writer<'_, S>, items: &[Value]) -> Result<(), CanonError> {
    writer.enter(b'[')?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            writer.out().push(b',');
        }
        write(writer, item).map_err(|error| error.under_index(index))?;
        writer.settle();
    }
    writer.leave(b']');
    Ok(())
}

fn object<S: Sink>(
    writer: &mut Writer<'_, S>,
    object: &Map<String, Value>,
) -> Result<(), CanonError> {
    writer.enter(b'{')?;
    let compare = |a: &String, b: &String| order::compare(a.as_bytes(), b.as_bytes());
    if object.keys().is_sorted_by(|a, b| compare(a, b).is_lt()) {
        members(writer, object.iter())?;
    } else {
        let mut sorted: Vec<_> = object.iter().collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| compare(a, b));
        members(writer, sorted.into_iter())?;
    }
    writer.leave(b'}');
    Ok(())
}

fn members<'v, S: Sink>(
    writer: &mut Writer<'_, S>,
    members: impl Iterator<Item = (&'v String, &'v Value)>,
) -> Result<(), CanonError> {
    for (index, (name, value)) in members.enumerate() {
        let out = writer.out();
        out.extend_from_slice(if index > 0 { b",\"" } else { b"\"" });
        text::write_body(out, name.as_bytes());
        out.extend_from_slice(b"\":");
        write(writer, value).map_err(|error| error.under_name(name))?;
        writer.settle();
    }
    Ok(())
}
