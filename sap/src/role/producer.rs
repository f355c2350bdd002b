//! Tasks on the producer's side: each sent, acknowledged or turned away, and its results.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Profile;

use crate::error::ErrorCode;
use crate::ident::{CorrelationId, TaskId};
use crate::lifecycle::{Accepted, Lifecycle, LifecycleError};
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;

/// Where a task is, as its producer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// It was made, and not sent.
    Drafted,
    /// It was sent, and nothing came back.
    Sent,
    /// An Ack came.
    Accepted,
    /// A result came that is not the last.
    InProgress(Status),
    /// The last result came.
    Ended(Status),
    /// A Nack came.
    Refused(ErrorCode),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drafted => f.pad("drafted"),
            Self::Sent => f.pad("sent"),
            Self::Accepted => f.pad("accepted"),
            Self::InProgress(status) => write!(f, "in progress as {status}"),
            Self::Ended(status) => write!(f, "ended as {status}"),
            Self::Refused(code) => write!(f, "refused as {code}"),
        }
    }
}

/// What happens to a producer's tasks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The task is to be sent, for the first time or again.
    Dispatch(&'a Task),
    /// An Ack came.
    Ack(&'a Ack),
    /// A Nack came.
    Nack(&'a Nack),
    /// A result came.
    Result(&'a TaskResult),
}

/// What is to be done, and what is known now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// This task is to be sent.
    Transmit(TaskId),
    /// The task was taken.
    Accepted(TaskId),
    /// The task was turned away; no result follows.
    Refused(TaskId, ErrorCode),
    /// A result that is new; the last one where its status is terminal.
    Result(Box<TaskResult>),
    /// Nothing came for too long. The task stays where it is: it may be sent again, and what comes late counts.
    Overdue(TaskId, Waiting),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// A receipt.
    Receipt,
    /// A result.
    Result,
}

/// Why something is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// That may not follow.
    #[error("{to} may not follow {from}")]
    Illegal {
        /// Where the task is.
        from: Stage,
        /// Where it should have gone.
        to: Stage,
    },
    /// No task of that id was sent, or it was forgotten since.
    #[error("no task {task_id} is known")]
    Unknown {
        /// The id.
        task_id: TaskId,
    },
    /// A Nack that does not say which task it turns away, and there is more than one that it could be.
    #[error("a Nack without the id of its task")]
    Nameless,
    /// A receipt whose correlation id is not the task's.
    #[error("receipt with correlation id {seen}, wanted {wanted}")]
    Correlation {
        /// The task's id.
        wanted: CorrelationId,
        /// The receipt's.
        seen: CorrelationId,
    },
    /// A result that does not belong to the task, or does not follow.
    #[error(transparent)]
    Lifecycle(#[from] LifecycleError),
    /// There are as many open tasks as there may be.
    #[error("{limit} tasks are open, which is the bound")]
    Full {
        /// The bound.
        limit: usize,
    },
}

/// Settings of [`Orders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// How strictly results are held against those before them. Default strict.
    pub profile: Profile,
    /// Tasks that are open at the same time; at the bound a new one is refused. Default 10,000.
    pub max_open: usize,
    /// Ended tasks that are remembered, so that copies of their results are known; above the bound the oldest is
    /// forgotten. Default 10,000.
    pub max_ended: usize,
    /// How long a receipt may take. Default 10 s.
    pub receipt_patience: Duration,
    /// How long the next result may take. Default 300 s.
    pub result_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Strict,
            max_open: 10_000,
            max_ended: 10_000,
            receipt_patience: Duration::from_secs(10),
            result_patience: Duration::from_secs(300),
        }
    }
}

impl Config {
    /// Sets how strictly results are held against those before them.
    #[must_use]
    pub const fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets how many tasks are open at the same time.
    #[must_use]
    pub const fn max_open(mut self, tasks: usize) -> Self {
        self.max_open = tasks;
        self
    }

    /// Sets how many ended tasks are remembered.
    #[must_use]
    pub const fn max_ended(mut self, tasks: usize) -> Self {
        self.max_ended = tasks;
        self
    }

