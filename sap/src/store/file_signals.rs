//! Signals on the hash-chained log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use ubos_common::json::{self, RawBuf};
use ubos_common::log::{Config, FsDir, Log, OpenError, ReadError};
use ubos_common::secret::{redact_json, redact_text};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use super::proof::prove;
use super::redacting::whole;
use super::thread::{StoreThread, Taken, ThreadError, opened};
use crate::error::StoreError;
use crate::future::BoxFuture;
use crate::learning::{Signal, SignalSink};
use crate::limits::unbounded;
use crate::transcript::Proof;

/// Signals in the files of a folder, told on to those who learn of them: what it holds when it is opened, and each new
/// one once it is kept. So what is learned after a start is what was learned before it.
///
/// It keeps no secret: in what is free text or a free value of a signal, values shaped like one, or named like one, are
/// replaced, as [`Redacting`](super::Redacting) does it in a transcript. Those who learn are told the same.
///
/// It has a thread of its own, as [`FileTranscript`](super::FileTranscript) has; those who learn are told there, in the
/// order of the log.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use sap::learning::{Bounds, Heuristics, Learner, SignalSink, Support, Window};
/// use sap::store::FileSignals;
/// use sap::ubos_common::{log::{Config, LogId}, time::Timestamp};
///
/// let folder = tempfile::tempdir()?;
/// let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
/// let (now, window) = (Timestamp::now(), Window::default());
/// let learner = Arc::new(Mutex::new(Learner::new(window, Bounds::default())?));
/// let sink = Arc::clone(&learner) as Arc<dyn SignalSink>;
/// // `Processor::signals` takes it.
/// let (signals, read) = FileSignals::open(folder.path(), config, window.begins(now), sink)?;
/// assert_eq!((read.told, read.refused), (0, 0));
/// let learned = signals.learn(move |proof| {
///     let known = learner.lock().unwrap().gather(now);
///     Heuristics::derive(&known, Support::default(), Some(&proof))
/// });
/// assert!(futures::executor::block_on(learned)?.thresholds.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 7
#[derive(Debug)]
pub struct FileSignals {
    dir: FsDir,
    store: StoreThread,
    learners: Arc<dyn SignalSink>,
    unkept: Arc<AtomicU64>,
}

/// What a log of signals held when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBack {
    /// Signals that those who learn were told.
    pub told: u64,
    /// Signals that they refused, at a bound of theirs.
    pub refused: u64,
    /// Signals that are older than what was asked for.
    pub older: u64,
    /// Records that this version cannot read; they stay.
    pub unknown: u64,
}

