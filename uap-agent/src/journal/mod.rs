//! The journal of a run: what was asked of the world, and what it answered.
//!
//! A run is decided by a machine that does no IO ([`crate::engine`]): it is its beginning and the answers that it was
//! given. Whoever keeps these can go on with a run whose process was killed, look at it again without a model, let it
//! take another turn, and compare it with another.
//!
//! ```text
//! Agent::record(journal).generate(…)   writes the beginning, each question before it is asked,
//!                                      each answer before the run goes on from it
//! Agent::resume(journal)               what is recorded is not asked again; then the run goes on, and is recorded
//! Agent::replay(&recording)            the same run, without a world: no model, tool, hook or store is touched
//! Recording::fork, Recording::diff     another answer, and what follows from it; the first difference of two runs
//! Journal                              where entries are kept: MemoryJournal, FileJournal, yours
//! ```
//!
//! A run that is killed is resumed by a program that asks the same questions. Where it asks another (a prompt, a tool, a
//! schema has changed), that is an error that names the question, and nothing is done. What was asked and has no answer
//! in the journal is asked again: a tool that was running when the process died runs a second time, one whose answer was
//! recorded never does. That it is asked again is written first: of two who resume one run at once, one goes on, and the
//! other's run ends with [`JournalError::Conflict`] before it has done anything.
//!
//! ```
//! use std::sync::Arc;
//! use uap_agent::journal::{MemoryJournal, Recording};
//! use uap_agent::{AgentOptions, agent};
//! use upp::{FnTool, Reply, ScriptedModel, Tool, json_text, object};
//!
//! # futures::executor::block_on(async {
//! let model = ScriptedModel::new([
//!     Reply::silent().calling("c1", "weather", object("{}")?),
//!     Reply::text("Take an umbrella."),
//! ]);
//! let weather = FnTool::new("weather", "", object("{}")?, |_, _| async { Ok(json_text("rain")) });
//! let options = AgentOptions::new(Arc::new(model)).with_tools([Arc::new(weather) as Arc<dyn Tool>]);
//! let agent = agent(options)?;
//!
//! let journal = Arc::new(MemoryJournal::default());
//! let state = agent.initial_state();
//! let result = agent.record(journal.clone()).generate("Do I need an umbrella?", &state).await.map_err(|e| e.error)?;
//!
//! // The script has no more replies, and none is asked for: everything is in the journal.
//! let again = agent.resume(journal.clone()).await?.result().await.map_err(|e| e.error)?;
//! assert_eq!(again, result);
//! let replay = agent.replay(&Recording::load(journal.as_ref()).await?)?;
//! assert_eq!(replay.result.expect("it has ended").map_err(|e| e.error)?, result);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Kept are whole answers: not the pieces in which a model says one, and not what an agent inside of a tool call tells.
//! A replay says each answer in one piece. Entries hold what the model and the tools said, in clear: keep them as you
//! keep states.

mod answer;
mod diff;
mod entry;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
mod files;
mod fingerprint;
mod playback;
mod program;
pub mod recorder;
mod recording;

use std::sync::{Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::json::{DecodeError, RawObject};

pub use diff::{Diff, Difference};
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use files::FileJournal;
pub use program::Program;
pub use recorder::Recorder;
pub use recording::{RecordedEffect, Recording, Replay};

use crate::engine::EffectId;

/// Why a journal does not do what it was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no run in it.
    #[error("the journal is empty")]
    Empty,
    /// It is full; what it held, it holds.
    #[error("the journal holds at most {limit} {unit}")]
    Full {
        /// How much it holds.
        limit: usize,
        /// Entries or bytes.
        unit: &'static str,
    },
    /// Somebody else has written to it, or there is a run in it already.
    #[error("the journal has {seen} entries where {wanted} were wanted: another run writes to it")]
    Conflict {
        /// Entries that the writer knows of.
        wanted: u64,
        /// Entries that are there.
        seen: u64,
    },
    /// What keeps it failed.
    #[error("the journal failed: {0}")]
    Failed(Box<str>),
    /// An entry is no sound JSON, or none of a journal.
    #[error("entry {entry}: {error}")]
    Entry {
        /// Its place, from 0.
        entry: u64,
        /// What is wrong with it, with its pointer.
        #[source]
        error: DecodeError,
    },
    /// An entry cannot stand where it stands.
    #[error("entry {entry}: {what}")]
    Order {
        /// Its place, from 0.
        entry: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The agent is not the one whose run it is.
    #[error("the agent's {what} is not the one that was recorded")]
    Program {
        /// Which of its options.
        what: Box<str>,
    },
    /// The agent asks for something else than it did.
    #[error(
        "effect {effect} ({kind}): the agent asks for something else than it did when it was recorded"
    )]
    Differs {
        /// Which effect of the run; 0 is its end.
        effect: EffectId,
        /// What is recorded there.
        kind: &'static str,
    },
}

/// The answer of a journal.
pub type JournalFuture<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

/// Where the entries of one run are kept, in order, for good.
///
/// A run waits for each [`Journal::append`]. When it answers, the entries must be there after a crash; a journal that
/// loses its last ones loses work, not soundness: what is asked again may be done again.
pub trait Journal: Send + Sync {
    /// Adds entries behind those that are there: all of them or none.
    ///
    /// `first` is the place of the first one, from 0. Where that is not the number of entries that are there, somebody
    /// else writes as well: [`JournalError::Conflict`].
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()>;

    /// All entries, in order.
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>>;
}

/// Keeps a run in memory, for as long as the process lives.
#[derive(Debug)]
pub struct MemoryJournal {
    max_bytes: usize,
    inner: Mutex<(Vec<RawObject>, usize)>,
}

impl MemoryJournal {
    /// Bytes of [`MemoryJournal::default`]: 256 MiB.
    pub const DEFAULT_BYTES: usize = 256 << 20;

    /// A journal of at most so many bytes; an entry beyond them is refused, and its run ends.
    #[must_use]
    pub const fn with_max_bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            inner: Mutex::new((Vec::new(), 0)),
        }
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
        let more: usize = entries.iter().map(|entry| entry.as_str().len()).sum();
        if bytes.saturating_add(more) > self.max_bytes {
            return Err(JournalError::Full {
                limit: self.max_bytes,
                unit: "bytes",
            });
        }
        *bytes += more;
        kept.extend(entries);
        Ok(())
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::with_max_bytes(Self::DEFAULT_BYTES)
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
}
