//! What every store must do, for who writes one.

mod fault;
mod history;
mod states;
mod writers;

use states::{StateSource, at, together, wrong_if};
use uap_agent::AgentState;
use uap_agent::{CheckpointMetadata, CheckpointStore, StoreFuture};

pub use fault::StoreFault;
pub use history::check_history;
pub use writers::check_writers;

/// Puts an empty store through all that stores do, and leaves it empty.
///
/// States and metadata come back whole, whatever is in them; a save takes the place of the one before, also where it is
/// smaller; sessions of unusual and of similar names are kept apart; sessions that are saved at once do not mix; who loads
/// beside a save finds the state before it or after it; what is forgotten is gone. A name that
/// [`takes_session`](CheckpointStore::takes_session) refuses is refused by a save.
///
/// ```
/// use uap_agent::MemoryCheckpoints;
/// use ubos_conformance::uap::check_store;
///
/// futures::executor::block_on(check_store(&MemoryCheckpoints::default()))?;
/// # Ok::<(), ubos_conformance::uap::StoreFault>(())
/// ```
///
/// # Errors
///
/// The first thing that the store does otherwise.
///
/// Spec: UAP-1.1 12.2
pub async fn check_store(store: &dyn CheckpointStore) -> Result<(), StoreFault> {
    let mut states = StateSource::new();
    unknown(store).await?;
    saves(store, &mut states).await?;
    let names = names(store, &mut states).await?;
    at_once(store, &mut states).await?;
    beside(store, &mut states).await?;
    let mut wanted = names.clone();
    wanted.extend(["order", "beside"].map(str::to_owned));
    wanted.extend((0..SESSIONS).map(|n| format!("at once {n}")));
    wanted.sort_unstable();
    let listed = store.list().await.map_err(at("listing"))?;
    wrong_if(
        listed != wanted,
        "the list is not that of the sessions, in order of their names",
    )?;
    forgetting(store, &mut states, &names).await?;
    for session in wanted {
        store.delete(&session).await.map_err(at("forgetting"))?;
    }
    let left = store.list().await.map_err(at("listing"))?;
    wrong_if(!left.is_empty(), "sessions that were forgotten are listed")
}

/// Sessions that are saved at once.
const SESSIONS: usize = 8;

/// Names that a careless store mixes up, cuts or leads astray.
const NAMES: [&str; 17] = [
    "b",
    "a",
    "A",
    "a session/with: ü",
    "a%2Fb",
    "a/b",
    "a\\b",
    "a b",
    " a",
    "a.",
    ".a",
    "../a",
    "..a",
    "con",
    "*?\"<>|\n\t\0",
    "名前",
    "checkpoint.json",
];

async fn unknown(store: &dyn CheckpointStore) -> Result<(), StoreFault> {
    let loaded = store.load("unknown").await;
    let loaded = loaded.map_err(at("loading a session that is not there"))?;
    wrong_if(loaded.is_some(), "a session that is not there has a state")?;
    let metadata = store.load_metadata("unknown").await;
    let metadata = metadata.map_err(at("loading metadata that is not there"))?;
    wrong_if(
        metadata.is_some(),
        "a session that is not there has metadata",
    )?;
    let forgotten = store.delete("unknown").await;
    forgotten.map_err(at("forgetting a session that is not there"))
}

/// One session, saved again and again: larger, smaller, back, changed in each of its parts.
async fn saves(store: &dyn CheckpointStore, states: &mut StateSource) -> Result<(), StoreFault> {
    let mut state = states.initial();
    for n in 0..StateSource::CHANGES * 3 {
        state = states.changed(&state, n);
        let metadata = states.metadata("order", "agent", &state);
        save(store, metadata.clone(), state.clone()).await?;
        is_kept(store, &metadata, &state).await?;
    }
    Ok(())
}

