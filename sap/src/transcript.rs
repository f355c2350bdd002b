//! The transcript: every task, result and Nack, written down before it is delivered.

use core::fmt;

use ubos_common::json::{self, RawObject};
use ubos_common::time::{Timestamp, WholeSecond};
use ubos_common::violation::Profile;

use crate::evidence::BodyDigest;
use crate::future::BoxFuture;
use crate::limits::unbounded;
use crate::number::Whole;
#[cfg(feature = "driver")]
use crate::receipt::Nack;

ubos_common::words! {
    /// What an entry holds.
    closed pub enum EntryKind {
        /// A task, as it was taken.
        Task = "task",
        /// A result, as it was sent.
        Result = "result",
        /// A Nack, with the digest of what was turned away, not its body.
        Nack = "nack",
    }
}

ubos_common::wire! {
    /// One entry of a transcript. Spec: SAP 10, 11
    pub struct Entry {
        /// What it holds.
        required kind: EntryKind = "kind", "SAP-10-1";
        /// When it was written.
        required at: WholeSecond = "at", "SAP-10-1";
        /// The message.
        required body: RawObject = "body", "SAP-10-1";
        /// Of a Nack: the digest of the bytes that were turned away. Of a body that was redacted: the digest of the
        /// body as it was, which tells whether a task that comes again is the same.
        optional digest: BodyDigest = "digest", "SAP-10-1";
        /// Of a result: the number of the entry of its task, for ids are an issuer's own.
        optional task: Whole = "task", "SAP-10-1";
    }
}

impl Entry {
    /// The entry of a task, a result or a Nack. What a Nack turned away is named by its `digest`.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Body`].
    pub fn of(
        kind: EntryKind,
        at: Timestamp,
        message: &impl json::Write,
    ) -> Result<Self, TranscriptError> {
        Ok(Self::new(kind, at.into(), body(message)?))
    }

    /// The entry of a valid task or result, given as what it was encoded to.
    #[cfg(feature = "driver")]
    pub(crate) fn encoded(kind: EntryKind, at: Timestamp, bytes: &[u8]) -> Self {
        Self::new(kind, at.into(), written(bytes))
    }

    /// Names the entry of the task, where it is known.
    #[cfg(feature = "driver")]
    pub(crate) fn of_task(mut self, number: Option<u64>) -> Self {
        self.task = number.and_then(|number| Whole::try_from(number).ok());
        self
    }

    /// The entry of a Nack, with the digest of the bytes that it turns away.
    #[cfg(feature = "driver")]
    pub(crate) fn nack(
        at: Timestamp,
        nack: &Nack,
        refused: BodyDigest,
    ) -> Result<Self, TranscriptError> {
        let mut entry = Self::of(EntryKind::Nack, at, nack)?;
        entry.digest = Some(refused);
        Ok(entry)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TranscriptError> {
        let entry = json::decode(bytes, &unbounded(), Profile::Strict);
        entry.map(|(entry, _)| entry).map_err(TranscriptError::Body)
    }
}

fn body(message: &impl json::Write) -> Result<RawObject, TranscriptError> {
    let text = json::to_vec(message);
    let object = json::decode(&text, &unbounded(), Profile::Strict);
    object
        .map(|(object, _)| object)
        .map_err(TranscriptError::Body)
}

/// The body of a message that was read from exactly these bytes and is valid.
#[cfg(feature = "driver")]
fn written(bytes: &[u8]) -> RawObject {
    // A valid message is text, and an object.
    let text = String::from_utf8(bytes.to_vec()).unwrap_or_default();
    RawObject::new(json::RawBuf::assume_sound(text)).unwrap_or_default()
}

/// Where a transcript is kept. Entries are added and never changed.
///
/// The calls that a processor makes are asynchronous and must not block: one that waits for a disk does so on a
/// thread of its own, as `FileTranscript` does.
pub trait Transcript: fmt::Debug + Send + Sync {
    /// Adds an entry; ready with its number, from 0, once it is kept.
    ///
    /// The call hands the entry over, before the future is polled. A processor whose run is dropped makes the
    /// call and drops the future, and the entry must be kept all the same.
    ///
    /// # Errors
    ///
    /// It is not kept: what it holds must not be delivered.
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>>;

    /// Adds what is made of an entry, as [`record`](Self::record) does. To make it may take its time: a transcript with a
    /// thread of its own does it there, in the order of the entries. The default does it at once.
    ///
    /// # Errors
    ///
    /// Those of [`record`](Self::record).
    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.record(&make(entry))
    }

    /// Up to `max` entries from number `from` on.
    ///
    /// # Errors
    ///
    /// The transcript cannot be read, or an entry does not hold.
    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>>;

    /// Proves the whole chain, and that it once ended with `kept`. For audits: it may block for as long as that
    /// takes, and no processor calls it.
    ///
    /// # Errors
    ///
    /// The transcript cannot be read. What does not hold is in the [`Verdict`].
    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError>;
}

/// The end of a transcript at some moment, as one word. Keep it elsewhere, and nobody can shorten what was there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Head(Box<str>);

impl From<String> for Head {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl AsRef<str> for Head {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What was proven.
// exhaustive: transcripts make it
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "transcripts make it")]
pub struct Proof {
    /// Entries that are there.
    pub records: u64,
    /// The end.
    pub head: Head,
    /// Whether they hold.
    pub verdict: Verdict,
}

/// Whether a transcript holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every entry is as it was written.
    Intact,
    /// Something was changed or removed.
    Broken {
        /// The first entry that cannot be trusted, where that is known.
        record: Option<u64>,
        /// What is wrong.
        what: String,
    },
}

impl Verdict {
    /// Something is wrong at entry `record`.
    pub(crate) fn broken(record: u64, what: impl Into<String>) -> Self {
        Self::Broken {
            record: Some(record),
            what: what.into(),
        }
    }
}

/// Why a transcript did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// The entries were moved into an archive, or went where the newest are kept.
    #[error("entries before {first} were archived or removed")]
    Archived {
        /// The first entry that is left.
        first: u64,
    },
    /// It holds as many entries as it may.
    #[error("transcript holds {limit} entries, which is its bound")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// It holds as many bytes as it may.
    #[error("transcript holds no more than {limit} bytes, which is its bound")]
    FullOfBytes {
        /// The bound.
        limit: usize,
    },
    /// More of its tasks have no end than are taken up. Nothing was ended.
    #[error(
        "more than {limit} tasks of the transcript have no end: raise max_interrupted of the processor's settings to take them up, or archive the oldest entries, whose tasks are not known then"
    )]
    TooManyOpen {
        /// The bound.
        limit: usize,
    },
    /// The message is no JSON object that can be kept.
    #[error("not an entry: {0}")]
    Body(#[source] json::DecodeError),
    /// An entry is not what was written, and will not be: to ask again is of no use.
    #[error("an entry of the transcript is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The head that was kept is not one of this kind of transcript.
    #[error("a head of another kind of transcript")]
    Head,
    /// It failed.
    #[error("transcript store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}
