//! The common parts of request bodies.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, RawObject, Write};

use crate::content::{ContentBlock, Source};
use crate::model::LlmRequest;
use crate::tool::Tool;

/// JSON that is written as it is.
pub(super) struct Text<'a>(pub(super) &'a str);

impl Write for Text<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}

/// The text of an object with these members.
pub(super) fn object_text(members: impl FnOnce(&mut MemberWriter<'_>)) -> String {
    let mut out = Vec::new();
    let mut object = MemberWriter::begin(&mut out);
    members(&mut object);
    object.end();
    // Writers write UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// The user's parameters. One that the request sets itself is refused, because it could not be sent unaltered. A choice of
/// tools is left out of a request that forbids calls.
///
/// # Errors
///
/// A parameter has a name that the request itself sets.
// impl: UPP-2
pub(super) fn params(
    request: &LlmRequest,
    taken: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, RawBuf>, &'static str> {
    let mut read = request
        .params
        .as_deref()
        .map_or_else(|| Ok(BTreeMap::new()), read)?;
    if request.forbids_calls() {
        // A choice of the user's is one among tools that may be called.
        read.remove("tool_choice");
        read.remove("toolConfig");
    }
    if read.keys().any(|name| taken(name)) {
        return Err("a parameter has a name that the request itself sets");
    }
    Ok(read)
}

fn read(params: &RawObject) -> Result<BTreeMap<String, RawBuf>, &'static str> {
    params
        .deserialize()
        .map_err(|_| "the parameters are not an object")
}

/// The parameters of every request with those of one.
pub(super) fn merged(
    every: &RawObject,
    one: Option<&RawObject>,
) -> Result<Arc<RawObject>, &'static str> {
    let mut all = read(every)?;
    if let Some(one) = one {
        all.extend(read(one)?);
    }
    let text = object_text(|object| {
        for (name, value) in &all {
            object.member(name, value);
        }
    });
    let object = RawObject::new(RawBuf::assume_sound(text));
    object
        .map(Arc::new)
        .ok_or("the parameters are not an object")
}

/// The members of a parameter that is an object, with those that the request itself sets.
///
/// # Errors
///
/// The parameter is not an object, or has a member that the request sets.
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
pub(super) fn with_members(
    param: Option<RawBuf>,
    ours: &[(&str, &str)],
) -> Result<String, &'static str> {
    let own: BTreeMap<String, RawBuf> = match param {
        Some(param) => param
            .deserialize()
            .map_err(|_| "a parameter that is shared with structured output is not an object")?,
        None => BTreeMap::new(),
    };
    if ours.iter().any(|(name, _)| own.contains_key(*name)) {
        return Err("a parameter has a name that the request itself sets");
    }
    Ok(object_text(|object| {
        for (name, value) in &own {
            object.member(name, value);
        }
        for (name, value) in ours {
            object.member(name, &Text(value));
        }
    }))
}

/// Writes a tool's metadata for one vendor, without the members that the adapter writes itself.
pub(super) fn tool_metadata(
    object: &mut MemberWriter<'_>,
    tool: &dyn Tool,
    provider: &str,
    own: &[&str],
) {
    let said = tool.metadata().and_then(|metadata| metadata.get(provider));
    let said: BTreeMap<String, RawBuf> = said
        .and_then(|said| said.deserialize().ok())
        .unwrap_or_default();
    for (name, value) in said.iter().filter(|(name, _)| !own.contains(&&***name)) {
        object.member(name, value);
    }
}

/// The base64 of an image's or a document's bytes; a URL is given as it is.
pub(super) enum Place {
    Url(String),
    Base64(String),
}

/// The bytes of a source, or their URL.
///
/// # Errors
///
/// The source is a plain text.
pub(super) fn place(source: &Source) -> Result<Place, &'static str> {
    match source {
        Source::Url(url) => Ok(Place::Url(url.to_string())),
        Source::Base64(data) => Ok(Place::Base64(data.to_string())),
        Source::Bytes(data) => Ok(Place::Base64(data.to_base64())),
        Source::Text(_) => Err("a source of plain text cannot be sent as bytes"),
    }
}

/// The error for a block that the vendor does not accept.
pub(super) const fn untaken(_: &ContentBlock) -> &'static str {
    "the model does not take this content"
}