async fn names(
    store: &dyn CheckpointStore,
    states: &mut StateSource,
) -> Result<Vec<String>, StoreFault> {
    let mut kept = Vec::new();
    for (n, name) in NAMES.into_iter().chain(["", ".", ".."]).enumerate() {
        let state = states.state(n);
        let metadata = states.metadata(name, "agent", &state);
        if store.takes_session(name).is_err() {
            let saved = store.save(metadata, state).await;
            wrong_if(saved.is_ok(), "a name that was refused is kept")?;
            continue;
        }
        save(store, metadata.clone(), state.clone()).await?;
        kept.push((metadata, state));
    }
    for (metadata, state) in &kept {
        is_kept(store, metadata, state).await?;
    }
    Ok(kept.into_iter().map(|(m, _)| m.session_id).collect())
}

/// Several sessions, each save of one beside those of the others.
async fn at_once(store: &dyn CheckpointStore, states: &mut StateSource) -> Result<(), StoreFault> {
    for round in 0..4 {
        let saves: Vec<_> = (0..SESSIONS)
            .map(|n| {
                let state = states.state(n + round);
                let metadata = states.metadata(&format!("at once {n}"), "agent", &state);
                (metadata, state)
            })
            .collect();
        let asked = saves.iter().cloned();
        let done = together(asked.map(|(metadata, state)| store.save(metadata, state))).await;
        for saved in done {
            saved.map_err(at("saving several sessions at once"))?;
        }
        for (metadata, state) in &saves {
            is_kept(store, metadata, state).await?;
        }
    }
    Ok(())
}

/// Loads beside a save.
async fn beside(store: &dyn CheckpointStore, states: &mut StateSource) -> Result<(), StoreFault> {
    let mut before = None;
    for n in 0..10 {
        let state = states.state(n);
        let metadata = states.metadata("beside", "agent", &state);
        let saving = store.save(metadata, state.clone());
        let loading = [store.load("beside"), store.load("beside")];
        let saving: StoreFuture<'_, Option<AgentState>> =
            Box::pin(async move { saving.await.map(|()| None) });
        let mut done = together([saving].into_iter().chain(loading))
            .await
            .into_iter();
        if let Some(saved) = done.next() {
            saved.map_err(at("saving beside a load"))?;
        }
        for loaded in done {
            let loaded = loaded.map_err(at("loading beside a save"))?;
            wrong_if(
                loaded != before && loaded.as_ref() != Some(&state),
                "what is loaded beside a save is neither the state before it nor the one after",
            )?;
        }
        before = Some(state);
    }
    Ok(())
}

/// One session is forgotten and begun anew; the others stay.
async fn forgetting(
    store: &dyn CheckpointStore,
    states: &mut StateSource,
    names: &[String],
) -> Result<(), StoreFault> {
    let (Some(gone), Some(other)) = (names.first(), names.last()) else {
        return Ok(());
    };
    let kept = store.load(other).await.map_err(at("loading"))?;
    store.delete(gone).await.map_err(at("forgetting"))?;
    let left = store.load(gone).await.map_err(at("loading"))?;
    let known = store.load_metadata(gone).await;
    wrong_if(
        left.is_some() || known.map_err(at("loading metadata"))?.is_some(),
        "a session that was forgotten has a state",
    )?;
    wrong_if(
        store.load(other).await.map_err(at("loading"))? != kept || kept.is_none(),
        "forgetting one session changed another",
    )?;
    let state = states.initial();
    let metadata = states.metadata(gone, "another", &state);
    save(store, metadata.clone(), state.clone()).await?;
    is_kept(store, &metadata, &state).await
}

async fn save(
    store: &dyn CheckpointStore,
    metadata: CheckpointMetadata,
    state: AgentState,
) -> Result<(), StoreFault> {
    store.save(metadata, state).await.map_err(at("saving"))
}

async fn is_kept(
    store: &dyn CheckpointStore,
    metadata: &CheckpointMetadata,
    state: &AgentState,
) -> Result<(), StoreFault> {
    let session = &metadata.session_id;
    let loaded = store.load(session).await.map_err(at("loading"))?;
    wrong_if(
        loaded.as_ref() != Some(state),
        "what is loaded is not what was saved last",
    )?;
    let known = store.load_metadata(session).await;
    wrong_if(
        known.map_err(at("loading metadata"))?.as_ref() != Some(metadata),
        "metadata is not what was saved last",
    )
}
