//! A round of tool calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::time::Now;
use upp::{
    ErrorCode, LlmResponse, Message, StreamEvent, ToolCall, ToolExecution, ToolResult,
    ToolResultMessage, UppError,
};

use super::effects::{CallScope, EffectId, Output};
use super::guard::guarded;
use super::state::{AgendaItem, Engine, Phase, ToolRound};
use crate::event::{AgentStreamEvent, EventData, UapEventType};
use crate::hooks::HookCall;
use crate::order::CallOrder;
use crate::repair::CallVerdict;
use crate::state::SubagentExecutionTrace;
use crate::strategy::Outcome;

/// The calls, as repaired, and the answers of the repair policy.
type Repaired = (Vec<ToolCall>, BTreeMap<usize, Box<str>>);

impl Engine {
    /// Reports the action, and then starts the tools. Fails the run where the limit of rounds is reached.
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
        let (calls, answered) = match self.repair_calls(response.message.calls()) {
            Ok(repaired) => repaired,
            Err(error) => {
                self.added.messages.extend(messages);
                return self.plan_ops([AgendaItem::Fail(Box::new(error))]);
            }
        };
        let round = ToolRound {
            messages,
            order: CallOrder::new(&calls, self.config.llm.options().tools()),
            running: BTreeMap::new(),
            executions: vec![None; calls.len()],
            calls,
            answered,
            response,
        };
        let message = Arc::clone(&round.response.message);
        let hook = HookCall::Act(self.step, Arc::clone(&message));
        self.pending = Some(Box::new(round));
        self.plan_ops([
            AgendaItem::Hook(hook),
            AgendaItem::Event(UapEventType::Action, EventData::ToolCalls(message)),
            AgendaItem::Tools,
        ]);
    }

    /// The limit of the tool strategy, where it sets one.
    fn max_rounds(&self) -> Option<u64> {
        let tools = self.config.llm.options().tools();
        tools.strategy.as_ref()?.max_iterations()
    }

    /// Whether the limit leaves another round.
    pub(super) fn may_act(&self) -> bool {
        self.max_rounds().is_none_or(|most| self.tool_rounds < most)
    }

    /// Starts every call that is ready.
    pub(super) fn start_tools(&mut self, now: Now) {
        let Some(mut round) = self.pending.take() else {
            return;
        };
        self.start_ready(now, &mut round);
        self.go_on_with(now, round);
    }

    /// Waits for running calls, or ends the round.
    fn go_on_with(&mut self, now: Now, round: Box<ToolRound>) {
        if round.order.is_complete() {
            self.end_tools(now, *round);
        } else {
            self.phase = Phase::Tools(round);
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

    fn start_ready(&mut self, now: Now, round: &mut ToolRound) {
        let mut unlocked = true;
        // A call that is answered at once may be all that another waits for.
        while core::mem::take(&mut unlocked) {
            for n in round.order.start() {
                unlocked |= self.start_call(now, round, n);
            }
        }
    }

    /// Starts a call, or answers it. Returns whether it has ended.
    fn start_call(&mut self, now: Now, round: &mut ToolRound, n: usize) -> bool {
        let Some(call) = round.calls.get(n).cloned() else {
            return false;
        };
        let event = StreamEvent::tool_start(place(n), &call, millis(now));
        self.out.push(Output::Event(AgentStreamEvent::Upp(event)));
        if let Some(text) = round.answered.remove(&n) {
            let ToolCall {
                tool_name,
                tool_call_id,
                arguments,
                ..
            } = call;
            let result = upp::json_text(&text);
            let execution = ToolExecution::new(tool_name, tool_call_id, arguments, result, true, 0);
            self.end_call(now, round, n, execution);
            return true;
        }
        let id = self.next_effect();
        round.running.insert(id, n);
        let scope = CallScope {
            step: self.step,
            state_id: self.state.id(),
        };
        self.out.push(Output::Tool(id, call, scope));
        false
    }

    fn end_call(&mut self, now: Now, round: &mut ToolRound, n: usize, execution: ToolExecution) {
        let event = StreamEvent::tool_end(place(n), &execution, millis(now));
        self.out.push(Output::Event(AgentStreamEvent::Upp(event)));
        round.order.done(n);
        if let Some(slot) = round.executions.get_mut(n) {
            *slot = Some(execution);
        }
    }

    pub(super) fn on_tool(
        &mut self,
        now: Now,
        id: EffectId,
        execution: ToolExecution,
        traces: Vec<SubagentExecutionTrace>,
    ) {
        if !matches!(&self.phase, Phase::Tools(round) if round.running.contains_key(&id)) {
            return;
        }
        let Phase::Tools(mut round) = core::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let Some(n) = round.running.remove(&id) else {
            return;
        };
        // In the state at once: a run that breaks off before the other calls have ended still tells of these agents.
        for trace in traces {
            self.state = self.state.with_subagent_trace(&mut self.ids, trace);
        }
        self.end_call(now, &mut round, n, execution);
        self.start_ready(now, &mut round);
        self.go_on_with(now, round);
    }

    fn end_tools(&mut self, now: Now, round: ToolRound) {
        let executions: Arc<[ToolExecution]> = round.executions.into_iter().flatten().collect();
        let results = executions.iter().map(ToolResult::from).collect();
        let mut messages = round.messages;
        messages.push(ToolResultMessage::new(self.stamp(now), results).into());
        self.append(messages);
        self.added.executions.extend(executions.iter().cloned());
        let hook = HookCall::Observe(self.step, Arc::clone(&executions));
        let event = AgendaItem::Event(
            UapEventType::Observation,
            EventData::Observations(executions),
        );
        let next = Outcome::Inferred {
            response: round.response,
            ran_tools: true,
        };
        self.plan_ops([
            AgendaItem::Hook(hook),
            event,
            AgendaItem::Next(Box::new(next)),
        ]);
    }
}

fn place(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Milliseconds since 1970.
fn millis(now: Now) -> i64 {
    now.wall.unix_millis()
}
