//! The user's lines, with a bound.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Bytes of one line.
const LONGEST: usize = 1 << 20;

/// Lines of an input. Waiting for one may be given up and begun again: nothing is lost.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
        }
    }

    /// The next line without its end; none at the end of the input.
    ///
    /// # Errors
    ///
    /// The input fails; a line is longer than 1 MiB or no UTF-8.
    pub(super) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            let ready = self.input.fill_buf().await?;
            let end = ready.iter().position(|byte| *byte == b'\n');
            let is_over = ready.is_empty();
            let taken = end.map_or(ready.len(), |end| end + 1);
            self.line.extend(ready.iter().take(taken));
            self.input.consume(taken);
            if self.line.len() > LONGEST {
                let what = format!("a line of more than {LONGEST} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if is_over && self.line.is_empty() {
                return Ok(None);
            }
            if end.is_some() || is_over {
                let line = String::from_utf8(std::mem::take(&mut self.line));
                let what =
                    |_| io::Error::new(io::ErrorKind::InvalidData, "a line that is no UTF-8");
                let line = line.map_err(what)?;
                let line = line.strip_suffix('\n').unwrap_or(&line);
                return Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_where_they_end_and_have_a_bound() {
        let mut lines = Lines::new(&b"one\r\n\ntwo"[..]);
        for wanted in [Some("one"), Some(""), Some("two"), None, None] {
            assert_eq!(lines.next().await.unwrap().as_deref(), wanted);
        }
        let long = vec![b'x'; LONGEST + 2];
        assert!(Lines::new(&long[..]).next().await.is_err());
        assert!(Lines::new(&b"\xff\n"[..]).next().await.is_err());
    }
}
