//! The history of checkpoints.

use ubos_common::id::Uuid;

use super::{CheckpointMetadata, CheckpointStore, StoreFuture};
use crate::state::AgentState;

/// A store that keeps the earlier checkpoints of a session.
///
/// ```
/// use uap_agent::{AgentState, CheckpointHistory, CheckpointMetadata, CheckpointStore, MemoryCheckpoints};
/// use ubos_common::{id::IdSource, time::Timestamp};
///
/// # futures::executor::block_on(async {
/// let (store, ids) = (MemoryCheckpoints::default(), &mut IdSource::seeded(1));
/// let mut state = AgentState::initial(ids);
/// for step in 1..=3 {
///     state = state.with_step(ids, step);
///     let metadata = CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, step, "agent".into());
///     store.save(metadata, state.clone()).await?;
/// }
/// let second = store.history("s").await?[1].checkpoint_id;
/// store.fork("s", second, "another way").await?;
/// assert_eq!(store.load("another way").await?.unwrap().step(), 2);
/// assert_eq!(store.prune("s", 1).await?, 2);
/// assert_eq!(store.load("s").await?, Some(state));
/// # Ok::<(), uap_agent::CheckpointError>(())
/// # })?;
/// # Ok::<(), uap_agent::CheckpointError>(())
/// ```
pub trait CheckpointHistory: CheckpointStore {
    /// The checkpoints of a session, oldest first; empty if there is none.
    fn history<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>>;

    /// The state at a checkpoint; `None` if the session does not have it, or no longer. It does not count as a load of the
    /// session: a writer with a conflict keeps it.
    fn load_at<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
    ) -> StoreFuture<'a, Option<AgentState>>;

    /// Copies the past of a session, up to a checkpoint, to a new session. Ids, times and states are the same.
    ///
    /// The future fails with [`CheckpointError::Unknown`](super::CheckpointError::Unknown) if the checkpoint does not exist,
    /// otherwise with [`CheckpointError::Exists`](super::CheckpointError::Exists) if the new session does.
    fn fork<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
        new_session_id: &'a str,
    ) -> StoreFuture<'a, ()>;

    /// Removes all but the last `keep` checkpoints of a session, and returns how many were removed. The last one always
    /// stays: [`delete`](CheckpointStore::delete) removes it.
    fn prune<'a>(&'a self, session_id: &'a str, keep: usize) -> StoreFuture<'a, usize>;
}
