//! One round of tool calls.

use std::collections::BTreeMap;

use ubos_common::time::Now;

use super::EffectId;
use super::order::CallOrder;
use crate::stream::StreamEvent;
use crate::tool::{ToolCall, ToolExecution, ToolSet, json_text};

/// The tool calls of one response while they run: a state machine without IO, of which [`ToolLoop`](super::ToolLoop) and
/// agents consist.
///
/// Calls run concurrently, unless the metadata of their tools under `uap` orders them: `sequential` tools run alone, and a
/// tool runs after those that it `dependsOn`. Executions are in the order of the calls, whatever order they end in.
///
/// ```text
/// Waiting (order) -> Running -> Ended;  Waiting -> Ended (answered)
/// ```
#[derive(Debug)]
pub struct ToolRound {
    calls: Vec<ToolCall>,
    /// Calls that are answered instead of run.
    answers: BTreeMap<usize, Box<str>>,
    order: CallOrder,
    running: BTreeMap<EffectId, usize>,
    executions: Vec<Option<ToolExecution>>,
}

/// What a round asks for, and what it reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum RoundOutput {
    /// Run a tool.
    Tool(EffectId, ToolCall),
    /// A call starts or has ended.
    Event(StreamEvent),
}

impl ToolRound {
    /// A round of calls. `answers` are the error results of calls that are not run, by the place of the call.
    #[must_use]
    pub fn new(calls: Vec<ToolCall>, answers: BTreeMap<usize, Box<str>>, tools: &ToolSet) -> Self {
        Self {
            order: CallOrder::new(&calls, tools),
            running: BTreeMap::new(),
            executions: vec![None; calls.len()],
            calls,
            answers,
        }
    }

    /// Starts every call that may start. `effects` is the last id of an effect.
    pub fn start(&mut self, now: Now, effects: &mut EffectId) -> Vec<RoundOutput> {
        let mut out = Vec::new();
        let mut unlocked = true;
        // A call that is answered at once may be all that another waits for.
        while core::mem::take(&mut unlocked) {
            for place in self.order.start() {
                unlocked |= self.start_call(now, place, effects, &mut out);
            }
        }
        out
    }

    /// Starts a call, or answers it. Returns whether it has ended.
    fn start_call(
        &mut self,
        now: Now,
        place: usize,
        effects: &mut EffectId,
        out: &mut Vec<RoundOutput>,
    ) -> bool {
        let Some(call) = self.calls.get(place).cloned() else {
            return false;
        };
        let event = StreamEvent::tool_start(index(place), &call, now.wall.unix_millis());
        out.push(RoundOutput::Event(event));
        if let Some(text) = self.answers.remove(&place) {
            let execution = ToolExecution::new(
                call.tool_name,
                call.tool_call_id,
                call.arguments,
                json_text(&text),
                true,
                0,
            );
            out.push(self.end_call(now, place, execution));
            return true;
        }
        *effects += 1;
        self.running.insert(*effects, place);
        out.push(RoundOutput::Tool(*effects, call));
        false
    }

    fn end_call(&mut self, now: Now, place: usize, execution: ToolExecution) -> RoundOutput {
        let event = StreamEvent::tool_end(index(place), &execution, now.wall.unix_millis());
        self.order.done(place);
        if let Some(slot) = self.executions.get_mut(place) {
            *slot = Some(execution);
        }
        RoundOutput::Event(event)
    }

    /// Takes the result of an effect, and starts the calls that waited for it. The result of an effect that is not of this
    /// round, or that has ended, changes nothing.
    pub fn handle_execution(
        &mut self,
        now: Now,
        id: EffectId,
        execution: ToolExecution,
        effects: &mut EffectId,
    ) -> Vec<RoundOutput> {
        let Some(place) = self.running.remove(&id) else {
            return Vec::new();
        };
        let mut out = vec![self.end_call(now, place, execution)];
        out.extend(self.start(now, effects));
        out
    }

    /// The effects that run.
    pub fn running(&self) -> impl Iterator<Item = EffectId> {
        self.running.keys().copied()
    }

    /// Whether an effect runs.
    #[must_use]
    pub fn is_running(&self, id: EffectId) -> bool {
        self.running.contains_key(&id)
    }

    /// Whether every call has ended.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.order.is_complete()
    }

    /// The executions so far, in call order.
    #[must_use]
    pub fn into_executions(self) -> Vec<ToolExecution> {
        self.executions.into_iter().flatten().collect()
    }
}

fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
