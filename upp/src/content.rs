//! The blocks that messages are made of.

use std::sync::Arc;

use ubos_common::json::{Fault, MemberWriter, RawBuf, RawObject, Read, Reader, Write};
use ubos_common::violation::Level;

use crate::blob::Blob;
use crate::settled::Settled;

/// One block of a message's content.
///
/// A user's message may hold every block but reasoning, an assistant's every block but documents and
/// binaries.
///
/// Spec: UPP-1.3 messages
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text(Arc<str>),
    /// Reasoning of the model.
    Reasoning(Arc<str>),
    /// An image.
    #[non_exhaustive]
    Image {
        /// The source of its bytes.
        source: Source,
        /// MIME type.
        mime_type: Box<str>,
        /// The width in pixels; absent where unknown.
        width: Option<u32>,
        /// The height in pixels; absent where unknown.
        height: Option<u32>,
    },
    /// A document.
    #[non_exhaustive]
    Document {
        /// The source of its bytes or its text.
        source: Source,
        /// MIME type.
        mime_type: Box<str>,
        /// The title.
        title: Option<Box<str>>,
    },
    /// Audio, video or other bytes.
    #[non_exhaustive]
    Media {
        /// The kind of media.
        kind: MediaKind,
        /// The bytes.
        data: Blob,
        /// MIME type.
        mime_type: Box<str>,
        /// Members that a vendor adds: `duration`, `width`, `height` or `metadata`, unchanged.
        details: Vec<(&'static str, RawBuf)>,
    },
}

ubos_common::words! {
    /// The kind of a [`ContentBlock::Media`].
    closed pub enum MediaKind {
        /// Audio.
        Audio = "audio",
        /// Video.
        Video = "video",
        /// Anything else.
        Binary = "binary",
    }
}

/// The source of an image or a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Inline, as base64 text.
    Base64(Arc<str>),
    /// A URL.
    Url(Box<str>),
    /// Inline, as bytes.
    Bytes(Blob),
    /// Inline, as plain text (documents only).
    Text(Arc<str>),
}

impl ContentBlock {
    /// A text block.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// An image.
    pub fn image(source: Source, mime_type: impl Into<Box<str>>) -> Self {
        Self::Image {
            source,
            mime_type: mime_type.into(),
            width: None,
            height: None,
        }
    }

    /// A document.
    pub fn document(source: Source, mime_type: impl Into<Box<str>>) -> Self {
        Self::Document {
            source,
            mime_type: mime_type.into(),
            title: None,
        }
    }

    /// A block of audio, video or other bytes.
    pub fn media(kind: MediaKind, data: impl Into<Blob>, mime_type: impl Into<Box<str>>) -> Self {
        Self::Media {
            kind,
            data: data.into(),
            mime_type: mime_type.into(),
            details: Vec::new(),
        }
    }

    /// The tag on the wire.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Text(_) => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Image { .. } => "image",
            Self::Document { .. } => "document",
            Self::Media { kind, .. } => kind.as_str(),
        }
    }

    /// The text of a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for ContentBlock {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for ContentBlock {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

// impl: UPP-1
impl Write for ContentBlock {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("type", self.type_name());
        match self {
            Self::Text(text) | Self::Reasoning(text) => object.member("text", &**text),
            Self::Image {
                source,
                mime_type,
                width,
                height,
            } => {
                object.member("source", source);
                object.member("mimeType", &**mime_type);
                object.optional("width", width.as_ref());
                object.optional("height", height.as_ref());
            }
            Self::Document {
                source,
                mime_type,
                title,
            } => {
                object.member("source", source);
                object.member("mimeType", &**mime_type);
                object.optional("title", title.as_deref());
            }
            Self::Media {
                data,
                mime_type,
                details,
                ..
            } => {
                object.member("data", data);
                object.member("mimeType", &**mime_type);
                for (name, value) in details {
                    object.member(name, value);
                }
            }
        }
        object.end();
    }
}

impl Write for Source {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        match self {
            Self::Base64(text) => {
                object.member("type", "base64");
                object.member("data", &**text);
            }
            Self::Url(url) => {
                object.member("type", "url");
                object.member("url", &**url);
            }
            Self::Bytes(blob) => {
                object.member("type", "bytes");
                object.member("data", blob);
            }
            Self::Text(text) => {
                object.member("type", "text");
                object.member("data", &**text);
            }
        }
        object.end();
    }
}

ubos_common::words! {
    closed enum BlockType {
        Text = "text",
        Reasoning = "reasoning",
        Image = "image",
        Document = "document",
        Audio = "audio",
        Video = "video",
        Binary = "binary",
    }
}

