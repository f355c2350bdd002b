//! A reader of server-sent events.

use core::mem;

/// Bytes of one event.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Reads the data of server-sent events, however the bytes are split.
///
/// Lines end in LF, CR or CRLF; several data lines are joined by a newline; comments, other fields and a byte order
/// mark at the beginning are passed over. What stands in the last, unfinished event is given by [`SseReader::finish`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SseReader {
    line: Vec<u8>,
    after_cr: bool,
    /// Whether the first line has ended.
    began: bool,
    name: Option<String>,
    data: Option<String>,
    ready: std::collections::VecDeque<SseEvent>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The name, where it has one.
    pub(crate) name: Option<String>,
    /// The data.
    pub(crate) data: String,
}

impl SseEvent {
    /// Whether the event has a name of its own that is none of these.
    #[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
    pub(crate) fn is_named_other_than(&self, known: &[&str]) -> bool {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        name.is_some_and(|name| !known.contains(&name))
    }
}

/// An event has more than 16 MiB, or is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// Longer than 16 MiB.
    #[error("an event has more than 16 MiB")]
    TooLong,
    /// Not UTF-8.
    #[error("an event is not UTF-8")]
    Utf8,
}

impl SseReader {
    /// Takes more bytes.
    ///
    /// # Errors
    ///
    /// See [`SseError`]; the reader is of no use after one.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        for &byte in bytes {
            match byte {
                b'\n' if mem::take(&mut self.after_cr) => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line()?;
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                    if self.line.len() > MAX_EVENT_BYTES {
                        return Err(SseError::TooLong);
                    }
                }
            }
        }
        Ok(())
    }

    /// The next complete event.
    pub(crate) fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    /// The bytes are at their end: an unfinished event is an event too.
    ///
    /// # Errors
    ///
    /// See [`SseError`].
    pub(crate) fn finish(&mut self) -> Result<(), SseError> {
        self.end_line()?;
        self.end_event();
        Ok(())
    }

    /// An event without data is none, and a name does not reach the next event.
    fn end_event(&mut self) {
        let name = self.name.take();
        let event = self.data.take().map(|data| SseEvent { name, data });
        self.ready.extend(event);
    }

    fn end_line(&mut self) -> Result<(), SseError> {
        let line = mem::take(&mut self.line);
        if line.is_empty() {
            self.began = true;
            self.end_event();
            return Ok(());
        }
        let line = String::from_utf8(line).map_err(|_| SseError::Utf8)?;
        let is_first = !mem::replace(&mut self.began, true);
        let line = match line.strip_prefix('\u{feff}') {
            Some(rest) if is_first => rest,
            _ => line.as_str(),
        };
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        if field == "event" {
            self.name = Some(value.to_owned());
        }
        if field != "data" {
            return Ok(());
        }
        match &mut self.data {
            None => self.data = Some(value.to_owned()),
            Some(data) if data.len() + value.len() >= MAX_EVENT_BYTES => {
                return Err(SseError::TooLong);
            }
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(parts: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        parts.iter().for_each(|part| reader.feed(part).unwrap());
        reader.finish().unwrap();
        core::iter::from_fn(|| reader.next_event())
            .map(|event| event.data)
            .collect()
    }

    #[test]
    fn events_end_at_blank_lines_of_any_kind() {
        let text = "\u{feff}: hi\r\ndata:1\r\ndata: 2\r\n\r\nevent: x\nid: 1\n\ndata\rdata: ü\r\r: c\ndata: tail";
        assert_eq!(all(&[text.as_bytes()]), ["1\n2", "\nü", "tail"]);
        let marked = "\u{feff}data: first\n\n\u{feff}data: no field\n\n";
        assert_eq!(all(&[marked.as_bytes()]), ["first"]);
        let mut reader = SseReader::default();
        reader
            .feed(b"event: a\n\ndata: 1\n\ndata: 2\nevent: b\n\n")
            .unwrap();
        let names = core::iter::from_fn(|| reader.next_event()).map(|event| event.name);
        assert_eq!(names.collect::<Vec<_>>(), [None, Some("b".to_owned())]);
    }

    #[test]
    fn a_line_and_an_event_have_16_mib() {
        let feed = |lines: &[usize]| {
            let mut reader = SseReader::default();
            for length in lines {
                reader.feed(b"data:")?;
                reader.feed(&vec![b'x'; *length])?;
                reader.feed(b"\n")?;
            }
            reader.finish()
        };
        let line = MAX_EVENT_BYTES - "data:".len();
        assert!(feed(&[line]).is_ok() && feed(&[line + 1]).is_err());
        // The newline between two lines counts.
        assert!(feed(&[line, 4]).is_ok() && feed(&[line, 5]).is_err());
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(text in "(data: ?[a-z]{0,3}|:|x|\r|\n|\r\n|ü){0,30}", at in any::<prop::sample::Index>()) {
            let bytes = text.as_bytes();
            let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(all(&[head, tail]), all(&[bytes]));
        }
    }
}
