//! Redaction of text that comes in pieces: lines of a process, chunks of a stream.

use core::fmt;
use std::borrow::Cow;

use super::shape::{BLOCK_BYTES, SecretKind, block_end, secret_shapes};

/// What stands where a secret stood.
pub const PLACEHOLDER: &str = "[REDACTED]";

/// Replaces what looks like a secret in a text that comes piece by piece.
///
/// A line is given out when it is complete, so that no secret is cut in two; what a later line needs of it is
/// remembered: a private key whose block goes on, a name whose value stands on the next line.
///
/// | bound | bytes | at the bound |
/// |---|---|---|
/// | a line that is held back | 8 KiB | it is given out up to its last space, or whole |
/// | a private key without an end | 16 KiB | what follows is text again |
/// | what is remembered of the text before | 256 | a name further back is forgotten |
///
/// ```
/// use ubos_common::secret::Redactor;
///
/// let mut redactor = Redactor::default();
/// assert_eq!(redactor.push("authorization:\n  Bearer abcdef"), "authorization:\n");
/// assert_eq!(redactor.push("ghijklmnop123456\nok\n"), "  Bearer [REDACTED]\nok\n");
/// assert_eq!(redactor.push("the rest"), "");
/// assert_eq!(redactor.finish(), "the rest");
/// ```
#[derive(Default)]
pub struct Redactor {
    /// What is remembered, and behind it what is held back.
    text: String,
    remembered: usize,
    /// Bytes of a private key that may still come.
    block_left: usize,
}

impl Redactor {
    /// Takes a piece, and gives out the lines that are complete.
    #[must_use]
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        self.text.push_str(piece);
        // Only the piece can have brought a line break.
        let fresh = self.text.len() - piece.len();
        if let Some(end) = piece.rfind('\n') {
            self.give_out(fresh + end + 1, &mut out);
        }
        if self.text.len() - self.remembered > HELD_BYTES {
            let held = self.text.get(self.remembered..).unwrap_or_default();
            let end = held
                .rfind(char::is_whitespace)
                .map_or(held.len(), |at| at + 1);
            self.give_out(self.remembered + end, &mut out);
        }
        out
    }

    /// Gives out what is held back. What is pushed then begins a new text.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.give_out(self.text.len(), &mut out);
        *self = Self::default();
        out
    }

    /// A text that is there as a whole.
    pub(super) fn whole(text: &str) -> Cow<'_, str> {
        let mut out = String::new();
        let mut kept = 0;
        for found in secret_shapes(text) {
            out.push_str(text.get(kept..found.range.start).unwrap_or_default());
            out.push_str(PLACEHOLDER);
            kept = found.range.end;
        }
        if kept == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(text.get(kept..).unwrap_or_default());
        Cow::Owned(out)
    }

    fn give_out(&mut self, end: usize, out: &mut String) {
        let mut from = self.remembered + self.skip_block(end);
        let text = self.text.get(..end).unwrap_or_default();
        for found in secret_shapes(text) {
            if found.range.end <= from {
                continue;
            }
            out.push_str(text.get(from..found.range.start).unwrap_or_default());
            // Of one that began in what was given out, the rest is replaced.
            out.push_str(PLACEHOLDER);
            let secret = text.get(found.range.clone()).unwrap_or_default();
            if found.kind == SecretKind::PrivateKey && block_end(secret.as_bytes()).is_none() {
                self.block_left = BLOCK_BYTES.saturating_sub(secret.len());
            }
            from = found.range.end;
        }
        out.push_str(text.get(from..).unwrap_or_default());
        let mut forgotten = end.saturating_sub(REMEMBERED_BYTES);
        while !self.text.is_char_boundary(forgotten) {
            forgotten += 1;
        }
        self.text.drain(..forgotten);
        self.remembered = end - forgotten;
    }

    /// Bytes of what is held back that belong to a private key whose beginning was given out.
    fn skip_block(&mut self, end: usize) -> usize {
        let held = self.text.get(self.remembered..end).unwrap_or_default();
        if self.block_left == 0 {
            return 0;
        }
        let within = held.len().min(self.block_left);
        let over = held.as_bytes().get(..within).and_then(block_end);
        self.block_left = if over.is_some() {
            0
        } else {
            self.block_left - within
        };
        let mut skipped = over.unwrap_or(within);
        while !held.is_char_boundary(skipped) {
            skipped += 1;
        }
        skipped
    }
}

impl fmt::Debug for Redactor {
    /// Sizes only: what is held back is not redacted yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("held_bytes", &(self.text.len() - self.remembered))
            .field("remembered_bytes", &self.remembered)
            .finish_non_exhaustive()
    }
}

const HELD_BYTES: usize = 8 * 1024;
const REMEMBERED_BYTES: usize = 256;
