//! Input whose lines are not endless.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use tokio::io::{AsyncRead, ReadBuf};

/// An input of which no line is longer than 2 MiB, which has room for a task of 1 MiB as text within JSON: a longer one is an
/// error, and the server on it ends. The library below keeps a line until it is whole, however long that is.
///
/// ```no_run
/// # async fn serve(server: sap::transport::mcp::Server) -> Result<(), Box<dyn std::error::Error>> {
/// use rmcp::ServiceExt as _;
/// use sap::transport::mcp::Bounded;
///
/// # let (input, output) = (tokio::io::empty(), tokio::io::sink());
/// server.serve((Bounded::new(input), output)).await?.waiting().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Bounded<R> {
    input: R,
    /// Bytes of the line that is not whole yet.
    line: usize,
}

impl<R> Bounded<R> {
    /// The same input with this bound.
    pub const fn new(input: R) -> Self {
        Self { input, line: 0 }
    }

    /// Counts what was read; false where a line is too long.
    fn takes(&mut self, read: &[u8]) -> bool {
        for (number, part) in read.split(|byte| *byte == b'\n').enumerate() {
            let before = if number == 0 { self.line } else { 0 };
            self.line = before.saturating_add(part.len());
            if self.line > MAX_LINE_BYTES {
                return false;
            }
        }
        true
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.input).poll_read(cx, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(match self.takes(read) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line of the input is longer than 2 MiB",
            )),
        })
    }
}

/// Bytes of one line.
const MAX_LINE_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SAP-10-3
    #[test]
    fn no_line_is_longer_than_the_bound() {
        let long = vec![b'x'; MAX_LINE_BYTES - 1];
        let mut input = Bounded::new(());
        for _ in 0..3 {
            assert!(input.takes(&long) && input.takes(b"x") && input.takes(b"\n"));
        }
        assert!(input.takes(b"\nx") && input.takes(&long));
        assert!(!input.takes(b"x"));
        // Within one piece, too.
        let mut piece = vec![b'x'; MAX_LINE_BYTES + 1];
        piece.push(b'\n');
        assert!(!Bounded::new(()).takes(&piece));
    }
}
