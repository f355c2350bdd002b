//! The tasks that a processor knows: to run each once, and to stop those that run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::canon::Digest;

use super::config::MAX_FINISHED;
use super::stop::{Stop, StopReason};
use crate::ident::TaskId;
use crate::result::TaskResult;
use crate::task::Task;

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    held: BTreeMap<TaskId, Held>,
    finished: VecDeque<TaskId>,
    /// Of the latest results.
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    /// Of the bytes as they are written here.
    body: Digest,
    before: Before,
    /// Encoded; `None` before the first.
    latest: Option<Box<[u8]>>,
    /// While it runs.
    stop: Option<Stop>,
}

impl Tasks {
    fn remove(&mut self, task_id: &TaskId) {
        let latest = self.held.remove(task_id).and_then(|held| held.latest);
        self.bytes -= latest.map_or(0, |latest| latest.len());
    }
}

/// What a task of the same id is compared with.
#[derive(Clone, Debug)]
pub(super) enum Before {
    /// The transcript is still writing it down.
    Unwritten(Arc<Task>),
    /// Where the transcript has it.
    Written(u64),
}

/// What became of a task that wants in.
pub(super) enum Entered {
    New(Stop),
    /// It came before, with an equal body; its latest result, encoded.
    Known(Option<Box<[u8]>>),
    /// It came before, with other bytes; those, and its latest result.
    Other(Before, Option<Box<[u8]>>),
    Full,
}

impl Ledger {
    /// Lets a task in.
    pub(super) fn enter(&self, task: &Arc<Task>, body: Digest, max_running: usize) -> Entered {
        let mut tasks = self.tasks();
        if let Some(held) = tasks.held.get(&task.task_id) {
            return if held.body == body {
                Entered::Known(held.latest.clone())
            } else {
                Entered::Other(held.before.clone(), held.latest.clone())
            };
        }
        if tasks.held.len() - tasks.finished.len() >= max_running {
            return Entered::Full;
        }
        let stop = Stop::new();
        let held = Held {
            body,
            stop: Some(stop.clone()),
            before: Before::Unwritten(Arc::clone(task)),
            latest: None,
        };
        tasks.held.insert(task.task_id, held);
        Entered::New(stop)
    }

    /// Keeps where the transcript has the task.
    pub(super) fn written(&self, task_id: &TaskId, entry: u64) {
        if let Some(held) = self.tasks().held.get_mut(task_id) {
            held.before = Before::Written(entry);
        }
    }

    /// Keeps the latest result; a terminal one ends the run. The oldest ended ones above the bounds are forgotten.
    pub(super) fn update(&self, result: &TaskResult, encoded: Vec<u8>, max_bytes: usize) {
        let mut held_tasks = self.tasks();
        let tasks = &mut *held_tasks;
        let Some(held) = tasks.held.get_mut(&result.task_id) else {
            return;
        };
        tasks.bytes += encoded.len();
        let before = held.latest.replace(encoded.into_boxed_slice());
        tasks.bytes -= before.map_or(0, |before| before.len());
        if result.status.is_terminal() && held.stop.take().is_some() {
            tasks.finished.push_back(result.task_id);
        }
        while (tasks.finished.len() > MAX_FINISHED || tasks.bytes > max_bytes)
            && let Some(oldest) = tasks.finished.pop_front()
        {
            tasks.remove(&oldest);
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
            tasks.remove(task_id);
        }
    }

    /// Whether the task has not ended yet.
    pub(super) fn runs(&self, task_id: &TaskId) -> bool {
        let tasks = self.tasks();
        let held = tasks.held.get(task_id);
        held.is_some_and(|held| held.stop.is_some())
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
