//! The writers of a session, as far as one store has seen them.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

use ubos_common::id::Uuid;
use upp::Messages;

use super::{CheckpointError, CheckpointMetadata};
use crate::state::{AgentState, StateId};

/// What a save continues from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// What the store has seen of the session.
    Seen,
    /// The session's last state, or none.
    State(Option<StateId>),
}

impl Before {
    /// Checks a save that continues from a state against the last one. `last` is the last checkpoint with its state.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Conflict`].
    // impl: UAP-12-4
    pub(super) fn check(self, last: Option<(Uuid, StateId)>) -> Result<(), CheckpointError> {
        match (self, last) {
            (Self::State(after), Some((found, state))) if after != Some(state) => {
                Err(CheckpointError::Conflict { found })
            }
            _ => Ok(()),
        }
    }
}

/// The number of overtaken branches that are remembered.
const BEHIND: usize = 16;

/// The lines of saves in one session. A save goes on from the last one when its conversation begins with the last
/// one's. One that does not is a turn of the same user's, back to an earlier state, which is fine; or the next save of a
/// writer that another has taken over from meanwhile, which is not.
// impl: UAP-12-4
#[derive(Debug, Default)]
pub(super) struct WriterHistory {
    last: Option<Branch>,
    behind: VecDeque<Branch>,
}

#[derive(Debug)]
struct Branch {
    checkpoint: Uuid,
    agent: String,
    /// The steps of saves that go on from this one.
    next: RangeInclusive<u64>,
    messages: Messages,
}

impl Branch {
    fn new(metadata: &CheckpointMetadata, state: &AgentState) -> Self {
        let next = metadata.step.saturating_add(1);
        Self {
            checkpoint: metadata.checkpoint_id,
            agent: metadata.agent_id.clone(),
            next: next..=next,
            messages: state.messages().clone(),
        }
    }

    /// A save that was refused: it may be tried again.
    fn refused(metadata: &CheckpointMetadata, state: &AgentState) -> Self {
        let refused = Self::new(metadata, state);
        let next = metadata.step..=*refused.next.end();
        Self { next, ..refused }
    }

    // impl: UAP-12-4
    fn is_continued_by(&self, state: &AgentState) -> bool {
        let mine = self.messages.len();
        mine <= state.messages().len() && state.messages().common_prefix(&self.messages) == mine
    }

    /// Whether a save comes from who saved this, and who was taken over by the last one.
    fn comes_back(&self, last: &Self, metadata: &CheckpointMetadata, state: &AgentState) -> bool {
        if self.agent != metadata.agent_id {
            return false;
        }
        // Another agent has the session now, or another run of this one: a run saves step by step.
        self.agent != last.agent
            || (self.next.contains(&metadata.step) && self.is_continued_by(state))
    }
}

impl WriterHistory {
    /// Checks that a save may follow the last one.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Conflict`].
    pub(super) fn check(
        &mut self,
        metadata: &CheckpointMetadata,
        state: &AgentState,
    ) -> Result<(), CheckpointError> {
        let Some(last) = &self.last else {
            return Ok(());
        };
        if last.is_continued_by(state) {
            return Ok(());
        }
        let back = |line: &&mut Branch| line.comes_back(last, metadata, state);
        let Some(line) = self.behind.iter_mut().rev().find(back) else {
            return Ok(());
        };
        // The same save and the next one are refused as well.
        *line = Branch::refused(metadata, state);
        Err(CheckpointError::Conflict {
            found: last.checkpoint,
        })
    }

    /// A save is done.
    pub(super) fn saved(&mut self, metadata: &CheckpointMetadata, state: &AgentState) {
        let line = Branch::new(metadata, state);
        let Some(last) = self.last.replace(line) else {
            return;
        };
        let goes_on = last.is_continued_by(state);
        if goes_on && last.agent == metadata.agent_id {
            return;
        }
        if self.behind.len() >= BEHIND {
            self.behind.pop_front();
        }
        self.behind.push_back(last);
    }

    /// The session was loaded, so the next writer may continue.
    pub(super) fn loaded(&mut self) {
        self.behind.clear();
    }

    /// Sets the last save, as it was read.
    pub(super) fn found(&mut self, metadata: &CheckpointMetadata, state: &AgentState) {
        self.last = Some(Branch::new(metadata, state));
        self.behind.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;
    use upp::{Message, Stamp};

    struct Run<'a>(&'a mut WriterHistory, IdSource);

    impl Run<'_> {
        /// Saves a state with one message more.
        fn save(&mut self, agent: &str, state: &mut AgentState) -> bool {
            let Self(writers, ids) = self;
            let message = Message::user(Stamp::new(ids, Timestamp::EPOCH), "text");
            let step = state.step() + 1;
            *state = state.with_message(ids, message).with_step(ids, step);
            let (id, at) = (ids.uuid(), Timestamp::EPOCH);
            let metadata = CheckpointMetadata::new("s".into(), id, at, step, agent.into());
            let may = writers.check(&metadata, state).is_ok();
            if may {
                writers.saved(&metadata, state);
            }
            may
        }