    /// Sets how long a receipt, and how long the next result may take.
    #[must_use]
    pub const fn patience(mut self, receipt: Duration, result: Duration) -> Self {
        self.receipt_patience = receipt;
        self.result_patience = result;
        self
    }
}

/// The tasks of a producer: dispatch, ack, nack, results, waiting too long.
///
/// A lost, late or doubled Ack changes nothing: results find their task by their ids, also among tasks of one
/// correlation id.
///
/// ```
/// # use sap::*;
/// # use ubos_common::{id::IdSource, json::RawObject, time::{Mono, Now, Timestamp}};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// use sap::role::producer::{Config, Input, Orders, Output};
/// use ubos_common::machine::Machine as _;
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let mut orders = Orders::new(Config::default());
/// orders.handle_input(now, Input::Dispatch(&task))?;
/// assert_eq!(orders.poll_output(), Some(Output::Transmit(task.task_id)));
/// orders.handle_input(now, Input::Result(&result))?; // its Ack was lost
/// orders.handle_input(now, Input::Ack(&Ack::of(&task)))?; // and comes late
/// assert_eq!(orders.poll_output(), Some(Output::Result(Box::new(result))));
/// assert_eq!(orders.poll_output(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Orders {
    config: Config,
    orders: BTreeMap<TaskId, Order>,
    ended: VecDeque<TaskId>,
    due: BTreeSet<(Mono, TaskId)>,
    out: Outbox<Output>,
}

#[derive(Clone, Debug)]
struct Order {
    stage: Stage,
    correlation_id: CorrelationId,
    expects_ack: bool,
    lifecycle: Lifecycle,
    due: Option<Mono>,
}

impl Orders {
    /// Outputs that may wait before no more input is welcome.
    pub const MAX_WAITING: usize = 1_024;

