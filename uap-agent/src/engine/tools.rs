//! A round of tool calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::time::Now;
use upp::tool_loop::{RoundOutput, ToolRound};
use upp::{
    ErrorCode, LlmResponse, Message, ToolCall, ToolExecution, ToolResult, ToolResultMessage,
    UppError,
};

use super::effects::{CallScope, EffectId, Output};
use super::guard::guarded;
use super::state::{AgendaItem, Engine, PendingRound, Phase};
use crate::event::{AgentStreamEvent, EventData, UapEventType};
use crate::hooks::HookCall;
use crate::repair::CallVerdict;
use crate::state::SubagentExecutionTrace;
use crate::strategy::Outcome;

/// The calls, as repaired, and the answers of the repair policy.
type Repaired = (Vec<ToolCall>, BTreeMap<usize, Box<str>>);

impl Engine {
    /// Reports the action, and then starts the tools. Fails the run where the limit of rounds is reached.
    // impl: UAP-10-3
    pub(super) fn begin_tools(&mut self, messages: Vec<Message>, response: Box<LlmResponse>) {
        if let Some(most) = self.max_rounds().filter(|most| self.tool_rounds >= *most) {
            // The answer with its unanswered calls stays out of the state, and in the turn that the error carries.
            self.added.messages.extend(messages);
            let error = self.refuse(
                ErrorCode::InvalidRequest,
                &format!("more than {most} rounds of tool calls"),
            );
            self.plan_ops([
                AgendaItem::Hook(HookCall::MaxIterations(most)),
                AgendaItem::Fail(Box::new(error)),
            ]);
            return;
        }
        self.tool_rounds += 1;
        let tools = self.config.llm.options().tools();
        let repaired = self.repair_calls(response.message.calls());
        let round = repaired.and_then(|(calls, answered)| {
            guarded("a tool", || ToolRound::new(calls, answered, tools))
        });
        let round = match round {
            Ok(round) => round,
            Err(error) => {
                self.added.messages.extend(messages);
                return self.plan_ops([AgendaItem::Fail(Box::new(error))]);
            }
        };
        let message = Arc::clone(&response.message);
        let calls = EventData::ToolCalls(message.calls().into());
        let hook = HookCall::Act(self.step, message);
        self.pending = Some(Box::new(PendingRound {
            messages,
            response,
            round,
            started: BTreeMap::new(),
        }));
        self.plan_ops([
            AgendaItem::Hook(hook),
            AgendaItem::Event(UapEventType::Action, calls),
            AgendaItem::Tools,
        ]);
    }

    fn max_rounds(&self) -> Option<u64> {
        self.config.llm.options().tools().max_rounds()
    }

    /// Whether the limit leaves another round.
    pub(super) fn may_act(&self) -> bool {
        self.max_rounds().is_none_or(|most| self.tool_rounds < most)
    }

    /// Starts every call that is ready.
    pub(super) fn start_tools(&mut self, now: Now) {
        let Some(mut pending) = self.pending.take() else {
            return;
        };
        let outputs = pending.round.start(now, &mut self.effects);
        self.perform(outputs, &mut pending.started);
        self.go_on_with(now, pending);
    }

    /// Waits for running calls, or ends the round.
    fn go_on_with(&mut self, now: Now, pending: Box<PendingRound>) {
        if pending.round.is_complete() {
            self.end_tools(now, *pending);
        } else {
            self.phase = Phase::Tools(pending);
        }
    }

    /// Applies the repair policy to the calls.
    // impl: UAP-16-2
    fn repair_calls(&self, calls: &[ToolCall]) -> Result<Repaired, UppError> {
        let mut answered = BTreeMap::new();
        let tools = self.config.llm.options().tools();
        let repair = |(n, call): (usize, &ToolCall)| {
            let verdict = match &self.config.repair {
                Some(policy) => guarded("a repair policy", || policy.call(call, tools))?,
                None => CallVerdict::Run,
            };
            Ok(match verdict {
                CallVerdict::Run => call.clone(),
                CallVerdict::RunAs { name, arguments } => {
                    ToolCall::new(Arc::clone(&call.tool_call_id), name, arguments)
                }
                CallVerdict::Answer(text) => {
                    answered.insert(n, text);
                    call.clone()
                }
            })
        };
        let calls: Result<_, UppError> = calls.iter().enumerate().map(repair).collect();
        Ok((calls?, answered))
    }

    pub(super) fn on_tool(
        &mut self,
        now: Now,
        id: EffectId,
        execution: ToolExecution,
        traces: Vec<SubagentExecutionTrace>,
    ) {
        if !matches!(&self.phase, Phase::Tools(pending) if pending.round.is_running(id)) {
            return;
        }
        let Phase::Tools(mut pending) = core::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        // In the state at once: a run that breaks off before the other calls have ended still tells of these agents.
        for trace in traces {
            self.state = self.state.with_subagent_trace(&mut self.ids, trace);
        }
        let round = &mut pending.round;
        let outputs = round.handle_execution(now, id, execution, &mut self.effects);
        self.perform(outputs, &mut pending.started);
        self.go_on_with(now, pending);
    }

    fn perform(&mut self, outputs: Vec<RoundOutput>, started: &mut BTreeMap<Arc<str>, u64>) {
        for output in outputs {
            match output {
                RoundOutput::Tool(id, call) => {
                    let of_id = started.entry(Arc::clone(&call.tool_call_id)).or_default();
                    let scope = CallScope {
                        step: self.step,
                        state_id: self.state.id(),
                        nth: *of_id,
                        trace: self.state.trace_context(),
                        is_repeated: false,
                    };
                    *of_id += 1;
                    self.out.push(Output::Tool(id, call, scope));
                }
                RoundOutput::Event(event) => {
                    self.out.push(Output::Event(AgentStreamEvent::Upp(event)));
                }
                // A round asks for nothing else.
                _ => {}
            }
        }
    }

    // impl: UAP-10-3
    fn end_tools(&mut self, now: Now, pending: PendingRound) {
        let executions: Arc<[ToolExecution]> = pending.round.into_executions().into();
        let results = executions.iter().map(ToolResult::from).collect();
        let mut messages = pending.messages;
        messages.push(ToolResultMessage::new(self.stamp(now), results).into());
        self.append(messages);
        self.added.executions.extend(executions.iter().cloned());
        let hook = HookCall::Observe(self.step, Arc::clone(&executions));
        let event = AgendaItem::Event(
            UapEventType::Observation,
            EventData::Observations(executions),
        );
        let next = Outcome::Inferred {
            response: pending.response,
            ran_tools: true,
        };
        self.plan_ops([
            AgendaItem::Hook(hook),
            event,
            AgendaItem::Next(Box::new(next)),
        ]);
    }
}
