//! The message that is delegated for one act, and the reading of its answer, in both editions.

use core::num::NonZeroUsize;

use ubos_common::json::{RawBuf, RawObject, to_string};
use ubos_common::time::Timestamp;

use crate::any::{AnyMessage, MessageRef};
use crate::error::Code;
use crate::graph::Step;
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::plan::{Act, Plan};
use crate::role::discipline::AnswerForm;
use crate::role::tracker::Tracker;
use crate::runner::{self, Cause, Ticket};
use crate::v1;

/// An open delegation.
#[derive(Debug)]
pub(super) struct Open {
    /// The id of the delegated message.
    id: String,
    /// The form that its answer may have.
    pub(super) form: AnswerForm,
    /// The name of its output, in 1.0.
    output_key: Option<String>,
    states: Tracker,
}

impl Open {
    pub(super) fn new(message: &AnyMessage, form: AnswerForm) -> Self {
        let mut states = Tracker::new(NonZeroUsize::MIN);
        // The first message of a tracker is always taken.
        let _ = states.follow(message);
        let output_key = match message {
            AnyMessage::V01(_) => None,
            AnyMessage::V10(message) => message
                .plan
                .first()
                .and_then(|step| step.output_key.as_deref().map(str::to_owned)),
        };
        let id = MessageRef::from(message).msg_id().unwrap_or_default();
        Self {
            id: id.to_owned(),
            form,
            output_key,
            states,
        }
    }

    /// The input of the runner for an answer that is a message.
    pub(super) fn input_of(&mut self, ticket: Ticket, answer: MessageRef<'_>) -> runner::Input {
        if answer.reply_to().is_some_and(|to| to != self.id) {
            let what = "the answer belongs to another message".to_owned();
            return failed(ticket, Code::MalformedMessage, what);
        }
        if answer.reply_to().is_some()
            && let Err(refused) = self.states.follow(answer)
        {
            return failed(ticket, Code::InvalidState, refused.to_string());
        }
        let output = match answer {
            MessageRef::V01(answer) => match &answer.state {
                Some(State::Failed) => {
                    return failed(ticket, Code::StepFailed, "the agent failed".to_owned());
                }
                // A message without a state counts as an answer; one that is not DONE does not.
                Some(state) if *state != State::Done => {
                    let what = format!("the answer is {state}, but must be DONE");
                    return failed(ticket, Code::InvalidState, what);
                }
                _ => output_of(answer),
            },
            MessageRef::V10(answer) => match (&answer.state, &answer.result, &answer.error) {
                (v1::State::Done, Some(result), _) => self.output_in(result),
                (v1::State::Failed, _, Some(error)) => {
                    let cause = Cause::Tool {
                        code: Some(error.code.as_str().to_owned()),
                        message: error.message.to_string(),
                        retryable: error.retryable == Some(true),
                    };
                    return runner::Input::Failed { ticket, cause };
                }
                (state, ..) if state.has_ended() => {
                    let what = format!("the answer is {state}, but must be DONE");
                    return failed(ticket, Code::StepFailed, what);
                }
                _ => return runner::Input::Progress { ticket },
            },
        };
        runner::Input::Succeeded { ticket, output }
    }

    /// The output under the key that was asked for, or all of them.
    fn output_in(&self, result: &v1::Outcome) -> RawBuf {
        let key = self.output_key.as_deref();
        let named = key.and_then(|key| result.outputs.get(key));
        named.cloned().unwrap_or_else(|| whole(&result.outputs))
    }
}

pub(super) fn failed(ticket: Ticket, code: Code, message: String) -> runner::Input {
    let cause = Cause::Tool {
        code: Some(code.as_str().to_owned()),
        message,
        retryable: true,
    };
    runner::Input::Failed { ticket, cause }
}

/// The output of an answer of 0.1: its result, or its whole context if it has no result.
fn output_of(answer: &Message) -> RawBuf {
    let result = answer.context.as_ref().and_then(|ctx| ctx.get("result"));
    match (result, &answer.context) {
        (Some(result), _) => result.clone(),
        (None, Some(context)) => whole(context),
        (None, None) => RawBuf::from(RawObject::empty()),
    }
}

fn whole(members: &std::collections::BTreeMap<String, RawBuf>) -> RawBuf {
    RawBuf::parse(&to_string(members)).unwrap_or_else(|_| RawBuf::from(RawObject::empty()))
}

/// What a delegated message is made of.
pub(super) struct Parts<'a> {
    /// The request, or the subtask that the act belongs to.
    pub(super) own: MessageRef<'a>,
    pub(super) act: &'a Act,
    pub(super) step: Option<&'a Step>,
    /// `inputs` and `results`.
    pub(super) context: Vec<(&'static str, RawBuf)>,
    pub(super) msg_id: String,
    pub(super) out_fmt: OutFmt,
    pub(super) at: Timestamp,
    pub(super) sender: Option<&'a v1::Id>,
    pub(super) recipient: &'a str,
}

impl Parts<'_> {
    /// Goal and context of its own message, the outputs so far, and the act alone. `None` if a name is not valid in 1.0.
    // impl: SACP-4-2
    pub(super) fn message(self) -> Option<AnyMessage> {
        match self.own {
            MessageRef::V01(own) => {
                let mut plan = Plan::default();
                plan.push(self.act.clone());
                let mut message = Message::new(&own.g, plan);
                message.context = Some(own.context.clone().unwrap_or_default());
                for (name, value) in self.context {
                    message.set_context(name, value);
                }
                message.msg_id = NonEmpty::new(self.msg_id);
                message.out_fmt = Some(self.out_fmt);
                message.state = Some(State::Pending);
                Some(message.into())
            }
            MessageRef::V10(own) => self.new_message(own).map(AnyMessage::from),
        }
    }

    fn new_message(&self, own: &v1::Message) -> Option<v1::Message> {
        let node = self.step?;
        let (verb, tool) = (
            v1::Word::new(&*self.act.verb)?,
            v1::Word::new(&*self.act.tool)?,
        );
        let id = v1::Name::new(&*node.id)?;
        let mut step = v1::Step::new(id, verb, tool, self.act.params.clone());
        let key = node.policy.output_key.as_deref().unwrap_or("result");
        step.output_key = v1::Name::new(key);
        let sender = self.sender.or(own.recipient.as_ref()).cloned();
        let sender = sender.unwrap_or_else(v1::Id::nameless);
        let (msg_id, ts) = (v1::Id::new(&*self.msg_id)?, v1::Ts::from(self.at));
        let mut message =
            v1::Message::pending(msg_id.clone(), ts, sender, own.g.clone(), vec![step])?;
        message.recipient = v1::Id::new(self.recipient);
        let mut context = own.ctx.clone().unwrap_or_default();
        for (name, value) in &self.context {
            context.insert((*name).to_owned(), value.clone());
        }
        message.ctx = Some(context);
        message.out_fmt = Some(self.out_fmt.clone());
        let asked = own.trace.as_ref();
        message.trace = asked.map(|asked| v1::Trace::below(Some(asked), &msg_id));
        Some(message)
    }
}
