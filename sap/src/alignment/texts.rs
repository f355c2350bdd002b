//! The texts of an output.

use ubos_common::json::{Fault, Kind, Raw, Reader};
use ubos_common::violation::Profile;

use super::reading::{reading_of, taken_apart};
use crate::limits::unbounded;

/// What somebody reads in an output: strings and names without their escapes, all else as it is written. Names in
/// them that are written as one word are there a second time, taken apart. Each text has a line of its own: no reading
/// has a line break, so that nothing is found over two of them.
pub(super) fn texts_of(output: Raw<'_>) -> String {
    let limits = unbounded();
    let mut reader = Reader::of_raw(output, &limits, Profile::Strict);
    let mut texts = String::new();
    if collect(&mut reader, &mut texts).is_err() {
        // Sound JSON has no fault; what has one is looked at as a whole.
        push(output.as_str(), &mut texts);
    }
    texts
}

fn collect(reader: &mut Reader<'_>, texts: &mut String) -> Result<(), Fault> {
    match reader.peek()? {
        Kind::String => push(&reader.str()?, texts),
        Kind::Array => reader.array(|reader, _| collect(reader, texts))?,
        // Whether a name stands twice does not matter here.
        Kind::Object => reader.fields(|reader, name, _| {
            push(&name, texts);
            collect(reader, texts)
        })?,
        Kind::Null | Kind::Bool | Kind::Number => {
            line(&reader.raw()?.as_str().to_ascii_lowercase(), texts);
        }
    }
    Ok(())
}

fn push(text: &str, texts: &mut String) {
    line(&reading_of(text), texts);
    if let Some(apart) = taken_apart(text) {
        line(&apart, texts);
    }
}

fn line(text: &str, texts: &mut String) {
    texts.push_str(text);
    texts.push('\n');
}
