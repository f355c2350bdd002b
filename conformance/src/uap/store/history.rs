//! What stores with a history must do.

use super::states::{StateSource, at, wrong_if};
use super::{StoreFault, is_kept, save};
use uap_agent::AgentState;
use uap_agent::{CheckpointError, CheckpointHistory, CheckpointMetadata};

/// What was saved.
type Kept = Vec<(CheckpointMetadata, AgentState)>;

/// Puts an empty store through all that stores with a history do beside [`check_store`](super::check_store) and
/// [`check_writers`](super::check_writers), and leaves it empty.
///
/// The history has every save, in order, and each state comes back as it was; a fork has the past up to its checkpoint and
/// goes its own way, in place of no session that is there; pruning leaves the last ones, for good, and the last one always.
///
/// ```
/// use uap_agent::MemoryCheckpoints;
/// use ubos_conformance::uap::check_history;
///
/// futures::executor::block_on(check_history(&MemoryCheckpoints::default()))?;
/// # Ok::<(), ubos_conformance::uap::StoreFault>(())
/// ```
///
/// # Errors
///
/// The first thing that the store does otherwise.
pub async fn check_history(store: &dyn CheckpointHistory) -> Result<(), StoreFault> {
    let states = &mut StateSource::new();
    unknown(store, states).await?;
    let mut trunk = Kept::new();
    let mut state = states.initial();
    for n in 0..StateSource::CHANGES * 4 {
        state = states.changed(&state, n);
        let metadata = states.metadata("trunk", "agent", &state);
        save(store, metadata.clone(), state.clone()).await?;
        trunk.push((metadata, state.clone()));
    }
    is_history(store, "trunk", &trunk).await?;
    let other = states.metadata("other", "agent", &state);
    save(store, other.clone(), state.clone()).await?;
    let foreign = store.load_at("trunk", other.checkpoint_id).await;
    wrong_if(
        foreign.map_err(at("loading a checkpoint"))?.is_some(),
        "a session has a checkpoint of another",
    )?;
    let branch = forks(store, states, &mut trunk).await?;
    prunes(store, states, &mut trunk).await?;
    is_history(store, "branch", &branch).await?;
    store.delete("trunk").await.map_err(at("forgetting"))?;
    is_history(store, "trunk", &Kept::new()).await?;
    is_history(store, "branch", &branch).await?;
    for session in ["branch", "other"] {
        store.delete(session).await.map_err(at("forgetting"))?;
    }
    let left = store.list().await.map_err(at("listing"))?;
    wrong_if(!left.is_empty(), "sessions that were forgotten are listed")
}

async fn unknown(
    store: &dyn CheckpointHistory,
    states: &mut StateSource,
) -> Result<(), StoreFault> {
    is_history(store, "unknown", &Kept::new()).await?;
    let state = states.initial();
    let checkpoint = states.metadata("unknown", "agent", &state).checkpoint_id;
    let loaded = store.load_at("unknown", checkpoint).await;
    wrong_if(
        loaded.map_err(at("loading a checkpoint"))?.is_some(),
        "a session that is not there has a checkpoint",
    )?;
    let pruned = store.prune("unknown", 1).await.map_err(at("pruning"))?;
    wrong_if(pruned != 0, "a session that is not there was pruned")?;
    let forked = store.fork("unknown", checkpoint, "forked").await;
    wrong_if(
        !matches!(forked, Err(CheckpointError::Unknown { .. })),
        "a session that is not there was forked, or the error is not that it is unknown",
    )?;
    let left = store.list().await.map_err(at("listing"))?;
    wrong_if(!left.is_empty(), "a fork that failed left a session")
}

