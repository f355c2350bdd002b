//! The run of a tool call.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::events::Emitter;
use crate::engine::CallScope;
use crate::event::{
    AgentStreamEvent, EventData, SubagentData, SubagentEvent, UapEvent, UapEventType,
};
use crate::state::SubagentExecutionTrace;

/// What a tool knows of the run that calls it. Every tool call of an agent has it among its extensions. A clone is the same
/// scope.
///
/// [`SubagentTool`](crate::SubagentTool) reports its events and its trace through it. Other tools can do the same.
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
    /// Traces that one tool call may leave.
    const MAX_TRACES: usize = 1000;

    pub(super) fn new(agent_id: Arc<str>, scope: CallScope, emitter: Emitter) -> Self {
        Self {
            agent_id,
            scope,
            emitter,
            traces: Arc::default(),
        }
    }

    /// The id of the agent that calls the tool.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.agent_id
    }

    /// The step and the state in which the tool is called.
    #[must_use]
    pub const fn call(&self) -> CallScope {
        self.scope
    }

    /// Reports an event of an agent that runs inside the call, from any thread. It waits while the reader of the events is
    /// behind. After the end of the run, or without a reader, it does nothing.
    // impl: UAP-8-3
    pub async fn emit(&self, data: SubagentData) {
        let event_type = match &data.event {
            SubagentEvent::Start { .. } => UapEventType::SubagentStart,
            SubagentEvent::Event(_) => UapEventType::SubagentEvent,
            SubagentEvent::End(_) => UapEventType::SubagentEnd,
        };
        let data = EventData::Subagent(Arc::new(data));
        let agent = Arc::clone(&self.agent_id);
        let event = UapEvent::new(event_type, self.scope.step, agent, data);
        self.emitter.emit(AgentStreamEvent::Uap(event)).await;
    }

    /// Adds the trace of an agent that has run inside the call to the state, at the end of the call. One call can add
    /// 1,000 traces; more are dropped.
    // impl: UAP-8-5
    pub fn add_trace(&self, trace: SubagentExecutionTrace) {
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
