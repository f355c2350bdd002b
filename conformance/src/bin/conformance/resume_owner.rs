//! Who owns the run of the program that proves the kit, where its store is a database.
//!
//! A folder is locked by the process that has it open, and free when that is killed. A database knows of its lease alone, and
//! the clock of this program stands still, so that no lease ever ends by itself. So an owner holds a lock on a file as long as it
//! lives, and a lease is taken by force where that of its owner is free. The owners have one name, for two resumptions are the
//! same.

#![expect(clippy::disallowed_types, reason = "a program holds locks")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{Journal, Ownership, Recording};

use super::resume_agent::Stop;

/// An owner that lives until this is dropped.
pub(super) struct Owner {
    pub(super) ownership: Ownership,
    name: String,
    /// The file with the name of the last owner.
    last: PathBuf,
    _alive: File,
    /// One at a time looks whether the owner before it lives, and takes the lease.
    taking: Option<File>,
}

impl Owner {
    /// Waits for its turn to take the lease of the run.
    pub(super) fn new(folder: &Path, journal: &dyn Journal) -> Result<Self, Stop> {
        let taking = open(&beside(folder, "taking"))?;
        taking.lock().map_err(refused)?;
        let name = format!("owner-{}", std::process::id());
        let alive = open(&beside(folder, &name))?;
        alive.lock().map_err(refused)?;
        // A run that is not there yet has no owner.
        let lease = block_on(Recording::load(journal)).map(|recording| recording.lease());
        let is_held = lease.is_ok_and(|lease| lease.until.is_some());
        let last = beside(folder, "last");
        let is_gone = match std::fs::read_to_string(&last) {
            Ok(before) => open(&beside(folder, &before))?.try_lock().is_ok(),
            // A copy of a folder has no owner.
            Err(_) => true,
        };
        Ok(Self {
            ownership: Ownership::default()
                .with_term(Duration::from_secs(3600))
                .with_force(is_held && is_gone),
            name,
            last,
            _alive: alive,
            taking: Some(taking),
        })
    }

    /// The lease is taken: the next may look.
    pub(super) fn has_taken(&mut self) -> Result<(), Stop> {
        std::fs::write(&self.last, &self.name).map_err(refused)?;
        self.taking = None;
        Ok(())
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
