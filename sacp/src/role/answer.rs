//! Answers in the edition of the message that they answer.

use std::collections::BTreeMap;

use ubos_common::json::RawObject;
use ubos_common::time::Timestamp;

use crate::any::MessageRef;
use crate::reply::{Clarify, ErrReply, Reply};
use crate::runner::Outcome;
use crate::runner::answer_v1::all_done;
use crate::v1;

/// What an answer says of itself: of 0.1 its id alone, of 1.0 also who wrote it and when.
pub(crate) struct Author<'a> {
    pub(crate) at: Timestamp,
    /// The sender; without one, the recipient of the request.
    pub(crate) sender: Option<&'a v1::Id>,
    pub(crate) msg_id: String,
}

impl Author<'_> {
    /// The answer to a message that has run.
    pub(crate) fn of_run(self, request: MessageRef<'_>, outcome: &Outcome) -> Reply {
        match request {
            MessageRef::V01(request) => outcome.answer_v01(request, &self.msg_id),
            MessageRef::V10(request) => {
                let (sender, msg_id) = self.ids(request);
                let answer = outcome.answer_v1(request, self.at, sender, msg_id);
                Reply::V10(Box::new(answer))
            }
        }
    }

    /// The answer to a message that does not run. Version 1.0 has one form for all of them: FAILED.
    pub(crate) fn of_reply(self, request: MessageRef<'_>, reply: Reply) -> Reply {
        let (code, text, details) = match (request, &reply) {
            (MessageRef::V10(_), Reply::Err(error)) => {
                let pointer = error.pointer.clone().map(|at| ("pointer".to_owned(), at));
                let code = ("code".to_owned(), error.code.as_str().to_owned());
                let details = pointer.into_iter().chain([code]).collect();
                (v1::Code::from(error.code), &error.details, details)
            }
            (
                MessageRef::V10(_),
                Reply::Clarify(Clarify {
                    missing, details, ..
                }),
            ) => {
                let missing = ("missing".to_owned(), missing.join(", "));
                (
                    v1::Code::MalformedMessage,
                    details,
                    BTreeMap::from([missing]),
                )
            }
            _ => return reply,
        };
        let MessageRef::V10(request) = request else {
            return reply;
        };
        let failure = v1::Failure::of(code, text);
        let failure = match RawObject::from_serialize(&details) {
            Ok(Some(details)) => failure.with_details(details),
            _ => failure,
        };
        self.of_failure(request, failure)
    }

    /// The answer of 1.0 with an error.
    pub(crate) fn of_failure(self, request: &v1::Message, failure: v1::Failure) -> Reply {
        Reply::V10(Box::new(self.answer(request).failed(failure)))
    }

    /// The answer of 1.0 with a result to which every step contributed.
    pub(crate) fn of_result(self, request: &v1::Message, mut result: v1::Outcome) -> Reply {
        let steps = request.plan.iter().map(|step| step.id.as_str());
        result.step_results = Some(all_done(steps));
        let answer = self.answer(request);
        Reply::V10(Box::new(answer.done(result)))
    }

    fn answer(&self, request: &v1::Message) -> v1::Message {
        let (sender, msg_id) = self.ids(request);
        request.answer_to(self.at, sender, msg_id)
    }

    pub(crate) fn of_error(self, request: MessageRef<'_>, error: ErrReply) -> Reply {
        self.of_reply(request, Reply::Err(error.to(request)))
    }

    fn ids(&self, request: &v1::Message) -> (v1::Id, v1::Id) {
        let own = self.sender.or(request.recipient.as_ref());
        let sender = own.cloned().unwrap_or_else(v1::Id::nameless);
        let msg_id = v1::Id::new(self.msg_id.as_str());
        (sender, msg_id.unwrap_or_else(v1::Id::nameless))
    }
}
