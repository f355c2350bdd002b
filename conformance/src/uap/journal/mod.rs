//! Checks of journals, and of agents that are resumed from one.

mod interruption;
mod monitor;
mod resume;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};

pub use interruption::Interruption;
pub use resume::{ResumeFault, ResumeReport, check_resume};
use uap_agent::journal::{Journal, JournalError};

/// What a journal does otherwise than journals do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalFault {
    /// It refused what it must take.
    #[error("{doing}: {error}")]
    Refused {
        /// What it was asked.
        doing: &'static str,
        /// What it said.
        #[source]
        error: JournalError,
    },
    /// It is not empty to begin with.
    #[error("the journal has {seen} entries before anything was written")]
    NotEmpty {
        /// How many.
        seen: usize,
    },
    /// It took entries that do not follow what is there.
    #[error("entries at {first} were taken where {there} are there")]
    Gap {
        /// Where they were to stand.
        first: u64,
        /// How many are there.
        there: u64,
    },
    /// It does not give back what it was given, in order.
    #[error("{there} entries were written, and others are read")]
    Lost {
        /// How many were written.
        there: u64,
    },
}

/// Puts an empty journal through what a journal must do: entries come back as they were, in order; those that do not
/// follow what is there are refused and change nothing.
///
/// ```
/// use uap_agent::journal::MemoryJournal;
/// use ubos_conformance::uap::check_journal;
///
/// futures::executor::block_on(check_journal(&MemoryJournal::default()))?;
/// # Ok::<(), ubos_conformance::uap::JournalFault>(())
/// ```
///
/// # Errors
///
/// The first thing that is wrong.
pub async fn check_journal(journal: &dyn Journal) -> Result<(), JournalFault> {
    let mut written = Vec::new();
    let seen = read(journal).await?.len();
    if seen > 0 {
        return Err(JournalFault::NotEmpty { seen });
    }
    for count in [1, 3, 0, 2, 40] {
        let there = written.len() as u64;
        for first in [there + 1, there.wrapping_sub(1), 0] {
            // Nothing at the place where the next entry stands is wrong.
            if first != there && !is_refused(journal, first, entries(first, 1)).await {
                return Err(JournalFault::Gap { first, there });
            }
        }
        let more = entries(there, count);
        let appended = journal.append(there, more.clone()).await;
        appended.map_err(|error| JournalFault::Refused {
            doing: "appending behind what is there",
            error,
        })?;
        written.extend(more);
        if read(journal).await? != written {
            let there = written.len() as u64;
            return Err(JournalFault::Lost { there });
        }
    }
    Ok(())
}

async fn is_refused(journal: &dyn Journal, first: u64, entries: Vec<RawObject>) -> bool {
    let appended = journal.append(first, entries).await;
    matches!(appended, Err(JournalError::Conflict { .. }))
}

async fn read(journal: &dyn Journal) -> Result<Vec<RawObject>, JournalFault> {
    let read = journal.read().await;
    read.map_err(|error| JournalFault::Refused {
        doing: "reading",
        error,
    })
}

/// Entries of several sizes, with texts that a careless store breaks.
fn entries(first: u64, count: u64) -> Vec<RawObject> {
    let entry = |n: u64| {
        let mut out = Vec::new();
        let mut object = MemberWriter::begin(&mut out);
        object.member("n", &(first + n));
        object.member(
            "text",
            &"\n\0é\u{2028}\"".repeat(usize::try_from(n * 37).unwrap_or(1)),
        );
        object.end();
        let text = String::from_utf8(out).unwrap_or_default();
        RawObject::new(RawBuf::assume_sound(text)).unwrap_or_default()
    };
    (0..count).map(entry).collect()
}
