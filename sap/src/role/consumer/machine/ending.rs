//! What is recorded and told, and how a task ends.

use std::sync::Arc;

use ubos_common::time::Now;

use super::super::message::{
    End, Error, Message, Output, Proposed, Record, Reply, Request, Stage, Written,
};
use super::super::work::StopReason;
use super::{ReceivedTask, Recording, Step, Told};
use crate::error::ErrorCode;
use crate::result::TaskResult;
use crate::role::trace::debug;
use crate::status::Status;

impl ReceivedTask {
    /// Ends a task whose time is over, or which was cancelled; true where it did.
    // impl: SAP-5-8
    pub(super) fn expire(&mut self, now: Now) -> bool {
        if matches!(self.step, Step::Authorize) && now.mono >= self.access_end {
            self.drop_open();
            let why = "whether the issuer may have this done is not known in time; try again later";
            self.turn_away(ErrorCode::RateLimit, why);
            return true;
        }
        if !self.may_end() {
            return false;
        }
        let is_patient = self.grace_end.is_some_and(|end| now.mono < end);
        if self.is_cancelled && !is_patient {
            let result = self.results.interim(now, Status::Cancelled);
            self.end(now, result);
            return true;
        }
        let Some(why) = self.limits.over(now) else {
            return false;
        };
        if self.run.is_some() {
            self.out.push(Output::Stop(StopReason::TimedOut));
        }
        let result = self.results.failed(now, ErrorCode::Timeout, why);
        self.end(now, result);
        true
    }

    pub(super) fn close(&mut self, stage: Stage, end: End) {
        debug!(task = %self.results.task.task_id, %stage, "the task is done with");
        self.out.push(Output::Close(end));
        self.step = Step::Closed(stage);
    }

    pub(super) fn recorded(&mut self, now: Now, what: Recording) {
        match what {
            Recording::Task => self.begin(now),
            Recording::Result(written) => {
                let status = written.result.status.clone();
                self.out.push(Output::Remember(Arc::clone(&written)));
                if status.is_terminal() {
                    return self.close(Stage::Ended(status), End::Answer(written));
                }
                self.status = Some(status);
                let told = if self.run.is_some() {
                    Told::Part
                } else {
                    Told::Running
                };
                let message = Message::Result(written);
                self.ask(Step::Deliver(told), Request::Deliver(message));
            }
        }
    }

    pub(super) fn not_recorded(&mut self, now: Now, what: &Recording) {
        match what {
            // What is not in the transcript was never here, and has no end there either.
            Recording::Task => {
                self.out.push(Output::Forget);
                self.close(Stage::Lost, End::Lost);
            }
            Recording::Result(_) => {
                self.drop_run();
                self.give_up(now);
            }
        }
    }

    /// Records that nobody goes on with the task, or that its time is over.
    fn give_up(&mut self, now: Now) {
        let given_up = "processing was given up before its end";
        let (code, why) = match self.limits.over(now) {
            Some(over) => (ErrorCode::Timeout, over),
            None => (ErrorCode::Internal, given_up),
        };
        let result = self.results.failed(now, code, why);
        let written = Arc::new(self.results.written(now, result));
        let record = Record::Result(Arc::clone(&written));
        self.ask(Step::LastRecord(written), Request::Record(record));
    }

    pub(super) fn last_recorded(&mut self, written: Arc<Written>, reply: &Reply) {
        let output = match reply {
            Reply::Recorded => Output::Remember(written),
            _ => Output::Forget,
        };
        self.out.push(output);
        self.close(Stage::Lost, End::Lost);
    }

    pub(super) fn delivered(&mut self, now: Now, told: Told) {
        self.step = Step::Run;
        if self.expire(now) {
            return;
        }
        match told {
            Told::Ack => self.ask(Step::Admit, Request::Assess(Proposed::Nothing)),
            Told::Running => {
                self.limits = self.limits.beginning(now);
                self.wake = self.limits.next(now);
                let id = self.next_id();
                self.run = Some(id);
                let request = Request::Run;
                self.out.push(Output::Request { id, request });
            }
            Told::Part => {}
        }
    }

    /// Records a result as of now. One that is not valid is recorded as the end that says so.
    // impl: SAP-10-1, SAP-5-1
    pub(super) fn record(&mut self, now: Now, mut result: TaskResult) {
        result.reported_at = now.wall.into();
        let written = Arc::new(self.results.written(now, result));
        if written.result.status.is_terminal() {
            self.drop_run();
        }
        let record = Record::Result(Arc::clone(&written));
        self.ask(
            Step::Record(Recording::Result(written)),
            Request::Record(record),
        );
    }

    /// Ends the task with a last result.
    // impl: SAP-5-2
    pub(super) fn end(&mut self, now: Now, result: TaskResult) {
        self.drop_open();
        self.record(now, result);
    }

    pub(super) fn drop_open(&mut self) {
        if let Some(id) = self.open.take() {
            self.out.push(Output::Cancel(id));
        }
    }

    fn drop_run(&mut self) {
        if let Some(id) = self.run.take() {
            self.out.push(Output::Cancel(id));
        }
    }

    // impl: SAP-5-2
    pub(super) fn panicked(&mut self, now: Now, step: &Step) {
        if matches!(step, Step::Authorize | Step::Enter) {
            let why = "whether the issuer may have this done is not known";
            return self.turn_away(ErrorCode::Internal, why);
        }
        let why = "the processor was stopped by a panic";
        let result = self.results.failed(now, ErrorCode::Internal, why);
        self.end(now, result);
    }

    pub(super) fn cancel(&mut self, now: Now) -> Result<(), Error> {
        let stage = self.stage();
        if !matches!(stage, Stage::Accepted | Stage::Running) {
            return Err(Error::NotOpenToCancel { stage });
        }
        if !self.is_cancelled {
            self.is_cancelled = true;
            if self.run.is_some() {
                self.out.push(Output::Stop(StopReason::Cancelled));
                self.grace_end = Some(now.mono.saturating_add(Self::CANCEL_GRACE));
            }
            self.expire(now);
        }
        Ok(())
    }

    pub(super) fn shut_down(&mut self, now: Now) {
        match &self.step {
            Step::Authorize | Step::Enter => self.close(Stage::Dismissed, End::Lost),
            // What was handed to the transcript is the end.
            Step::Record(Recording::Result(written)) if written.result.status.is_terminal() => {
                let written = Arc::clone(written);
                self.last_recorded(written, &Reply::Recorded);
            }
            Step::LastRecord(written) => {
                let written = Arc::clone(written);
                self.last_recorded(written, &Reply::Recorded);
            }
            _ => {
                self.open = None;
                self.drop_run();
                self.give_up(now);
            }
        }
    }
}
