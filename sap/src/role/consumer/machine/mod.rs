//! The machine: what follows each reply.

mod admission;
mod ending;
mod lookup;
mod run;

use core::mem;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};

use super::limits::TimeLimits;
use super::message::{Config, Error, Input, Output, Reply, Request, Stage, Written};
use super::results::Results;
use super::work::{Outcome, Progress};
use crate::cache::{CacheRecord, Keys};
use crate::error::ErrorCode;
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

ubos_common::forward_machine! { [] ReceivedTask: Input => Output, Error }
