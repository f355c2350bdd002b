//! What the runner dispatches: each act becomes a message to an agent.

use ubos_common::json::{MemberWriter, RawBuf};
use ubos_common::time::Now;

use crate::any::{AnyMessage, MessageRef};
use crate::error::Code;
use crate::graph::Scope;
use crate::message::OutFmt;
use crate::plan::Act;
use crate::registry::{AgentRecord, Registry, is_merge};
use crate::role::discipline::AnswerForm;
use crate::runner::{self, Cause, StepInputs, Ticket};
use crate::trace::trace;
use crate::v1;

use super::answer::denial;
use super::delegate::{Open, Parts, failed};
use super::{Delegation, Orchestrator, Output, Stage};

impl<R: Registry> Orchestrator<R> {
    /// Acts on the outputs of the runner.
    pub(super) fn drain_runner(&mut self, now: Now) {
        while let Stage::Running(runner) = &mut self.stage {
            let Some(output) = runner.poll_output() else {
                return;
            };
            match output {
                runner::Output::Dispatch {
                    ticket,
                    act,
                    inputs,
                    rank,
                } if runner.is_running(ticket) => self.delegate(now, ticket, &act, &inputs, rank),
                runner::Output::Cancel { ticket } if self.open.remove(&ticket).is_some() => {
                    self.out.push(Output::Cancel { ticket });
                }
                runner::Output::Paused => self.out.push(Output::Paused),
                runner::Output::Ended(mut outcome) => {
                    outcome.overruled = core::mem::take(&mut self.overruled);
                    self.on_end(now, &outcome);
                }
                _ => {}
            }
        }
    }

    // impl: SACP-3-2
    pub(super) fn delegate(
        &mut self,
        now: Now,
        ticket: Ticket,
        act: &Act,
        inputs: &StepInputs,
        rank: usize,
    ) {
        if is_merge(&act.verb, &act.tool) {
            let outputs: Vec<&RawBuf> = inputs.iter().map(|(_, output)| output.as_ref()).collect();
            let output = crate::reply::list(&outputs);
            return self.report(now, runner::Input::Succeeded { ticket, output });
        }
        let Ok(agent) = self.allowed(ticket.step, act, rank) else {
            let cause = Cause::Tool {
                code: Some(v1::Code::AuthzDenied.as_str().to_owned()),
                message: denial(act),
                retryable: false,
            };
            return self.report(now, runner::Input::Failed { ticket, cause });
        };
        let Some(agent) = agent else {
            let message = format!("no agent is available for {} with {}", act.verb, act.tool);
            let cause = Cause::Tool {
                code: Some(Code::NoAgentFound.as_str().to_owned()),
                message,
                retryable: true,
            };
            return self.report(now, runner::Input::Failed { ticket, cause });
        };
        let whole = self
            .scope_of(ticket)
            .is_none_or(|scope| scope.parent.is_none());
        let human = whole && MessageRef::from(&self.request).out_fmt() == OutFmt::Human;
        let prose = human && self.config.may_write_prose(&agent);
        let (out_fmt, form) = if prose {
            (OutFmt::Human, AnswerForm::Prose)
        } else {
            (OutFmt::Raw, AnswerForm::Structured)
        };
        let Some(message) = self.delegated(now, ticket, act, inputs, &agent, out_fmt) else {
            let what = "a name of the act is not valid in a message of 1.0".to_owned();
            return self.report(now, failed(ticket, Code::InternalError, what));
        };
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            rank,
            "act delegated"
        );
        self.open.insert(ticket, Open::new(&message, form));
        self.out.push(Output::Delegate(Box::new(Delegation {
            ticket,
            agent,
            message,
        })));
    }

    /// The message that a step belongs to: the request, or a subtask.
    pub(super) fn scope_of(&self, ticket: Ticket) -> Option<&Scope> {
        let graph = self.runner()?.graph();
        graph.scopes().get(graph.step(ticket.step)?.scope)
    }

    /// The message for one act; `None` if a name in it is not valid in the edition of the request.
    pub(super) fn delegated(
        &mut self,
        now: Now,
        ticket: Ticket,
        act: &Act,
        inputs: &StepInputs,
        to: &AgentRecord,
        out_fmt: OutFmt,
    ) -> Option<AnyMessage> {
        let mut context = Vec::new();
        let outputs: Vec<&RawBuf> = inputs.iter().map(|(_, output)| output.as_ref()).collect();
        if !outputs.is_empty() {
            context.push(("inputs", crate::reply::list(&outputs)));
        }
        let results = self.results_so_far(ticket);
        context.extend(results.map(|results| ("results", results)));
        // The id is that of the request with step and attempt, so that answers can be told apart.
        let own_id = self.request.msg_id().filter(|id| id.len() <= LONGEST_BASE);
        let base = own_id.map_or_else(|| self.ids.uuid().to_string(), str::to_owned);
        let subtask = self
            .scope_of(ticket)
            .and_then(|scope| scope.message.as_deref());
        let parts = Parts {
            own: subtask.map_or_else(|| MessageRef::from(&self.request), MessageRef::from),
            act,
            step: self.runner().and_then(|run| run.graph().step(ticket.step)),
            context,
            msg_id: format!("{base}.{}.{}", ticket.step, ticket.attempt),
            out_fmt,
            at: now.wall,
            sender: self.config.sender.as_ref(),
            recipient: &to.agent_name,
        };
        parts.message()
    }

    /// Outputs of the acts of a step's message, by number: the newest ones, up to the limit.
    // impl: SACP-3-8
    pub(super) fn results_so_far(&self, ticket: Ticket) -> Option<RawBuf> {
        let (runner, own) = (self.runner()?, self.scope_of(ticket)?);
        let (mut room, mut results) = (self.config.max_shared_bytes, Vec::new());
        for step in own.steps.iter().rev() {
            let Some(output) = runner.output(*step) else {
                continue;
            };
            let Some(left) = room.checked_sub(output.as_str().len()) else {
                break;
            };
            room = left;
            results.push((runner.graph().step(*step)?.place, output));
        }
        let mut text = Vec::new();
        let mut object = MemberWriter::begin(&mut text);
        for (place, output) in results.iter().rev() {
            object.member(&place.to_string(), *output);
        }
        object.end();
        (!results.is_empty()).then(|| crate::reply::raw(text))
    }
}

/// Bytes of a request's id that is the beginning of the ids of its delegations: longer ones would be too long in 1.0.
const LONGEST_BASE: usize = 96;
