//! What happens, in a file: a line of JSON an event, or one page to look at.

use std::io;
use std::path::{Path, PathBuf};

use uap_agent::Trace;
use uap_agent::{AgentError, AgentStreamEvent, GenerateResult};
use ubos_common::time::Now;

/// A file of events, written anew after each answer.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    /// Whether it is a page.
    is_page: bool,
    trace: Trace,
}

impl TraceFile {
    /// A new file, in place of one that is there: a page where its name ends in `.html`, else lines.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let is_page = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
        let file = Self {
            path: path.to_owned(),
            is_page,
            trace: Trace::default(),
        };
        file.keep().map(|()| file)
    }

    /// Adds an event.
    pub(super) fn push(&mut self, now: Now, event: &AgentStreamEvent) {
        self.trace.push(now, event);
    }

    /// Says how an answer ended, and writes the file.
    pub(super) fn end(
        &mut self,
        now: Now,
        result: &Result<GenerateResult, Box<AgentError>>,
    ) -> io::Result<()> {
        self.trace.end(now, result);
        self.keep()
    }

    fn keep(&self) -> io::Result<()> {
        let mut text = Vec::new();
        if self.is_page {
            text.extend(self.trace.to_html().into_bytes());
        } else {
            self.trace.write_lines(&mut text)?;
        }
        std::fs::write(&self.path, text)
    }
}
