//! What a handler says, and what becomes of it.

use std::sync::Arc;

use ubos_common::time::Now;

use super::super::message::{Error, Proposed, Request};
use super::super::work::{ContractFinding, Ended, HandlerError, Outcome, Progress};
use super::{ReceivedTask, Step};
use crate::alignment::Assessment;
use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::status::Status;

impl ReceivedTask {
    pub(super) fn report(&mut self, now: Now, progress: Progress) -> Result<(), Error> {
        if !self.accepts_report() {
            return Err(Error::NotListening);
        }
        // A task that is being stopped has nothing more to say.
        if self.is_cancelled {
            return Ok(());
        }
        if progress.output.is_some() {
            let part = Arc::new(progress);
            let proposed = Proposed::Part(Arc::clone(&part));
            self.ask(Step::Part(part), Request::Assess(proposed));
        } else {
            let admission = self.results.admission();
            let result = self.results.progress(now, progress, admission);
            self.record(now, result);
        }
        Ok(())
    }

    /// A part that breaks a principle ends the task.
    pub(super) fn part(&mut self, now: Now, part: Arc<Progress>, verdict: Assessment) {
        let result = self
            .results
            .progress(now, Arc::unwrap_or_clone(part), verdict);
        self.record(now, result);
    }

    pub(super) fn ran(&mut self, now: Now, ended: Ended) {
        let result = match ended {
            _ if self.is_cancelled => self.results.interim(now, Status::Cancelled),
            Ended::Outcome(outcome) => return self.check(now, *outcome),
            Ended::Error(error) => self.results.by_error(now, error),
            Ended::Panicked => {
                let why = "the handler panicked";
                self.results.failed(now, ErrorCode::Internal, why)
            }
            Ended::OverBudget(budget) => {
                let over = HandlerError::over_budget(&budget);
                self.results.by_error(now, over)
            }
        };
        self.end(now, result);
    }

    // impl: SAP-4.2-7
    fn check(&mut self, now: Now, outcome: Outcome) {
        let outcome = Arc::new(outcome);
        if self.results.task.output_contract.is_some() && outcome.output.is_some() {
            let checked = Arc::clone(&outcome);
            self.ask(Step::Check(outcome), Request::Check(checked));
        } else {
            self.checked(now, outcome, ContractFinding::Kept);
        }
    }

    pub(super) fn checked(&mut self, now: Now, outcome: Arc<Outcome>, finding: ContractFinding) {
        if let ContractFinding::Broken(pointers) = finding {
            let why = format!("the output breaks its contract at {}", pointers.join(", "));
            let result = self.results.failed(now, ErrorCode::Unprocessable, &why);
            return self.end(now, result);
        }
        let proposed = Proposed::Outcome(Arc::clone(&outcome));
        self.ask(Step::Judge(outcome), Request::Assess(proposed));
    }

    pub(super) fn judged(&mut self, now: Now, outcome: Arc<Outcome>, verdict: Assessment) {
        let outcome = Arc::unwrap_or_clone(outcome);
        if verdict.alignment != Alignment::Valid {
            let result = self.results.by_verdict(now, verdict, outcome);
            return self.end(now, result);
        }
        let result = self.results.succeeded(now, outcome, verdict);
        let record = self
            .write
            .and_then(|keys| self.results.record(now, &result, keys));
        match record {
            Some(record) => {
                let request = Request::Keep(Arc::new(record));
                self.ask(Step::Keep(Box::new(result)), request);
            }
            None => self.end(now, result),
        }
    }
}
