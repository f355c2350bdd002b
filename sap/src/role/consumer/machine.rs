//! The machine: what follows each reply.

use core::mem;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};

use super::limits::TimeLimits;
use super::message::{
    Admission, Config, End, Error, Input, Message, Output, Proposed, Record, Reply, Request, Stage,
    Written,
};
use super::results::Results;
use super::work::{Access, ContractFinding, Ended, HandlerError, Outcome, Progress, StopReason};
use crate::alignment::Assessment;
use crate::cache::{self, CacheRecord, Decision, Found, Keys};
use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::role::trace::{debug, trace};
use crate::status::Status;
use crate::task::Task;

/// One task on the consumer's side.
///
/// ```
/// # use std::sync::Arc;
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::{Mono, Now, Timestamp}};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// use sap::role::consumer::{Access, Config, End, Input, Output, ReceivedTask, Reply, Request};
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let config = Config::new(Producer::new("b".parse()?, ProducerKind::Agent));
/// let mut work = ReceivedTask::new(now, Arc::new(task), config);
/// let Some(Output::Request { id, request: Request::Authorize }) = work.poll_output() else { panic!("is it allowed?") };
/// work.handle_input(now, Input::Reply { id, reply: Reply::Access(Access::Forbidden) })?;
/// assert!(matches!(work.poll_output(), Some(Output::Close(End::Nack(nack))) if nack.code == ErrorCode::Forbidden));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A deadline holds to the end of its second; a budget of seconds counts from the first run on the monotonic
/// clock. To use exactly all of a budget is within. While something is recorded or told, time and cancel wait.
#[derive(Debug)]
pub struct ReceivedTask {
    results: Results,
    step: Step,
    limits: TimeLimits,
    /// When to look at the time, as far as the last look showed it.
    wake: Option<Mono>,
    /// When it must be known whether the issuer may have this done; then, whether the task has a place.
    access_end: Mono,
    /// Of the last result that was recorded.
    status: Option<Status>,
    is_cancelled: bool,
    /// When a cancelled handler is dropped.
    grace_end: Option<Mono>,
    /// The open request, beside the handler.
    open: Option<u64>,
    /// The request of the handler.
    run: Option<u64>,
    last_id: u64,
    /// Where a good outcome is kept.
    write: Option<Keys>,
    out: Outbox<Output>,
}

/// What is waited for.
#[derive(Debug)]
enum Step {
    Authorize,
    Enter,
    Record(Recording),
    /// The record of an end in the place of one that failed.
    LastRecord(Arc<Written>),
    Deliver(Told),
    Admit,
    LookUp,
    Recheck(Arc<CacheRecord>, Keys),
    Join,
    /// The handler alone.
    Run,
    Part(Arc<Progress>),
    Check(Arc<Outcome>),
    Judge(Arc<Outcome>),
    Keep(Box<TaskResult>),
    Closed(Stage),
}

#[derive(Debug)]
enum Recording {
    Task,
    Result(Arc<Written>),
}

#[derive(Clone, Copy, Debug)]
enum Told {
    Ack,
    Running,
    Part,
}

impl ReceivedTask {
    /// How long a cancelled handler may take to end by itself.
    pub const CANCEL_GRACE: Duration = Duration::from_millis(100);
    /// Outputs that may wait before no more input is welcome; one input makes at most five.
    const MAX_WAITING: usize = 16;

    /// A task that has just come.
    #[must_use]
    pub fn new(now: Now, task: Arc<Task>, config: Config) -> Self {
        let limits = TimeLimits::of(&task, now, config.default_time);
        let mut received = Self {
            results: Results::new(task, config.producer),
            step: Step::Authorize,
            limits,
            wake: limits.next(now),
            access_end: now.mono.saturating_add(MAX_AUTHORIZE),
            status: None,
            is_cancelled: false,
            grace_end: None,
            open: None,
            run: None,
            last_id: 0,
            write: None,
            out: Outbox::new(Self::MAX_WAITING),
        };
        received.ask(Step::Authorize, Request::Authorize);
        received
    }

