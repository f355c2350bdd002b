//! Who owns the run of the program that proves the kit, where its store is a database.
//!
//! A folder is locked by the process that has it open, and free when that is killed. A database knows of its lease alone, and
//! the clock of this program stands still, so that no lease ever ends by itself. So an owner holds a lock on a file as long as it
//! lives, and a lease is taken by force where that of its owner is free. The owners have one name, for two resumptions are the
//! same.

#![expect(clippy::disallowed_types, reason = "a program holds locks")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{Journal, JournalError, JournalFuture, Ownership, Recording};
use ubos_common::json::RawObject;

use super::resume_agent::Stop;

/// How the run is owned, and its journal, which is the owner. Waits for its turn to take the lease.
pub(super) fn own(
    folder: &Path,
    journal: Arc<dyn Journal>,
) -> Result<(Ownership, Arc<dyn Journal>), Stop> {
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
    let ownership = Ownership::default()
        .with_term(Duration::from_secs(3600))
        .with_force(is_held && is_gone);
    let owner = Owner {
        journal,
        name,
        _alive: alive,
        last,
        turn: Mutex::new(Some(turn)),
    };
    Ok((ownership, Arc::new(owner)))
}

/// An owner that lives until this is dropped. The first entry that it writes is the lease: from then on the next may look whether
/// it lives. Before, and where the entry was refused, the owner is the one before.
struct Owner {
    journal: Arc<dyn Journal>,
    name: String,
    _alive: File,
    /// The file with the name of the last owner.
    last: PathBuf,
    turn: Mutex<Option<File>>,
}

impl Journal for Owner {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        Box::pin(async move {
            let turn = self.turn.lock().map_or(None, |mut turn| turn.take());
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
