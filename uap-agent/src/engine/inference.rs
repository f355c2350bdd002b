//! Questions to the model, and its answers.

use std::sync::Arc;

use ubos_common::time::Now;
use upp::{
    ErrorCode, LlmResponse, Message, ModelEvent, Stamp, Stop, ToolCall, ToolChoice, ToolResult,
    ToolResultMessage, UppError,
};

use super::effects::{EffectId, Output};
use super::guard::guarded;
use super::state::{AgendaItem, Attempt, Engine, Phase};
use crate::event::{AgentStreamEvent, EventData, UapEventType};
use crate::hooks::{HookAnswer, HookCall};
use crate::repair::OutputVerdict;
use crate::strategy::{Inference, Outcome};
use crate::trace_event::debug;

impl Engine {
    // impl: UAP-4-3
    pub(super) fn infer(&mut self, now: Now, inference: Inference) {
        self.take_input();
        let stamp = self.stamp(now);
        let mut messages = self.state.messages().clone();
        self.prompt = inference.prompt.as_deref().map(|prompt| {
            let message = Message::user(Stamp::new(&mut self.ids, now.wall), prompt);
            mark(message, self.step, inference.phase, true)
        });
        messages.extend(self.prompt.clone());
        let llm = &self.config.llm;
        let mut request = llm.request(messages, stamp);
        request.trace = self.state.trace_context();
        if !inference.is_action {
            // Declared all the same: vendors want the tools of the calls in the history, and prompt caches hold them.
            request.tool_choice = ToolChoice::None;
            request.structure = None;
        }
        if let Some(structure) = &inference.structure {
            request.structure = Some(Arc::clone(structure));
        }
        self.attempt(Box::new(Attempt {
            inference,
            request,
            attempt: 1,
            was_heard: false,
            failure: None,
        }));
    }

    /// Asks, or asks first whether and when to ask.
    fn attempt(&mut self, question: Box<Attempt>) {
        if !self.config.retries {
            return self.ask(question);
        }
        let id = self.next_effect();
        let failure = question.failure.clone().map(Box::new);
        let call = HookCall::Attempt(question.attempt, failure, self.ids.bits());
        self.out.push(Output::Hook(id, call));
        self.phase = Phase::Asking(id, question);
    }

    fn ask(&mut self, question: Box<Attempt>) {
        let id = self.next_effect();
        let request = question.request.clone();
        self.out.push(Output::Infer(id, request));
        self.phase = Phase::Inferring(id, question);
    }

    pub(super) fn on_attempt(&mut self, now: Now, answer: Result<HookAnswer, UppError>) {
        let Phase::Asking(_, question) = core::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        match (answer, &question.failure) {
            (Err(error), _) => self.fail(now, error),
            (Ok(HookAnswer::Ask(Some(wait))), _) if !wait.is_zero() => {
                debug!(
                    step = self.step,
                    retry = question.failure.is_some(),
                    ?wait,
                    "request waits"
                );
                let id = self.next_effect();
                self.out.push(Output::Sleep(id, wait));
                self.phase = Phase::Sleeping(id, question);
            }
            (Ok(HookAnswer::Ask(Some(_))), _) | (Ok(_), None) => self.waited(question),
            (Ok(_), Some(failure)) => self.on_failure(failure.clone()),
        }
    }

