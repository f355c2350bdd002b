//! Handlers: what does the work of a capability, and what it is given for that.

use core::future::Future;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::SinkExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use ubos_common::trace_context::TraceContext;

use super::stop::Stop;
use crate::role::consumer::{HandlerError, Outcome, Progress, StopReason};
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
    /// The place in a trace that came beside the task: for what the handler asks of others. None in a task that is taken up
    /// again after a restart.
    pub trace: Option<TraceContext>,
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
        self.spending.spend(&self.task, budget, amount)
    }
}

/// What was taken from budgets.
#[derive(Debug, Default)]
pub(super) struct Spending(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    amounts: BTreeMap<String, f64>,
    over: Option<String>,
}

impl Spending {
    fn spend(&self, task: &Task, budget: &str, amount: f64) -> Result<(), HandlerError> {
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
        spent.over = Some(budget.to_owned());
        Err(HandlerError::over_budget(budget))
    }

    pub(super) fn over(&self) -> Option<String> {
        let spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spent.over.clone()
    }
}

fn limit_of(task: &Task, budget: &str) -> Option<f64> {
    let limits = task.budget()?;
    match budget {
        "tokens" => limits.tokens.as_ref().map(crate::number::Amount::value),
        // Seconds are the processor's to measure, and are in no extra member.
        other => limits.extra.value(other)?.deserialize().ok(),
    }
}