    /// Where the task is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match &self.step {
            Step::Authorize | Step::Enter => Stage::Received,
            Step::Record(Recording::Result(written)) if written.result.status.is_terminal() => {
                Stage::Ended(written.result.status.clone())
            }
            Step::LastRecord(_) => Stage::Lost,
            Step::Closed(stage) => stage.clone(),
            _ if self.run.is_some() => Stage::Running,
            _ => Stage::Accepted,
        }
    }

    /// Whether the handler may report, or end.
    #[must_use]
    pub const fn accepts_report(&self) -> bool {
        matches!(self.step, Step::Run)
    }

    /// Takes what happens to the task.
    ///
    /// # Errors
    ///
    /// [`Error`]; nothing has changed, except that a task whose time is over ends first.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Error> {
        trace!(task = %self.results.task.task_id, stage = %self.stage(), "input");
        self.expire(now);
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let outcome = match input {
            Input::Reply { id, reply } => self.reply(now, id, reply),
            Input::Report(progress) => self.report(now, progress),
            Input::Cancel => self.cancel(now),
            Input::Shutdown => {
                self.shut_down(now);
                Ok(())
            }
        };
        if let Err(_error) = &outcome {
            debug!(task = %self.results.task.task_id, error = %_error, "input refused");
        }
        outcome
    }

    /// Ends the task where its time is over.
    pub fn handle_timeout(&mut self, now: Now) {
        trace!(task = %self.results.task.task_id, stage = %self.stage(), "timer");
        // Here and not where an input comes: that may be the place of the task, which somebody would have to give back.
        if matches!(self.step, Step::Enter) && now.mono >= self.access_end {
            self.drop_open();
            let why = "whether the task came before is not known in time; try again later";
            self.turn_away(ErrorCode::RateLimit, why);
        }
        self.expire(now);
        // The calendar may have jumped since the last look.
        self.wake = self.limits.next(now);
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`ReceivedTask::handle_timeout`] is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        if matches!(self.step, Step::Authorize | Step::Enter) {
            return Some(self.access_end);
        }
        if !self.may_end() {
            return None;
        }
        [self.wake, self.grace_end].into_iter().flatten().min()
    }

    /// Whether more input is welcome.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.is_closed() && !self.out.is_full()
    }

    /// Whether the task is done with.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.step, Step::Closed(_))
    }

    /// Whether time and cancel end the task now: it has its place, and nothing is being recorded or told.
    const fn may_end(&self) -> bool {
        !matches!(
            self.step,
            Step::Authorize
                | Step::Enter
                | Step::Record(_)
                | Step::LastRecord(_)
                | Step::Deliver(_)
                | Step::Closed(_)
        )
    }

    /// Ends a task whose time is over, or which was cancelled; true where it did.
    // impl: SAP-5-8
    fn expire(&mut self, now: Now) -> bool {
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

    fn reply(&mut self, now: Now, id: u64, reply: Reply) -> Result<(), Error> {
        if self.run == Some(id) {
            let Reply::Ran(ended) = reply else {
                return Err(Error::OtherReply { id });
            };
            if !self.accepts_report() {
                return Err(Error::NotListening);
            }
            self.run = None;
            self.ran(now, ended);
            return Ok(());
        }
        if self.open != Some(id) {
            return Err(Error::NotOpen { id });
        }
        if !self.step.is_answered_by(&reply) {
            return Err(Error::OtherReply { id });
        }
        self.open = None;
        let step = mem::replace(&mut self.step, Step::Run);
        match (step, reply) {
            (step, Reply::Panicked) => self.panicked(now, &step),
            (Step::Authorize, Reply::Access(access)) => self.allowed(now, access),
            (Step::Enter, Reply::Admission(admission)) => self.entered(now, admission),
            (Step::Record(what), Reply::Recorded) => self.recorded(now, what),
            (Step::Record(what), _) => self.not_recorded(now, &what),
            (Step::LastRecord(written), reply) => self.last_recorded(written, &reply),
            (Step::Deliver(told), _) => self.delivered(now, told),
            (Step::Admit, Reply::Assessed(verdict)) => self.admitted(now, verdict),
            (
                Step::LookUp,
                Reply::Found {
                    keys,
                    record,
                    keeps,
                },
            ) => {
                self.found(now, keys, record, keeps);
            }
            (Step::Recheck(record, keys), Reply::Assessed(verdict)) => {
                self.rechecked(now, &record, keys, verdict);
            }
            (Step::Join, Reply::Lead) => self.start(now),
            // Where the other one came to nothing, those who waited compute anew.
            (Step::Join, _) => self.ask(Step::LookUp, Request::LookUp),
            (Step::Part(part), Reply::Assessed(verdict)) => self.part(now, part, verdict),
            (Step::Check(outcome), Reply::Checked(finding)) => self.checked(now, outcome, finding),
            (Step::Judge(outcome), Reply::Assessed(verdict)) => {
                self.judged(now, outcome, verdict);
            }
            (Step::Keep(result), _) => self.end(now, *result),
            // `is_answered_by` leaves nothing else.
            (step, _) => self.step = step,
        }
        Ok(())
    }

    /// Begins to wait for a request.
    fn ask(&mut self, step: Step, request: Request) {
        let id = self.next_id();
        self.step = step;
        self.open = Some(id);
        self.out.push(Output::Request { id, request });
    }

    const fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    // impl: SAP-11-2
    fn allowed(&mut self, now: Now, access: Access) {
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

    fn entered(&mut self, now: Now, admission: Admission) {
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
    fn turn_away(&mut self, code: ErrorCode, why: &str) {
        let reason = why.parse().expect("no reason here is blank");
        let nack = Nack::of(&self.results.task, code, reason);
        self.close(Stage::Dismissed, End::Nack(nack));
    }

    fn close(&mut self, stage: Stage, end: End) {
        debug!(task = %self.results.task.task_id, %stage, "the task is done with");
        self.out.push(Output::Close(end));
        self.step = Step::Closed(stage);
    }

    fn recorded(&mut self, now: Now, what: Recording) {
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

    fn not_recorded(&mut self, now: Now, what: &Recording) {
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

    fn last_recorded(&mut self, written: Arc<Written>, reply: &Reply) {
        let output = match reply {
            Reply::Recorded => Output::Remember(written),
            _ => Output::Forget,
        };
        self.out.push(output);
        self.close(Stage::Lost, End::Lost);
    }

    /// The task is in the transcript.
    fn begin(&mut self, now: Now) {
        if self.results.task.expects_ack() {
            let ack = Message::Ack(Ack::from(&*self.results.task));
            return self.ask(Step::Deliver(Told::Ack), Request::Deliver(ack));
        }
        self.delivered(now, Told::Ack);
    }

    fn delivered(&mut self, now: Now, told: Told) {
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

    fn admitted(&mut self, now: Now, verdict: Assessment) {
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

    // impl: SAP-6-3, SAP-6-5, SAP-6-6
    fn found(
        &mut self,
        now: Now,
        keys: Option<Keys>,
        record: Option<Arc<CacheRecord>>,
        keeps: bool,
    ) {
        self.write = keys.filter(|_| keeps);
        let found = match (&keys, &record) {
            (None, _) => Found::NoKey,
            (_, None) => Found::Nothing,
            (_, Some(record)) => Found::Record(record),
        };
        let mut rechecks = false;
        let decision = self.decide(now, found, |_| {
            rechecks = true;
            Alignment::Valid
        });
        match (record, keys) {
            (Some(record), Some(keys)) if rechecks => {
                let proposed = Proposed::Record(Arc::clone(&record));
                self.ask(Step::Recheck(record, keys), Request::Assess(proposed));
            }
            (record, keys) => self.decided(now, decision, record.as_deref().zip(keys), None),
        }
    }

    fn rechecked(&mut self, now: Now, record: &CacheRecord, keys: Keys, verdict: Assessment) {
        let alignment = verdict.alignment.clone();
        let decision = self.decide(now, Found::Record(record), |_| alignment);
        self.decided(now, decision, Some((record, keys)), Some(verdict));
    }

    fn decide(
        &self,
        now: Now,
        found: Found<'_>,
        recheck: impl FnOnce(&CacheRecord) -> Alignment,
    ) -> Decision {
        let policy = &self.results.task.constitutional_context.cache_policy;
        cache::decide(policy.as_ref(), found, now.wall, recheck)
    }

    fn decided(
        &mut self,
        now: Now,
        decision: Decision,
        found: Option<(&CacheRecord, Keys)>,
        rechecked: Option<Assessment>,
    ) {
        self.results.missed();
        match (decision, found) {
            (Decision::Hit { age_sec }, Some((record, keys))) => {
                let result = self.results.hit(now, record, &keys, age_sec, rechecked);
                self.end(now, result);
            }
            (Decision::Refuse { why }, _) => {
                let code = ErrorCode::CacheMiss;
                let result = self.results.failed(now, code, &why.to_string());
                self.end(now, result);
            }
            (Decision::Compute { write, .. }, _) => {
                self.write = self.write.filter(|_| write);
                self.join(now);
            }
            (Decision::Hit { .. }, None) => self.start(now),
        }
    }

    /// Joins those that compute the same outcome at the same time, where one's outcome would answer the other.
    // impl: SAP-6-11
    fn join(&mut self, now: Now) {
        let policy = &self.results.task.constitutional_context.cache_policy;
        let max_age = policy
            .as_ref()
            .and_then(|policy| policy.max_age_sec.as_ref());
        // No record is young enough, so another one's outcome would not answer.
        let never = max_age.is_some_and(|max| max.value() == 0);
        match self.write.filter(|_| !never) {
            Some(keys) => self.ask(Step::Join, Request::Join(keys.key)),
            None => self.start(now),
        }
    }

    /// Says that the handler begins.
    fn start(&mut self, now: Now) {
        let running = self.results.interim(now, Status::Running);
        self.record(now, running);
    }

    /// Records a result as of now. One that is not valid is recorded as the end that says so.
    // impl: SAP-10-1, SAP-5-1
    fn record(&mut self, now: Now, mut result: TaskResult) {
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
    fn end(&mut self, now: Now, result: TaskResult) {
        self.drop_open();
        self.record(now, result);
    }

    fn drop_open(&mut self) {
        if let Some(id) = self.open.take() {
            self.out.push(Output::Cancel(id));
        }
    }

    fn drop_run(&mut self) {
        if let Some(id) = self.run.take() {
            self.out.push(Output::Cancel(id));
        }
    }

    fn report(&mut self, now: Now, progress: Progress) -> Result<(), Error> {
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
    fn part(&mut self, now: Now, part: Arc<Progress>, verdict: Assessment) {
        let result = self
            .results
            .progress(now, Arc::unwrap_or_clone(part), verdict);
        self.record(now, result);
    }

    fn ran(&mut self, now: Now, ended: Ended) {
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

    fn checked(&mut self, now: Now, outcome: Arc<Outcome>, finding: ContractFinding) {
        if let ContractFinding::Broken(pointers) = finding {
            let why = format!("the output breaks its contract at {}", pointers.join(", "));
            let result = self.results.failed(now, ErrorCode::Unprocessable, &why);
            return self.end(now, result);
        }
        let proposed = Proposed::Outcome(Arc::clone(&outcome));
        self.ask(Step::Judge(outcome), Request::Assess(proposed));
    }

    fn judged(&mut self, now: Now, outcome: Arc<Outcome>, verdict: Assessment) {
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

    // impl: SAP-5-2
    fn panicked(&mut self, now: Now, step: &Step) {
        if matches!(step, Step::Authorize | Step::Enter) {
            let why = "whether the issuer may have this done is not known";
            return self.turn_away(ErrorCode::Internal, why);
        }
        let why = "the processor was stopped by a panic";
        let result = self.results.failed(now, ErrorCode::Internal, why);
        self.end(now, result);
    }

    fn cancel(&mut self, now: Now) -> Result<(), Error> {
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

    fn shut_down(&mut self, now: Now) {
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

impl Step {
    /// Whether a reply is one to what is waited for.
    const fn is_answered_by(&self, reply: &Reply) -> bool {
        match self {
            Self::Authorize => matches!(reply, Reply::Access(_) | Reply::Panicked),
            Self::Enter => matches!(reply, Reply::Admission(_) | Reply::Panicked),
            Self::Record(_) | Self::LastRecord(_) => {
                matches!(reply, Reply::Recorded | Reply::NotRecorded)
            }
            Self::Deliver(_) => matches!(reply, Reply::Delivered),
            Self::Admit | Self::Recheck(..) | Self::Part(_) | Self::Judge(_) => {
                matches!(reply, Reply::Assessed(_) | Reply::Panicked)
            }
            Self::LookUp => matches!(reply, Reply::Found { .. } | Reply::Panicked),
            Self::Join => matches!(reply, Reply::Lead | Reply::Followed),
            Self::Check(_) => matches!(reply, Reply::Checked(_) | Reply::Panicked),
            Self::Keep(_) => matches!(reply, Reply::Kept | Reply::Panicked),
            Self::Run | Self::Closed(_) => false,
        }
    }
}

/// How long it may take to know whether the issuer may have a task done.
const MAX_AUTHORIZE: Duration = Duration::from_secs(30);
/// How long it may take then to know whether the task has a place.
const MAX_ENTER: Duration = Duration::from_secs(30);

ubos_common::forward_machine! { [] ReceivedTask: Input => Output, Error }
