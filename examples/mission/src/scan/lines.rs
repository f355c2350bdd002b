//! Reading a file in pieces.

#![expect(
    clippy::disallowed_types,
    reason = "reading files is what this program is for"
)]

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of one piece.
const PIECE: usize = 256 * 1024;
/// Bytes at the start of a file in which a NUL makes it binary.
const HEAD: usize = 8 * 1024;

/// Calls `piece` with each piece of a file, until it says stop.
pub(super) fn pieces(path: &Path, piece: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; PIECE];
    loop {
        let read = fill(&mut file, &mut buffer)?;
        let Some(filled) = buffer.get(..read) else {
            return Ok(());
        };
        if read == 0 || !piece(filled) {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(filled)
}

/// Whether a first piece belongs to a file of text: no NUL in its first 8 KiB.
pub(super) fn is_text(first: &[u8]) -> bool {
    !first.iter().take(HEAD).any(|byte| *byte == 0)
}

/// The newline characters of a file, or `None` where it is no text.
pub(super) fn count(path: &Path) -> io::Result<Option<u64>> {
    let mut newlines = 0;
    let mut text = None;
    pieces(path, &mut |piece| {
        let is_text = *text.get_or_insert_with(|| is_text(piece));
        if is_text {
            newlines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        is_text
    })?;
    Ok((text != Some(false)).then_some(newlines))
}

/// Calls `line` with each line of a text file and its number from 1; a file that is no text has none.
///
/// A line over one piece comes in several parts with one number.
pub(super) fn each(path: &Path, line: &mut dyn FnMut(u64, &str)) -> io::Result<()> {
    let (mut number, mut text, mut rest) = (1, None, Vec::new());
    pieces(path, &mut |piece| {
        if !*text.get_or_insert_with(|| is_text(piece)) {
            return false;
        }
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                rest.extend_from_slice(part);
                break;
            }
            if rest.is_empty() {
                line(number, &String::from_utf8_lossy(part));
            } else {
                rest.extend_from_slice(part);
                line(number, &String::from_utf8_lossy(&rest));
                rest.clear();
            }
            number += 1;
        }
        if rest.len() > PIECE {
            line(number, &String::from_utf8_lossy(&rest));
            rest.clear();
        }
        true
    })?;
    if !rest.is_empty() {
        line(number, &String::from_utf8_lossy(&rest));
    }
    Ok(())
}
