//! The journal of a run: the requests that it made, and their results.
//!
//! A state machine without IO decides a run ([`crate::engine`]): its start and the results of its effects determine it.
//! From these a run can be resumed after its process was killed, replayed without a model, forked with another result,
//! and compared with another run.
//!
//! ```text
//! Agent::record(journal).generate(…)   writes the beginning, each question before it is asked,
//!                                      each answer before the run goes on from it
//! Agent::resume(journal)               takes the run over: what is recorded is not asked again; then the run goes on, and is recorded
//! Agent::replay(&recording)            the same run, without a world: no model, tool, hook or store is touched
//! Recording::fork, Recording::diff     another answer, and what follows from it; the first difference of two runs
//! Journal                              where entries are kept: MemoryJournal, FileJournal, SqliteJournals, yours
//! ```
//!
//! A run is resumed by a program that makes the same requests. A different request (because a prompt, a tool or a schema
//! has changed) is an error that names it, and nothing is done. A request without a recorded result is made again. For a
//! tool that was running when the process died, [`Ownership`] says whether it is called again, fails, or waits for a person.
//!
//! The resumption itself is recorded first, as a [`Lease`]: of two processes that resume one run, one continues, and the run
//! of the other ends with [`JournalError::Superseded`] before it has done anything. So does that of a former owner.
//!
//! A call that needs a person's approval ([`ApprovalPolicy`](crate::ApprovalPolicy)) pauses the run: its [`Question`] is in
//! the journal, [`Recording::decide`] records the decision from any process, and the run is resumed anywhere.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::journal::{MemoryJournal, Recording};
//! use uap_agent::{AgentOptions, agent};
//! use upp::{FnTool, Reply, ScriptedModel, Tool, json_text, object};
//!
//! # futures::executor::block_on(async {
//! let model = ScriptedModel::new([
//!     Reply::default().calling("c1", "weather", object("{}")?),
//!     Reply::text("Take an umbrella."),
//! ]);
//! let weather = FnTool::new("weather", "", object("{}")?, |_, _| async { Ok(json_text("rain")) });
//! let options = AgentOptions::new(Arc::new(model)).with_tools([Arc::new(weather) as Arc<dyn Tool>]);
//! let agent = agent(options)?;
//!
//! let journal = Arc::new(MemoryJournal::default());
//! let state = agent.initial_state();
//! let result = agent.record(journal.clone(), "Do I need an umbrella?", &state).result().await?;
//!
//! // The script has no more replies, and none is asked for: everything is in the journal.
//! let again = agent.resume(journal.clone()).await?.result().await?;
//! assert_eq!(again, result);
//! let replay = agent.replay(&Recording::load(journal.as_ref()).await?)?;
//! assert_eq!(replay.result.expect("it has ended")?, result);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Responses are recorded as a whole: neither the parts of a streamed response nor the events of sub-agents are kept.
//! A replay gives each response in one event. Entries hold responses and tool results in plain text: protect them as
//! you protect states.

mod answer;
mod diff;
mod entry;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
mod files;
mod fingerprint;
mod held;
mod lease;
mod order;
mod playback;
mod program;
mod question;
pub mod recorder;
mod recording;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::ConfigError;
use ubos_common::json::{DecodeError, RawObject};

pub use diff::{Diff, Difference};
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use files::{FileJournal, FileJournalConfig};
pub use lease::{Lease, Ownership, UnknownOutcome};
pub use question::{Decision, DecisionError, Paused, Question, QuestionKind, Verdict};
pub use recorder::Recorder;
pub use recording::{RecordedEffect, Recording, Replay};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::SqlJournal;

use crate::engine::EffectId;

/// An error of a journal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal holds no run.
    #[error("the journal is empty")]
    Empty,
    /// The journal is full. Its entries are unchanged.
    #[error("the journal holds at most {limit} {unit}")]
    Full {
        /// The limit.
        limit: usize,
        /// The unit of the limit: bytes, of all entries, of one, or of one write.
        unit: &'static str,
    },
    /// Another writer has appended entries, or the journal holds a run already.
    #[error("the journal has {seen} entries, but {wanted} were expected: another run writes to it")]
    Conflict {
        /// The number of entries that the writer expected.
        wanted: u64,
        /// The number of entries.
        seen: u64,
    },
    /// Another writer, in this process or another, has the journal open. It was not opened.
    #[error("another writer has the journal open")]
    InUse,
    /// A setting is out of its range. The journal was not opened.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// The storage failed.
    #[error("the journal failed: {0}")]
    Failed(Box<str>),
    /// An entry is not valid.
    #[error("entry {entry}: {error}")]
    Entry {
        /// The place of the entry, from 0.
        entry: u64,
        /// The error, with its pointer.
        #[source]
        error: DecodeError,
    },
    /// An entry was changed or is damaged.
    #[error("entry {entry} is damaged, or was changed")]
    Damaged {
        /// The place of the entry, from 0.
        entry: u64,
    },
    /// An entry is out of order.
    #[error("entry {entry}: {what}")]
    Order {
        /// The place of the entry, from 0.
        entry: u64,
        /// What was expected.
        what: &'static str,
    },
    /// The program is not the one that was recorded.
    #[error("the agent's {what} is not the one that was recorded")]
    Program {
        /// The part that differs.
        what: Box<str>,
    },
    /// The program makes another request than the one that was recorded. This is the first that differs.
    #[error("effect {effect} ({kind}): the agent requests {}", other(kind, *seen))]
    Differs {
        /// The effect; 0 is the end of the run.
        effect: EffectId,
        /// The kind of the recorded effect.
        kind: &'static str,
        /// The kind that is requested in its place: the same where its content differs; `None` where nothing is.
        seen: Option<&'static str>,
    },
    /// Another process owns the run, and its lease has not ended.
    #[error("the run belongs to {:?} (epoch {}) until {}", lease.owner, lease.epoch, ends(lease))]
    Leased {
        /// The lease.
        lease: Lease,
    },
    /// Another process has taken the run over. Nothing of this one is written any more.
    #[error("epoch {epoch} is over: {:?} has taken the run over with epoch {}", by.owner, by.epoch)]
    Superseded {
        /// The epoch of the writer.
        epoch: u64,
        /// The lease of the new owner.
        by: Lease,
    },
    /// A run that was aborted has ended before its journal has answered. The last entries may be written or not.
    #[error("the journal has not answered, and the run was ended without it")]
    NoAnswer,
    /// The run waits for decisions, and can do nothing else.
    #[error(transparent)]
    Paused(Paused),
}

