//! What is read from a folder: the five acts of the audit, each a pass of its own over the files.
//!
//! Passes stream: a file is read in pieces, a line is bounded, and what is kept of a file is its path and a
//! few numbers.

mod lines;
mod passes;
mod recount;
mod walk;

pub use passes::{
    Cut, Figures, Language, Largest, Note, Unreadable, duplicates, languages, largest, notes,
    secrets,
};
pub use recount::{Count, recount};
pub use walk::{Entry, Folder, tree_digest};

/// Asked between files: whether to go on, and told how far the pass is.
pub trait Progress {
    /// Files done so far; gives whether to go on.
    fn files(&mut self, done: usize) -> bool;
}

impl<F: FnMut(usize) -> bool> Progress for F {
    fn files(&mut self, done: usize) -> bool {
        self(done)
    }
}

/// Why a pass gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The folder itself cannot be read.
    #[error("{path}: {why}")]
    Folder {
        /// The folder.
        path: String,
        /// What the system said.
        why: String,
    },
    /// The pass was told to stop.
    #[error("canceled")]
    Canceled,
}

/// Counted up when a pass finds something else in the same folder: outcomes of other versions do not answer.
pub const PASS_VERSION: u32 = 1;
/// Entries of a list that a result shows.
pub const LISTED: usize = 1_000;
/// Largest files that a result shows.
pub const LARGEST: usize = 20;

#[cfg(test)]
mod tests;
