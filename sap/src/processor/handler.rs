//! Handlers: what does the work of a capability, and what it is given for that.

use core::future::Future;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::SinkExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use ubos_common::json::{RawBuf, RawObject};

use super::stop::{Stop, StopReason};
use crate::error::ErrorCode;
use crate::status::Status;
use crate::task::Task;

/// Does the work of a capability.
///
/// A closure `|cx: Context| async move { … }` is a handler. The future is dropped when the task ends before it,
/// so what it started elsewhere is stopped in a destructor, or on [`Context::stopped`].
pub trait Handler: Send + Sync {
    /// Works on the context's task.
    fn run(&self, context: Context) -> BoxFuture<'_, Result<Outcome, HandlerError>>;
}

impl<F, Work> Handler for F
where
    F: Fn(Context) -> Work + Send + Sync,
    Work: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
{
    fn run(&self, context: Context) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        Box::pin(self(context))
    }
}

/// What a handler is given.
#[derive(Debug)]
pub struct Context {
    /// The task.
    pub task: Arc<Task>,
    pub(super) reports: mpsc::Sender<Progress>,
    pub(super) stop: Stop,
    pub(super) spending: Arc<Spending>,
}

impl Context {
    /// Reports progress, which becomes a result of its own. Waits while earlier reports are not yet delivered.
    ///
    /// Once the task has ended it does nothing.
    pub async fn report(&mut self, progress: Progress) {
        let _ = self.reports.send(progress).await;
    }

    /// Ready once the task is being stopped.
    pub fn stopped(&self) -> impl Future<Output = StopReason> + Send + 'static {
        self.stop.stopped()
    }

    /// Takes from the budget of this name, such as `tokens`. To use exactly all of it is within.
    ///
    /// # Errors
    ///
    /// The budget is used up; the task ends as `RATE_LIMIT`, whatever the handler returns.
    pub fn spend(&self, budget: &str, amount: f64) -> Result<(), HandlerError> {
        Ok(self.spending.spend(&self.task, budget, amount)?)
    }
}

/// A budget is used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("budget {budget:?} is used up")]
pub(super) struct OverBudget {
    budget: String,
}

/// What was taken from budgets.
#[derive(Debug, Default)]
pub(super) struct Spending(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    amounts: BTreeMap<String, f64>,
    over: Option<OverBudget>,
}

impl Spending {
    fn spend(&self, task: &Task, budget: &str, amount: f64) -> Result<(), OverBudget> {
        // Only budgets that the task names are kept, so it bounds the map.
        let Some(limit) = limit_of(task, budget) else {
            return Ok(());
        };
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = spent.amounts.entry(budget.to_owned()).or_default();
        // A negative amount would give back what others have counted on.
        *total += amount.max(0.0);
        if *total <= limit {
            return Ok(());
        }
        let over = OverBudget {
            budget: budget.to_owned(),
        };
        spent.over = Some(over.clone());
        Err(over)
    }

    pub(super) fn over(&self) -> Option<OverBudget> {
        let spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spent.over.clone()
    }
}

fn limit_of(task: &Task, budget: &str) -> Option<f64> {
    let limits = task.budget()?;
    match budget {
        "tokens" => limits.tokens.as_ref().map(crate::number::Amount::value),
        // Seconds are the processor's to measure.
        "seconds" => None,
        other => limits.extra.value(other)?.deserialize().ok(),
    }
}

/// How far a handler is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// RUNNING or PARTIAL.
    pub(super) status: Status,
    /// What there is so far.
    pub output: Option<RawBuf>,
    /// What is proposed to be done next.
    pub next_actions: Option<Vec<RawObject>>,
    /// What was used up so far.
    pub metrics: Option<RawObject>,
    /// What grounds what there is so far; a policy may demand it of a part, too.
    pub citations: Vec<String>,
}

impl Progress {
    /// The handler is at work.
    #[must_use]
    pub const fn running(output: Option<RawBuf>) -> Self {
        Self {
            status: Status::Running,
            output,
            next_actions: None,
            metrics: None,
            citations: Vec::new(),
        }
    }

    /// A part is done; the actions say what is left.
    #[must_use]
    pub const fn partial(output: RawBuf, next_actions: Vec<RawObject>) -> Self {
        Self {
            status: Status::Partial,
            output: Some(output),
            next_actions: Some(next_actions),
            metrics: None,
            citations: Vec::new(),
        }
    }
}

/// What a handler made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The data; an outcome without it is never cached.
    pub output: Option<RawBuf>,
    /// What grounds it.
    pub citations: Vec<String>,
    /// Outputs kept elsewhere.
    pub artifacts: Option<Vec<RawObject>>,
    /// What was used up.
    pub metrics: Option<RawObject>,
    /// What is proposed to be done next.
    pub next_actions: Option<Vec<RawObject>>,
    /// Whatever else goes along.
    pub meta: Option<RawObject>,
}

impl Outcome {
    /// An outcome that is its data.
    #[must_use]
    pub fn new(output: RawBuf) -> Self {
        Self {
            output: Some(output),
            ..Self::default()
        }
    }

    /// Sets what grounds the data.
    #[must_use]
    pub fn citing(mut self, citations: Vec<String>) -> Self {
        self.citations = citations;
        self
    }
}

/// Why a handler made nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The task fails.
    #[error("{code}: {message}")]
    Failed {
        /// The code of the result's error.
        code: ErrorCode,
        /// What happened, for a person.
        message: String,
        /// Whatever else is known.
        details: Option<RawObject>,
    },
    /// Somebody else has to decide.
    #[error("escalated: {message}")]
    Escalated {
        /// Why, for a person.
        message: String,
        /// The path of escalation.
        next_actions: Vec<RawObject>,
    },
}

impl HandlerError {
    /// The task fails with a code.
    #[must_use]
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
            details: None,
        }
    }

    /// The payload is not what the capability takes.
    #[must_use]
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::failed(ErrorCode::Unprocessable, message)
    }
}

impl From<OverBudget> for HandlerError {
    fn from(over: OverBudget) -> Self {
        Self::failed(ErrorCode::RateLimit, over.to_string())
    }
}
