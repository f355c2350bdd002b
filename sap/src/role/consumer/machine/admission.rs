//! From its arrival to the word that it is taken and good.

use core::time::Duration;

use ubos_common::time::Now;

use super::super::message::{Admission, End, Message, Record, Request, Stage};
use super::super::work::{Access, Outcome};
use super::{ReceivedTask, Recording, Step, Told};
use crate::alignment::Assessment;
use crate::cache;
use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::receipt::{Ack, Nack};

/// How long it may take, once the issuer is allowed to ask, to know whether the task has a place.
const MAX_ENTER: Duration = Duration::from_secs(30);

impl ReceivedTask {
    // impl: SAP-11-2
    pub(super) fn allowed(&mut self, now: Now, access: Access) {
        match access {
            Access::Allowed => {
                self.access_end = now.mono.saturating_add(MAX_ENTER);
                self.ask(Step::Enter, Request::Enter);
            }
            Access::Forbidden => {
                let why = "the issuer may not have this done";
                self.turn_away(ErrorCode::Forbidden, why);
            }
            Access::Unknown => self.turn_away(ErrorCode::Unauthorized, "the issuer is not known"),
            Access::Busy => {
                let why = "whether the issuer may have this done cannot be found out now; try again later";
                self.turn_away(ErrorCode::RateLimit, why);
            }
        }
    }

    pub(super) fn entered(&mut self, now: Now, admission: Admission) {
        match admission {
            Admission::New => {
                self.ask(Step::Record(Recording::Task), Request::Record(Record::Task));
            }
            // impl: SAP-5-8
            Admission::Interrupted { status, ends } => {
                self.status = status;
                self.limits = self.limits.ending(ends);
                self.wake = self.limits.next(now);
                self.begin(now);
            }
            // impl: SAP-5-10
            Admission::Known(Some(latest)) => {
                self.close(Stage::Dismissed, End::Again(latest));
            }
            // A result of its own could come between those of the run.
            Admission::Known(None) => {
                let ack = Ack::from(&*self.results.task);
                self.close(Stage::Dismissed, End::Taken(ack));
            }
            Admission::Other => {
                let why = "another task of this id came before";
                self.turn_away(ErrorCode::InvalidTask, why);
            }
            Admission::NotFound => {
                let nack = Nack::not_here(&self.results.task);
                self.close(Stage::Dismissed, End::Nack(nack));
            }
            Admission::Gone => {
                let why = "the task has ended before, and its result is here no more";
                self.turn_away(ErrorCode::NotFound, why);
            }
            Admission::Full => {
                let why = "too many tasks run at the same time";
                self.turn_away(ErrorCode::RateLimit, why);
            }
            Admission::Unreadable => {
                let why = "the task came before, and what is known of it cannot be read now; try again later";
                self.turn_away(ErrorCode::RateLimit, why);
            }
        }
    }

    #[expect(clippy::expect_used, reason = "every caller gives a text of its own")]
    pub(super) fn turn_away(&mut self, code: ErrorCode, why: &str) {
        let reason = why.parse().expect("no reason here is blank");
        let nack = Nack::of(&self.results.task, code, reason);
        self.close(Stage::Dismissed, End::Nack(nack));
    }

    /// The task is in the transcript.
    pub(super) fn begin(&mut self, now: Now) {
        if self.results.task.expects_ack() {
            let ack = Message::Ack(Ack::from(&*self.results.task));
            return self.ask(Step::Deliver(Told::Ack), Request::Deliver(ack));
        }
        self.delivered(now, Told::Ack);
    }

    pub(super) fn admitted(&mut self, now: Now, verdict: Assessment) {
        let is_aligned = verdict.alignment == Alignment::Valid;
        self.results.admitted = Some(verdict);
        if !is_aligned {
            let verdict = self.results.admission();
            let result = self.results.by_verdict(now, verdict, Outcome::default());
            return self.end(now, result);
        }
        let context = &self.results.task.constitutional_context;
        if cache::is_read(context.cache_policy.as_ref()) {
            self.ask(Step::LookUp, Request::LookUp);
        } else {
            self.start(now);
        }
    }
}
