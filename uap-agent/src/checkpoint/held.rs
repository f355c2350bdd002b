//! The sessions that a store in files has locked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ubos_common::id::Uuid;

use super::CheckpointError;
use super::disk::{create_folders, failed};

/// Sessions held at a time; for one more the one that was used longest ago is let go. It is taken up again when it is
/// saved, and what others did meanwhile is found then.
const OPEN: usize = 64;

/// Sessions whose last checkpoint is remembered; beyond them the one that was used longest ago is forgotten, and its next
/// save taken for a first one.
const SEEN: usize = 100_000;

/// What a store has open, and what it has seen.
#[derive(Debug)]
pub(super) struct OpenSessions<T> {
    open: BTreeMap<String, (u64, T)>,
    seen: BTreeMap<String, (u64, Option<Uuid>)>,
    uses: u64,
}

impl<T> OpenSessions<T> {
    pub(super) const fn new() -> Self {
        Self {
            open: BTreeMap::new(),
            seen: BTreeMap::new(),
            uses: 0,
        }
    }

    pub(super) fn get(&mut self, session: &str) -> Option<&mut T> {
        self.uses += 1;
        let (used, open) = self.open.get_mut(session)?;
        *used = self.uses;
        Some(open)
    }

    pub(super) fn open(&mut self, session: &str, open: T) {
        self.uses += 1;
        make_room(&mut self.open, OPEN);
        self.open.insert(session.to_owned(), (self.uses, open));
    }

    pub(super) fn close(&mut self, session: &str) -> Option<T> {
        self.open.remove(session).map(|(_, open)| open)
    }

    /// What was seen of the session when it was saved or loaded last.
    pub(super) fn seen(&self, session: &str) -> Seen {
        match self.seen.get(session) {
            None => Seen::Never,
            Some((_, None)) => Seen::Nothing,
            Some((_, Some(checkpoint))) => Seen::Checkpoint(*checkpoint),
        }
    }

    /// The session was saved or loaded: its last checkpoint, where it has one.
    pub(super) fn saw(&mut self, session: &str, checkpoint: Option<Uuid>) {
        self.uses += 1;
        if !self.seen.contains_key(session) {
            make_room(&mut self.seen, SEEN);
        }
        self.seen
            .insert(session.to_owned(), (self.uses, checkpoint));
    }

    /// The session was deleted: its next save is a first one.
    pub(super) fn forget(&mut self, session: &str) {
        self.seen.remove(session);
    }
}

/// What a store has seen of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It has never looked.
    Never,
    /// It looked, and there was no checkpoint.
    Nothing,
    Checkpoint(Uuid),
}

impl Seen {
    /// Checks that what stands there is what was seen, or what this store has `attempted` to save.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Conflict`].
    pub(super) fn check(
        self,
        found: Option<Uuid>,
        attempted: Option<Uuid>,
    ) -> Result<(), CheckpointError> {
        match found {
            Some(found)
                if self != Self::Never
                    && self != Self::Checkpoint(found)
                    && attempted != Some(found) =>
            {
                Err(CheckpointError::Conflict { found })
            }
            _ => Ok(()),
        }
    }
}

fn make_room<T>(map: &mut BTreeMap<String, (u64, T)>, most: usize) {
    while map.len() >= most {
        let oldest = map.iter().min_by_key(|(_, (used, _))| *used);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            return;
        };
        map.remove(&name);
    }
}

/// The lock of a session's folder, which is created where it does not exist. The lock ends with this value.
#[derive(Debug)]
pub(super) struct SessionLock(
    #[expect(clippy::disallowed_types, reason = "a store in files")] Option<fs::File>,
);

