//! The state of an agent between two calls: an immutable snapshot.

#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub(crate) mod delta;
mod json;
mod parts;
mod plan;

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Members, RawBuf};
use ubos_common::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
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

    /// The place in a distributed trace that the metadata name, as [`AgentState::with_trace_context`] writes it; `None` where they
    /// name none that is valid. Requests, tools and sub-agents of a run have the place of the run's present state.
    ///
    /// Spec: UAP-1.1 6.1
    // choice: UAP-6-1
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        let text = |name| self.metadata.value(name)?.deserialize::<String>().ok();
        TraceContext::read(&text(TRACEPARENT)?, text(TRACESTATE).as_deref())
    }

    /// Sets the place in a distributed trace, in place of the one before, or takes it away: the texts `traceparent` and
    /// `tracestate` of W3C's Trace Context, under these keys of the metadata. A run that starts from the state has this place,
    /// unless [`AgentInput::with_trace`](crate::AgentInput::with_trace) gives it another; so does one on another machine.
    ///
    /// ```
    /// use uap_agent::AgentState;
    /// use ubos_common::{id::IdSource, trace_context::TraceContext};
    ///
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let place = TraceContext::read(parent, []).ok_or("no place in a trace")?;
    /// let mut ids = IdSource::seeded(1);
    /// let state = AgentState::initial(&mut ids).with_trace_context(&mut ids, Some(&place));
    /// assert!(state.to_json().contains(parent));
    /// assert_eq!(state.trace_context(), Some(place));
    /// assert_eq!(state.with_trace_context(&mut ids, None).trace_context(), None);
    /// # Ok::<(), &str>(())
    /// ```
    ///
    /// Spec: UAP-1.1 6.1
    #[must_use]
    pub fn with_trace_context(&self, ids: &mut IdSource, place: Option<&TraceContext>) -> Self {
        let others = self.metadata.iter();
        let others = others.filter(|(name, _)| ![TRACEPARENT, TRACESTATE].contains(name));
        let mut metadata = Members::new();
        for (name, value) in others {
            metadata.insert(name.to_owned(), value.to_owned());
        }
        for (name, text) in place.into_iter().flat_map(TraceContext::to_carry) {
            metadata.insert(name, upp::json_text(&text));
        }
        self.changed(ids, |state| state.metadata = Arc::new(metadata))
    }

    // impl: UAP-2-2, UAP-3-1, UAP-6-1
    fn changed(&self, ids: &mut IdSource, change: impl FnOnce(&mut Self)) -> Self {
        let mut state = self.clone();
        state.id = ids.next_id();
        change(&mut state);
        state
    }
}
