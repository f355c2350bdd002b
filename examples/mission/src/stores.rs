//! The stores of one state folder: where they are, and how they are opened for writing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use opensentience_wire::AuditEvent;
use sap::store::{FileCache, FileTranscript};
use sap::transcript::{Head, Proof, Transcript as _};
use uap_agent::journal::FileJournal;
use uap_hub_proto::store::FileStore;
use ubos_common::json;
use ubos_common::log::{Config, Log, LogId, Sync};

use super::screen::{Screen, Who};
use super::steps::StepLog;
use super::words::with_causes;

/// What a state folder has of a mission, beside cache and checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The mission's own steps and the acts of its plan.
    Steps,
    /// Tasks and their results.
    Transcript,
    /// The calls of the tool process.
    Audit,
    /// The hub's jobs.
    Jobs,
    /// The runs of the report's writer, a folder each.
    Journals,
}

impl Store {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Steps,
        Self::Transcript,
        Self::Audit,
        Self::Jobs,
        Self::Journals,
    ];

    /// Its folder in the state folder, by which it is known.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Transcript => "transcript",
            Self::Audit => "audit",
            Self::Jobs => "jobs",
            Self::Journals => "journals",
        }
    }

    /// The kind of its log.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Steps => "mission-steps",
            Self::Transcript => "sap-transcript",
            Self::Audit => "osw-audit",
            Self::Jobs => "hub-jobs",
            Self::Journals => "uap-journal",
        }
    }
}

/// Journals that are kept, the present mission's among them.
pub const JOURNALS: usize = 16;

/// Bytes of a segment of transcript and cache: they are laid out and read whole, and a mission writes some kilobytes.
const SEGMENT: u64 = 4 << 20;
/// Of the others, which hold less.
const SMALL_SEGMENT: u64 = 1 << 20;
/// Of a journal, of which there is one a mission.
const JOURNAL_SEGMENT: u64 = 128 << 10;

/// The stores of one state folder. One process writes them at a time.
#[derive(Debug)]
pub struct Stores {
    /// Tasks and their results.
    pub transcript: Arc<FileTranscript>,
    /// Outcomes that answer equal tasks.
    pub cache: Arc<FileCache>,
    /// The hub's jobs.
    pub jobs: Arc<FileStore>,
    /// The calls of the tool process.
    pub audit: Audit,
    steps: Arc<Log>,
}

impl Stores {
    /// Opens the stores below a folder, or makes them there.
    pub fn open(state: &Path, screen: &Screen) -> Result<Self, String> {
        let because = |store: &str, err: &dyn std::error::Error| {
            format!("the {store} in {}: {}", state.display(), with_causes(err))
        };
        let config = |id| config(id, SEGMENT);
        // The transcript comes first: another mission that is under way is told by its lock.
        let path = state.join(Store::Transcript.name());
        let transcript = FileTranscript::open(path, config(b"mission-trnscrpt"))
            .map_err(|err| because("transcript", &err))?;
        if let Some(torn) = &transcript.log().report().torn {
            let bytes = torn.bytes;
            let what = format!("an unfinished write of {bytes} bytes was cut off the transcript");
            screen.say(Who::Sap, what);
        }
        let cache = FileCache::open(state.join("cache"), config(b"mission-outcomes"))
            .map_err(|err| because("cache", &err))?;
        let jobs = FileStore::open(
            state.join(Store::Jobs.name()),
            unsynced(b"mission-hub-jobs", SMALL_SEGMENT),
        )
        .map_err(|err| because("store of jobs", &err))?;
        let log = |store: Store, id| {
            let config = unsynced(id, SMALL_SEGMENT).with_kind(store.kind());
            let log = Log::open(state.join(store.name()), config);
            log.map(Arc::new).map_err(|err| because(store.name(), &err))
        };
        Ok(Self {
            transcript: Arc::new(transcript),
            cache: Arc::new(cache),
            jobs: Arc::new(jobs),
            audit: Audit(log(Store::Audit, b"mission-toolcall")?),
            steps: log(Store::Steps, b"mission-itssteps")?,
        })
    }

    /// The log of steps, for a mission.
    #[must_use]
    pub fn steps(&self, run: &str) -> StepLog {
        StepLog::new(Arc::clone(&self.steps), run)
    }

    /// Reads the whole transcript again, and proves that it still holds what it held at `kept`.
    pub fn verify(&self, kept: Option<&Head>) -> Result<Proof, String> {
        let log = self.transcript.log();
        log.sync().map_err(|err| with_causes(&err))?;
        self.transcript
            .verify(kept)
            .map_err(|err| with_causes(&err))
    }
}

/// Keeps what the core tells of its calls.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Log>);

impl Audit {
    /// Writes a record down.
    pub fn take(&self, event: &AuditEvent) {
        // The call goes on where it cannot be written; what is missing is told when the stores are read.
        let _ = self.0.append(&json::to_vec(event));
    }
}

/// Opens a new journal in a folder of `journals`; of those that are there, the newest stay.
pub fn open_journal(journals: &Path, run: &str) -> Result<FileJournal, String> {
    let config = unsynced(b"mission-journals", JOURNAL_SEGMENT).with_kind(Store::Journals.kind());
    fs::create_dir_all(journals)
        .and_then(|()| keep_newest(journals, JOURNALS - 1))
        .map_err(|err| format!("the journals in {}: {err}", journals.display()))?;
    let log = Log::open(journals.join(run), config);
    let log = log.map_err(|err| format!("the journal: {}", with_causes(&err)))?;
    FileJournal::over(log).map_err(|err| format!("the journal: {}", with_causes(&err)))
}

/// Removes all folders but those that were changed last.
fn keep_newest(folder: &Path, most: usize) -> io::Result<()> {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            found.push((about.modified()?, entry.path()));
        }
    }
    found.sort();
    let old = found.len().saturating_sub(most);
    found
        .iter()
        .take(old)
        .try_for_each(|(_, path)| fs::remove_dir_all(path))
}

fn config(id: &[u8; 16], segment: u64) -> Config {
    Config::default()
        .with_log_id(LogId::from_bytes(*id))
        .with_segment_bytes(segment)
}

/// Of a log that may lose its end when the power fails, but nothing when the process is killed: it tells what happened,
/// and no work is lost with it.
fn unsynced(id: &[u8; 16], segment: u64) -> Config {
    config(id, segment).with_sync(Sync::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_journals_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let journals = dir.path().join("journals");
        for n in 0..JOURNALS + 3 {
            drop(open_journal(&journals, &format!("run-{n:02}")).unwrap());
        }
        let mut left: Vec<_> = fs::read_dir(&journals)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left.len(), JOURNALS);
        assert_eq!(left.first().map(String::as_str), Some("run-03"));
    }
}