impl SessionLock {
    // impl: UAP-12-4
    pub(super) fn take(folder: &Path) -> Result<Self, CheckpointError> {
        /// The number of attempts, because another process may remove the folder meanwhile.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            create_folders(folder)?;
            if !cfg!(unix) {
                return Ok(Self(None));
            }
            #[expect(clippy::disallowed_types, reason = "a store in files")]
            let opened = match fs::File::open(folder) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match opened.try_lock() {
                Err(fs::TryLockError::WouldBlock) => return Err(CheckpointError::InUse),
                Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
                Ok(()) => {}
            }
            // A session that was forgotten in between has left its folder to nobody.
            if is_at(&opened, folder) {
                return Ok(Self(Some(opened)));
            }
        }
        Err(CheckpointError::InUse)
    }

    /// Whether the folder is still the one that is held: somebody may have removed it by hand.
    pub(super) fn is_of(&self, folder: &Path) -> bool {
        match &self.0 {
            Some(held) => is_at(held, folder),
            None => folder.is_dir(),
        }
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // A process that was started meanwhile may have inherited the file: closing it here would leave the lock with it.
        if let Some(held) = &self.0 {
            let _ = held.unlock();
        }
    }
}

#[cfg(unix)]
#[expect(clippy::disallowed_types, reason = "a store in files")]
fn is_at(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(held), Ok(there)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (held.dev(), held.ino()) == (there.dev(), there.ino())
}

#[cfg(not(unix))]
#[expect(clippy::disallowed_types, reason = "a store in files")]
const fn is_at(_file: &fs::File, _path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-12-4
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn of_more_sessions_than_are_remembered_the_oldest_is_forgotten() {
        let mut sessions = OpenSessions::<()>::new();
        let mut ids = ubos_common::id::IdSource::seeded(1);
        for n in 0..=SEEN {
            sessions.saw(&n.to_string(), Some(ids.uuid()));
            // It is used all the time.
            sessions.saw("0", Some(ids.uuid()));
        }
        assert_eq!(sessions.seen.len(), SEEN);
        assert!(matches!(sessions.seen("0"), Seen::Checkpoint(_)));
        assert_eq!(sessions.seen("1"), Seen::Never);
        assert!(matches!(
            sessions.seen(&SEEN.to_string()),
            Seen::Checkpoint(_)
        ));
    }

    #[test]
    fn a_folder_is_held_by_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("s");
        let first = SessionLock::take(&folder).unwrap();
        assert!(first.is_of(&folder));
        assert_eq!(
            SessionLock::take(&folder).unwrap_err(),
            CheckpointError::InUse
        );
        // Removed and made anew, it is another one.
        fs::remove_dir_all(&folder).unwrap();
        assert!(!first.is_of(&folder));
        let second = SessionLock::take(&folder).unwrap();
        assert!(second.is_of(&folder) && !first.is_of(&folder));
        drop(first);
        assert_eq!(
            SessionLock::take(&folder).unwrap_err(),
            CheckpointError::InUse
        );
        drop(second);
        SessionLock::take(&folder).unwrap();
    }

    // spec: UAP-12-4
    #[test]
    fn a_lock_ends_although_a_child_has_inherited_its_file() {
        let place = tempfile::tempdir().unwrap();
        let lock = SessionLock::take(place.path()).unwrap();
        // A child that was forked has the same open file.
        let inherited = lock.0.as_ref().map(|file| file.try_clone().unwrap());
        assert_eq!(
            SessionLock::take(place.path()).unwrap_err(),
            CheckpointError::InUse
        );
        drop(lock);
        SessionLock::take(place.path()).unwrap();
        drop(inherited);
    }

    #[test]
    fn what_was_used_longest_ago_goes() {
        let mut held = OpenSessions::new();
        let ids = &mut ubos_common::id::IdSource::seeded(1);
        for n in 0..OPEN {
            held.open(&n.to_string(), n);
        }
        assert_eq!(held.get("0"), Some(&mut 0));
        held.open("more", 7);
        assert_eq!(held.get("0"), Some(&mut 0));
        assert_eq!(held.get("1"), None);
        let seen = ids.uuid();
        held.saw("more", Some(seen));
        assert_eq!(held.close("more"), Some(7));
        assert_eq!(held.seen("more"), Seen::Checkpoint(seen));
        held.saw("more", None);
        assert_eq!(held.seen("more"), Seen::Nothing);
        held.forget("more");
        assert_eq!(held.seen("more"), Seen::Never);
    }
}
