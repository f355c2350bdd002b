//! Entries that are made where they are recorded: without the feature `driver` there is no other thread.

use std::sync::Arc;

use crate::future::{BoxFuture, ready};
use crate::transcript::{Entry, TranscriptError};

type Recorded = Result<u64, TranscriptError>;

/// Where entries go.
pub(super) trait Shelf: Send + Sync + 'static {
    /// Adds an entry, and gives its number.
    fn add(&self, entry: &Entry) -> Recorded;
}

/// A shelf.
#[derive(Debug)]
pub(super) struct Line<S> {
    pub(super) shelf: S,
}

impl<S: Shelf> Line<S> {
    pub(super) const fn new(shelf: S) -> Self {
        Self { shelf }
    }

    pub(super) fn record(self: &Arc<Self>, entry: &Entry) -> BoxFuture<'static, Recorded> {
        ready(self.shelf.add(entry))
    }

    pub(super) fn record_made(
        self: &Arc<Self>,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'static, Recorded> {
        self.record(&make(entry))
    }
}