        /// A new run from a state: its steps count from 1.
        fn begin(&mut self, state: &AgentState) -> AgentState {
            state.with_step(&mut self.1, 0)
        }
    }

    // spec: UAP-12-4
    #[test]
    fn a_run_that_another_has_overtaken_stays_refused() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let begun = AgentState::initial(&mut IdSource::seeded(2));
        let (mut one, mut other) = (begun.clone(), begun.clone());
        assert!(run.save("a", &mut one) && run.save("a", &mut one));
        assert!(run.save("a", &mut other));
        for _ in 0..3 {
            assert!(!run.save("a", &mut one));
            assert!(run.save("a", &mut other));
        }
        // Who looks may go on.
        run.0.loaded();
        assert!(run.save("a", &mut one));
        assert!(!run.save("a", &mut other));
    }

    // spec: UAP-12-4
    #[test]
    fn a_run_stays_overtaken_once_its_agent_has_the_session_again() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let mut one = AgentState::initial(&mut IdSource::seeded(2));
        assert!(run.save("a", &mut one));
        let mut handed = run.begin(&one);
        assert!(run.save("b", &mut handed));
        let mut back = run.begin(&handed);
        assert!(run.save("a", &mut back));
        assert!(!run.save("a", &mut one));
        assert!(run.save("a", &mut back));
    }

    // spec: UAP-12-4
    #[test]
    fn a_save_that_was_refused_is_refused_again() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let begun = AgentState::initial(&mut IdSource::seeded(2));
        let (mut one, mut other) = (begun.clone(), begun);
        assert!(run.save("a", &mut one) && run.save("a", &mut other));
        assert!(!run.save("a", &mut one));
        let (id, at) = (run.1.uuid(), Timestamp::EPOCH);
        let again = CheckpointMetadata::new("s".into(), id, at, one.step(), "a".into());
        for _ in 0..2 {
            assert!(run.0.check(&again, &one).is_err());
        }
        assert!(!run.save("a", &mut one));
    }

    // spec: UAP-12-4
    #[test]
    fn what_was_read_is_a_past_without_runs_that_were_overtaken() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let begun = AgentState::initial(&mut IdSource::seeded(2));
        let (mut one, mut other) = (begun.clone(), begun);
        assert!(run.save("a", &mut one) && run.save("a", &mut other));
        assert!(!run.save("a", &mut one));
        let (id, at) = (run.1.uuid(), Timestamp::EPOCH);
        let read = CheckpointMetadata::new("s".into(), id, at, other.step(), "a".into());
        run.0.found(&read, &other);
        assert!(run.save("a", &mut one));
    }

    // spec: UAP-12-4
    #[test]
    fn going_back_and_handing_over_are_no_conflicts() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let mut trunk = AgentState::initial(&mut IdSource::seeded(2));
        assert!(run.save("a", &mut trunk));
        for _ in 0..40 {
            // Turns of one agent, each from the same state.
            for _ in 0..3 {
                let mut turn = run.begin(&trunk);
                assert!(run.save("a", &mut turn) && run.save("a", &mut turn));
            }
            // One that is handed from agent to agent and back.
            for agent in ["a", "b", "a"] {
                trunk = run.begin(&trunk);
                assert!(run.save(agent, &mut trunk) && run.save(agent, &mut trunk));
            }
        }
        assert!(writers.behind.len() <= BEHIND);
    }

    // spec: UAP-12-4
    #[test]
    fn a_new_run_from_an_overtaken_state_is_no_conflict() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let begun = AgentState::initial(&mut IdSource::seeded(2));
        let (mut one, mut other) = (begun.clone(), begun);
        assert!(run.save("a", &mut one) && run.save("a", &mut other));
        // It is no next step of the run that was overtaken: its own first one.
        let mut turn = run.begin(&one);
        assert!(run.save("a", &mut turn));
    }

    // spec: UAP-12-4
    #[test]
    fn each_line_that_was_overtaken_is_remembered() {
        let mut writers = WriterHistory::default();
        let mut run = Run(&mut writers, IdSource::seeded(1));
        let begun = AgentState::initial(&mut IdSource::seeded(2));
        let [mut one, mut two, mut three] = [(); 3].map(|()| begun.clone());
        assert!(run.save("a", &mut one) && run.save("b", &mut two) && run.save("c", &mut three));
        assert!(!run.save("a", &mut one) && !run.save("b", &mut two));
        // What another store has saved last is overtaken as well.
        let mut writers = WriterHistory::default();
        let mut ids = IdSource::seeded(3);
        let metadata =
            CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, 2, "a".into());
        writers.found(&metadata, &one);
        let mut run = Run(&mut writers, ids);
        assert!(run.save("c", &mut three));
        assert!(!run.save("a", &mut one));
    }
}
