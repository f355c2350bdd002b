//! Tasks on the producer's side: each sent, acknowledged or turned away, and its results.

mod config;
mod message;

pub use config::Config;
pub use message::{Error, Input, Output, Stage, Waiting};

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use ubos_common::canon::Digest;
use ubos_common::machine::{Outbox, Timers};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

use super::trace::{debug, trace};
use super::{end_of, until};
use crate::ConfigError;
use crate::error::ErrorCode;
use crate::ident::{CorrelationId, TaskId};
use crate::lifecycle::{Accepted, Lifecycle, digest_of};
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;

/// The tasks of a producer: dispatch, ack, nack, results, waiting too long.
///
/// A lost, late or doubled Ack changes nothing: results find their task by their ids, also among tasks of one
/// correlation id.
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::{Mono, Now, Timestamp}};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// use sap::role::producer::{Config, Input, SentTasks, Output};
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let mut tasks = SentTasks::new(Config::default())?;
/// tasks.handle_input(now, Input::Dispatch(&task))?;
/// assert_eq!(tasks.poll_output(), Some(Output::Transmit(task.task_id)));
/// tasks.handle_input(now, Input::Result(&result))?; // its Ack was lost
/// tasks.handle_input(now, Input::Ack(&Ack::from(&task)))?; // and comes late
/// assert_eq!(tasks.poll_output(), Some(Output::Result(Box::new(result))));
/// assert_eq!(tasks.poll_output(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SentTasks {
    config: Config,
    tasks: BTreeMap<TaskId, SentTask>,
    ended: VecDeque<TaskId>,
    timers: Timers<(TaskId, Timer)>,
    out: Outbox<Output>,
}

#[derive(Clone, Debug)]
struct SentTask {
    stage: Stage,
    correlation_id: CorrelationId,
    expects_ack: bool,
    deadline: Option<Timestamp>,
    resends: u32,
    /// Whether it was sent more than once.
    is_copied: bool,
    lifecycle: Lifecycle,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Silence,
    Deadline,
    /// Its deadline is over, and its end may still come.
    End,
}

impl SentTasks {
    /// Outputs that may wait before no more input is welcome.
    pub(crate) const MAX_WAITING: usize = 1_024;