fn other(kind: &str, seen: Option<&'static str>) -> String {
    match seen {
        Some(seen) if seen == kind => format!("another {seen}"),
        Some(seen) => format!("{seen} instead"),
        None => "nothing in its place".to_owned(),
    }
}

fn ends(lease: &Lease) -> String {
    let end = lease.until.map(|until| until.to_string());
    end.unwrap_or_else(|| "it is taken over".to_owned())
}

/// The text of an error and its cause.
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
fn failed(error: impl core::error::Error) -> JournalError {
    let cause = error.source().map(|cause| format!(": {cause}"));
    JournalError::Failed(format!("{error}{}", cause.unwrap_or_default()).into())
}

/// The future of a journal operation.
pub type JournalFuture<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

/// The storage for the entries of one run.
///
/// A run waits for each [`Journal::append`]. When it returns, the entries must survive a crash. A journal that loses its
/// last entries loses work: the requests in them are made again.
pub trait Journal: Send + Sync {
    /// Appends entries: all of them, or none.
    ///
    /// `first` is the place of the first entry, from 0. Where it is not the number of present entries, there is another
    /// writer, and the result is [`JournalError::Conflict`].
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()>;

    /// All entries, in order.
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>>;

    /// The term of leases for which an agent sets none ([`Ownership`]): by default 60 seconds. `None` for a journal that
    /// nobody reaches beside a living owner, such as one that its process has locked.
    fn default_term(&self) -> Option<Duration> {
        Some(Duration::from_secs(60))
    }
}

/// The size of a journal with one more entry, which takes some memory besides its text.
const fn size_with(bytes: usize, text: usize, limit: usize) -> Result<usize, JournalError> {
    const ENTRY: usize = 32;
    let bytes = bytes.saturating_add(text).saturating_add(ENTRY);
    if bytes > limit {
        let unit = "bytes";
        return Err(JournalError::Full { limit, unit });
    }
    Ok(bytes)
}

/// A journal in memory. A resumption takes a living run over, unless its lease has a term: the process has to know whether the
/// run is under way.
#[derive(Debug)]
pub struct MemoryJournal {
    max_bytes: usize,
    inner: Mutex<(Vec<RawObject>, usize)>,
}

impl MemoryJournal {
    /// The limit of [`MemoryJournal::default`], in bytes: 256 MiB.
    const DEFAULT_BYTES: usize = 256 << 20;

    /// A journal with a limit in bytes: of all entries, with 32 for each. An entry beyond it is refused, and ends the run.
    ///
    /// # Errors
    ///
    /// The limit is 0: no entry fits.
    pub fn with_max_bytes(max_bytes: usize) -> Result<Self, ConfigError> {
        ConfigError::at_least("max_bytes", max_bytes, 1)?;
        Ok(Self {
            max_bytes,
            inner: Mutex::default(),
        })
    }

    fn add(&self, first: u64, entries: Vec<RawObject>) -> Result<(), JournalError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, bytes) = &mut *inner;
        let seen = kept.len() as u64;
        if seen != first {
            return Err(JournalError::Conflict {
                wanted: first,
                seen,
            });
        }
        let size =
            |bytes, entry: &RawObject| size_with(bytes, entry.as_str().len(), self.max_bytes);
        *bytes = entries.iter().try_fold(*bytes, size)?;
        kept.extend(entries);
        Ok(())
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self {
            max_bytes: Self::DEFAULT_BYTES,
            inner: Mutex::default(),
        }
    }
}

impl Journal for MemoryJournal {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        Box::pin(core::future::ready(self.add(first, entries)))
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(core::future::ready(Ok(inner.0.clone())))
    }

    /// None: its process knows which of its runs are under way.
    fn default_term(&self) -> Option<Duration> {
        None
    }
}
