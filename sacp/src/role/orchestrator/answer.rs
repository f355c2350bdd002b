//! The answers of agents, and the answer to the sender.

use ubos_common::json::RawBuf;
use ubos_common::time::Now;

use crate::any::{Edition, MessageRef};
use crate::error::Code;
use crate::graph::Step;
use crate::message::{NonEmpty, OutFmt};
use crate::plan::Act;
use crate::registry::Registry;
use crate::reply::{Clarify, ErrReply, Reply};
use crate::role::answer::Author;
use crate::role::discipline::{Answer, admit};
use crate::runner::{self, End, Outcome, Ticket};
use crate::trace::{debug, trace};
use crate::v1;

use super::delegate::failed;
use super::{Orchestrator, OrchestratorError, Output, Stage};

impl<R: Registry> Orchestrator<R> {
    pub(super) fn on_answer(
        &mut self,
        now: Now,
        ticket: Ticket,
        bytes: &[u8],
    ) -> Result<(), OrchestratorError> {
        let mut open = self
            .open
            .remove(&ticket)
            .ok_or(OrchestratorError::NotRequested)?;
        trace!(
            step = ticket.step,
            attempt = ticket.attempt,
            bytes = bytes.len(),
            "answer received"
        );
        let input = match admit(bytes, open.form) {
            Ok(Answer::Prose(text)) => runner::Input::Succeeded {
                ticket,
                output: RawBuf::from_serialize(&text)
                    .unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned()),
            },
            Ok(Answer::Reply(reply)) => match reply {
                Reply::Message(answer) => open.input_of(ticket, MessageRef::V01(&answer)),
                Reply::V10(answer) => {
                    let metrics = answer
                        .trace
                        .as_ref()
                        .and_then(|trace| trace.metrics.as_ref());
                    if let Some(metrics) = metrics {
                        self.spent.spend(metrics);
                    }
                    open.input_of(ticket, MessageRef::V10(&answer))
                }
                Reply::Err(error) => failed(ticket, error.code, error.details),
                Reply::Clarify(clarify) => {
                    self.ask_back(now, clarify);
                    return Ok(());
                }
                Reply::Valid { .. } => {
                    let what = "the answer has no result".to_owned();
                    failed(ticket, Code::MalformedMessage, what)
                }
            },
            Err(error) => failed(ticket, error.code, error.details),
        };
        if matches!(input, runner::Input::Progress { .. }) {
            self.open.insert(ticket, open);
        }
        self.report(now, input);
        self.drain_runner(now);
        Ok(())
    }

    /// An agent needs something that only the sender knows: ends the run and passes the question on.
    // impl: SACP-2-7
    pub(super) fn ask_back(&mut self, now: Now, mut clarify: Clarify) {
        self.cancel_all(now);
        clarify.reply_to = self.request.msg_id().map(str::to_owned);
        self.give_back(now, Reply::Clarify(clarify));
    }

    pub(super) fn cancel_all(&mut self, now: Now) {
        if let Stage::Running(runner) = &mut self.stage {
            let _ = runner.cancel(now);
        }
        for ticket in core::mem::take(&mut self.open).into_keys() {
            self.out.push(Output::Cancel { ticket });
        }
    }

    pub(super) fn report(&mut self, now: Now, input: runner::Input) {
        if let Stage::Running(runner) = &mut self.stage {
            // The runner refuses nothing here: a cancelled delegation is no longer open.
            let _ = runner.handle_input(now, input);
        }
    }

    pub(super) fn on_end(&mut self, now: Now, outcome: &Outcome) {
        let human = MessageRef::from(&self.request).out_fmt() == OutFmt::Human;
        let prose = outcome
            .result
            .as_ref()
            .and_then(|result| result.deserialize::<String>().ok());
        let answer = match (outcome.end, human, prose) {
            (End::Done, true, Some(prose)) if self.request.edition() == Edition::V01 => {
                Answer::Prose(prose)
            }
            (_, _, prose) => {
                let request = self.request.clone();
                let reply = self.author(now).of_run(MessageRef::from(&request), outcome);
                Answer::Reply(summed_up(reply, prose.filter(|_| human)))
            }
        };
        self.finish(answer);
    }

    /// Who signs an answer.
    pub(super) fn author(&mut self, now: Now) -> Author<'_> {
        Author {
            at: now.wall,
            sender: self.config.sender.as_ref(),
            msg_id: self.ids.uuid().to_string(),
        }
    }

    pub(super) fn refuse(&mut self, now: Now, error: ErrReply) {
        let error = error.to(&self.request);
        self.give_back(now, Reply::Err(error));
    }

    /// The sender may not have a step: `AUTHZ_DENIED` in 1.0; 0.1 has no code for it.
    // impl: SACP1-7-1
    pub(super) fn deny(&mut self, now: Now, step: &Step) {
        let what = denial(&step.act);
        let request = self.request.clone();
        let reply = match MessageRef::from(&request) {
            MessageRef::V01(_) => {
                let error = ErrReply::new(Code::StepFailed, what).at(&step.pointer);
                return self.refuse(now, error);
            }
            MessageRef::V10(request) => {
                let failure = v1::Failure::of(v1::Code::AuthzDenied, &what).in_step(&step.id);
                self.author(now).of_failure(request, failure)
            }
        };
        self.finish(Answer::Reply(reply));
    }

    /// Answers without a run, in the edition of the request.
    pub(super) fn give_back(&mut self, now: Now, reply: Reply) {
        let request = self.request.clone();
        let reply = self.author(now).of_reply(MessageRef::from(&request), reply);
        self.finish(Answer::Reply(reply));
    }

    pub(super) fn finish(&mut self, mut answer: Answer) {
        if let Answer::Reply(Reply::V10(answer)) = &mut answer
            && self.spent != v1::Metrics::new()
            && let Some(trace) = &mut answer.trace
        {
            let metrics = trace.metrics.get_or_insert_with(v1::Metrics::new);
            metrics.spend(&self.spent);
        }
        self.stage = Stage::Finished;
        debug!(spawned = self.spawned, "message answered");
        self.out.push(Output::Answer(Box::new(answer)));
    }
}

/// An answer of 1.0 with the prose that was asked for as its summary.
fn summed_up(reply: Reply, prose: Option<String>) -> Reply {
    match reply {
        Reply::V10(mut answer) => {
            if let (Some(result), Some(prose)) = (&mut answer.result, prose) {
                result.summary = NonEmpty::new(prose);
            }
            Reply::V10(answer)
        }
        other => other,
    }
}

/// Names no sender: what it may not have is what it asked for.
pub(super) fn denial(act: &Act) -> String {
    format!("the sender may not have {} with {}", act.verb, act.tool)
}
