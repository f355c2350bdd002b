//! A body in lines.

use reqwest::Response;

use crate::transport::SendError;

/// A body cut into lines; one without a line break is one line.
pub(super) struct Lines {
    response: Response,
    buffer: Vec<u8>,
    max_bytes: usize,
    ended: bool,
}

impl Lines {
    pub(super) const fn new(response: Response, max_bytes: usize) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            max_bytes,
            ended: false,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, SendError> {
        let mut looked = 0;
        loop {
            let rest = self.buffer.get(looked..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_off(looked + at + 1);
                core::mem::swap(&mut line, &mut self.buffer);
                line.pop();
                return Ok(Some(line));
            }
            looked = self.buffer.len();
            if self.ended {
                let line = core::mem::take(&mut self.buffer);
                return Ok((!line.is_empty()).then_some(line));
            }
            if looked > self.max_bytes {
                return Err(SendError::NoAnswer {
                    what: format!("a line of more than {} bytes", self.max_bytes),
                });
            }
            match self.response.chunk().await.map_err(carrier)? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => self.ended = true,
            }
        }
    }
}

/// The error's own text may name the address with all its parts, so that is left out.
pub(super) fn carrier(error: reqwest::Error) -> SendError {
    SendError::carrier(error.without_url())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// What is read of a body, and whether it ends without an error.
    fn read(body: &'static str, max_bytes: usize) -> (Vec<String>, bool) {
        let response = Response::from(axum::http::Response::new(body));
        let mut lines = Lines::new(response, max_bytes);
        let mut read = Vec::new();
        loop {
            match lines.next().now_or_never().unwrap() {
                Ok(Some(line)) => read.push(String::from_utf8(line).unwrap()),
                Ok(None) => return (read, true),
                Err(_) => return (read, false),
            }
        }
    }

    #[test]
    fn a_body_is_cut_into_lines_without_their_breaks() {
        for (body, wanted) in [
            ("", &[][..]),
            ("one", &["one"]),
            ("one\n", &["one"]),
            ("one\ntwo", &["one", "two"]),
            ("\n\ntwo\n", &["", "", "two"]),
        ] {
            let (lines, is_whole) = read(body, 100);
            assert_eq!(
                (&*lines, is_whole),
                (
                    &wanted.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                    true
                )
            );
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_taken() {
        assert_eq!(read("four", 4), (vec!["four".to_owned()], true));
        assert_eq!(read("fiver", 4), (vec![], false));
    }
}
