//! What every store must do, for who writes one.

use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;
use upp::{Message, Stamp};

use super::{CheckpointError, CheckpointMetadata, CheckpointStore};
use crate::state::AgentState;

/// What a store does otherwise than stores do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFault {
    /// It failed where it should not have.
    #[error("{doing}: the store failed")]
    Failed {
        /// What it was asked.
        doing: &'static str,
        /// What it said.
        source: CheckpointError,
    },
    /// It did not do what was asked.
    #[error("{0}")]
    Wrong(&'static str),
}

/// Puts an empty store through all that stores do, and leaves it empty.
///
/// ```
/// use uap_agent::{MemoryCheckpoints, checkpoint::check_store};
///
/// futures::executor::block_on(check_store(&MemoryCheckpoints::default()))?;
/// # Ok::<(), uap_agent::checkpoint::StoreFault>(())
/// ```
///
/// # Errors
///
/// The first thing that the store does otherwise.
///
/// Spec: UAP-1.1 12.2
pub async fn check_store(store: &dyn CheckpointStore) -> Result<(), StoreFault> {
    let mut ids = IdSource::seeded(12);
    let sessions = ["b", "a session/with: ü", "a"];
    let unknown = store.load("unknown").await;
    let unknown = unknown.map_err(at("loading a session that is not there"))?;
    wrong_if(unknown.is_some(), "a session that is not there has a state")?;
    let unknown = store.load_metadata("unknown").await;
    let unknown = unknown.map_err(at("loading metadata that is not there"))?;
    wrong_if(
        unknown.is_some(),
        "a session that is not there has metadata",
    )?;
    let forgotten = store.delete("unknown").await;
    forgotten.map_err(at("forgetting a session that is not there"))?;
    let mut last = None;
    for (step, session) in (1..).zip(sessions) {
        for step in [step, step + 10] {
            let (metadata, state) = checkpoint(&mut ids, session, step);
            let saved = store.save(metadata.clone(), state.clone()).await;
            saved.map_err(at("saving"))?;
            let loaded = store.load(session).await.map_err(at("loading"))?;
            wrong_if(
                loaded.as_ref() != Some(&state),
                "what is loaded is not what was saved last",
            )?;
            let loaded = store
                .load_metadata(session)
                .await
                .map_err(at("loading metadata"))?;
            wrong_if(
                loaded.as_ref() != Some(&metadata),
                "metadata is not what was saved last",
            )?;
            last = Some((session, state));
        }
    }
    let listed = store.list().await.map_err(at("listing"))?;
    let mut wanted = sessions.map(str::to_owned);
    wanted.sort_unstable();
    wrong_if(
        listed != wanted,
        "the list is not that of the sessions, in order of their names",
    )?;
    if let Some((session, state)) = last {
        store.delete("b").await.map_err(at("forgetting"))?;
        let kept = store.load(session).await.map_err(at("loading"))?;
        wrong_if(
            kept != Some(state),
            "forgetting one session changed another",
        )?;
    }
    wrong_if(
        store.load("b").await.map_err(at("loading"))?.is_some(),
        "a session that was forgotten has a state",
    )?;
    for session in sessions {
        store.delete(session).await.map_err(at("forgetting"))?;
    }
    let left = store.list().await.map_err(at("listing"))?;
    wrong_if(!left.is_empty(), "sessions that were forgotten are listed")
}

fn checkpoint(ids: &mut IdSource, session: &str, step: u64) -> (CheckpointMetadata, AgentState) {
    let hello = Message::user(Stamp::new(ids, Timestamp::EPOCH), "hello");
    let state = AgentState::initial(ids)
        .with_message(ids, hello)
        .with_step(ids, step)
        .with_reasoning(ids, "because");
    let (id, at) = (ids.uuid(), Timestamp::EPOCH);
    let metadata = CheckpointMetadata::new(session.into(), id, at, step, "agent".into());
    (metadata, state)
}

fn at(doing: &'static str) -> impl FnOnce(CheckpointError) -> StoreFault {
    move |source| StoreFault::Failed { doing, source }
}

const fn wrong_if(wrong: bool, what: &'static str) -> Result<(), StoreFault> {
    if wrong {
        Err(StoreFault::Wrong(what))
    } else {
        Ok(())
    }
}
