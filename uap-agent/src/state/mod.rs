//! The state of an agent between two calls: an immutable snapshot.

#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub(crate) mod delta;
mod json;
mod parts;
mod plan;

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Members, RawBuf};
use upp::{List, Message, Messages};

pub use json::{AgentStateJson, StateError};
pub use parts::{PlanStep, PlanStepStatus, SubagentExecutionTrace, ToolExecutionTrace};
pub use plan::PlanSteps;

ubos_common::id_type! {
    /// The id of a snapshot.
    pub struct StateId;
}

/// A snapshot of the work of an agent. It is immutable: every operation returns a new snapshot with a new id.
///
/// A clone is cheap, and appending costs O(1) amortised: snapshots of one run share their common parts.
///
/// ```
/// use ubos_common::{id::IdSource, time::Timestamp};
/// use uap_agent::AgentState;
/// use upp::{Message, Stamp};
///
/// let mut ids = IdSource::seeded(1);
/// let before = AgentState::initial(&mut ids);
/// let hello = Message::user(Stamp::new(&mut ids, Timestamp::EPOCH), "hello");
/// let after = before.with_message(&mut ids, hello);
/// assert_eq!((before.messages().len(), after.messages().len()), (0, 1));
/// assert_ne!(before.id(), after.id());
/// ```
///
/// Spec: UAP-1.1 6
#[derive(Clone, Debug, PartialEq)]
pub struct AgentState {
    id: StateId,
    messages: Messages,
    step: u64,
    metadata: Arc<Members<'static>>,
    reasoning: List<Arc<str>>,
    plan: Option<PlanSteps>,
    subagent_traces: List<SubagentExecutionTrace>,
    extra: Arc<Members<'static>>,
}

impl AgentState {
    /// An empty state.
    #[must_use]
    pub fn initial(ids: &mut IdSource) -> Self {
        Self {
            id: ids.next_id(),
            messages: List::default(),
            step: 0,
            metadata: Arc::default(),
            reasoning: List::default(),
            plan: None,
            subagent_traces: List::default(),
            extra: Arc::default(),
        }
    }

    /// The snapshot's id, a UUIDv4.
    #[must_use]
    pub const fn id(&self) -> StateId {
        self.id
    }

    /// The conversation.
    #[must_use]
    pub const fn messages(&self) -> &Messages {
        &self.messages
    }

    /// The last step of the last run; 0 before the first.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// The developer's values, in the order in which they were added.
    #[must_use]
    pub fn metadata(&self) -> &Members<'static> {
        &self.metadata
    }

    /// The reasoning of the model, one entry for each step.
    #[must_use]
    pub const fn reasoning(&self) -> &List<Arc<str>> {
        &self.reasoning
    }

    /// The plan, if the strategy makes one.
    #[must_use]
    pub const fn plan(&self) -> Option<&PlanSteps> {
        self.plan.as_ref()
    }

    /// The traces of sub-agents.
    #[must_use]
    pub const fn subagent_traces(&self) -> &List<SubagentExecutionTrace> {
        &self.subagent_traces
    }

    /// Adds a message.
    #[must_use]
    pub fn with_message(&self, ids: &mut IdSource, message: Message) -> Self {
        self.changed(ids, |state| state.messages.push(message))
    }

    /// Adds messages.
    #[must_use]
    pub fn with_messages(
        &self,
        ids: &mut IdSource,
        messages: impl IntoIterator<Item = Message>,
    ) -> Self {
        self.changed(ids, |state| state.messages.extend(messages))
    }

    /// Replaces the conversation. The new one may be empty.
    #[must_use]
    pub fn with_context(&self, ids: &mut IdSource, messages: impl Into<Messages>) -> Self {
        self.changed(ids, |state| state.messages = messages.into())
    }

    /// Sets the step.
    #[must_use]
    pub fn with_step(&self, ids: &mut IdSource, step: u64) -> Self {
        self.changed(ids, |state| state.step = step)
    }

    /// Sets the value of a key.
    #[must_use]
    pub fn with_metadata(&self, ids: &mut IdSource, key: impl Into<String>, value: RawBuf) -> Self {
        let key = key.into();
        self.changed(ids, |state| {
            Arc::make_mut(&mut state.metadata).insert(key, value)
        })
    }

    /// Adds reasoning.
    #[must_use]
    pub fn with_reasoning(&self, ids: &mut IdSource, reasoning: impl Into<Arc<str>>) -> Self {
        self.changed(ids, |state| state.reasoning.push(reasoning.into()))
    }

    /// Sets the plan.
    #[must_use]
    pub fn with_plan(&self, ids: &mut IdSource, plan: impl Into<PlanSteps>) -> Self {
        self.changed(ids, |state| state.plan = Some(plan.into()))
    }

    /// Adds the trace of a sub-agent.
    #[must_use]
    pub fn with_subagent_trace(&self, ids: &mut IdSource, trace: SubagentExecutionTrace) -> Self {
        self.changed(ids, |state| state.subagent_traces.push(trace))
    }

    // impl: UAP-2-2, UAP-3-1, UAP-6-1
    fn changed(&self, ids: &mut IdSource, change: impl FnOnce(&mut Self)) -> Self {
        let mut state = self.clone();
        state.id = ids.next_id();
        change(&mut state);
        state
    }
}
