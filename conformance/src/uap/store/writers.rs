//! What stores must do when two write one session.

use super::states::{StateSource, at, wrong_if};
use super::{StoreFault, is_kept, save};
use uap_agent::{CheckpointError, CheckpointStore};

/// Lets two agents write one session, each through a store of its own over the same place, or both through one; both are
/// left empty.
///
/// The second agent is refused with [`CheckpointError::InUse`], or it takes over, and then the first one is refused with
/// [`CheckpointError::Conflict`] until it has loaded what the second saved. In no case is anything overwritten.
///
/// ```
/// use uap_agent::MemoryCheckpoints;
/// use ubos_conformance::uap::check_writers;
///
/// let store = MemoryCheckpoints::default();
/// futures::executor::block_on(check_writers(&store, &store))?;
/// # Ok::<(), ubos_conformance::uap::StoreFault>(())
/// ```
///
/// # Errors
///
/// The first thing that the stores do otherwise.
pub async fn check_writers(
    first: &dyn CheckpointStore,
    second: &dyn CheckpointStore,
) -> Result<(), StoreFault> {
    let states = &mut StateSource::new();
    let begun = states.initial();
    let common = states.grown(&begun);
    let known = states.metadata("shared", "first", &common);
    save(first, known.clone(), common.clone()).await?;
    let seen = second.load("shared").await.map_err(at("loading"))?;
    wrong_if(
        seen.as_ref() != Some(&common),
        "one store does not see what the other saved",
    )?;
    let theirs = states.grown(&common);
    let taken = states.metadata("shared", "second", &theirs);
    match second.save(taken.clone(), theirs.clone()).await {
        Err(CheckpointError::InUse) => is_kept(second, &known, &common).await?,
        Err(source) => {
            return Err(StoreFault::Failed {
                doing: "saving as the second writer",
                source,
            });
        }
        Ok(()) => {
            is_kept(first, &taken, &theirs).await?;
            // Loading has told the first one; so a session of their own shows who has not loaded.
            stale(first, second, states).await?;
        }
    }
    let forgotten = first.delete("shared").await;
    forgotten.map_err(at("forgetting a session as its writer"))?;
    let left = second.load("shared").await.map_err(at("loading"))?;
    wrong_if(
        left.is_some(),
        "one store does not see what the other forgot",
    )
}

/// The first writer goes on without a look at what the second saved.
async fn stale(
    first: &dyn CheckpointStore,
    second: &dyn CheckpointStore,
    states: &mut StateSource,
) -> Result<(), StoreFault> {
    let begun = states.initial();
    let common = states.grown(&begun);
    let known = states.metadata("stale", "first", &common);
    save(first, known, common.clone()).await?;
    second.load("stale").await.map_err(at("loading"))?;
    let theirs = states.grown(&common);
    let taken = states.metadata("stale", "second", &theirs);
    save(second, taken.clone(), theirs.clone()).await?;
    let mut mine = common;
    for _ in 0..2 {
        mine = states.grown(&mine);
        let metadata = states.metadata("stale", "first", &mine);
        let saved = first.save(metadata, mine.clone()).await;
        wrong_if(
            !matches!(
                saved,
                Err(CheckpointError::Conflict { .. } | CheckpointError::InUse)
            ),
            "a writer that another has taken over from saves as if nothing had happened",
        )?;
        let known = second.load_metadata("stale").await;
        wrong_if(
            known.map_err(at("loading metadata"))?.as_ref() != Some(&taken),
            "a save that was refused is there",
        )?;
    }
    let loaded = first.load("stale").await.map_err(at("loading"))?;
    wrong_if(
        loaded.as_ref() != Some(&theirs),
        "a save that was refused is there",
    )?;
    let next = states.grown(&theirs);
    let metadata = states.metadata("stale", "first", &next);
    match first.save(metadata.clone(), next.clone()).await {
        Ok(()) => is_kept(second, &metadata, &next).await?,
        Err(CheckpointError::InUse) => {}
        Err(source) => {
            return Err(StoreFault::Failed {
                doing: "saving after a load",
                source,
            });
        }
    }
    first.delete("stale").await.map_err(at("forgetting"))
}
