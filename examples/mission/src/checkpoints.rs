//! Where the report's agent keeps its state: two files a session, replaced whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use uap_agent::StoreFuture;
use uap_agent::{AgentState, CheckpointError, CheckpointMetadata, CheckpointStore, StateId};
use ubos_common::id::Uuid;
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

const STATE: &str = "checkpoint.json";
const METADATA: &str = "metadata.json";

/// Checkpoints below a folder: `<session>/checkpoint.json` and `<session>/metadata.json`. One process writes there.
#[derive(Clone, Debug)]
pub struct FileCheckpoints {
    folder: PathBuf,
    /// Held while a save is compared and written.
    saving: Arc<Mutex<()>>,
}

impl FileCheckpoints {
    /// Checkpoints below a folder, which is made when the first is saved.
    pub fn new(folder: PathBuf) -> Self {
        let saving = Arc::default();
        Self { folder, saving }
    }

    /// The folder of a session; names that are no plain word never become paths.
    fn session(&self, session: &str) -> io::Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if session.is_empty() || !session.chars().all(plain) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a session that is no plain word",
            ));
        }
        Ok(self.folder.join(session))
    }

    fn write(&self, metadata: &CheckpointMetadata, state: &AgentState) -> io::Result<()> {
        let folder = self.session(&metadata.session_id)?;
        fs::create_dir_all(&folder)?;
        replace(&folder.join(STATE), state.to_json().as_bytes())?;
        replace(&folder.join(METADATA), &json::to_vec(metadata))
    }

    fn read<T>(
        &self,
        session: &str,
        file: &str,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        match fs::read(self.session(session)?.join(file)) {
            // What cannot be read back is no checkpoint; the next save replaces it.
            Ok(bytes) => Ok(read(&bytes)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn state(&self, session: &str) -> io::Result<Option<AgentState>> {
        self.read(session, STATE, |bytes| {
            AgentState::from_json(bytes, &Limits::default()).ok()
        })
    }

    fn metadata(&self, session: &str) -> io::Result<Option<CheckpointMetadata>> {
        self.read(session, METADATA, |bytes| {
            json::decode(bytes, &Limits::default(), Profile::Strict)
                .ok()
                .map(|(metadata, _)| metadata)
        })
    }

    fn sessions(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(err),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.path().join(STATE).exists() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Puts a file in place whole and durably: a crash leaves the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    fs::write(&next, bytes)?;
    fs::OpenOptions::new().write(true).open(&next)?.sync_all()?;
    fs::rename(next, path)
}

fn done<T: Send + 'static>(result: io::Result<T>) -> StoreFuture<'static, T> {
    let result = result.map_err(|err| CheckpointError::Failed(err.to_string().into()));
    Box::pin(std::future::ready(result))
}

impl CheckpointStore for FileCheckpoints {
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        done(self.write(&metadata, &state))
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        match self.state(&metadata.session_id) {
            Ok(Some(last)) if Some(last.id()) != after => {
                let known = self.metadata(&metadata.session_id).ok().flatten();
                let found = known.map_or_else(Uuid::nil, |known| known.checkpoint_id);
                Box::pin(std::future::ready(Err(CheckpointError::Conflict { found })))
            }
            Ok(_) => done(self.write(&metadata, &state)),
            Err(err) => done(Err(err)),
        }
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        done(self.state(session_id))
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        done(self.metadata(session_id))
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        done(
            self.session(session_id)
                .and_then(|folder| match fs::remove_dir_all(folder) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
                    _ => Ok(()),
                }),
        )
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        done(self.sessions())
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;

    use super::*;

    #[tokio::test]
    async fn what_is_saved_is_loaded_and_other_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileCheckpoints::new(dir.path().join("checkpoints"));
        assert_eq!(store.list().await, Ok(vec![]));
        assert_eq!(store.load("report").await, Ok(None));
        let state = AgentState::initial(&mut IdSource::seeded(1));
        let metadata = |session: &str| {
            CheckpointMetadata::new(session.into(), Uuid::nil(), Timestamp::EPOCH, 0, "a".into())
        };
        for _ in 0..2 {
            store.save(metadata("report"), state.clone()).await.unwrap();
        }
        assert_eq!(store.load("report").await, Ok(Some(state.clone())));
        assert_eq!(
            store.load_metadata("report").await,
            Ok(Some(metadata("report")))
        );
        assert_eq!(store.list().await, Ok(vec!["report".to_owned()]));
        for bad in ["", "..", "a/b", "a b"] {
            assert!(
                store.save(metadata(bad), state.clone()).await.is_err(),
                "{bad}"
            );
        }
        store.delete("report").await.unwrap();
        store.delete("report").await.unwrap();
        assert_eq!(store.load("report").await, Ok(None));
    }
}