/// Forks the trunk in its middle; what the branch has then.
async fn forks(
    store: &dyn CheckpointHistory,
    states: &mut StateSource,
    trunk: &mut Kept,
) -> Result<Kept, StoreFault> {
    let mut branch: Kept = trunk.iter().take(trunk.len() / 2).cloned().collect();
    for (metadata, _) in &mut branch {
        metadata.session_id = "branch".into();
    }
    let Some((fork, at_fork)) = branch.last().cloned() else {
        return Ok(branch);
    };
    let from = fork.checkpoint_id;
    let forked = store.fork("trunk", from, "branch").await;
    forked.map_err(at("forking"))?;
    is_history(store, "branch", &branch).await?;
    is_history(store, "trunk", trunk).await?;
    let state = states.grown(&at_fork);
    let metadata = states.metadata("branch", "agent", &state);
    save(store, metadata.clone(), state.clone()).await?;
    branch.push((metadata, state));
    if let Some((_, last)) = trunk.last() {
        let state = states.grown(last);
        let metadata = states.metadata("trunk", "agent", &state);
        save(store, metadata.clone(), state.clone()).await?;
        trunk.push((metadata, state));
    }
    is_history(store, "branch", &branch).await?;
    is_history(store, "trunk", trunk).await?;
    for taken in ["branch", "other", "trunk"] {
        let forked = store.fork("trunk", from, taken).await;
        wrong_if(
            forked != Err(CheckpointError::Exists),
            "a fork took the place of a session, or the error is not that it exists",
        )?;
        // Of both faults, the first is that there is nothing to fork.
        let nothing = states.metadata("trunk", "agent", &at_fork).checkpoint_id;
        let forked = store.fork("trunk", nothing, taken).await;
        wrong_if(
            !matches!(forked, Err(CheckpointError::Unknown { checkpoint }) if checkpoint == nothing),
            "a fork of an unknown checkpoint to a session that is there does not tell that it is unknown",
        )?;
    }
    is_history(store, "branch", &branch).await?;
    is_history(store, "trunk", trunk).await?;
    Ok(branch)
}

async fn prunes(
    store: &dyn CheckpointHistory,
    states: &mut StateSource,
    trunk: &mut Kept,
) -> Result<(), StoreFault> {
    for keep in [StateSource::CHANGES * 2, StateSource::CHANGES + 1, 3, 1, 0] {
        let wanted = trunk.len().saturating_sub(keep.max(1));
        let gone: Kept = trunk.drain(..wanted).collect();
        let pruned = store.prune("trunk", keep).await.map_err(at("pruning"))?;
        wrong_if(
            pruned != gone.len(),
            "pruning tells another number than it should have forgotten",
        )?;
        is_history(store, "trunk", trunk).await?;
        for (metadata, _) in gone {
            let found = store.load_at("trunk", metadata.checkpoint_id).await;
            wrong_if(
                found.map_err(at("loading a checkpoint"))?.is_some(),
                "a checkpoint that was pruned is there",
            )?;
        }
        let again = store.prune("trunk", keep).await.map_err(at("pruning"))?;
        wrong_if(again != 0, "pruning twice forgets twice")?;
        // Saves go on behind what is left.
        let last = trunk
            .last()
            .map_or_else(|| states.initial(), |(_, last)| last.clone());
        let state = states.changed(&last, keep);
        let metadata = states.metadata("trunk", "agent", &state);
        save(store, metadata.clone(), state.clone()).await?;
        trunk.push((metadata, state));
        is_history(store, "trunk", trunk).await?;
    }
    Ok(())
}

/// Whether a session has this past, and nothing else.
async fn is_history(
    store: &dyn CheckpointHistory,
    session: &str,
    wanted: &Kept,
) -> Result<(), StoreFault> {
    let history = store.history(session).await;
    let history = history.map_err(at("looking at the history"))?;
    wrong_if(
        !history
            .iter()
            .eq(wanted.iter().map(|(metadata, _)| metadata)),
        "the history is not that of the saves, the oldest first",
    )?;
    for (metadata, state) in wanted {
        let loaded = store.load_at(session, metadata.checkpoint_id).await;
        let loaded = loaded.map_err(at("loading a checkpoint"))?;
        wrong_if(
            loaded.as_ref() != Some(state),
            "a state of the past is not what was saved",
        )?;
    }
    match wanted.last() {
        Some((metadata, state)) => is_kept(store, metadata, state).await,
        None => {
            let loaded = store.load(session).await.map_err(at("loading"))?;
            wrong_if(loaded.is_some(), "a session without a past has a state")
        }
    }
}
