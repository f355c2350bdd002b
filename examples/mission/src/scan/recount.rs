//! A second count of the same folder, by other code than the first.

#![expect(
    clippy::disallowed_types,
    reason = "reading files is what this program is for"
)]

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use super::{Folder, ScanError};

/// Files, newline characters and bytes of a share of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Files.
    pub files: u64,
    /// Newline characters of text files.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    /// Two shares as one.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            lines: self.lines + other.lines,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Counts every `of`th file, beginning with number `share`.
pub fn recount(folder: &Folder, share: usize, of: usize) -> Result<Count, ScanError> {
    let mut count = Count::default();
    for entry in folder
        .files(&mut |_, _| {})?
        .iter()
        .skip(share)
        .step_by(of.max(1))
    {
        count.files += 1;
        count.bytes += entry.bytes;
        count.lines += newlines(&folder.at(entry)).unwrap_or(0);
    }
    Ok(count)
}

fn newlines(path: &Path) -> io::Result<u64> {
    const HEAD: usize = 8 * 1024;
    let mut reader = BufReader::with_capacity(HEAD, File::open(path)?);
    let (mut lines, mut seen) = (0, 0);
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            return Ok(lines);
        }
        // A buffer may be short, so that the first 8 KiB come in several.
        let head = piece
            .get(..HEAD.saturating_sub(seen).min(piece.len()))
            .unwrap_or_default();
        if head.contains(&0) {
            return Ok(0);
        }
        lines += piece.split(|byte| *byte == b'\n').count() as u64 - 1;
        seen += piece.len();
        let taken = piece.len();
        reader.consume(taken);
    }
}
