//! States for stores to keep.

use core::future::poll_fn;
use core::task::Poll;

use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;
use upp::{
    AssistantMessage, ContentBlock, Message, Stamp, ToolCall, ToolResult, ToolResultMessage,
};

use super::fault::StoreFault;
use uap_agent::{AgentState, PlanStep, PlanStepStatus, SubagentExecutionTrace};
use uap_agent::{CheckpointError, CheckpointMetadata, StoreFuture};

/// Makes states, all different, with everything in them that a state can have.
pub(super) struct StateSource {
    ids: IdSource,
    at: i64,
}

impl StateSource {
    /// Ways in which [`StateSource::changed`] changes a state.
    pub(super) const CHANGES: usize = 9;

    pub(super) const fn new() -> Self {
        Self {
            ids: IdSource::seeded(12),
            at: 1_760_000_000,
        }
    }

    pub(super) fn initial(&mut self) -> AgentState {
        AgentState::initial(&mut self.ids)
    }

    /// A state after so many changes and more.
    pub(super) fn state(&mut self, n: usize) -> AgentState {
        (0..n % Self::CHANGES + 2).fold(self.initial(), |state, n| self.changed(&state, n))
    }

    pub(super) fn metadata(
        &mut self,
        session: &str,
        agent: &str,
        state: &AgentState,
    ) -> CheckpointMetadata {
        self.at += 1;
        // With a fraction that a store must not lose.
        let at = Timestamp::new(self.at, 250_000_000).unwrap_or(Timestamp::EPOCH);
        let (id, step) = (self.ids.uuid(), state.step());
        CheckpointMetadata::new(session.into(), id, at, step, agent.into())
    }

    /// A message of a user, an assistant with calls, or a tool.
    fn message(&mut self, n: usize) -> Message {
        let stamp = Stamp::new(&mut self.ids, Timestamp::EPOCH);
        let call = || {
            ToolCall::new(
                "call".into(),
                "tool".into(),
                ubos_common::json::RawObject::empty(),
            )
        };
        match n % 3 {
            0 => Message::user(stamp, format!("text {n} \u{1F600} \"\\\n\u{0}")),
            1 => {
                let said = vec![ContentBlock::text("ü")];
                AssistantMessage::new(stamp, said, Some(vec![call()])).into()
            }
            _ => {
                let result = ToolResult::new("call".into(), upp::json_text("\u{2028}"));
                ToolResultMessage::new(stamp, vec![result]).into()
            }
        }
    }

    /// The next state of one.
    pub(super) fn changed(&mut self, state: &AgentState, n: usize) -> AgentState {
        let message = self.message(n);
        // More than a list holds in one piece.
        let more: Vec<_> = (0..40).map(|n| self.message(n)).collect();
        let step = state.step() + 1;
        let ids = &mut self.ids;
        let next = match n % Self::CHANGES {
            0 | 1 => state.with_message(ids, message),
            2 => state.with_messages(ids, more),
            3 => state.with_metadata(ids, format!("key {n}"), upp::json_text("va\u{7f}lue")),
            4 => state.with_reasoning(ids, format!("because {n}")),
            5 => state.with_plan(ids, plan(PlanStepStatus::Pending)),
            6 => state.with_plan(ids, plan(PlanStepStatus::Failed)),
            7 => state.with_subagent_trace(ids, trace()),
            // Shorter than before, and not its beginning.
            _ => {
                let kept: Vec<_> = state.messages().iter().skip(1).take(2).cloned().collect();
                state.with_context(ids, kept)
            }
        };
        next.with_step(ids, step)
    }

    /// A state that has one message more.
    pub(super) fn grown(&mut self, state: &AgentState) -> AgentState {
        let message = self.message(0);
        let step = state.step() + 1;
        state
            .with_message(&mut self.ids, message)
            .with_step(&mut self.ids, step)
    }
}

fn plan(status: PlanStepStatus) -> Vec<PlanStep> {
    let mut second = PlanStep::new("s2".into(), "then".into(), vec!["s1".into()], status);
    second.tool = Some("tool".into());
    let first = PlanStep::new(
        "s1".into(),
        "first".into(),
        vec![],
        PlanStepStatus::Completed,
    );
    vec![first, second]
}

fn trace() -> SubagentExecutionTrace {
    let mut trace = SubagentExecutionTrace::new(
        "id".into(),
        "kind".into(),
        "call".into(),
        "prompt".into(),
        1,
        2,
        false,
    );
    trace.error = Some("it failed".into());
    trace
}

/// Has several things done at once; their answers, in order.
pub(super) async fn together<'a, T>(
    futures: impl IntoIterator<Item = StoreFuture<'a, T>>,
) -> Vec<Result<T, CheckpointError>> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    poll_fn(move |cx| {
        for (future, done) in &mut running {
            if done.is_none()
                && let Poll::Ready(answer) = future.as_mut().poll(cx)
            {
                *done = Some(answer);
            }
        }
        if running.iter().any(|(_, done)| done.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(running.drain(..).filter_map(|(_, done)| done).collect())
    })
    .await
}

pub(super) fn at(doing: &'static str) -> impl FnOnce(CheckpointError) -> StoreFault {
    move |source| StoreFault::Failed { doing, source }
}

pub(super) const fn wrong_if(wrong: bool, what: &'static str) -> Result<(), StoreFault> {
    if wrong {
        Err(StoreFault::Wrong(what))
    } else {
        Ok(())
    }
}
