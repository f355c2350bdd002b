//! The lines that a trace keeps.

use ubos_common::json::{MemberWriter, RawObject, Write};

/// The line that is kept of one event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TraceEntry {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    pub(super) what: LineKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LineKind {
    /// An [`AgentStreamEvent`], as JSON.
    Event(RawObject),
    /// The end of a run; see [`End`](super::wire::End).
    End(RawObject),
}

impl Write for TraceEntry {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("at", &self.at);
        match &self.what {
            LineKind::Event(event) => object.member("event", event),
            LineKind::End(end) => object.member("end", end),
        }
        object.end();
    }
}
