//! What the transcript has, read.

use ubos_common::violation::Profile;

use super::guard::{Panicked, guarded};
use super::ledger::Latest;
use super::state::Processor;
use crate::limits::unbounded;
use crate::result::TaskResult;
use crate::transcript::{Entry, TranscriptError};
use crate::validate::{Options, decode_result};
use crate::work::{self, For};

/// Why what was recorded cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is there no more, or does not hold.
    Lost,
    /// It may be there: the transcript failed, or has too much to do.
    Now,
}

impl From<TranscriptError> for Unread {
    fn from(error: TranscriptError) -> Self {
        match error {
            TranscriptError::Archived { .. }
            | TranscriptError::Body(_)
            | TranscriptError::Damaged(_) => Self::Lost,
            _ => Self::Now,
        }
    }
}

impl From<Panicked> for Unread {
    fn from(_: Panicked) -> Self {
        Self::Now
    }
}

impl Processor {
    /// The latest result of a task, where there is one: read at once where it is short, on another thread where it is not.
    pub(super) async fn read_latest(
        &self,
        latest: Latest,
    ) -> Result<Option<Box<TaskResult>>, Unread> {
        let read = match latest {
            Latest::None => return Ok(None),
            Latest::Lost => return Err(Unread::Lost),
            Latest::Kept(encoded, _) => {
                let bytes = encoded.len();
                let options = Options::default().with_limits(unbounded());
                let read = move || decode_result(&encoded, &options);
                work::done(For::Task, bytes, read).await
            }
            Latest::Recorded(entry) => {
                let entry = self.read_entry(entry).await?;
                let bytes = entry.body.as_str().len();
                // It was taken once; what was redacted since need not be strict.
                let read = move || decode_result(entry.body.as_str().as_bytes(), &once_taken());
                work::done(For::Task, bytes, read).await
            }
        };
        read.map(|(result, _)| Some(Box::new(result)))
            .map_err(|_| Unread::Lost)
    }

    /// One entry of the transcript.
    pub(super) async fn read_entry(&self, entry: u64) -> Result<Entry, Unread> {
        let entries = guarded(async { self.transcript.read(entry, 1).await }).await??;
        entries.into_iter().next().ok_or(Unread::Lost)
    }
}

/// How to read what the transcript has: it was taken once, strictly or not, within whatever limits.
pub(super) fn once_taken() -> Options {
    Options::from(Profile::Lenient).with_limits(unbounded())
}
