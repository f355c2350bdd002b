//! A conversation that a store keeps.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ubos_common::id::Uuid;
use ubos_common::trace_context::TraceContext;
use upp::{ErrorCode, UppError};

use super::stream::AgentStreamResult;
use super::{Agent, AgentInput};
use crate::checkpoint::{CheckpointError, CheckpointMetadata, CheckpointStore, StoreFuture};
use crate::result::{AgentError, GenerateResult};
use crate::state::{AgentState, StateId};

/// A conversation under a name in a store: each run continues where the last one was saved.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{AgentOptions, MemoryCheckpoints, agent};
/// use upp::{Reply, ScriptedModel};
///
/// let model = ScriptedModel::with(|request| Some(Reply::text(format!("{} messages", request.messages.len()))));
/// let agent = agent(AgentOptions::new(Arc::new(model)))?;
/// let store = Arc::new(MemoryCheckpoints::default());
/// # futures::executor::block_on(async {
/// let session = agent.session(store, "ann");
/// assert_eq!(session.ask("hi").await?.turn.response.text(), "1 messages");
/// assert_eq!(session.ask("and again").await?.turn.response.text(), "3 messages");
/// # Ok::<(), upp::UppError>(())
/// # })?;
/// # Ok::<(), upp::UppError>(())
/// ```
#[derive(Clone)]
pub struct AgentSession<'a> {
    agent: &'a Agent,
    store: Arc<dyn CheckpointStore>,
    id: Arc<str>,
    trace: Option<TraceContext>,
}

impl Agent {
    /// A conversation under a name in a store. The states of its runs are saved there, whatever the agent's own store is.
    pub fn session(
        &self,
        store: Arc<dyn CheckpointStore>,
        id: impl Into<Arc<str>>,
    ) -> AgentSession<'_> {
        AgentSession {
            agent: self,
            store,
            id: id.into(),
            trace: None,
        }
    }
}

impl AgentSession<'_> {
    /// Sets the place in a distributed trace of runs from here on, in place of the one that the last state names. An input may
    /// have another ([`AgentInput::with_trace`]); a clone may have a place of its own.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The name of the session.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The state that was saved last; an empty one before the first run.
    ///
    /// # Errors
    ///
    /// The store refuses the name, or failed.
    pub async fn state(&self) -> Result<AgentState, CheckpointError> {
        let saved = self.saved().await?;
        Ok(saved.unwrap_or_else(|| self.agent.initial_state()))
    }

    async fn saved(&self) -> Result<Option<AgentState>, CheckpointError> {
        self.store.takes_session(&self.id)?;
        self.store.load(&self.id).await
    }

    /// Runs the agent from the state that was saved last. Where another run of the session has saved meanwhile, this one is
    /// not saved: of two questions that are asked at once, one is kept.
    ///
    /// # Errors
    ///
    /// The error of the run. Where the store failed, the cause is its [`CheckpointError`]. So it is where the last state of
    /// the run was not saved, such as where another writer has saved meanwhile: the error holds state and turn of the run, and
    /// the next one would start without them.
    pub async fn ask(
        &self,
        input: impl Into<AgentInput>,
    ) -> Result<GenerateResult, Box<AgentError>> {
        match self.stream(input).await {
            Ok(run) => {
                let (result, unsaved) = run.result_and_save().await;
                let result = result?;
                match unsaved {
                    Some(error) => {
                        let (state, turn) = (result.state, Some(result.turn));
                        Err(AgentError::new(store_failed(error), state, turn))
                    }
                    None => Ok(result),
                }
            }
            Err(error) => {
                let state = self.agent.initial_state();
                Err(AgentError::new(store_failed(error), state, None))
            }
        }
    }

    /// Runs the agent from the state that was saved last, and returns its events as they occur. Dropping or aborting the
    /// run leaves the session at the last step that ended. A run whose session another has saved meanwhile is not saved, and
    /// [`AgentOptions::with_on_save_failed`](crate::AgentOptions::with_on_save_failed) is told
    /// [`CheckpointError::Conflict`].
    ///
    /// # Errors
    ///
    /// The store refuses the name, or failed. Nothing runs then.
    pub async fn stream(
        &self,
        input: impl Into<AgentInput>,
    ) -> Result<AgentStreamResult, CheckpointError> {
        let input = input.into().or_trace(self.trace.as_ref());
        let saved = self.saved().await?;
        let store = RunStore::new(Arc::clone(&self.store), saved.as_ref());
        let state = saved.unwrap_or_else(|| self.agent.initial_state());
        let (store, id) = (Arc::new(store), Arc::clone(&self.id));
        Ok(self.agent.run_in(input, &state, Some(id), Some(store)))
    }

    /// Ends the work with the session: another store can save it.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn close(self) -> Result<(), CheckpointError> {
        self.store.release(&self.id).await
    }
}

/// The store of one run: each save continues from the one before, and the first from what the session had loaded.
struct RunStore {
    store: Arc<dyn CheckpointStore>,
    saves: Mutex<RunSaves>,
}

#[derive(Clone, Default)]
struct RunSaves {
    last: Option<StateId>,
    /// Saves since then that failed, and may have been written.
    attempted: Vec<(Uuid, StateId)>,
}

impl RunStore {
    fn new(store: Arc<dyn CheckpointStore>, loaded: Option<&AgentState>) -> Self {
        let saves = RunSaves {
            last: loaded.map(AgentState::id),
            attempted: Vec::new(),
        };
        Self {
            store,
            saves: Mutex::new(saves),
        }
    }
}

// impl: UAP-12-2
impl CheckpointStore for RunStore {
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        let lock = || self.saves.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(async move {
            let saving = (metadata.checkpoint_id, state.id());
            let before = lock().clone();
            let save = |after| {
                self.store
                    .save_after(metadata.clone(), state.clone(), after)
            };
            let mut saved = save(before.last).await;
            // What another seems to have saved is this run's own, whose answer was lost.
            if let Err(CheckpointError::Conflict { found }) = &saved {
                let own = before.attempted.iter().find(|(tried, _)| tried == found);
                if let Some((_, state)) = own {
                    saved = save(Some(*state)).await;
                }
            }
            let mut saves = lock();
            match &saved {
                Ok(()) => {
                    *saves = RunSaves {
                        last: Some(saving.1),
                        attempted: Vec::new(),
                    };
                }
                Err(CheckpointError::Conflict { .. }) => {}
                Err(_) => saves.attempted.push(saving),
            }
            saved
        })
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        self.store.save_after(metadata, state, after)
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        self.store.load(session_id)
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        self.store.load_metadata(session_id)
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        self.store.delete(session_id)
    }

    fn release<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        self.store.release(session_id)
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.store.list()
    }
}

fn store_failed(error: CheckpointError) -> UppError {
    let text = error.to_string();
    UppError::new(ErrorCode::ProviderError, "uap", text).with_cause(error)
}

impl fmt::Debug for AgentSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSession")
            .field("agent", &self.agent.id())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
