//! One task on the consumer's side.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now, Timestamp};

use super::trace::{debug, trace};
use crate::error::ErrorCode;
#[cfg(feature = "tracing")]
use crate::ident::TaskId;
use crate::status::Status;
use crate::task::Task;

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// It is here, and nothing is decided.
    Received,
    /// It was taken: QUEUED.
    Accepted,
    /// Its handler is at work: RUNNING.
    Running,
    /// A part of it is done: PARTIAL.
    Partial,
    /// Its last result is due or gone.
    Ended(Status),
    /// It was turned away before it was taken.
    Refused,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received => f.pad("received"),
            Self::Accepted => f.pad("accepted"),
            Self::Running => f.pad("running"),
            Self::Partial => f.pad("partial"),
            Self::Ended(status) => write!(f, "ended as {status}"),
            Self::Refused => f.pad("refused"),
        }
    }
}

/// What happens to a task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// It is valid, allowed and routable.
    Accept,
    /// It is not.
    Refuse(ErrorCode),
    /// Its handler begins, or says that it is still at work.
    Run,
    /// A part is done.
    Part,
    /// It is done, with a terminal status.
    Finish(Status),
    /// Somebody asks to stop it.
    Cancel,
    /// The handler used up so much of a budget.
    Spend {
        /// The budget's name, such as `tokens`.
        budget: String,
        /// How much more; a negative amount counts as none.
        amount: f64,
    },
}

/// What is to be done about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// An Ack goes out.
    Ack,
    /// A Nack with this code goes out.
    Nack(ErrorCode),
    /// A result of this status goes out, with an error of this code where it is the machine that ends the task.
    Report(Status, Option<ErrorCode>),
    /// The handler is to stop; what it still brings is refused.
    Stop,
}

/// Why something is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// That may not follow.
    #[error("{to} may not follow {from}")]
    Illegal {
        /// Where the task is.
        from: Stage,
        /// Where it should have gone.
        to: Stage,
    },
    /// A task ends with a terminal status, and no other.
    #[error("{status} does not end a task")]
    NotTerminal {
        /// The status.
        status: Status,
    },
}

/// One task on the consumer's side: accept, run, partial, finish, cancel, deadline, budget.
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::{Mono, Now, Timestamp}};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// use sap::role::consumer::{Input, Output, ReceivedTask};
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let mut work = ReceivedTask::new(&task);
/// work.handle_input(now, Input::Accept)?;
/// work.handle_input(now, Input::Run)?;
/// work.handle_input(now, Input::Finish(Status::Succeeded))?;
/// let late = work.handle_input(now, Input::Part).unwrap_err();
/// assert_eq!(late.to_string(), "partial may not follow ended as SUCCEEDED");
/// assert_eq!(work.poll_output(), Some(Output::Ack));
/// assert_eq!(work.poll_output(), Some(Output::Report(Status::Running, None)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A deadline holds to the end of its second; a budget of seconds counts from the first run on the monotonic
/// clock. To use exactly all of a budget is within.
#[derive(Clone, Debug)]
pub struct ReceivedTask {
    /// For the records of the feature `tracing`.
    #[cfg(feature = "tracing")]
    task_id: TaskId,
    stage: Stage,
    expects_ack: bool,
    deadline: Option<Timestamp>,
    seconds: Option<Duration>,
    budgets: BTreeMap<String, (f64, f64)>,
    started: Option<Mono>,
    /// When the deadline is over on the monotonic clock, as far as is known.
    deadline_at: Option<Mono>,
    out: Outbox<Output>,
}

impl ReceivedTask {
    /// Outputs that may wait before no more input is welcome.
    pub(crate) const MAX_WAITING: usize = 16;

    /// A task that has just come.
    #[must_use]
    pub fn new(task: &Task) -> Self {
        let budget = task.budget();
        let tokens = budget.and_then(|budget| budget.tokens.as_ref());
        let tokens = tokens.map(|amount| ("tokens".to_owned(), (0.0, amount.value())));
        let others = budget.into_iter().flat_map(|budget| budget.extra.iter());
        let others = others.filter_map(|(name, limit)| {
            let limit: f64 = limit.deserialize().ok()?;
            Some((name.to_owned(), (0.0, limit)))
        });
        let seconds = budget.and_then(|budget| budget.seconds.as_ref());
        let seconds = seconds.map(crate::number::Amount::value);
        Self {
            #[cfg(feature = "tracing")]
            task_id: task.task_id,
            stage: Stage::Received,
            expects_ack: task.expects_ack(),
            deadline: task.deadline(),
            // More than the clock can count is no bound.
            seconds: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            budgets: tokens.into_iter().chain(others).collect(),
            started: None,
            deadline_at: None,
            out: Outbox::new(Self::MAX_WAITING),
        }
    }

    /// Where the task is.
    #[must_use]
    pub const fn stage(&self) -> &Stage {
        &self.stage
    }

