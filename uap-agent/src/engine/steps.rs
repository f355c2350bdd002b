//! The agenda, and what the strategy's moves put on it.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::time::Now;
use upp::{ErrorCode, Message, UppError};

use super::effects::Output;
use super::guard::guarded;
use super::state::{AgendaItem, Engine, Phase};
use crate::checkpoint::CheckpointMetadata;
use crate::event::{EventData, UapEventType};
use crate::hooks::HookCall;
use crate::result::GenerateResult;
use crate::state::PlanStep;
use crate::strategy::{Command, ExecutionContext, Outcome};

/// The number of commands without an effect after which the engine requests a pause, so that a strategy which
/// never requests an effect blocks neither the executor nor an abort.
const MOVES: u32 = 256;

impl Engine {
    /// Does what stands on the agenda, up to the first thing that is waited for.
    pub(super) fn advance(&mut self, now: Now) {
        while matches!(self.phase, Phase::Idle) {
            let Some(op) = self.agenda.pop_front() else {
                return;
            };
            match op {
                AgendaItem::Hook(call) => self.hook(call),
                AgendaItem::Event(event_type, data) => self.event(event_type, data),
                AgendaItem::Save => self.save(now),
                AgendaItem::Tools => self.start_tools(now),
                AgendaItem::Next(outcome) if self.moves >= MOVES => self.pause(outcome),
                AgendaItem::Next(outcome) => self.ask_strategy(now, *outcome),
                AgendaItem::StepEnd => {
                    if let Some(result) = self.result().filter(|_| self.config.hooks) {
                        self.hook(HookCall::StepEnd(self.step, Box::new(result)));
                    }
                }
                AgendaItem::StopCondition => self.ask_whether_to_stop(),
                AgendaItem::Stop => self.complete(),
                AgendaItem::Complete => self.finish(now),
                AgendaItem::Fail(error) => self.fail(now, *error),
            }
        }
    }

    /// The strategy is asked after a pause.
    fn pause(&mut self, outcome: Box<Outcome>) {
        self.agenda.push_front(AgendaItem::Next(outcome));
        let id = self.next_effect();
        self.out.push(Output::Sleep(id, Duration::ZERO));
        self.phase = Phase::Pausing(id);
    }

    /// Replaces a step of the plan.
    fn change_plan(&mut self, place: usize, step: PlanStep) {
        let plan = self.state.plan().and_then(|plan| plan.with(place, step));
        let next = match plan {
            Some(plan) => {
                self.state = self.state.with_plan(&mut self.ids, plan);
                AgendaItem::Next(Box::new(Outcome::Applied))
            }
            None => {
                let what = "the plan does not have the step that the strategy changes";
                let error = UppError::new(ErrorCode::InvalidRequest, "uap", what);
                AgendaItem::Fail(Box::new(error))
            }
        };
        self.plan_ops([next]);
    }

    // impl: UAP-2-3, UAP-5-5
    fn ask_strategy(&mut self, now: Now, outcome: Outcome) {
        let mut context = ExecutionContext {
            agent_id: &self.agent_id,
            input: &self.context.input,
            state: &self.state,
            step: self.step,
            session_id: self.session_id.as_deref(),
            llm: &self.config.llm,
            ids: &mut self.ids,
        };
        self.moves += 1;
        let strategy = &mut self.strategy;
        let next = guarded("the strategy", || strategy.next(outcome, &mut context));
        match next.unwrap_or_else(Command::Fail) {
            Command::StartStep(data) => self.start_step(data),
            Command::Infer(inference) => self.infer(now, inference),
            Command::Append(messages) => {
                self.append_moved(messages);
                self.plan_ops([AgendaItem::Next(Box::new(Outcome::Applied))]);
            }
            Command::Reason(text) => {
                self.state = self.state.with_reasoning(&mut self.ids, Arc::clone(&text));
                let hook = HookCall::Reason(self.step, Arc::clone(&text));
                let event = AgendaItem::Event(UapEventType::Reasoning, EventData::Reasoning(text));
                self.plan_ops([
                    AgendaItem::Hook(hook),
                    event,
                    AgendaItem::Next(Box::new(Outcome::Applied)),
                ]);
            }
            Command::Plan(steps) => {
                self.state = self.state.with_plan(&mut self.ids, steps);
                self.plan_ops([AgendaItem::Next(Box::new(Outcome::Applied))]);
            }
            Command::PlanStep(place, step) => self.change_plan(place, step),
            // The order of ruling 20: hook, event, save, stop condition.
            // impl: UAP-10-1
            Command::EndStep(data) => {
                let event = AgendaItem::Event(UapEventType::StepEnd, data);
                let next = AgendaItem::Next(Box::new(Outcome::StepEnded));
                self.plan_ops([
                    AgendaItem::StepEnd,
                    event,
                    AgendaItem::Save,
                    AgendaItem::StopCondition,
                    next,
                ]);
            }
            Command::Finish => self.complete(),
            Command::Fail(error) => self.fail(now, error),
        }
    }

    /// Puts the input into the state, where nobody has yet.
    // impl: UAP-4-2
    pub(super) fn take_input(&mut self) {
        if self.has_input {
            return;
        }
        self.has_input = true;
        let ids = &mut self.ids;
        let agent = upp::json_text(&self.agent_id);
        self.state = self
            .state
            .with_message(ids, self.context.input.clone())
            .with_metadata(ids, "agentId", agent);
        if let Some(session) = &self.session_id {
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

    // impl: UAP-5-1
    fn start_step(&mut self, data: EventData) {
        self.take_input();
        self.step += 1;
        self.state = self.state.with_step(&mut self.ids, self.step);
        let hook = AgendaItem::Hook(HookCall::StepStart(self.state.clone()));
        let event = AgendaItem::Event(UapEventType::StepStart, data);
        self.plan_ops([
            hook,
            event,
            AgendaItem::Next(Box::new(Outcome::StepStarted)),
        ]);
    }

    /// The run is over, well: the last hook is told, then the caller.
    pub(super) fn complete(&mut self) {
        self.agenda.clear();
        if let Some(result) = self.result().filter(|_| self.config.hooks) {
            self.plan_ops([AgendaItem::Hook(HookCall::Complete(Box::new(result)))]);
        }
        self.plan_ops([AgendaItem::Complete]);
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

    pub(super) fn plan_ops<const N: usize>(&mut self, ops: [AgendaItem; N]) {
        self.agenda.extend(ops);
    }

    pub(super) fn hook(&mut self, call: HookCall) {
        let is_tool_hook = matches!(call, HookCall::MaxIterations(_));
        if self.config.hooks || is_tool_hook {
            let id = self.next_effect();
            self.phase = Phase::Hook(id);
            self.out.push(Output::Hook(id, call));
        }
    }

    fn ask_whether_to_stop(&mut self) {
        if self.config.hooks || !self.config.layers.is_empty() {
            let id = self.next_effect();
            self.phase = Phase::Hook(id);
            let call = HookCall::StopCondition(self.state.clone());
            self.out.push(Output::Hook(id, call));
        }
    }

    // impl: UAP-12-2
    fn save(&mut self, now: Now) {
        let Some(session) = self.session_id.clone().filter(|_| self.config.saves) else {
            return;
        };
        let checkpoint = self.ids.uuid();
        let agent = self.agent_id.to_string();
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
            .push(Output::Save(id, metadata, self.state.clone()));
    }
}
