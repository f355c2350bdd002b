//! Who owns the run of the program that proves the kit, where its store is a database.
//!
//! A folder is locked by the process that has it open, and free when that is killed. A database knows of its lease alone, and
//! the clock of this program stands still, so that no lease ever ends by itself. So an owner holds a lock on a file as long as it
//! lives, and a lease is taken by force where that of its owner is free. The owners have one name, for two resumptions are the
//! same.

#![expect(clippy::disallowed_types, reason = "a program holds locks")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{Journal, JournalError, JournalFuture, Ownership, Recording};
use ubos_common::json::RawObject;

use super::resume_agent::Stop;

/// An owner that lives until this is dropped.
pub(super) struct Owner {
    pub(super) ownership: Ownership,
    _alive: File,
}

impl Owner {
    /// Waits for its turn to take the lease of the run, which the journal that it returns ends.
    pub(super) fn new(
        folder: &Path,
        journal: Arc<dyn Journal>,
    ) -> Result<(Self, Arc<dyn Journal>), Stop> {
        let turn = open(&beside(folder, "taking"))?;
        turn.lock().map_err(refused)?;
        let name = format!("owner-{}", std::process::id());
        let alive = open(&beside(folder, &name))?;
        alive.lock().map_err(refused)?;
        // A run that is not there yet has no owner.
        let lease = block_on(Recording::load(journal.as_ref())).map(|recording| recording.lease());
        let is_held = lease.is_ok_and(|lease| lease.until.is_some());
        let last = beside(folder, "last");
        let is_gone = match std::fs::read_to_string(&last) {
            Ok(before) => open(&beside(folder, &before))?.try_lock().is_ok(),
            // A copy of a folder has no owner.
            Err(_) => true,
        };
        let owner = Self {
            ownership: Ownership::default()
                .with_term(Duration::from_secs(3600))
                .with_force(is_held && is_gone),
            _alive: alive,
        };
        let taken = Taken {
            journal,
            name,
            last,
            turn: Mutex::new(Some(turn)),
        };
        Ok((owner, Arc::new(taken)))
    }
}

/// The journal of an owner. Its first entry is the lease: from then on the next may look whether this owner lives. Before, and
/// where the entry was refused, the owner is the one before.
struct Taken {
    journal: Arc<dyn Journal>,
    name: String,
    /// The file with the name of the last owner.
    last: PathBuf,
    turn: Mutex<Option<File>>,
}

impl Journal for Taken {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        Box::pin(async move {
            let turn = self
                .turn
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            self.journal.append(first, entries).await?;
            if turn.is_some() {
                let written = std::fs::write(&self.last, &self.name);
                written.map_err(|error| JournalError::Failed(error.to_string().into()))?;
            }
            Ok(())
        })
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.journal.read()
    }

    fn default_term(&self) -> Option<Duration> {
        self.journal.default_term()
    }
}

/// A file beside a folder, which copies of the folder do not have.
fn beside(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(format!(".{name}"));
    path.into()
}

fn open(path: &Path) -> Result<File, Stop> {
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(path);
    file.map_err(refused)
}

fn refused(error: std::io::Error) -> Stop {
    Stop::unreadable(&error)
}
