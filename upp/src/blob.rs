//! Bytes on the wire: always written as base64.

use core::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ubos_common::json::{Fault, Kind, Read, Reader, Write};

/// Writes padding, and accepts texts with and without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes of an image, an audio clip or a file. Clones share them.
///
/// Written as standard base64 with padding. Read from that, from an array of numbers, and from the object with
/// index keys that JavaScript makes of a byte array.
///
/// ```
/// use ubos_common::json;
/// use upp::Blob;
///
/// assert_eq!(json::to_string(&Blob::from(vec![1, 2, 3])), "\"AQID\"");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Blob(Arc<[u8]>);

impl Blob {
    /// The bytes as standard base64 with padding.
    // impl: UPP-1
    pub(crate) fn to_base64(&self) -> String {
        BASE64.encode(&self.0)
    }

    /// Decodes base64. Padding is optional; other deviations give `None`.
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        BASE64.decode(text).ok().map(Self::from)
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Write for Blob {
    fn write(&self, out: &mut Vec<u8>) {
        self.to_base64().write(out);
    }
}

impl<'a> Read<'a> for Blob {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let (mark, at) = (reader.mark(), reader.offset());
        match reader.peek()? {
            Kind::String => {
                let text = reader.str()?;
                Self::from_base64(&text).ok_or_else(|| reader.bad_value(at, "base64"))
            }
            Kind::Array => Vec::<u8>::read(reader).map(Self::from),
            Kind::Object => {
                let mut bytes = Vec::new();
                let mut in_order = true;
                reader.object(|reader, name| {
                    in_order &= name.parse() == Ok(bytes.len());
                    bytes.push(u8::read(reader)?);
                    Ok(())
                })?;
                let wanted = "bytes under the keys 0, 1, 2 …";
                in_order
                    .then(|| Self::from(bytes))
                    .ok_or_else(|| reader.bad_value(at, wanted))
            }
            seen => Err(reader.wrong_type(mark, "base64 or bytes", seen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubos_common::json::{Limits, decode, to_string};
    use ubos_common::violation::Profile;

    fn read(text: &str) -> Option<Blob> {
        let read = decode(text.as_bytes(), &Limits::default(), Profile::Strict);
        read.ok().map(|(blob, _)| blob)
    }

    #[test]
    fn bytes_have_one_form_on_the_wire_and_three_ways_in() {
        for length in 0..=70_u8 {
            let blob = Blob::from((0..length).map(|n| n.wrapping_mul(89)).collect::<Vec<_>>());
            assert_eq!(read(&to_string(&blob)), Some(blob));
        }
        let three = Some(Blob::from(vec![1, 2, 255]));
        assert_eq!(read("\"AQL/\""), three);
        assert_eq!(read("\"AQ\""), read("\"AQ==\""));
        assert_eq!(read("[1,2,255]"), three);
        assert_eq!(read(r#"{"0":1,"1":2,"2":255}"#), three);
        for bad in [
            "\"A\"",
            "\"AQ=x\"",
            "\"AQ===\"",
            "\"AR==\"",
            "\"A-==\"",
            "[256]",
            r#"{"1":1}"#,
            "7",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
