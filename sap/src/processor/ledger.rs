//! The tasks that a processor knows: to run each once, and to stop those that run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ubos_common::canon::Digest;

use super::stop::{Stop, StopReason};
use crate::ident::TaskId;
use crate::result::TaskResult;

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    held: BTreeMap<TaskId, Held>,
    finished: VecDeque<TaskId>,
}

#[derive(Debug)]
struct Held {
    body: Digest,
    latest: TaskResult,
    /// While it runs.
    stop: Option<Stop>,
}

/// What became of a task that wants in.
pub(super) enum Entered {
    New(Stop),
    /// It came before, with an equal body.
    Known(Box<TaskResult>),
    /// It came before, with another body.
    Conflict,
    Full,
}

impl Ledger {
    /// Lets a task in whose state is `first` for as long as it has no result.
    pub(super) fn enter(&self, body: Digest, first: TaskResult, max_running: usize) -> Entered {
        let mut tasks = self.tasks();
        if let Some(held) = tasks.held.get(&first.task_id) {
            return if held.body == body {
                Entered::Known(Box::new(held.latest.clone()))
            } else {
                Entered::Conflict
            };
        }
        if tasks.held.len() - tasks.finished.len() >= max_running {
            return Entered::Full;
        }
        let stop = Stop::new();
        let held = Held {
            body,
            stop: Some(stop.clone()),
            latest: first,
        };
        tasks.held.insert(held.latest.task_id, held);
        Entered::New(stop)
    }

    /// Keeps the latest result; a terminal one ends the run, and the oldest ended one above the bound is forgotten.
    pub(super) fn update(&self, result: &TaskResult, max_finished: usize) {
        let mut tasks = self.tasks();
        let Some(held) = tasks.held.get_mut(&result.task_id) else {
            return;
        };
        held.latest = result.clone();
        if !result.status.is_terminal() || held.stop.take().is_none() {
            return;
        }
        tasks.finished.push_back(result.task_id);
        if tasks.finished.len() > max_finished
            && let Some(oldest) = tasks.finished.pop_front()
        {
            tasks.held.remove(&oldest);
        }
    }

    /// Forgets a task that did not get as far as a result.
    pub(super) fn forget(&self, task_id: &TaskId) {
        let mut tasks = self.tasks();
        if tasks
            .held
            .get(task_id)
            .is_some_and(|held| held.stop.is_some())
        {
            tasks.held.remove(task_id);
        }
    }

    /// Whether the task runs; it is told to stop then.
    pub(super) fn cancel(&self, task_id: &TaskId) -> bool {
        let tasks = self.tasks();
        let stop = tasks.held.get(task_id).and_then(|held| held.stop.as_ref());
        stop.inspect(|stop| stop.fire(StopReason::Cancelled))
            .is_some()
    }

    pub(super) fn running(&self) -> usize {
        let tasks = self.tasks();
        tasks.held.len() - tasks.finished.len()
    }

    pub(super) fn cancel_all(&self) -> usize {
        let tasks = self.tasks();
        let running = tasks.held.values().filter_map(|held| held.stop.as_ref());
        running.map(|stop| stop.fire(StopReason::Cancelled)).count()
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
