//! Runs that are recorded, resumed and replayed.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures::future::FutureExt;
use ubos_common::driver::{self, Step, drive};

use super::stream::AgentStreamResult;
use super::world::{Completed, RunWorld};
use super::{Agent, AgentInput};
use crate::engine::RunStart;
use crate::journal::recorder::{Input, Output};
use crate::journal::{Journal, JournalError, Program, Recorder, Recording, Replay};
use crate::result::RunResult;
use crate::state::AgentState;

/// An agent whose next run is recorded. See [`journal`](crate::journal).
#[must_use = "nothing is recorded before a run starts"]
pub struct RecordedAgent<'a> {
    agent: &'a Agent,
    journal: Arc<dyn Journal>,
}

impl fmt::Debug for RecordedAgent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedAgent")
            .field("agent", self.agent)
            .finish_non_exhaustive()
    }
}

impl RecordedAgent<'_> {
    /// As [`Agent::stream`]. A journal holds one run: where it holds one already, this one fails.
    pub fn stream(self, input: impl Into<AgentInput>, state: &AgentState) -> AgentStreamResult {
        let agent = self.agent;
        let now = agent.clock.now();
        let mut ids = agent.fork_ids();
        let input = input.into().into_message(now, &mut ids);
        // The ids of the run come from a seed that can be recorded.
        let seed = ids.bits();
        let mut start = RunStart::new(Arc::clone(&agent.id), state.clone(), input);
        start.session_id.clone_from(&agent.session_id);
        let recorder = Recorder::begin(now, &agent.program(), seed, start);
        agent.drive_recorded(recorder, Arc::clone(&agent.id), self.journal)
    }

    /// As [`Agent::generate`].
    ///
    /// # Errors
    ///
    /// The error of the run. Where the journal failed, the cause is its [`JournalError`].
    pub async fn generate(self, input: impl Into<AgentInput>, state: &AgentState) -> RunResult {
        self.stream(input, state).result().await
    }
}

impl Agent {
    /// Records the next run: its start, each request before it is made, and each result before the run continues.
    pub const fn record(&self, journal: Arc<dyn Journal>) -> RecordedAgent<'_> {
        RecordedAgent {
            agent: self,
            journal,
        }
    }

    /// Continues the run in a journal, under its ids. Recorded work is neither done nor reported again; a request
    /// without a recorded result is made again; then the run continues and is recorded. A run that has ended returns
    /// its result.
    ///
    /// # Errors
    ///
    /// The journal is empty or cannot be read, or the run was recorded with another program. Nothing was done then.
    // impl: UAP-12-5
    pub async fn resume(
        &self,
        journal: Arc<dyn Journal>,
    ) -> Result<AgentStreamResult, JournalError> {
        let recording = Recording::load(journal.as_ref()).await?;
        let recorder = recording.resume(&self.program())?;
        Ok(self.drive_recorded(recorder, recording.agent_id().into(), journal))
    }

    /// Repeats a recorded run: its events, states and result. No model, tool, hook or store is called.
    ///
    /// # Errors
    ///
    /// The run was recorded with another program.
    pub fn replay(&self, recording: &Recording) -> Result<Replay, JournalError> {
        recording.replay(&self.program())
    }

    fn program(&self) -> Program {
        Program::new(self.engine_config(), Arc::clone(&self.execution))
    }

    fn drive_recorded(
        &self,
        mut recorder: Recorder,
        agent_id: Arc<str>,
        journal: Arc<dyn Journal>,
    ) -> AgentStreamResult {
        let clock = Arc::clone(&self.clock);
        let world = self.world(agent_id);
        let shared = world.shared();
        let mut world = RecordedWorld { world, journal };
        let driver = Box::pin(async move {
            // A world that expects an abort never stalls.
            let _ = drive(&mut recorder, &mut world, clock.as_ref()).await;
        });
        AgentStreamResult::over(driver, shared)
    }
}

/// Performs the effects of a run, and writes its journal.
struct RecordedWorld {
    world: RunWorld,
    journal: Arc<dyn Journal>,
}

/// The id of the write; the engine counts its effects from 1.
const WRITE: u64 = 0;

enum RecordedCompleted {
    Engine(Completed),
    Written(Result<(), JournalError>),
}

impl driver::World<Recorder> for RecordedWorld {
    type Answer = RecordedCompleted;

    fn perform(&mut self, output: Output) -> Step<RecordedCompleted> {
        let (first, entries) = match output {
            Output::Engine(output) => {
                return match driver::World::perform(&mut self.world, *output) {
                    Step::Start(id, effect) => {
                        Step::start(id, async move { RecordedCompleted::Engine(effect.await) })
                    }
                    Step::Cancel(id) => Step::Cancel(id),
                    _ => Step::Done,
                };
            }
            Output::Write(first, entries) => (first, entries),
        };
        let journal = Arc::clone(&self.journal);
        Step::start(WRITE, async move {
            let writing = AssertUnwindSafe(async { journal.append(first, entries).await });
            let written = writing.catch_unwind().await;
            let panicked = |_| Err(JournalError::Failed("the journal panicked".into()));
            RecordedCompleted::Written(written.unwrap_or_else(panicked))
        })
    }

    fn input(&mut self, completed: RecordedCompleted) -> Input {
        match completed {
            RecordedCompleted::Engine(completed) => {
                Input::Engine(driver::World::input(&mut self.world, completed))
            }
            RecordedCompleted::Written(written) => Input::Written(written),
        }
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        self.world.poll_external(cx).map(Input::Engine)
    }

    fn expects_external(&self) -> bool {
        self.world.expects_external()
    }
}
