//! Runs that are recorded, resumed and replayed.

use core::panic::AssertUnwindSafe;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures::future::FutureExt;
use ubos_common::driver::{self, Step, drive};
use ubos_common::json::RawObject;

use super::parts::AgentParts;
use super::stream::AgentStreamResult;
use super::world::{Completed, RunWorld};
use super::{Agent, AgentInput};
use crate::engine::RunStart;
use crate::journal::recorder::{Input, Output};
use crate::journal::{Journal, JournalError, Ownership, Recorder, Recording, Replay};
use crate::state::AgentState;

impl Agent {
    /// As [`Agent::stream`], and records the run: its start, each request before it is made, and each result before the
    /// run continues. A journal holds one run: if it holds one already, this one fails. If the journal failed, the cause
    /// of the run's error is its [`JournalError`].
    pub fn record(
        &self,
        journal: Arc<dyn Journal>,
        input: impl Into<AgentInput>,
        state: &AgentState,
    ) -> AgentStreamResult {
        let now = self.clock.now();
        let mut ids = self.fork_ids();
        let (input, state) = input.into().start(now, &mut ids, state);
        // The ids of the run come from a seed that can be recorded.
        let seed = ids.bits();
        let mut start = RunStart::new(Arc::clone(&self.id), state, input);
        start.session_id.clone_from(&self.session_id);
        let (config, owner) = (self.engine_config(), self.ownership(journal.as_ref()));
        let recorder = Recorder::begin(now, &config, seed, start, &owner);
        self.tell_layers(|layer| layer.recorded(now, seed));
        let parts = self.parts(Arc::clone(&self.id), true);
        self.drive_recorded(recorder, parts, seed, journal)
    }

    /// Takes the run in a journal over and continues it, under its ids. Recorded work is neither done nor reported again; a
    /// request without a recorded result is made again; then the run continues and is recorded. A run that has ended
    /// returns its result.
    ///
    /// A tool call without a recorded result may have run: [`AgentOptions::with_ownership`](crate::AgentOptions) says what
    /// is done with it. From the first entry of this agent on, nothing that the former owner writes is taken any more. It
    /// is written when the run is polled: of several that resume at once all but one end with [`JournalError::Superseded`].
    ///
    /// # Errors
    ///
    /// The journal is empty or cannot be read, or the run was recorded with another program; another process has a lease
    /// that has not ended; the run waits for decisions, and can do nothing else. Nothing was done then.
    // impl: UAP-12-5
    pub async fn resume(
        &self,
        journal: Arc<dyn Journal>,
    ) -> Result<AgentStreamResult, JournalError> {
        let recording = Recording::load(journal.as_ref()).await?;
        let (now, owner) = (self.clock.now(), self.ownership(journal.as_ref()));
        let (mut spent, agent_id) = (recording.spending(), recording.agent_id().into());
        let recorder = recording.into_recorder(now, &self.engine_config(), &owner)?;
        spent.goes_on = true;
        self.tell_layers(|layer| layer.resumed(now, &spent));
        let mut parts = self.parts(agent_id, true);
        parts.limits.run = parts.limits.run.map(|span| span.saturating_sub(spent.time));
        Ok(self.drive_recorded(recorder, parts, spent.run, journal))
    }

    /// Repeats a recorded run: its events, states and result. No model, tool, hook or store is called. Budgets count what the
    /// run has spent, unless they have before.
    ///
    /// # Errors
    ///
    /// The run was recorded with another program.
    pub fn replay(&self, recording: &Recording) -> Result<Replay, JournalError> {
        let replay = recording.replay(&self.engine_config())?;
        let (now, spent) = (self.clock.now(), recording.spending());
        self.tell_layers(|layer| layer.resumed(now, &spent));
        Ok(replay)
    }

    /// How this agent owns runs: under its id, where no name is set.
    fn ownership(&self, journal: &dyn Journal) -> Ownership {
        let mut owner = self.ownership.clone().in_journal(journal);
        owner.owner.get_or_insert_with(|| Arc::clone(&self.id));
        owner
    }

    fn drive_recorded(
        &self,
        mut recorder: Recorder,
        parts: AgentParts,
        seed: u64,
        journal: Arc<dyn Journal>,
    ) -> AgentStreamResult {
        let clock = Arc::clone(&self.clock);
        let world = RunWorld::new(parts).of_run(seed);
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

/// Appends entries. Where others stand in their place, they are read.
async fn write(journal: &dyn Journal, first: u64, entries: Vec<RawObject>) -> Input {
    let written = journal.append(first, entries).await;
    if !matches!(written, Err(JournalError::Conflict { .. })) || first == 0 {
        return Input::Written(written);
    }
    let place = usize::try_from(first).unwrap_or(usize::MAX);
    match journal.read().await {
        Ok(mut all) if all.get(place).is_some() => Input::Behind(all.split_off(place)),
        _ => Input::Written(written),
    }
}

enum RecordedCompleted {
    Engine(Completed),
    Journal(Input),
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
            let writing = AssertUnwindSafe(write(journal.as_ref(), first, entries));
            let written = writing.catch_unwind().await;
            let panicked =
                |_| Input::Written(Err(JournalError::Failed("the journal panicked".into())));
            RecordedCompleted::Journal(written.unwrap_or_else(panicked))
        })
    }

    fn input(&mut self, completed: RecordedCompleted) -> Input {
        match completed {
            RecordedCompleted::Engine(completed) => {
                Input::Engine(driver::World::input(&mut self.world, completed))
            }
            RecordedCompleted::Journal(input) => input,
        }
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        self.world.poll_external(cx).map(Input::Engine)
    }

    fn expects_external(&self) -> bool {
        self.world.expects_external()
    }
}
