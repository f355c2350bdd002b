//! What can be judged.

use ubos_common::violation::Report;

use super::{osw, sacp, sap, uap};

/// One kind of file. A new one is a file with a constant, and a line in [`KINDS`].
#[derive(Debug)]
pub struct Kind {
    /// Its word on the command line.
    pub name: &'static str,
    /// What it is, for the help text.
    pub about: &'static str,
    /// The profiles that it knows; without `--profile` the judge gets none and takes its own.
    pub profiles: &'static [&'static str],
    /// Bytes of one file that are read. A file with one byte more is shown to the judge, which refuses it.
    pub max_bytes: usize,
    /// All findings about one file, whatever its bytes are.
    pub judge: fn(bytes: &[u8], profile: Option<&str>) -> Report,
}

/// All kinds, in the order of the help text.
pub const KINDS: &[Kind] = &[
    sap::TASK,
    sap::RESULT,
    sacp::MESSAGE,
    osw::MESSAGE,
    osw::STREAM,
    uap::STATE,
    uap::TREE,
];

/// The kind of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
