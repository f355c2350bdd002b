//! Entries without secrets.

use ubos_common::json::RawObject;
use ubos_common::secret::{Bounds, redact_json};

use crate::evidence::BodyDigest;
use crate::future::BoxFuture;
use crate::lifecycle::body_digest;
use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError};

/// A transcript that keeps no secret: values shaped like one, or named like one, are replaced before they are
/// written. All else is kept as it is, and the digest of the whole is kept beside it. What was replaced is gone; the
/// cache and the answer are not touched. To redact a long entry takes its time: in files it is done by the thread of the
/// store, and in memory by another than the one who records (feature `driver`).
///
/// ```
/// use sap::store::{MemoryTranscript, Redacting};
/// use sap::transcript::{Entry, EntryKind, Transcript as _};
/// use sap::ubos_common::{json::{RawBuf, RawObject}, time::Timestamp};
///
/// let transcript = Redacting(MemoryTranscript::default());
/// let body = RawObject::new(RawBuf::parse(r#"{"n":1.50,"password":"hunter2"}"#)?).unwrap();
/// # use futures::executor::block_on;
/// block_on(transcript.record(&Entry::new(EntryKind::Task, Timestamp::EPOCH.into(), body)))?;
/// assert_eq!(block_on(transcript.read(0, 1))?[0].body.as_str(), r#"{"n":1.50,"password":"[REDACTED]"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// exhaustive: it is made of the transcript beneath
#[derive(Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "it is made of the transcript beneath"
)]
pub struct Redacting<T>(
    /// The transcript beneath.
    pub T,
);

impl<T: Transcript> Transcript for Redacting<T> {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.0.record_made(entry.clone(), redacted)
    }

    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.0.record_made(make(entry), redacted)
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        self.0.read(from, max)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.0.verify(kept)
    }
}

fn redacted(mut entry: Entry) -> Entry {
    let Some(body) = RawObject::new(redact_json(entry.body.as_raw(), &whole())) else {
        return entry;
    };
    if body.as_str() != entry.body.as_str() && entry.digest.is_none() {
        let whole = body_digest(entry.body.as_str().as_bytes());
        entry.digest = Some(BodyDigest(whole));
    }
    entry.body = body;
    entry
}

/// Nothing is cut off for its size.
pub(super) fn whole() -> Bounds {
    let mut bounds = Bounds::default();
    bounds.depth = usize::MAX;
    bounds.members = usize::MAX;
    bounds.elements = usize::MAX;
    bounds.chars = usize::MAX;
    bounds
}

#[cfg(all(test, feature = "driver"))]
mod tests {
    use futures::executor::block_on;
    use ubos_common::json::RawBuf;
    use ubos_common::time::Timestamp;

    use super::*;
    use crate::store::MemoryTranscript;
    use crate::transcript::EntryKind;
    use crate::work::{HEAVY, handed_over};

    // spec: SAP-11-2
    #[test]
    fn a_long_entry_is_redacted_on_another_thread_and_a_short_one_here() {
        let transcript = Redacting(MemoryTranscript::default());
        for (number, length, threads) in [(0, 1, 0), (1, HEAVY, 1)] {
            let text = "x".repeat(length);
            let body = format!(r#"{{"password":"hunter2","text":"{text}"}}"#);
            let body = RawObject::new(RawBuf::parse(&body).unwrap()).unwrap();
            let entry = Entry::new(EntryKind::Task, Timestamp::EPOCH.into(), body);
            let (recorded, times) = handed_over(|| block_on(transcript.record(&entry)));
            assert_eq!((recorded.ok(), times), (Some(number), threads));
            let kept = block_on(transcript.read(number, 1)).unwrap();
            let wanted = format!(r#"{{"password":"[REDACTED]","text":"{text}"}}"#);
            assert_eq!(kept[0].body.as_str(), wanted);
            assert!(kept[0].digest.is_some());
        }
        assert!(transcript.verify(None).unwrap().verdict == crate::transcript::Verdict::Intact);
    }
}
