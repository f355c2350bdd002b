//! The place of a job in a trace, in the metadata of calls.

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use ubos_common::trace_context::TraceContext;

/// Writes it, in place of what is there.
pub(super) fn carry(trace: Option<&TraceContext>, metadata: &mut MetadataMap) {
    for (name, value) in trace.into_iter().flat_map(TraceContext::to_carry) {
        // It has no characters but those of ASCII that are printed.
        if let Ok(value) = AsciiMetadataValue::try_from(value) {
            metadata.insert(name, value);
        }
    }
}

/// Reads it; what is not valid is none.
pub(super) fn carried(metadata: &MetadataMap) -> Option<TraceContext> {
    TraceContext::carried(|name| {
        let values = metadata.get_all(name).iter();
        // One that is no text is not valid, and counts for those of its name.
        values.map(|value| value.to_str().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use ubos_common::trace_context::{TRACEPARENT, TRACESTATE};

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_place_is_read_as_it_was_written_and_is_there_once() {
        let trace = TraceContext::read(PARENT, ["a=1,b=2"]).unwrap();
        let mut metadata = MetadataMap::new();
        metadata.insert(TRACEPARENT, "another".parse().unwrap());
        metadata.append(TRACESTATE, "c=3".parse().unwrap());
        carry(Some(&trace), &mut metadata);
        assert_eq!(carried(&metadata), Some(trace));
        carry(None, &mut metadata);
        assert_eq!(metadata.len(), 2);
    }

    #[test]
    fn what_is_not_valid_is_none() {
        let of = |parents: &[&'static [u8]]| {
            let mut metadata = MetadataMap::new();
            for parent in parents {
                let value = AsciiMetadataValue::try_from(*parent).unwrap();
                metadata.append(TRACEPARENT, value);
            }
            carried(&metadata)
        };
        assert!(of(&[PARENT.as_bytes()]).is_some());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[b"00-0-0-0"]), None);
        assert_eq!(of(&[PARENT.as_bytes(), PARENT.as_bytes()]), None, "twice");
        assert_eq!(of(&["\u{e9}".as_bytes()]), None);
        assert_eq!(of(&[PARENT.as_bytes(), "\u{e9}".as_bytes()]), None, "twice");
    }
}
