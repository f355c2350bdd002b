//! The run of a tool call.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "canon")]
use ubos_common::id::IdSource;
use upp::ToolCall;

use super::events::Emitter;
#[cfg(feature = "canon")]
use super::key::CallKey;
use super::rules::CallRules;
use crate::engine::CallScope;
use crate::event::{
    AgentStreamEvent, EventData, SubagentData, SubagentEvent, UapEvent, UapEventType,
};
use crate::state::SubagentExecutionTrace;

/// What a tool knows of the run that calls it. Every tool call of an agent has it among its extensions. A clone is the same
/// scope.
///
/// [`SubagentTool`](crate::SubagentTool) reports its events and its trace through it. Other tools can do the same. Only a
/// `SubagentTool` hands keys, `is_repeated` and the policies of the run on to the calls inside of it: an agent that another tool
/// runs knows nothing of the call.
///
/// Spec: UAP-1.1 8.4
#[derive(Clone)]
pub struct RunScope {
    agent_id: Arc<str>,
    scope: CallScope,
    emitter: Emitter,
    traces: Arc<Mutex<Vec<SubagentExecutionTrace>>>,
    /// What holds for calls by the name of their tool in the run that calls, and in all that it is a part of, this run first.
    pub(super) rules: CallRules,
    #[cfg(feature = "canon")]
    key: CallKey,
}

impl RunScope {
    /// Traces that one tool call may leave.
    const MAX_TRACES: usize = 1000;

    /// The scope of a call; `outer` is that of the call within which the calling run is made.
    pub(super) fn new(
        agent_id: Arc<str>,
        #[cfg_attr(
            not(feature = "canon"),
            expect(unused_variables, reason = "of the key alone")
        )]
        call: &ToolCall,
        mut scope: CallScope,
        emitter: Emitter,
        rules: CallRules,
        outer: Option<&Self>,
    ) -> Self {
        // Nobody knows which calls a run has made whose call is repeated.
        scope.is_repeated |= outer.is_some_and(|outer| outer.scope.is_repeated);
        Self {
            agent_id,
            #[cfg(feature = "canon")]
            key: CallKey::new(call, &scope, outer.map(|outer| &outer.key)),
            scope,
            emitter,
            traces: Arc::default(),
            rules,
        }
    }

    /// The id of the agent that calls the tool.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.agent_id
    }

    /// A key of this call for a service that does the same request once: 64 hexadecimal digits of tool, arguments, the
    /// call's id and the state in which the model asked for it; calls of one response that have one id are counted. A
    /// recorded run that is resumed calls the tool with the same key; no other call has it.
    ///
    /// Inside a `SubagentTool` it is made of tool, arguments, the key of that tool's call, and how many calls with this tool
    /// and these arguments there were before inside of it. A sub-agent that is called again makes its calls with the same keys, as
    /// far as it makes the same calls, whatever their ids and its states are by then.
    ///
    /// Needs the feature `canon`.
    #[cfg(feature = "canon")]
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        self.key.digest().to_string()
    }

    /// The source of ids for the next run inside of the call: a repeated call has the same.
    #[cfg(feature = "canon")]
    pub(super) fn fork_ids(&self) -> IdSource {
        self.key.fork_ids()
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
            let emitter = Emitter(Arc::default());
            RunScope::new(
                "a".into(),
                &call,
                scope,
                emitter,
                CallRules::default(),
                None,
            )
            .idempotency_key()
        };
        let id = ubos_common::json::to_string(&state_id);
        let wanted = |nth: &str| {
            let call = r#""tool":"pay","callId":"c1","arguments":{"sum":5}"#;
            Digest::of_bytes(format!(r#"{{{call},"state":{id}{nth}}}"#).as_bytes()).to_string()
        };
        assert_eq!(key(0), wanted(""));
        assert_eq!(key(3), wanted(r#","nth":3"#));
    }

    // spec: UAP-12-5
    #[test]
    fn a_key_inside_of_a_call_is_of_that_calls_key_and_a_count() {
        let scope = |call: &ToolCall, is_repeated, outer: Option<&RunScope>| {
            let scope = CallScope {
                step: 1,
                state_id: AgentState::initial(&mut IdSource::seeded(1)).id(),
                nth: 0,
                trace: None,
                is_repeated,
            };
            let emitter = Emitter(Arc::default());
            RunScope::new(
                "a".into(),
                call,
                scope,
                emitter,
                CallRules::default(),
                outer,
            )
        };
        let call = |id: &str, tool: &str, arguments| {
            ToolCall::new(id.into(), tool.into(), upp::object(arguments).unwrap())
        };
        let outer = scope(&call("c1", "buyer", "{}"), true, None);
        let within = outer.idempotency_key();
        let wanted = |sum: u8, nth: &str| {
            let call = format!(r#""tool":"pay","arguments":{{"sum":{sum}}},"within":"{within}""#);
            Digest::of_bytes(format!("{{{call}{nth}}}").as_bytes()).to_string()
        };
        for (id, sum, nth) in [("x", 5, ""), ("y", 6, ""), ("z", 5, r#","nth":1"#)] {
            let arguments = if sum == 5 {
                r#"{"sum":5}"#
            } else {
                r#"{"sum":6}"#
            };
            let inner = scope(&call(id, "pay", arguments), false, Some(&outer));
            assert_eq!(inner.idempotency_key(), wanted(sum, nth));
            assert!(inner.call().is_repeated);
        }
        // Each run inside of a call has ids of its own, which are the same when it is called again.
        let ids = |scope: &RunScope| [scope.fork_ids().bits(), scope.fork_ids().bits()];
        let again = ids(&scope(&call("c1", "buyer", "{}"), true, None));
        assert_eq!(ids(&outer), again);
        assert_ne!(again[0], again[1]);
    }
}