/// Why a log is not read back. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadBackError {
    /// The log cannot be opened; it may be damaged.
    #[error("opening the log failed")]
    Open(#[from] OpenError),
    /// A record cannot be read; it may be damaged.
    #[error("reading the log failed")]
    Read(#[from] ReadError),
    /// It holds more than it may.
    #[error("the log holds more than {limit} {what}, which is its bound")]
    TooMany {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// The kind of a log of signals.
const KIND: &str = "sap-signals";

impl FileSignals {
    /// Opens the signals in a folder, or makes it there; `config` needs a log id for that. Those that were said at
    /// `from` or later are told on before this returns.
    ///
    /// # Errors
    ///
    /// [`ReadBackError`]; damage is named and left as it is.
    // impl: SAP-7-1
    pub fn open(
        path: impl Into<PathBuf>,
        config: Config,
        from: Timestamp,
        learners: Arc<dyn SignalSink>,
    ) -> Result<(Self, ReadBack), ReadBackError> {
        let path = path.into();
        let dir = FsDir::create(&path).map_err(OpenError::Io)?;
        let config = config.with_kind(KIND);
        let log = opened(&path, || {
            Log::open_in(Arc::new(dir.clone()), config.clone())
        })?;
        let mut read = ReadBack::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            match decode(entry.bytes) {
                None => read.unknown += 1,
                Some(signal) if signal.at.timestamp() < from => read.older += 1,
                Some(signal) => match learners.emit(signal) {
                    Ok(()) => read.told += 1,
                    Err(_) => read.refused += 1,
                },
            }
        }
        let signals = Self {
            dir,
            store: StoreThread::start(&path, log).map_err(OpenError::Io)?,
            learners,
            unkept: Arc::default(),
        };
        Ok((signals, read))
    }

    /// Learns on the store's thread, once every signal that was emitted before is kept and told on. None is told
    /// meanwhile, so that what is gathered there is what the proof speaks of. The whole log is read for the proof.
    ///
    /// # Errors
    ///
    /// The log cannot be read, or the thread is busy. What does not hold is in the proof.
    pub fn learn<T: Send + 'static>(
        &self,
        learn: impl FnOnce(Proof) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let dir = self.dir.clone();
        let learned = self.store.call(move |log| {
            let proof = prove(&dir, log, None)?;
            Ok(learn(proof))
        });
        Box::pin(async {
            let learned: Result<T, crate::transcript::TranscriptError> =
                learned.await.map_err(failed)?;
            learned.map_err(failed)
        })
    }

    /// Signals that were taken and could not be written: what they say is not learned.
    pub fn unkept(&self) -> u64 {
        self.unkept.load(Ordering::Relaxed)
    }

    /// Waits until all that was handed over is written, and the log is closed. It blocks the thread; a drop does not.
    pub fn close(self) {
        self.store.close();
    }

    /// The log beneath: for its report, its head and for archiving what is older than anybody asks for.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.store.log()
    }
}

impl SignalSink for FileSignals {
    /// Hands the signal over; waits for no disk. One that those who learn refuse is kept all the same.
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        // Those who learn are told what is kept, so that a start tells them the same.
        let signal = redacted(signal);
        let learners = Arc::clone(&self.learners);
        let unkept = Arc::clone(&self.unkept);
        let record = json::to_vec(&signal);
        let kept = self.store.append(Taken::WithRoom, record, move |position| {
            if position.is_err() {
                unkept.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // They count what they refuse.
            drop(learners.emit(signal));
        });
        match kept.now_or_never() {
            Some(Err(refused)) => Err(failed(refused)),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

pub(super) fn decode(bytes: &[u8]) -> Option<Signal> {
    let signal = json::decode(bytes, &unbounded(), Profile::Strict);
    signal.ok().map(|(signal, _)| signal)
}

/// The same without secrets. Digests, numbers and the names of what was done stay as they are.
// impl: SAP-11-2
fn redacted(mut signal: Signal) -> Signal {
    signal.territory = signal.territory.map(|text| without_secret(&text));
    signal.policy_checks = signal.policy_checks.and_then(|it| cleaned(&it));
    signal.violations = signal.violations.and_then(|it| cleaned(&it));
    signal.metrics = signal.metrics.and_then(|it| cleaned(&it));
    signal.next_actions = signal.next_actions.and_then(|it| cleaned(&it));
    if let Some(feedback) = &mut signal.feedback {
        feedback.notes = feedback.notes.as_deref().map(without_secret);
    }
    signal
}

fn without_secret(text: &str) -> String {
    redact_text(text, usize::MAX).into_owned()
}

/// A value without secrets; left out where it is none of its kind then.
fn cleaned<T: json::Write + for<'a> json::Read<'a>>(value: &T) -> Option<T> {
    let text = String::from_utf8(json::to_vec(value)).ok()?;
    let clean = redact_json(RawBuf::parse(&text).ok()?.as_raw(), &whole());
    let read = json::decode(clean.as_str().as_bytes(), &unbounded(), Profile::Strict);
    read.ok().map(|(value, _)| value)
}

fn failed(error: impl Into<SignalsFault>) -> StoreError {
    StoreError::Failed(Box::new(error.into()))
}

/// What went wrong beneath.
#[derive(Debug, thiserror::Error)]
enum SignalsFault {
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error(transparent)]
    Log(#[from] crate::transcript::TranscriptError),
}
