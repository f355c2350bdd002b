//! Questions to the model, and its answers.

use std::sync::Arc;

use ubos_common::time::Now;
use upp::{ErrorCode, LlmRequest, LlmResponse, Message, ModelEvent, Stamp, UppError};

use super::{Effect, EffectId, Engine, Op, Phase};
use crate::event::{AgentStreamEvent, EventData, UapEventType};
use crate::strategy::{Inference, Outcome};

impl Engine {
    pub(super) fn infer(&mut self, now: Now, inference: Inference) {
        self.take_input();
        let stamp = self.stamp(now);
        let mut messages = self.state.messages().clone();
        self.prompt = inference.prompt.as_deref().map(|prompt| {
            let message = Message::user(Stamp::new(&mut self.config.ids, now.wall), prompt);
            mark(message, self.step, inference.phase, true)
        });
        messages.extend(self.prompt.clone());
        let llm = &self.config.llm;
        let mut request = if inference.is_action {
            llm.request(messages, stamp)
        } else {
            let mut request = LlmRequest::new(messages, stamp);
            request.system.clone_from(&llm.options().system);
            request.params.clone_from(&llm.options().params);
            request
        };
        let id = self.next_effect();
        self.phase = Phase::Inferring(id, Box::new(inference.clone()));
        if let Some(structure) = inference.structure {
            request.structure = Some(structure);
        }
        self.out.push(Effect::Infer(id, request));
    }

    pub(super) fn on_model(
        &mut self,
        now: Now,
        id: EffectId,
        item: Option<Result<ModelEvent, UppError>>,
    ) {
        let Phase::Inferring(waited, inference) = &self.phase else {
            return;
        };
        if *waited != id {
            return;
        }
        match item {
            Some(Ok(ModelEvent::Event(event))) => {
                self.out.push(Effect::Event(AgentStreamEvent::Upp(event)));
                self.out.push(Effect::More(id));
            }
            Some(Ok(ModelEvent::Done(response))) => {
                let inference = inference.clone();
                self.phase = Phase::Idle;
                self.on_response(now, &inference, response);
            }
            Some(Ok(_)) => self.out.push(Effect::More(id)),
            Some(Err(error)) => self.on_failure(error),
            None => {
                let error = self.refuse(
                    ErrorCode::InvalidResponse,
                    "the model's stream ended without an answer",
                );
                self.on_failure(error);
            }
        }
    }

    /// The question was not asked: the step and the run end here.
    // impl: UAP-16-1
    pub(super) fn on_stop(&mut self, now: Now, id: EffectId) {
        if !matches!(&self.phase, Phase::Inferring(waited, _) if *waited == id) {
            return;
        }
        self.phase = Phase::Idle;
        self.prompt = None;
        if self.added.cycles == 0 {
            let error = self.refuse(ErrorCode::QuotaExceeded, "the budget is spent");
            return self.fail(now, error);
        }
        self.agenda.clear();
        let event = Op::Event(UapEventType::StepEnd, EventData::phase("stopped"));
        self.plan_ops([Op::StepEnd, event, Op::Save, Op::Stop]);
    }

    /// The strategy says what a failure means: to most it is the end.
    fn on_failure(&mut self, error: UppError) {
        self.phase = Phase::Idle;
        self.plan_ops([Op::Next(Box::new(Outcome::Failed(error)))]);
    }

    fn on_response(&mut self, now: Now, inference: &Inference, mut response: Box<LlmResponse>) {
        self.added.cycles += 1;
        self.added.usage.add_cycle(response.usage.clone());
        if inference.is_action && inference.structure.is_none() && response.data.is_some() {
            self.added.data.clone_from(&response.data);
        }
        // The time of an answer is when it is complete.
        Arc::make_mut(&mut response.message).timestamp = Stamp::with_id("", now.wall).timestamp;
        let mut messages: Vec<Message> = self.prompt.take().into_iter().collect();
        let answer = Message::Assistant(Arc::clone(&response.message));
        messages.push(if inference.is_action {
            answer
        } else {
            mark(answer, self.step, inference.phase, false)
        });

        let calls = response.message.has_tool_calls() && inference.is_action;
        let gave_data = response.data.is_some();
        if calls && !gave_data && !self.config.llm.options().tools.tools.is_empty() {
            self.begin_tools(messages, response);
        } else {
            self.append(messages);
            self.plan_ops([Op::Next(Box::new(Outcome::Inferred {
                response,
                ran_tools: false,
            }))]);
        }
    }

    /// Adds messages to the state and to what the run brings.
    pub(super) fn append(&mut self, messages: Vec<Message>) {
        self.added.messages.extend(messages.iter().cloned());
        self.state = self.state.with_messages(&mut self.config.ids, messages);
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