    /// Without tasks.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            orders: BTreeMap::new(),
            ended: VecDeque::new(),
            due: BTreeSet::new(),
            out: Outbox::new(Self::MAX_WAITING),
        }
    }

    /// Where a task is; `None` where it is not known.
    #[must_use]
    pub fn stage(&self, task_id: &TaskId) -> Option<&Stage> {
        self.orders.get(task_id).map(|order| &order.stage)
    }

    /// Tasks that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.orders.len() - self.ended.len()
    }

    /// Adds a task that is not sent yet. Sending it adds it too.
    ///
    /// # Errors
    ///
    /// [`OrderError::Full`].
    pub fn draft(&mut self, task: &Task) -> Result<(), OrderError> {
        if self.orders.contains_key(&task.task_id) {
            return Ok(());
        }
        if self.open() >= self.config.max_open {
            let limit = self.config.max_open;
            return Err(OrderError::Full { limit });
        }
        let order = Order {
            stage: Stage::Drafted,
            correlation_id: task.correlation_id,
            expects_ack: task.expects_ack(),
            lifecycle: Lifecycle::new(task, self.config.profile),
            due: None,
        };
        self.orders.insert(task.task_id, order);
        Ok(())
    }

    fn dispatch(&mut self, now: Now, task: &Task) -> Result<(), OrderError> {
        self.draft(task)?;
        let order = self.order(task.task_id)?;
        match &order.stage {
            Stage::Drafted => order.stage = Stage::Sent,
            // Sent again: it is the same task, and its consumer knows that.
            Stage::Sent | Stage::Accepted | Stage::InProgress(_) => {}
            from @ (Stage::Ended(_) | Stage::Refused(_)) => {
                return Err(OrderError::Illegal {
                    from: from.clone(),
                    to: Stage::Sent,
                });
            }
        }
        self.out.push(Output::Transmit(task.task_id));
        self.wait(now, task.task_id);
        Ok(())
    }

    // impl: SAP-4.3-3
    fn ack(&mut self, now: Now, ack: &Ack) -> Result<(), OrderError> {
        let order = self.order(ack.message_id)?;
        order.belongs(ack.correlation_id)?;
        match &order.stage {
            Stage::Sent => order.stage = Stage::Accepted,
            // Late or doubled.
            Stage::Accepted | Stage::InProgress(_) | Stage::Ended(_) => return Ok(()),
            from @ (Stage::Drafted | Stage::Refused(_)) => {
                return Err(OrderError::Illegal {
                    from: from.clone(),
                    to: Stage::Accepted,
                });
            }
        }
        self.out.push(Output::Accepted(ack.message_id));
        self.wait(now, ack.message_id);
        Ok(())
    }

    fn nack(&mut self, now: Now, nack: &Nack) -> Result<(), OrderError> {
        let task_id = match nack.message_id {
            Some(task_id) => task_id,
            None => self.only_sent().ok_or(OrderError::Nameless)?,
        };
        let order = self.order(task_id)?;
        if let Some(seen) = nack.correlation_id {
            order.belongs(seen)?;
        }
        match &order.stage {
            Stage::Sent => order.stage = Stage::Refused(nack.code.clone()),
            Stage::Refused(code) if *code == nack.code => return Ok(()),
            from => {
                return Err(OrderError::Illegal {
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
        let sent = self.orders.iter();
        let mut sent = sent.filter(|(_, order)| order.stage == Stage::Sent);
        let only = sent.next()?.0;
        sent.next().is_none().then_some(*only)
    }

    fn result(&mut self, now: Now, result: &TaskResult) -> Result<(), OrderError> {
        let task_id = result.task_id;
        let order = self.order(task_id)?;
        if let from @ (Stage::Drafted | Stage::Refused(_)) = &order.stage {
            return Err(OrderError::Illegal {
                from: from.clone(),
                to: stage_of(&result.status),
            });
        }
        let was_open = !order.lifecycle.is_closed();
        if order.lifecycle.accept(result)? == Accepted::Repeat {
            return Ok(());
        }
        if was_open {
            order.stage = stage_of(&result.status);
        }
        let has_ended = was_open && order.lifecycle.is_closed();
        self.out.push(Output::Result(Box::new(result.clone())));
        if has_ended {
            self.end(now, task_id);
        } else {
            self.wait(now, task_id);
        }
        Ok(())
    }

    fn order(&mut self, task_id: TaskId) -> Result<&mut Order, OrderError> {
        let order = self.orders.get_mut(&task_id);
        order.ok_or(OrderError::Unknown { task_id })
    }

    /// Begins to wait for what comes next.
    fn wait(&mut self, now: Now, task_id: TaskId) {
        let Some(order) = self.orders.get_mut(&task_id) else {
            return;
        };
        let patience = match order.waits_for() {
            None => None,
            Some(Waiting::Receipt) => Some(self.config.receipt_patience),
            Some(Waiting::Result) => Some(self.config.result_patience),
        };
        if let Some(old) = order.due.take() {
            self.due.remove(&(old, task_id));
        }
        order.due = patience.map(|patience| now.mono.saturating_add(patience));
        self.due.extend(order.due.map(|at| (at, task_id)));
    }

    fn end(&mut self, now: Now, task_id: TaskId) {
        self.wait(now, task_id);
        self.ended.push_back(task_id);
        if self.ended.len() > self.config.max_ended
            && let Some(oldest) = self.ended.pop_front()
        {
            self.orders.remove(&oldest);
        }
    }
}

impl Order {
    fn belongs(&self, seen: CorrelationId) -> Result<(), OrderError> {
        let wanted = self.correlation_id;
        if seen == wanted {
            Ok(())
        } else {
            Err(OrderError::Correlation { wanted, seen })
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

impl Machine for Orders {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Error = OrderError;

    /// # Errors
    ///
    /// [`OrderError`]; nothing has changed, and the other tasks go on.
    fn handle_input(&mut self, now: Now, input: Input<'_>) -> Result<(), OrderError> {
        match input {
            Input::Dispatch(task) => self.dispatch(now, task),
            Input::Ack(ack) => self.ack(now, ack),
            Input::Nack(nack) => self.nack(now, nack),
            Input::Result(result) => self.result(now, result),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some((at, task_id)) = self.due.first().copied() {
            if at > now.mono {
                return;
            }
            self.due.pop_first();
            if let Some(order) = self.orders.get_mut(&task_id) {
                order.due = None;
                let waiting = order.waits_for();
                let overdue = waiting.map(|waiting| Output::Overdue(task_id, waiting));
                overdue.into_iter().for_each(|output| self.out.push(output));
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    /// Never: new tasks may always come.
    fn is_closed(&self) -> bool {
        false
    }
}
