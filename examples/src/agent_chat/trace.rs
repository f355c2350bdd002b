//! What happens, in a file: one event a line, with milliseconds since the program began.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use uap_agent::AgentStreamEvent;
use ubos_common::json::to_string;
use ubos_common::time::Mono;

/// A file of events.
#[derive(Debug)]
pub(super) struct TraceFile {
    #[expect(clippy::disallowed_types, reason = "a trace is kept in a file")]
    to: BufWriter<std::fs::File>,
}

impl TraceFile {
    /// A new file, in place of one that is there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        #[expect(clippy::disallowed_types, reason = "a trace is kept in a file")]
        let file = std::fs::File::create(path)?;
        Ok(Self {
            to: BufWriter::new(file),
        })
    }

    /// Adds an event.
    pub(super) fn push(&mut self, at: Mono, event: &AgentStreamEvent) -> io::Result<()> {
        let at = at.saturating_since(Mono::ZERO).as_millis();
        writeln!(self.to, "{{\"at\":{at},\"event\":{}}}", to_string(event))
    }

    /// Puts what was added into the file.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
