//! The agenda, and what the strategy's moves put on it.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::time::Now;
use upp::{ErrorCode, Message};

use super::{Effect, Engine, MOVES, Op, Phase, guarded};
use crate::checkpoint::CheckpointMetadata;
use crate::event::{EventData, UapEventType};
use crate::hooks::HookCall;
use crate::result::GenerateResult;
use crate::strategy::{ExecutionContext, Move, Outcome};

impl Engine {
    /// Does what stands on the agenda, up to the first thing that is waited for.
    pub(super) fn advance(&mut self, now: Now) {
        while matches!(self.phase, Phase::Idle) {
            let Some(op) = self.agenda.pop_front() else {
                return;
            };
            match op {
                Op::Hook(call) => self.hook(call),
                Op::Event(event_type, data) => self.event(event_type, data),
                Op::Save => self.save(now),
                Op::Tools => self.start_tools(now),
                Op::Next(outcome) if self.moves >= MOVES => self.pause(outcome),
                Op::Next(outcome) => self.ask_strategy(now, *outcome),
                Op::StepEnd => {
                    if let Some(result) = self.result().filter(|_| self.config.has_hooks) {
                        self.hook(HookCall::StepEnd(self.step, Box::new(result)));
                    }
                }
                Op::StopCondition => self.ask_whether_to_stop(),
                Op::Stop => self.complete(),
                Op::Complete => self.finish(now),
                Op::Fail(error) => self.fail(now, *error),
            }
        }
    }

    /// The strategy is asked after a pause.
    fn pause(&mut self, outcome: Box<Outcome>) {
        self.agenda.push_front(Op::Next(outcome));
        let id = self.next_effect();
        self.out.push(Effect::Sleep(id, Duration::ZERO));
        self.phase = Phase::Pausing(id);
    }

    fn ask_strategy(&mut self, now: Now, outcome: Outcome) {
        let mut context = ExecutionContext {
            agent_id: &self.config.agent_id,
            input: &self.context.input,
            state: &self.state,
            step: self.step,
            session_id: self.config.session_id.as_deref(),
            llm: &self.config.llm,
            ids: &mut self.config.ids,
        };
        self.moves += 1;
        let strategy = &mut self.strategy;
        let next = guarded("the strategy", || strategy.next(outcome, &mut context));
        match next.unwrap_or_else(Move::Fail) {
            Move::StartStep(data) => self.start_step(data),
            Move::Infer(inference) => self.infer(now, inference),
            Move::Append(messages) => {
                self.append_moved(messages);
                self.plan_ops([Op::Next(Box::new(Outcome::Kept))]);
            }
            Move::Reason(text) => {
                self.state = self
                    .state
                    .with_reasoning(&mut self.config.ids, Arc::clone(&text));
                let hook = HookCall::Reason(self.step, Arc::clone(&text));
                let event = Op::Event(UapEventType::Reasoning, EventData::Reasoning(text));
                self.plan_ops([Op::Hook(hook), event, Op::Next(Box::new(Outcome::Kept))]);
            }
            Move::Plan(steps) => {
                self.state = self.state.with_plan(&mut self.config.ids, steps);
                self.plan_ops([Op::Next(Box::new(Outcome::Kept))]);
            }
            // The order of ruling 20: hook, event, save, stop condition.
            Move::EndStep(data) => {
                let event = Op::Event(UapEventType::StepEnd, data);
                let next = Op::Next(Box::new(Outcome::StepEnded));
                self.plan_ops([Op::StepEnd, event, Op::Save, Op::StopCondition, next]);
            }
            Move::Finish => self.complete(),
            Move::Fail(error) => self.fail(now, error),
        }
    }

    /// Puts the input into the state, where nobody has yet.
    // impl: UAP-4-2
    pub(super) fn take_input(&mut self) {
        if self.has_input {
            return;
        }
        self.has_input = true;
        let ids = &mut self.config.ids;
        let agent = upp::json_text(&self.config.agent_id);
        self.state = self
            .state
            .with_message(ids, self.context.input.clone())
            .with_metadata(ids, "agentId", agent);
        if let Some(session) = &self.config.session_id {
            let session = upp::json_text(session);
            self.state = self.state.with_metadata(ids, "sessionId", session);
        }
    }

    /// What a strategy puts into the state: at the place of the input, the input; all else is the run's.
    fn append_moved(&mut self, messages: Vec<Message>) {
        for message in messages {
            if message.id() == self.context.input.id() {
                self.take_input();
            } else {
                self.append(vec![message]);
            }
        }
    }

    fn start_step(&mut self, data: EventData) {
        self.take_input();
        self.step += 1;
        self.state = self.state.with_step(&mut self.config.ids, self.step);
        let hook = Op::Hook(HookCall::StepStart(self.state.clone()));
        let event = Op::Event(UapEventType::StepStart, data);
        self.plan_ops([hook, event, Op::Next(Box::new(Outcome::StepStarted))]);
    }

    /// The run is over, well: the last hook is told, then the caller.
    pub(super) fn complete(&mut self) {
        self.agenda.clear();
        if let Some(result) = self.result().filter(|_| self.config.has_hooks) {
            self.plan_ops([Op::Hook(HookCall::Complete(Box::new(result)))]);
        }
        self.plan_ops([Op::Complete]);
    }

    fn finish(&mut self, now: Now) {
        match self.result() {
            Some(result) => self.leave(now, self.entered, Box::new(result)),
            None => {
                let error = self.refuse(
                    ErrorCode::InvalidRequest,
                    "the strategy finished before the model answered",
                );
                self.fail(now, error);
            }
        }
    }

    fn result(&self) -> Option<GenerateResult> {
        Some(GenerateResult::new(self.added.turn()?, self.state.clone()))
    }

    pub(super) fn plan_ops<const N: usize>(&mut self, ops: [Op; N]) {
        self.agenda.extend(ops);
    }

    pub(super) fn hook(&mut self, call: HookCall) {
        let is_tool_hook = matches!(call, HookCall::MaxIterations(_));
        if self.config.has_hooks || is_tool_hook {
            let id = self.next_effect();
            self.phase = Phase::Hook(id);
            self.out.push(Effect::Hook(id, call));
        }
    }

    fn ask_whether_to_stop(&mut self) {
        if self.config.has_hooks || self.config.layers > 0 {
            let id = self.next_effect();
            self.phase = Phase::Hook(id);
            let call = HookCall::StopCondition(self.state.clone());
            self.out.push(Effect::Hook(id, call));
        }
    }

    fn save(&mut self, now: Now) {
        let Some(session) = self.config.session_id.clone().filter(|_| self.config.saves) else {
            return;
        };
        let checkpoint = self.config.ids.uuid();
        let agent = self.config.agent_id.to_string();
        let metadata = CheckpointMetadata::new(
            session.to_string(),
            checkpoint,
            now.wall,
            self.state.step(),
            agent,
        );
        let id = self.next_effect();
        self.phase = Phase::Saving(id);
        self.out
            .push(Effect::Save(id, metadata, self.state.clone()));
    }
}
