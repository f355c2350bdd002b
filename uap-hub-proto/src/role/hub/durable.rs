//! Jobs that survive the process: a job is stored before it is accepted, and its end before it is reported.

use ubos_common::time::Now;

use super::{
    CommandError, Hub, Job, JobEvent, Outcome, Output, Record, Timer, Verdict, init_bytes,
    queue::Stage,
};
use crate::capability::Shape;
use crate::id::JobId;
use crate::trace::debug;

pub(super) const NOT_STORED: &str = "the job could not be stored";

impl Hub {
    /// Answers [`Output::Store`], one answer for each in their order: the record is where it will be found
    /// again, or could not be stored.
    ///
    /// A job that cannot be stored ends [`Failed`](Verdict::Failed). An end that cannot be stored is reported all
    /// the same, with [`store_error`](Outcome::store_error): the caller is here now, and may not be later.
    ///
    /// # Errors
    ///
    /// No record of this job is being stored.
    // impl: HUB-6-1
    pub fn stored(
        &mut self,
        now: Now,
        job: JobId,
        done: Result<(), String>,
    ) -> Result<(), CommandError> {
        let entry = self.queue.get_mut(job).ok_or(CommandError::NotStoring)?;
        entry.unstored = match entry.unstored {
            0 => return Err(CommandError::NotStoring),
            more => more - 1,
        };
        match (&mut entry.stage, done) {
            (Stage::Storing, Ok(())) => {
                self.job_event(now, job, JobEvent::Stored);
                self.queue.set_stage(job, Stage::Waiting);
                match self.phase.is_leaving() {
                    true => self.leave_job(now, job),
                    false => self.begin_waiting(now, job),
                }
            }
            (Stage::Storing, Err(reason)) => {
                let mut outcome = Outcome::new(Verdict::Failed, NOT_STORED);
                outcome.store_error = Some(reason.into());
                self.tell_end(now, job, outcome);
            }
            (Stage::Ending(outcome), done) => {
                if let Err(reason) = done {
                    outcome.store_error = Some(reason.into());
                }
                if entry.unstored == 0 {
                    let outcome = (**outcome).clone();
                    self.tell_end(now, job, outcome);
                }
            }
            (Stage::Waiting | Stage::Session(_), _) => {}
        }
        self.finish(now);
        Ok(())
    }

    /// Takes a stored job that has no end, under its old id; it is not stored again. Bounds do not apply: it
    /// was accepted. A job for one agent waits for any, because the agents of the last process are gone.
    ///
    /// # Errors
    ///
    /// A job with this id waits or runs, or the hub is shutting down.
    // impl: HUB-6-1
    pub fn restore(&mut self, now: Now, id: JobId, mut job: Job) -> Result<(), CommandError> {
        if self.phase.is_leaving() {
            return Err(CommandError::ShuttingDown);
        }
        if self.queue.get(id).is_some() {
            return Err(CommandError::DuplicateJob);
        }
        job.agent = None;
        let bytes = init_bytes(job.skill.name(), &job.payloads);
        let shape = Shape::of(&job.payloads);
        self.queue.add(id, job, shape, bytes, true);
        self.begin_waiting(now, id);
        self.finish(now);
        Ok(())
    }

    /// A job waits, from now on.
    pub(super) fn begin_waiting(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.queue.get(id) else {
            return;
        };
        let limit = entry.job.wait_limit.unwrap_or(self.config.wait_limit);
        let (wait, whole) = (Timer::Wait(id), Timer::Limit(id));
        self.timers.set(wait, now.mono.saturating_add(limit));
        if let Some(limit) = entry.job.time_limit
            && self.timers.get(&whole).is_none()
        {
            self.timers.set(whole, now.mono.saturating_add(limit));
        }
        self.place(now, id);
        self.queue.line_up(id);
    }

    /// Ends a job that has no session. A durable hub stores the end before it reports it.
    pub(super) fn end_job(&mut self, now: Now, job: JobId, outcome: Outcome) {
        self.clear_job_timers(job);
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        debug!(%job, verdict = ?outcome.verdict, attempts = entry.attempts, "job ended");
        if !self.config.durable {
            return self.tell_end(now, job, outcome);
        }
        if matches!(entry.stage, Stage::Ending(_)) {
            return;
        }
        entry.unstored += 1;
        let record = Record::Ended(outcome.clone());
        self.queue.set_stage(job, Stage::Ending(Box::new(outcome)));
        self.queue.drop_payloads(job);
        self.outputs.push(Output::Store { job, record });
    }

    /// Tells the end of a job that has no timer any more.
    pub(super) fn tell_end(&mut self, now: Now, job: JobId, outcome: Outcome) {
        if self.queue.remove(job).is_some() {
            self.job_event(now, job, JobEvent::Ended(outcome));
        }
    }

    pub(super) fn clear_job_timers(&mut self, job: JobId) {
        self.timers.clear(&Timer::Wait(job));
        let entry = self.queue.get(job);
        if entry.is_some_and(|entry| entry.job.time_limit.is_some()) {
            self.timers.clear(&Timer::Limit(job));
        }
        self.retry(job, None);
    }
}