    pub(super) fn on_slept(&mut self, id: EffectId) {
        if matches!(&self.phase, Phase::Pausing(waited) if *waited == id) {
            self.phase = Phase::Idle;
        } else if matches!(&self.phase, Phase::Sleeping(waited, _) if *waited == id)
            && let Phase::Sleeping(_, question) = core::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.waited(question);
        }
    }

    /// After a failure the next attempt begins, before which there may be a wait of its own.
    fn waited(&mut self, mut question: Box<Attempt>) {
        match question.failure.take() {
            Some(_) => {
                question.attempt = question.attempt.saturating_add(1);
                self.attempt(question);
            }
            None => self.ask(question),
        }
    }

    pub(super) fn on_model(
        &mut self,
        now: Now,
        id: EffectId,
        item: Option<Result<ModelEvent, UppError>>,
    ) {
        let Phase::Inferring(waited, question) = &mut self.phase else {
            return;
        };
        if *waited != id {
            return;
        }
        match item {
            Some(Ok(ModelEvent::Event(event))) => {
                question.was_heard = true;
                self.out.push(Output::Event(AgentStreamEvent::Upp(event)));
                self.out.push(Output::More(id));
            }
            Some(Ok(ModelEvent::Done(response))) => {
                let inference = question.inference.clone();
                self.phase = Phase::Idle;
                self.on_response(now, &inference, response);
            }
            Some(Ok(_)) => self.out.push(Output::More(id)),
            Some(Err(error)) => self.on_model_failed(error),
            None => {
                let error = self.refuse(
                    ErrorCode::InvalidResponse,
                    "the model's stream ended without an answer",
                );
                self.on_model_failed(error);
            }
        }
    }

    /// A question that nothing has been heard of may be asked again.
    fn on_model_failed(&mut self, error: UppError) {
        match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Inferring(_, mut question) if self.config.retries && !question.was_heard => {
                question.failure = Some(error);
                self.attempt(question);
            }
            _ => self.on_failure(error),
        }
    }

    /// The question was not asked: the step and the run end here.
    // impl: UAP-16-1
    pub(super) fn on_stop(&mut self, now: Now, id: EffectId) {
        if !matches!(&self.phase, Phase::Inferring(waited, _) if *waited == id) {
            return;
        }
        self.phase = Phase::Idle;
        if self.added.cycles == 0 {
            let error = self.refuse(ErrorCode::QuotaExceeded, "the budget is spent");
            return self.fail(now, error);
        }
        let event = AgendaItem::Event(UapEventType::StepEnd, EventData::phase("stopped"));
        self.plan_ops([
            AgendaItem::StepEnd,
            event,
            AgendaItem::Save,
            AgendaItem::Stop,
        ]);
    }

    /// The strategy says what a failure means: to most it is the end.
    fn on_failure(&mut self, error: UppError) {
        self.phase = Phase::Idle;
        self.plan_ops([AgendaItem::Next(Box::new(Outcome::Failed(error)))]);
    }

    fn on_response(&mut self, now: Now, inference: &Inference, mut response: Box<LlmResponse>) {
        self.added.cycles += 1;
        self.added.usage += response.usage.clone();
        if response.stop() == Stop::Pause && !response.message.has_tool_calls() && self.may_act() {
            return self.go_on(now, inference, response);
        }
        let again = match self.repair_output(inference, &mut response) {
            Ok(again) => again,
            Err(error) => {
                // As at the end of rounds: the answer is in the turn that the error carries.
                self.added
                    .messages
                    .push(Message::Assistant(response.message));
                return self.fail(now, error);
            }
        };
        if again.is_none()
            && inference.is_action
            && inference.structure.is_none()
            && response.data.is_some()
        {
            self.added.data.clone_from(&response.data);
        }
        let mut messages = self.answer_messages(now, inference, &mut response);
        if !inference.is_action {
            messages.extend(self.refuse_calls(now, inference, &response));
        }

        if let Some(text) = again {
            self.append(messages);
            return self.infer(now, inference.clone().asked_again(text));
        }
        self.output_attempts = 0;
        let calls = response.message.has_tool_calls() && inference.is_action;
        let gave_data = response.data.is_some();
        if calls && !gave_data && !self.config.llm.options().tools().tools.is_empty() {
            self.begin_tools(messages, response);
        } else {
            self.append(messages);
            self.plan_ops([AgendaItem::Next(Box::new(Outcome::Inferred {
                response,
                ran_tools: false,
            }))]);
        }
    }

    /// Sends a message back that the vendor paused: it goes on in the next response. A pause counts as a round of tools.
    fn go_on(&mut self, now: Now, inference: &Inference, mut response: Box<LlmResponse>) {
        self.tool_rounds += 1;
        let messages = self.answer_messages(now, inference, &mut response);
        self.append(messages);
        let mut rest = inference.clone();
        rest.prompt = None;
        self.infer(now, rest);
    }

    /// The prompt of a request and its response, as the state gets them.
    fn answer_messages(
        &mut self,
        now: Now,
        inference: &Inference,
        response: &mut LlmResponse,
    ) -> Vec<Message> {
        // The time of an answer is when it is complete.
        Arc::make_mut(&mut response.message).timestamp = Stamp::with_id("", now.wall).timestamp;
        let mut messages: Vec<Message> = self.prompt.take().into_iter().collect();
        let answer = Message::Assistant(Arc::clone(&response.message));
        messages.push(if inference.is_action {
            answer
        } else {
            mark(answer, self.step, inference.phase, false)
        });
        messages
    }

    /// Calls in an answer to a question in which no tool could be called. Vendors take no history in which a call has no result.
    // choice: they are answered, and stay in the state with their answers
    fn refuse_calls(
        &mut self,
        now: Now,
        inference: &Inference,
        response: &LlmResponse,
    ) -> Option<Message> {
        let refused = |call: &ToolCall| {
            let why = upp::json_text("no tool can be called here");
            let mut result = ToolResult::new(Arc::clone(&call.tool_call_id), why);
            result.is_error = Some(true);
            result
        };
        let results: Vec<ToolResult> = response.message.calls().iter().map(refused).collect();
        if results.is_empty() {
            return None;
        }
        let message = ToolResultMessage::new(self.stamp(now), results).into();
        Some(mark(message, self.step, inference.phase, true))
    }

    /// What the policy makes of structured output; a text where the model is to be asked again.
    // impl: UAP-16-2
    fn repair_output(
        &mut self,
        inference: &Inference,
        response: &mut LlmResponse,
    ) -> Result<Option<Box<str>>, UppError> {
        let llm = self.config.llm.options();
        let (Some(policy), Some(schema)) = (&self.config.repair, llm.structure()) else {
            return Ok(None);
        };
        let is_output = inference.is_action && inference.structure.is_none();
        let is_call = response.message.has_tool_calls() && response.data.is_none();
        if !is_output || is_call {
            return Ok(None);
        }
        let attempts = self.output_attempts;
        match guarded("a repair policy", || {
            policy.output(response, schema, attempts)
        })? {
            OutputVerdict::Accept => Ok(None),
            OutputVerdict::Use(data) => {
                response.data = Some(data);
                Ok(None)
            }
            OutputVerdict::AskAgain(text) => {
                self.output_attempts = self.output_attempts.saturating_add(1);
                Ok(Some(text))
            }
            OutputVerdict::Fail(why) => Err(self.refuse(ErrorCode::InvalidResponse, &why)),
        }
    }

    /// Adds messages to the state and to what the run brings.
    pub(super) fn append(&mut self, messages: Vec<Message>) {
        self.added.messages.extend(messages.iter().cloned());
        self.state = self.state.with_messages(&mut self.ids, messages);
    }
}

/// Marks a message as the strategy's. Adapters do not send metadata.
// impl: UAP-5-8
fn mark(message: Message, step: u64, phase: &str, synthetic: bool) -> Message {
    let text = format!(r#"{{"phase":"{phase}","step":{step},"synthetic":{synthetic}}}"#);
    match upp::object(&text) {
        Ok(mark) => message.with_metadata("uap", mark),
        // A phase is a word of the strategy's; one that is no JSON text marks nothing.
        Err(_) => message,
    }
}