    fn end(&mut self, status: Status, code: Option<ErrorCode>) {
        debug!(task = %self.task_id, stage = %self.stage, %status, "the machine ends the task");
        if self.stage != Stage::Accepted {
            self.out.push(Output::Stop);
        }
        self.out.push(Output::Report(status.clone(), code));
        self.stage = Stage::Ended(status);
    }

    /// Ends the task where its time is over.
    // impl: SAP-5-8
    fn expire(&mut self, now: Now) {
        if !self.stage.is_open() {
            return;
        }
        let late = self
            .deadline
            .is_some_and(|deadline| now.wall.truncated_to_second() > deadline);
        let used = self
            .started
            .map(|started| now.mono.saturating_since(started));
        let over = used
            .zip(self.seconds)
            .is_some_and(|(used, bound)| used > bound);
        if late || over {
            self.end(Status::Failed, Some(ErrorCode::Timeout));
        }
        // The calendar may have jumped since the last look.
        self.deadline_at = self.deadline.map(|deadline| {
            // Times on the wire are whole seconds: all of the deadline's second is in time.
            let over = deadline.saturating_add(Duration::from_secs(1));
            let left = over.saturating_since(now.wall);
            now.mono.saturating_add(left)
        });
    }

    fn spend(&mut self, budget: &str, amount: f64) {
        let Some((used, limit)) = self.budgets.get_mut(budget) else {
            return;
        };
        *used += amount.max(0.0);
        if *used > *limit {
            self.end(Status::Failed, Some(ErrorCode::RateLimit));
        }
    }
}

impl Stage {
    /// Whether the task was taken and has not ended.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Accepted | Self::Running | Self::Partial)
    }

    /// Where an input leads from here, whether or not it may.
    fn wanted(&self, input: &Input) -> Self {
        match input {
            Input::Accept => Self::Accepted,
            Input::Refuse(_) => Self::Refused,
            Input::Run => Self::Running,
            Input::Part => Self::Partial,
            Input::Finish(status) => Self::Ended(status.clone()),
            Input::Cancel => Self::Ended(Status::Cancelled),
            Input::Spend { .. } => match self {
                open if open.is_open() => open.clone(),
                _ => Self::Running,
            },
        }
    }

    /// Whether an input may come here.
    const fn takes(&self, input: &Input) -> bool {
        match self {
            Self::Received => matches!(input, Input::Accept | Input::Refuse(_)),
            Self::Accepted | Self::Running | Self::Partial => {
                !matches!(input, Input::Accept | Input::Refuse(_))
            }
            Self::Ended(_) | Self::Refused => false,
        }
    }
}

impl ReceivedTask {
    /// Takes what happens to the task.
    ///
    /// # Errors
    ///
    /// [`Error`]; nothing has changed, except that a task whose time is over ends first.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Error> {
        self.expire(now);
        if let Input::Finish(status) = &input
            && !status.is_terminal()
        {
            let status = status.clone();
            return Err(Error::NotTerminal { status });
        }
        let to = self.stage.wanted(&input);
        trace!(task = %self.task_id, stage = %self.stage, wanted = %to, "input");
        if !self.stage.takes(&input) {
            let from = self.stage.clone();
            debug!(task = %self.task_id, %from, %to, "input refused");
            return Err(Error::Illegal { from, to });
        }
        match input {
            Input::Accept => {
                if self.expects_ack {
                    self.out.push(Output::Ack);
                }
                self.stage = to;
                self.expire(now);
            }
            Input::Refuse(code) => {
                self.out.push(Output::Nack(code));
                self.stage = to;
            }
            Input::Run => {
                self.started.get_or_insert(now.mono);
                self.out.push(Output::Report(Status::Running, None));
                self.stage = to;
            }
            Input::Part => {
                self.out.push(Output::Report(Status::Partial, None));
                self.stage = to;
            }
            // The handler is done by itself.
            Input::Finish(status) => {
                self.out.push(Output::Report(status, None));
                self.stage = to;
            }
            Input::Cancel => self.end(Status::Cancelled, None),
            Input::Spend { budget, amount } => self.spend(&budget, amount),
        }
        Ok(())
    }

    /// Ends the task where its time is over.
    pub fn handle_timeout(&mut self, now: Now) {
        trace!(task = %self.task_id, stage = %self.stage, "timer");
        self.expire(now);
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`ReceivedTask::handle_timeout`] is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        if !self.stage.is_open() {
            return None;
        }
        let budget = self.started.zip(self.seconds).map(|(started, bound)| {
            // To use exactly all of it is within.
            started.saturating_add(bound.saturating_add(Duration::from_nanos(1)))
        });
        [self.deadline_at, budget].into_iter().flatten().min()
    }

    /// Whether more input is welcome.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.is_closed() && !self.out.is_full()
    }

    /// Whether the task has ended or was refused.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Ended(_) | Stage::Refused)
    }
}

impl Machine for ReceivedTask {
    type Input<'a> = Input;
    type Output = Output;
    type Error = Error;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Error> {
        self.handle_input(now, input)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.poll_output()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.poll_timeout()
    }

    fn accepts_input(&self) -> bool {
        self.accepts_input()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}