ubos_common::wire! {
    /// The members of all blocks.
    struct AnyBlock {
        /// The tag.
        required kind: BlockType = "type", "UPP-1";
        /// Text and reasoning.
        nullable text: Settled<String> = "text", "UPP-1";
        /// Image and document.
        nullable source: Settled<Source> = "source", "UPP-1";
        /// Audio, video, binary.
        nullable data: Settled<Blob> = "data", "UPP-1";
        /// Blocks other than text and reasoning.
        nullable mime_type: Settled<Box<str>> = "mimeType", "UPP-1";
        /// Document.
        nullable title: Box<str> = "title", "UPP-1";
        /// Image, video.
        nullable width: RawBuf = "width", "UPP-1";
        /// Image, video.
        nullable height: RawBuf = "height", "UPP-1";
        /// Audio, video.
        nullable duration: RawBuf = "duration", "UPP-1";
        /// Binary.
        nullable metadata: RawObject = "metadata", "UPP-1";
    }
}

/// Takes a required member, or adds a finding where it is absent.
macro_rules! need {
    ($reader:ident, $at:ident, $value:expr, $name:literal) => {
        match $value {
            Some(Settled(Some(value))) => value,
            Some(Settled(None)) => return Err($reader.noted()),
            None => {
                $reader.missing($at, $name, "UPP-1", Level::Must);
                return Err($reader.noted());
            }
        }
    };
}

// impl: UPP-1
impl<'a> Read<'a> for ContentBlock {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let any = AnyBlock::read(reader)?;
        if let BlockType::Text | BlockType::Reasoning = any.kind {
            let text = need!(reader, at, any.text, "text").into();
            return Ok(match any.kind {
                BlockType::Text => Self::Text(text),
                _ => Self::Reasoning(text),
            });
        }
        let mime_type = need!(reader, at, any.mime_type, "mimeType");
        let pixels = |value: Option<RawBuf>| value.and_then(|v| v.as_str().parse().ok());
        match any.kind {
            BlockType::Image => Ok(Self::Image {
                source: need!(reader, at, any.source, "source"),
                mime_type,
                width: pixels(any.width),
                height: pixels(any.height),
            }),
            BlockType::Document => Ok(Self::Document {
                source: need!(reader, at, any.source, "source"),
                mime_type,
                title: any.title,
            }),
            kind => {
                let details = [
                    ("duration", any.duration),
                    ("width", any.width),
                    ("height", any.height),
                    ("metadata", any.metadata.map(RawBuf::from)),
                ];
                Ok(Self::Media {
                    kind: kind.as_str().into(),
                    data: need!(reader, at, any.data, "data"),
                    mime_type,
                    details: details
                        .into_iter()
                        .filter_map(|(name, value)| Some((name, value?)))
                        .collect(),
                })
            }
        }
    }
}

ubos_common::words! {
    closed enum SourceType {
        Base64 = "base64",
        Url = "url",
        Bytes = "bytes",
        Text = "text",
    }
}

ubos_common::wire! {
    /// The members of all sources.
    struct AnySource {
        /// The tag.
        required kind: SourceType = "type", "UPP-1";
        /// Sources other than URLs.
        nullable data: Settled<RawBuf> = "data", "UPP-1";
        /// Url.
        nullable url: Settled<Box<str>> = "url", "UPP-1";
    }
}

impl<'a> Read<'a> for Source {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let any = AnySource::read(reader)?;
        if any.kind == SourceType::Url {
            return Ok(Self::Url(need!(reader, at, any.url, "url")));
        }
        let data = need!(reader, at, any.data, "data");
        if any.kind == SourceType::Bytes {
            let mut inner = Reader::of_raw(data.as_raw(), reader.limits(), profile(reader));
            let blob = Blob::read(&mut inner);
            return blob
                .map(Self::Bytes)
                .map_err(|_| reader.bad_value(at, "bytes, or base64 of them"));
        }
        match data.deserialize::<String>() {
            Ok(text) if any.kind == SourceType::Base64 => Ok(Self::Base64(text.into())),
            Ok(text) => Ok(Self::Text(text.into())),
            Err(_) => Err(reader.bad_value(at, "data that is a text")),
        }
    }
}

const fn profile(reader: &Reader<'_>) -> ubos_common::violation::Profile {
    if reader.is_lenient() {
        ubos_common::violation::Profile::Lenient
    } else {
        ubos_common::violation::Profile::Strict
    }
}