    /// A producer without tasks.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        ConfigError::require(
            config.max_open > 0,
            "max_open",
            config.max_open,
            "a producer needs room for at least 1 task",
        )?;
        Ok(Self::of(config))
    }

    fn of(config: Config) -> Self {
        Self {
            config,
            tasks: BTreeMap::new(),
            ended: VecDeque::new(),
            timers: Timers::new(),
            out: Outbox::new(Self::MAX_WAITING),
        }
    }

    /// A producer of one task.
    #[cfg(feature = "driver")]
    pub(crate) fn of_one(config: Config) -> Self {
        Self::of(config.with_max_open(1))
    }

    /// Where a task is; `None` where it is not known.
    #[must_use]
    pub fn stage(&self, task_id: &TaskId) -> Option<&Stage> {
        self.tasks.get(task_id).map(|entry| &entry.stage)
    }

    /// Tasks that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.tasks.len() - self.ended.len()
    }

    /// Whether a task is sent again by itself once nothing came in time.
    #[cfg(feature = "driver")]
    pub(crate) fn may_resend(&self, task_id: &TaskId) -> bool {
        let task = self.tasks.get(task_id);
        task.is_some_and(|task| task.resends > 0 && task.waits_for().is_some())
    }

    /// Adds a task that is not sent yet. Sending it adds it too.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub fn draft(&mut self, task: &Task) -> Result<(), Error> {
        if self.tasks.contains_key(&task.task_id) {
            return Ok(());
        }
        if self.open() >= self.config.max_open {
            let limit = self.config.max_open;
            return Err(Error::Full { limit });
        }
        let entry = SentTask {
            stage: Stage::Drafted,
            correlation_id: task.correlation_id,
            expects_ack: task.expects_ack(),
            deadline: task.deadline(),
            resends: self.config.resends,
            is_copied: false,
            lifecycle: Lifecycle::new(task, Profile::Strict),
        };
        self.tasks.insert(task.task_id, entry);
        Ok(())
    }

    /// Takes a receipt or a result, or a task that is to be sent.
    ///
    /// # Errors
    ///
    /// [`Error`]; nothing has changed, and the other tasks go on.
    pub fn handle_input(&mut self, now: Now, input: Input<'_>) -> Result<(), Error> {
        let outcome = match input {
            Input::Dispatch(task) => {
                trace!(task = %task.task_id, "input: dispatch");
                self.dispatch(now, task)
            }
            Input::Ack(ack) => {
                trace!(task = %ack.message_id, "input: ack");
                self.ack(now, ack)
            }
            Input::Nack(nack) => {
                trace!(has_task = nack.message_id.is_some(), "input: nack");
                self.nack(now, nack)
            }
            Input::Result(result) => {
                trace!(task = %result.task_id, status = %result.status, "input: result");
                self.result(now, result, digest_of)
            }
        };
        if let Err(_error) = &outcome {
            debug!(error = %_error, "input refused");
        }
        outcome
    }

    /// Takes a result whose digest was made before, where that holds up nobody.
    #[cfg(feature = "driver")]
    pub(crate) fn take_digested(
        &mut self,
        now: Now,
        result: &TaskResult,
        digest: Option<Digest>,
    ) -> Result<(), Error> {
        trace!(task = %result.task_id, status = %result.status, "input: result");
        self.result(now, result, |result| {
            digest.unwrap_or_else(|| digest_of(result))
        })
    }

    /// Sends tasks again that have waited for too long, or reports them.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some((task_id, timer)) = self.timers.pop_due(now.mono) {
            trace!(task = %task_id, ?timer, "timer");
            match timer {
                Timer::Silence => self.is_silent(now, task_id),
                Timer::Deadline => self.wait_for_end(now, task_id),
                Timer::End => {
                    debug!(task = %task_id, "no end after the deadline");
                    self.out.push(Output::Overdue(task_id, Waiting::End));
                }
            }
        }
    }

    fn is_silent(&mut self, now: Now, task_id: TaskId) {
        let Some(task) = self.tasks.get_mut(&task_id) else {
            return;
        };
        let Some(waiting) = task.waits_for() else {
            return;
        };
        let Some(left) = task.resends.checked_sub(1) else {
            debug!(task = %task_id, ?waiting, "nothing came in time");
            return self.out.push(Output::Overdue(task_id, waiting));
        };
        task.resends = left;
        task.is_copied = true;
        self.out.push(Output::Transmit(task_id));
        self.wait(now, task_id);
    }

    /// Waits for the deadline of a task by the calendar, and then as long as its end may take.
    // impl: SAP-5-8
    fn wait_for_end(&mut self, now: Now, task_id: TaskId) {
        let Some(task) = self.tasks.get(&task_id) else {
            return;
        };
        for timer in [Timer::Deadline, Timer::End] {
            self.timers.clear(&(task_id, timer));
        }
        let patience = self.config.deadline_patience;
        let (timer, at) = match task.deadline {
            _ if patience == Duration::MAX => return,
            Some(deadline) if now.wall < end_of(deadline) => {
                (Timer::Deadline, until(deadline, now))
            }
            Some(_) => (Timer::End, now.mono.saturating_add(patience)),
            None if self.config.default_time == Duration::MAX => return,
            None => {
                let left = self.config.default_time.saturating_add(patience);
                (Timer::End, now.mono.saturating_add(left))
            }
        };
        self.timers.set((task_id, timer), at);
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`SentTasks::handle_timeout`] is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// Whether more input is welcome.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    /// Never: a new task may always come.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        false
    }

    fn dispatch(&mut self, now: Now, task: &Task) -> Result<(), Error> {
        self.draft(task)?;
        let entry = self.entry(task.task_id)?;
        match &entry.stage {
            Stage::Drafted => entry.stage = Stage::Sent,
            // Sent again: it is the same task, and its consumer knows that.
            Stage::Sent | Stage::Accepted | Stage::InProgress(_) => entry.is_copied = true,
            from @ (Stage::Ended(_) | Stage::Refused(_)) => {
                return Err(Error::Illegal {
                    from: from.clone(),
                    to: Stage::Sent,
                });
            }
        }
        self.out.push(Output::Transmit(task.task_id));
        self.wait(now, task.task_id);
        self.wait_for_end(now, task.task_id);
        Ok(())
    }

    // impl: SAP-4.3-3
    fn ack(&mut self, now: Now, ack: &Ack) -> Result<(), Error> {
        let entry = self.entry(ack.message_id)?;
        entry.belongs(ack.correlation_id)?;
        match &entry.stage {
            Stage::Sent => entry.stage = Stage::Accepted,
            // Late or doubled.
            Stage::Accepted | Stage::InProgress(_) | Stage::Ended(_) => return Ok(()),
            from @ (Stage::Drafted | Stage::Refused(_)) => {
                return Err(Error::Illegal {
                    from: from.clone(),
                    to: Stage::Accepted,
                });
            }
        }
        self.out.push(Output::Accepted(ack.message_id));
        self.wait(now, ack.message_id);
        Ok(())
    }

    fn nack(&mut self, now: Now, nack: &Nack) -> Result<(), Error> {
        let task_id = match nack.message_id {
            Some(task_id) => task_id,
            None => self.only_sent().ok_or(Error::Nameless)?,
        };
        let entry = self.entry(task_id)?;
        if let Some(seen) = nack.correlation_id {
            entry.belongs(seen)?;
        }
        match &entry.stage {
            // There was no room for a copy. An earlier one may be at work, and that goes on.
            Stage::Sent | Stage::Accepted | Stage::InProgress(_)
                if entry.is_copied && nack.code == ErrorCode::RateLimit =>
            {
                return Ok(());
            }
            Stage::Sent => entry.stage = Stage::Refused(nack.code.clone()),
            Stage::Refused(code) if *code == nack.code => return Ok(()),
            from => {
                return Err(Error::Illegal {
                    from: from.clone(),
                    to: Stage::Refused(nack.code.clone()),
                });
            }
        }
        self.out.push(Output::Refused(task_id, nack.code.clone()));
        self.end(now, task_id);
        Ok(())
    }

    /// The one task that a Nack without ids can only mean.
    fn only_sent(&self) -> Option<TaskId> {
        let sent = self.tasks.iter();
        let mut sent = sent.filter(|(_, entry)| entry.stage == Stage::Sent);
        let only = sent.next()?.0;
        sent.next().is_none().then_some(*only)
    }

    fn result(
        &mut self,
        now: Now,
        result: &TaskResult,
        digest: impl FnOnce(&TaskResult) -> Digest,
    ) -> Result<(), Error> {
        let task_id = result.task_id;
        let entry = self.entry(task_id)?;
        if let from @ (Stage::Drafted | Stage::Refused(_)) = &entry.stage {
            return Err(Error::Illegal {
                from: from.clone(),
                to: stage_of(&result.status),
            });
        }
        let was_open = !entry.lifecycle.is_closed();
        if entry.lifecycle.accept_digested(result, digest)? == Accepted::Repeat {
            return Ok(());
        }
        if was_open {
            entry.stage = stage_of(&result.status);
        }
        let has_ended = was_open && entry.lifecycle.is_closed();
        self.out.push(Output::Result(Box::new(result.clone())));
        if has_ended {
            self.end(now, task_id);
        } else {
            self.wait(now, task_id);
        }
        Ok(())
    }

    fn entry(&mut self, task_id: TaskId) -> Result<&mut SentTask, Error> {
        let entry = self.tasks.get_mut(&task_id);
        entry.ok_or(Error::Unknown { task_id })
    }

    /// Begins to wait for what comes next.
    fn wait(&mut self, now: Now, task_id: TaskId) {
        let Some(entry) = self.tasks.get_mut(&task_id) else {
            return;
        };
        let patience = match entry.waits_for() {
            None => {
                for timer in [Timer::Silence, Timer::Deadline, Timer::End] {
                    self.timers.clear(&(task_id, timer));
                }
                return;
            }
            Some(Waiting::Receipt) => self.config.receipt_patience,
            Some(_) => self.config.result_patience,
        };
        if patience != Duration::MAX {
            let at = now.mono.saturating_add(patience);
            self.timers.set((task_id, Timer::Silence), at);
        }
    }

    fn end(&mut self, now: Now, task_id: TaskId) {
        debug!(task = %task_id, open = self.open(), "the task has ended");
        self.wait(now, task_id);
        self.ended.push_back(task_id);
        if self.ended.len() > self.config.max_ended
            && let Some(oldest) = self.ended.pop_front()
        {
            self.tasks.remove(&oldest);
        }
    }
}

impl SentTask {
    fn belongs(&self, seen: CorrelationId) -> Result<(), Error> {
        let wanted = self.correlation_id;
        if seen == wanted {
            Ok(())
        } else {
            Err(Error::Correlation { wanted, seen })
        }
    }

    const fn waits_for(&self) -> Option<Waiting> {
        match self.stage {
            Stage::Sent if self.expects_ack => Some(Waiting::Receipt),
            Stage::Sent | Stage::Accepted | Stage::InProgress(_) => Some(Waiting::Result),
            Stage::Drafted | Stage::Ended(_) | Stage::Refused(_) => None,
        }
    }
}

fn stage_of(status: &Status) -> Stage {
    if status.is_terminal() {
        Stage::Ended(status.clone())
    } else {
        Stage::InProgress(status.clone())
    }
}

ubos_common::forward_machine! { [] SentTasks: Input<'a> => Output, Error }
