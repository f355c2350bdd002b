//! What a tool call knows of its run.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::events::Emitter;
use crate::engine::CallScope;
use crate::event::{
    AgentStreamEvent, EventData, SubagentData, SubagentTold, UapEvent, UapEventType,
};
use crate::state::{StateId, SubagentExecutionTrace};

/// What a tool knows of the run that calls it: it stands among the extensions of every tool call of an
/// agent. A clone is the same scope.
///
/// [`SubagentTool`](crate::SubagentTool) tells its events and leaves its trace through it; a tool of the developer's own may do the same.
///
/// Spec: UAP-1.1 8.4
#[derive(Clone)]
pub struct RunScope {
    agent_id: Arc<str>,
    scope: CallScope,
    emitter: Emitter,
    traces: Arc<Mutex<Vec<SubagentExecutionTrace>>>,
}

impl RunScope {
    /// Traces that one tool call may leave; more are dropped.
    pub const MAX_TRACES: usize = 1000;

    pub(super) fn new(agent_id: Arc<str>, scope: CallScope, emitter: Emitter) -> Self {
        Self {
            agent_id,
            scope,
            emitter,
            traces: Arc::default(),
        }
    }

    /// The agent that calls.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.agent_id
    }

    /// The state in which it calls.
    #[must_use]
    pub const fn state_id(&self) -> StateId {
        self.scope.state_id
    }

    /// The step in which it calls.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.scope.step
    }

    /// Tells what an agent tells that runs inside the call, on whatever thread; waits where the reader of the events is
    /// behind. Once the run is over, or nobody reads any more, nothing is told and nothing waits.
    // impl: UAP-8-3
    pub async fn tell(&self, data: SubagentData) {
        let event_type = match &data.told {
            SubagentTold::Start { .. } => UapEventType::SubagentStart,
            SubagentTold::Event(_) => UapEventType::SubagentEvent,
            SubagentTold::End(_) => UapEventType::SubagentEnd,
        };
        let data = EventData::Subagent(Arc::new(data));
        let agent = Arc::clone(&self.agent_id);
        let event = UapEvent::new(event_type, self.scope.step, agent, data);
        self.emitter.emit(AgentStreamEvent::Uap(event)).await;
    }

    /// Leaves the trace of an agent that has run inside the call: it is in the state when the call is over.
    // impl: UAP-8-5
    pub fn leave(&self, trace: SubagentExecutionTrace) {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if traces.len() < Self::MAX_TRACES {
            traces.push(trace);
        }
    }

    pub(super) fn take(&self) -> Vec<SubagentExecutionTrace> {
        core::mem::take(&mut *self.traces.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for RunScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunScope")
            .field("agent_id", &self.agent_id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
