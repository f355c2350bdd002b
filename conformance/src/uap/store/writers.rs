//! What stores must do when two write one session.

use super::states::{StateSource, at, together, wrong_if};
use super::{StoreFault, is_kept, save};
use uap_agent::{AgentState, CheckpointError, CheckpointStore, StateId};

/// Lets two agents write one session, each through a store of its own over the same place, or both through one; both are
/// left empty.
///
/// The second agent is refused with [`CheckpointError::InUse`], or it takes over, and then the first one is refused with
/// [`CheckpointError::Conflict`] until it has loaded what the second saved. In no case is anything overwritten.
///
/// A save [behind a state](CheckpointStore::save_after) that is not the last one any more is refused, in a new session as in
/// one that is there; of two at once one is kept, and the other is a conflict.
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
    for is_new in [true, false] {
        continues(first, second, states, is_new).await?;
        at_once(first, states, is_new).await?;
    }
    let forgotten = first.delete("shared").await;
    forgotten.map_err(at("forgetting a session as its writer"))?;
    let left = second.load("shared").await.map_err(at("loading"))?;
    wrong_if(
        left.is_some(),
        "one store does not see what the other forgot",
    )
}

/// A state, saved unless the session is to be new, and what a save that continues from it names.
async fn begin(
    store: &dyn CheckpointStore,
    states: &mut StateSource,
    session: &str,
    is_new: bool,
) -> Result<(AgentState, Option<StateId>), StoreFault> {
    let begun = states.initial();
    if is_new {
        return Ok((begun, None));
    }
    let metadata = states.metadata(session, "first", &begun);
    save(store, metadata, begun.clone()).await?;
    let after = Some(begun.id());
    Ok((begun, after))
}

/// Both have loaded a session, new or not. The first one saves and lets it go, and then the second one saves.
async fn continues(
    first: &dyn CheckpointStore,
    second: &dyn CheckpointStore,
    states: &mut StateSource,
    is_new: bool,
) -> Result<(), StoreFault> {
    let (begun, after) = begin(first, states, "continued", is_new).await?;
    for store in [first, second] {
        store.load("continued").await.map_err(at("loading"))?;
    }
    let mine = states.grown(&begun);
    let kept = states.metadata("continued", "first", &mine);
    let saved = first.save_after(kept.clone(), mine.clone(), after).await;
    saved.map_err(at("saving behind the last state"))?;
    first.release("continued").await.map_err(at("releasing"))?;
    let theirs = states.grown(&begun);
    for after in [after, Some(theirs.id())] {
        let metadata = states.metadata("continued", "second", &theirs);
        let saved = second.save_after(metadata, theirs.clone(), after).await;
        wrong_if(
            !matches!(saved, Err(CheckpointError::Conflict { .. })),
            "a save behind a state that is not the last one is not a conflict",
        )?;
        is_kept(first, &kept, &mine).await?;
    }
    // A save that was refused locks nobody out.
    let more = states.grown(&mine);
    let kept = states.metadata("continued", "first", &more);
    let saved = first
        .save_after(kept.clone(), more.clone(), Some(mine.id()))
        .await;
    saved.map_err(at("saving behind the last state"))?;
    is_kept(second, &kept, &more).await?;
    first.delete("continued").await.map_err(at("forgetting"))
}

/// Two saves at once behind one state, or in a new session, through one store.
async fn at_once(
    store: &dyn CheckpointStore,
    states: &mut StateSource,
    is_new: bool,
) -> Result<(), StoreFault> {
    let (begun, after) = begin(store, states, "at once", is_new).await?;
    let saves: Vec<_> = ["first", "second"]
        .into_iter()
        .map(|agent| {
            let state = states.grown(&begun);
            (states.metadata("at once", agent, &state), state)
        })
        .collect();
    let asked = saves.iter().cloned();
    let done = together(asked.map(|(metadata, state)| store.save_after(metadata, state, after)));
    let mut kept: Option<&(_, AgentState)> = None;
    for (saved, asked) in done.await.into_iter().zip(&saves) {
        match saved {
            Ok(()) if kept.is_none() => kept = Some(asked),
            Ok(()) => return Err(StoreFault::Wrong("two saves behind one state are kept")),
            Err(CheckpointError::Conflict { .. }) => {}
            Err(source) => {
                return Err(StoreFault::Failed {
                    doing: "saving twice at once",
                    source,
                });
            }
        }
    }
    let Some((metadata, state)) = kept else {
        return Err(StoreFault::Wrong("of two saves at once both are refused"));
    };
    is_kept(store, metadata, state).await?;
    store.delete("at once").await.map_err(at("forgetting"))
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
