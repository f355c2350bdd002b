//! The texts of an output.

use ubos_common::json::{Fault, Kind, Raw, Reader};
use ubos_common::violation::Profile;

use super::reading::{reading_of, taken_apart};
use crate::limits::unbounded;

/// What somebody reads in an output: strings and names without their escapes, all else as it is written. Names in
/// them that are written as one word are there a second time, taken apart.
pub(super) fn texts_of(output: Raw<'_>) -> Vec<String> {
    let limits = unbounded();
    let mut reader = Reader::of_raw(output, &limits, Profile::Strict);
    let mut texts = Vec::new();
    if collect(&mut reader, &mut texts).is_err() {
        // Sound JSON has no fault; what has one is looked at as a whole.
        push(output.as_str(), &mut texts);
    }
    texts
}

fn collect(reader: &mut Reader<'_>, texts: &mut Vec<String>) -> Result<(), Fault> {
    match reader.peek()? {
        Kind::String => push(&reader.str()?, texts),
        Kind::Array => reader.array(|reader, _| collect(reader, texts))?,
        // Whether a name stands twice does not matter here.
        Kind::Object => reader.fields(|reader, name, _| {
            push(&name, texts);
            collect(reader, texts)
        })?,
        Kind::Null | Kind::Bool | Kind::Number => {
            push(reader.raw()?.as_str(), texts);
        }
    }
    Ok(())
}

fn push(text: &str, texts: &mut Vec<String>) {
    texts.push(reading_of(text));
    texts.extend(taken_apart(text));
}
