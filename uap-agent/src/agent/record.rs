//! Runs that are recorded, resumed and replayed.

use core::panic::AssertUnwindSafe;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures::future::FutureExt;
use ubos_common::driver::{self, Step, drive};

use super::stream::AgentStreamResult;
use super::world::{World, WorldAnswer};
use super::{Agent, Input};
use crate::journal::{
    Journal, JournalError, Program, Recorder, RecorderInput, RecorderOutput, Recording, Replay,
    RunStart,
};
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// An agent whose next run is recorded. See [`journal`](crate::journal).
#[must_use = "nothing is recorded before something runs"]
pub struct RecordedAgent<'a> {
    agent: &'a Agent,
    journal: Arc<dyn Journal>,
}

impl core::fmt::Debug for RecordedAgent<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RecordedAgent")
            .field("agent", self.agent)
            .finish_non_exhaustive()
    }
}

impl RecordedAgent<'_> {
    /// As [`Agent::stream`]. A journal is good for one run: where there is one in it, this one fails.
    pub fn stream(self, input: impl Into<Input>, state: &AgentState) -> AgentStreamResult {
        let agent = self.agent;
        let now = agent.clock.now();
        let mut ids = agent.fork_ids();
        let input = input.into().message(&mut ids, now);
        // The engine's ids begin anew, from a seed that can be written.
        let mut run = RunStart::new(Arc::clone(&agent.id), ids.bits(), input, state.clone());
        run.session_id.clone_from(&agent.session_id);
        let recorder = Recorder::begin(now, &agent.program(), run);
        agent.drive_recorded(recorder, Arc::clone(&agent.id), self.journal)
    }

    /// As [`Agent::generate`].
    ///
    /// # Errors
    ///
    /// What went wrong; where it is the journal, the [`JournalError`] is the cause.
    pub async fn generate(
        self,
        input: impl Into<Input>,
        state: &AgentState,
    ) -> Result<GenerateResult, Box<AgentError>> {
        self.stream(input, state).result().await
    }
}

impl Agent {
    /// Has the next run recorded: its beginning, every question before it is asked, every answer before the run goes on
    /// from it.
    pub const fn record(&self, journal: Arc<dyn Journal>) -> RecordedAgent<'_> {
        RecordedAgent {
            agent: self,
            journal,
        }
    }

    /// Goes on with the run in a journal, under the ids that it had. What is recorded is not done again and not told
    /// again; what was asked for without an answer is asked for again; then the run goes on and is recorded. A run that
    /// has ended gives its result.
    ///
    /// # Errors
    ///
    /// There is no run in the journal; it cannot be read; or this agent is not the one whose run it is: nothing has
    /// been done then.
    // impl: UAP-12-5
    pub async fn resume(
        &self,
        journal: Arc<dyn Journal>,
    ) -> Result<AgentStreamResult, JournalError> {
        let recording = Recording::load(journal.as_ref()).await?;
        let recorder = recording.resume(&self.program())?;
        Ok(self.drive_recorded(recorder, recording.agent_id().into(), journal))
    }

    /// The recorded run again: its events, states and result. No model, tool, hook or store is touched.
    ///
    /// # Errors
    ///
    /// This agent is not the one whose run it is.
    pub fn replay(&self, recording: &Recording) -> Result<Replay, JournalError> {
        recording.replay(&self.program())
    }

    fn program(&self) -> Program {
        let mut program = Program::new(self.llm.clone(), Arc::clone(&self.execution));
        let names = self.middleware.iter().map(|layer| layer.name().to_owned());
        program.layers = names.collect();
        program.has_hooks = self.hooks.is_some();
        program.retries = self.retries.is_some();
        program.repair.clone_from(&self.repair);
        program.plan_events = self.plan_events;
        program.saves = self.checkpoints.is_some();
        program
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
            // A world that expects an abort is never stalled.
            let _ = drive(&mut recorder, &mut world, clock.as_ref()).await;
        });
        AgentStreamResult::over(driver, shared)
    }
}

/// The world around a run, and the journal beside it.
struct RecordedWorld {
    world: World,
    journal: Arc<dyn Journal>,
}

/// The id of the one write that is under way; the engine counts its effects from 1.
const WRITE: u64 = 0;

enum Came {
    World(WorldAnswer),
    Written(Result<(), JournalError>),
}

impl driver::World<Recorder> for RecordedWorld {
    type Answer = Came;

    fn perform(&mut self, output: RecorderOutput) -> Step<Came> {
        let (first, entries) = match output {
            RecorderOutput::Effect(effect) => {
                return match driver::World::perform(&mut self.world, *effect) {
                    Step::Start(id, effect) => {
                        Step::start(id, async move { Came::World(effect.await) })
                    }
                    Step::Cancel(id) => Step::Cancel(id),
                    _ => Step::Done,
                };
            }
            RecorderOutput::Write(first, entries) => (first, entries),
        };
        let journal = Arc::clone(&self.journal);
        Step::start(WRITE, async move {
            let writing = AssertUnwindSafe(async { journal.append(first, entries).await });
            let written = writing.catch_unwind().await;
            let panicked = |_| Err(JournalError::Failed("it panicked".into()));
            Came::Written(written.unwrap_or_else(panicked))
        })
    }

    fn input(&mut self, answer: Came) -> RecorderInput {
        match answer {
            Came::World(answer) => {
                RecorderInput::Answer(driver::World::input(&mut self.world, answer))
            }
            Came::Written(written) => RecorderInput::Written(written),
        }
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<RecorderInput> {
        self.world.poll_external(cx).map(RecorderInput::Answer)
    }

    fn expects_external(&self) -> bool {
        self.world.expects_external()
    }
}
