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
    /// The checkpoints of a session, the oldest first; empty where there is none.
    fn history<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>>;

    /// The state at one of them; none where the session has no such checkpoint (any more). Reading an old state is not
    /// loading the session: a writer that others have taken over from stays so.
    fn load_at<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
    ) -> StoreFuture<'a, Option<AgentState>>;

    /// Makes a new session of this one's past up to a checkpoint. Ids, times and states stay as they are; the two go their
    /// own ways from there.
    ///
    /// The future fails with [`CheckpointError::Exists`](super::CheckpointError::Exists) where the new session is there
    /// already, with [`CheckpointError::Unknown`](super::CheckpointError::Unknown) where the checkpoint is not.
    fn fork<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
        new_session_id: &'a str,
    ) -> StoreFuture<'a, ()>;

    /// Forgets all but the last `keep` checkpoints of a session, for good, and tells how many that were. The last one
    /// always stays: to forget that too is [`delete`](CheckpointStore::delete).
    fn prune<'a>(&'a self, session_id: &'a str, keep: usize) -> StoreFuture<'a, usize>;
}
