//! One finding while its document is read.

use std::borrow::Cow;

use crate::violation::Level;

/// A finding whose place is still an offset.
pub(super) struct Note {
    pub(super) at: usize,
    pub(super) member: Option<Cow<'static, str>>,
    pub(super) code: &'static str,
    pub(super) clause: &'static str,
    pub(super) level: Level,
    pub(super) message: Cow<'static, str>,
}
