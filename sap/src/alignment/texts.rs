//! The texts of an output.

use ubos_common::json::{Fault, Kind, Raw, Reader};
use ubos_common::violation::Profile;

use crate::limits::unbounded;

/// What somebody reads in an output, in lower case: strings and names without their escapes, all else as it is
/// written.
pub(super) fn texts_of(output: Raw<'_>) -> Vec<String> {
    let limits = unbounded();
    let mut reader = Reader::of_raw(output, &limits, Profile::Strict);
    let mut texts = Vec::new();
    if collect(&mut reader, &mut texts).is_err() {
        // Sound JSON has no fault; what has one is looked at as a whole.
        texts.push(output.as_str().to_lowercase());
    }
    texts
}

fn collect(reader: &mut Reader<'_>, texts: &mut Vec<String>) -> Result<(), Fault> {
    match reader.peek()? {
        Kind::String => texts.push(reader.str()?.to_lowercase()),
        Kind::Array => reader.array(|reader, _| collect(reader, texts))?,
        // Whether a name stands twice does not matter here.
        Kind::Object => reader.fields(|reader, name, _| {
            texts.push(name.to_lowercase());
            collect(reader, texts)
        })?,
        Kind::Null | Kind::Bool | Kind::Number => {
            texts.push(reader.raw()?.as_str().to_lowercase());
        }
    }
    Ok(())
}
