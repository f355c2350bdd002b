//! The run of a tool call.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::events::Emitter;
use upp::ToolCall;

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
    #[cfg(feature = "canon")]
    call: ToolCall,
    scope: CallScope,
    emitter: Emitter,
    traces: Arc<Mutex<Vec<SubagentExecutionTrace>>>,
}

impl RunScope {
    /// Traces that one tool call may leave.
    const MAX_TRACES: usize = 1000;

    pub(super) fn new(
        agent_id: Arc<str>,
        #[cfg_attr(
            not(feature = "canon"),
            expect(unused_variables, reason = "of the key alone")
        )]
        call: &ToolCall,
        scope: CallScope,
        emitter: Emitter,
    ) -> Self {
        Self {
            agent_id,
            #[cfg(feature = "canon")]
            call: call.clone(),
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

    /// A key of this call for a service that does the same request once: 64 hexadecimal digits of tool, arguments, the
    /// call's id and the state in which the model asked for it; calls of one response that have one id are counted. A recorded run that is resumed calls the tool with the same
    /// key; no other call has it.
    ///
    /// Needs the feature `canon`.
    #[cfg(feature = "canon")]
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let mut bytes = Vec::new();
        let mut object = ubos_common::json::MemberWriter::begin(&mut bytes);
        object.member("tool", &*self.call.tool_name);
        object.member("callId", &*self.call.tool_call_id);
        object.member("arguments", &self.call.arguments);
        object.member("state", &self.scope.state_id);
        if self.scope.nth > 0 {
            object.member("nth", &self.scope.nth);
        }
        object.end();
        ubos_common::canon::Digest::of_bytes(&bytes).to_string()
    }

    /// The step and the state in which the tool is called, its place in a trace, and whether the call is repeated.
    #[must_use]
    pub const fn call(&self) -> &CallScope {
        &self.scope
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

#[cfg(all(test, feature = "canon"))]
mod tests {
    use ubos_common::canon::Digest;
    use ubos_common::id::IdSource;

    use super::*;
    use crate::state::AgentState;

    // spec: UAP-12-5
    #[test]
    fn a_key_is_the_digest_of_the_call_its_state_and_its_count() {
        let state_id = AgentState::initial(&mut IdSource::seeded(1)).id();
        let arguments = upp::object(r#"{"sum":5}"#).unwrap();
        let call = ToolCall::new("c1".into(), "pay".into(), arguments);
        let key = |nth| {
            let scope = CallScope {
                step: 1,
                state_id,
                nth,
                trace: None,
                is_repeated: nth > 2,
            };
            RunScope::new("a".into(), &call, scope, Emitter(Arc::default())).idempotency_key()
        };
        let id = ubos_common::json::to_string(&state_id);
        let wanted = |nth: &str| {
            let call = r#""tool":"pay","callId":"c1","arguments":{"sum":5}"#;
            Digest::of_bytes(format!(r#"{{{call},"state":{id}{nth}}}"#).as_bytes()).to_string()
        };
        assert_eq!(key(0), wanted(""));
        assert_eq!(key(3), wanted(r#","nth":3"#));
    }
}
