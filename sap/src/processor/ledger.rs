//! The tasks that a processor knows: to run each once, and to stop those that run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use ubos_common::canon::Digest;

use super::config::MAX_FINISHED;
use super::stop::Stop;
use crate::ident::{AgentId, TaskId};
use crate::result::TaskResult;
use crate::role::consumer::StopReason;
use crate::status::Status;
use crate::task::Task;

/// Which task it is: ids are an issuer's own, and nobody takes another one's by using it first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(Arc<(TaskId, AgentId)>);

impl Key {
    pub(super) fn of(task: &Task) -> Self {
        Self::new(task.task_id, task.issuer.agent_id.clone())
    }

    pub(super) fn new(task_id: TaskId, issuer: AgentId) -> Self {
        Self(Arc::new((task_id, issuer)))
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.0.0
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    held: HashMap<Key, Held>,
    finished: VecDeque<Key>,
    running: usize,
    /// Of the latest results.
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    /// Of the bytes as they are written here.
    body: Digest,
    before: Before,
    /// Encoded; `None` before the first.
    latest: Option<Arc<[u8]>>,
    /// How many results there were: who follows a task knows by it whether the latest is new.
    results: u64,
    /// Who waits for the next one; at most [`MAX_FOLLOWERS`].
    followers: Vec<oneshot::Sender<()>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Running(Stop),
    /// It ran when an earlier process ended; its last status, and whether it is to end when it comes again.
    Interrupted(Option<Status>, bool),
    Ended,
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
    /// It ran when an earlier process ended, with this as its last status.
    Interrupted(Stop, Option<Status>),
    /// It came before, with an equal body; its latest result, encoded.
    Known(Option<Arc<[u8]>>),
    /// It came before, with other bytes: those.
    Other(Before),
    Full,
}

/// What there is to see of a task.
pub(super) enum Sight {
    /// Its latest result, encoded; none where it was taken and has none yet.
    Latest {
        encoded: Option<Arc<[u8]>>,
        results: u64,
    },
    /// Nothing new; this is ready when there is, or when the task is forgotten.
    Wait(oneshot::Receiver<()>),
    /// As many follow it as may.
    Full,
    Unknown,
}

impl Tasks {
    fn remove(&mut self, key: &Key) {
        let Some(held) = self.held.remove(key) else {
            return;
        };
        self.bytes -= held.latest.map_or(0, |latest| latest.len());
        if matches!(held.state, State::Running(_)) {
            self.running -= 1;
        }
    }

    /// Lets in a task that came before.
    fn enter_again(&mut self, key: &Key, max_running: usize) -> Option<Entered> {
        let held = self.held.get_mut(key)?;
        let State::Interrupted(status, is_cancelled) = &held.state else {
            return Some(Entered::Known(held.latest.clone()));
        };
        if self.running >= max_running {
            return Some(Entered::Full);
        }
        let (stop, status) = (Stop::new(), status.clone());
        if *is_cancelled {
            stop.fire(StopReason::Cancelled);
        }
        held.state = State::Running(stop.clone());
        self.running += 1;
        Some(Entered::Interrupted(stop, status))
    }
}

impl Ledger {
    /// Lets a task in.
    pub(super) fn enter(
        &self,
        key: &Key,
        task: &Arc<Task>,
        body: Digest,
        max_running: usize,
    ) -> Entered {
        let mut tasks = self.tasks();
        if let Some(held) = tasks.held.get(key)
            && held.body != body
        {
            return Entered::Other(held.before.clone());
        }
        if let Some(entered) = tasks.enter_again(key, max_running) {
            return entered;
        }
        if tasks.running >= max_running {
            return Entered::Full;
        }
        let stop = Stop::new();
        let held = Held {
            body,
            state: State::Running(stop.clone()),
            before: Before::Unwritten(Arc::clone(task)),
            latest: None,
            results: 0,
            followers: Vec::new(),
        };
        tasks.held.insert(key.clone(), held);
        tasks.running += 1;
        Entered::New(stop)
    }

    /// Lets in a task that is the one that came before, written otherwise. `None` where that was forgotten since.
    pub(super) fn enter_equal(&self, key: &Key, max_running: usize) -> Option<Entered> {
        self.tasks().enter_again(key, max_running)
    }

    /// Takes up a task that an earlier process began.
    pub(super) fn resume(&self, key: &Key, body: Digest, entry: u64, status: Option<Status>) {
        let held = Held {
            body,
            before: Before::Written(entry),
            latest: None,
            results: 0,
            followers: Vec::new(),
            state: State::Interrupted(status, false),
        };
        let mut tasks = self.tasks();
        let before = tasks.held.get(key);
        if before.is_some_and(|before| matches!(before.state, State::Ended)) {
            tasks.finished.retain(|finished| finished != key);
        }
        tasks.remove(key);
        tasks.held.insert(key.clone(), held);
    }

    /// Keeps where the transcript has the task.
    pub(super) fn written(&self, key: &Key, entry: u64) {
        if let Some(held) = self.tasks().held.get_mut(key) {
            held.before = Before::Written(entry);
        }
    }

    /// Keeps the latest result; a terminal one ends the run. The oldest ended ones above the bounds are forgotten.
    pub(super) fn update(
        &self,
        key: &Key,
        result: &TaskResult,
        encoded: Arc<[u8]>,
        max_bytes: usize,
    ) {
        let mut held_tasks = self.tasks();
        let tasks = &mut *held_tasks;
        let Some(held) = tasks.held.get_mut(key) else {
            return;
        };
        tasks.bytes += encoded.len();
        let before = held.latest.replace(encoded);
        tasks.bytes -= before.map_or(0, |before| before.len());
        held.results += 1;
        // Each of them looks again.
        held.followers.clear();
        if result.status.is_terminal() {
            match core::mem::replace(&mut held.state, State::Ended) {
                State::Running(_) => {
                    tasks.running -= 1;
                    tasks.finished.push_back(key.clone());
                }
                State::Interrupted(..) => tasks.finished.push_back(key.clone()),
                State::Ended => {}
            }
        }
        while (tasks.finished.len() > MAX_FINISHED || tasks.bytes > max_bytes)
            && let Some(oldest) = tasks.finished.pop_front()
        {
            tasks.remove(&oldest);
        }
    }

    /// Forgets a task that did not get as far as a result.
    pub(super) fn forget(&self, key: &Key) {
        let mut tasks = self.tasks();
        let held = tasks.held.get(key);
        if held.is_some_and(|held| matches!(held.state, State::Running(_))) {
            tasks.remove(key);
        }
    }

    /// Whether the task runs, or is to run again; it is told to stop then.
    pub(super) fn cancel(&self, key: &Key) -> bool {
        let mut tasks = self.tasks();
        let Some(held) = tasks.held.get_mut(key) else {
            return false;
        };
        if let State::Interrupted(_, is_cancelled) = &mut held.state {
            *is_cancelled = true;
            return true;
        }
        held.cancel()
    }

    /// What there is to see of a task for one who has seen so many results of it.
    pub(super) fn look(&self, key: &Key, seen: Option<u64>) -> Sight {
        let mut tasks = self.tasks();
        let Some(held) = tasks.held.get_mut(key) else {
            return Sight::Unknown;
        };
        if seen != Some(held.results) {
            return Sight::Latest {
                encoded: held.latest.clone(),
                results: held.results,
            };
        }
        held.followers.retain(|follower| !follower.is_canceled());
        if held.followers.len() >= MAX_FOLLOWERS {
            return Sight::Full;
        }
        let (sender, receiver) = oneshot::channel();
        held.followers.push(sender);
        Sight::Wait(receiver)
    }

    /// The task as it came, or where the transcript has it.
    pub(super) fn before(&self, key: &Key) -> Option<Before> {
        Some(self.tasks().held.get(key)?.before.clone())
    }

    /// Where the transcript has the task.
    pub(super) fn entry(&self, key: &Key) -> Option<u64> {
        match self.tasks().held.get(key)?.before {
            Before::Written(entry) => Some(entry),
            Before::Unwritten(_) => None,
        }
    }

    pub(super) fn running(&self) -> usize {
        self.tasks().running
    }

    pub(super) fn cancel_all(&self) -> usize {
        let tasks = self.tasks();
        let mut all: Vec<_> = tasks.held.iter().collect();
        // Who is told first does not depend on how a map is laid out.
        all.sort_by_key(|(key, _)| *key);
        all.iter().filter(|(_, held)| held.cancel()).count()
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who wait for the next result of one task.
pub(super) const MAX_FOLLOWERS: usize = 1_024;

impl Held {
    fn cancel(&self) -> bool {
        let State::Running(stop) = &self.state else {
            return false;
        };
        stop.fire(StopReason::Cancelled);
        true
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;
    use ubos_common::json::RawObject;
    use ubos_common::time::Timestamp;

    use super::*;
    use crate::context::{ConstitutionalContext, PressureLevel};
    use crate::evidence::{Alignment, ConstitutionalEvidence};
    use crate::result::{Producer, ProducerKind};
    use crate::task::{AgentKind, Issuer, Target};

    fn task() -> Arc<Task> {
        Arc::new(Task::draft(
            &mut IdSource::seeded(1),
            Timestamp::EPOCH,
            Issuer::new("a".parse().unwrap(), AgentKind::Agent),
            Target::new("a.b".parse().unwrap()),
            ConstitutionalContext::new(PressureLevel::Instant),
            RawObject::empty(),
        ))
    }

    fn result(task: &Task, status: Status) -> TaskResult {
        TaskResult::of(
            task,
            Timestamp::EPOCH,
            Producer::new("b".parse().unwrap(), ProducerKind::Agent),
            status,
            ConstitutionalEvidence::new(Alignment::Valid),
        )
    }

    #[test]
    fn a_task_that_is_taken_up_again_is_not_forgotten_as_the_one_that_ended() {
        let task = task();
        let ended = result(&task, Status::Succeeded);
        let (ledger, key) = (Ledger::default(), Key::of(&task));
        let body = Digest::of_bytes(b"");
        assert!(matches!(
            ledger.enter(&key, &task, body, 1),
            Entered::New(_)
        ));
        ledger.update(&key, &ended, ended.encode().into(), usize::MAX);
        ledger.resume(&key, body, 0, None);
        let tasks = ledger.tasks();
        assert!(tasks.finished.is_empty());
        assert_eq!((tasks.bytes, tasks.running), (0, 0));
    }

    // spec: SAP-10-1
    #[test]
    fn a_result_as_long_as_the_bound_is_kept_and_a_longer_one_is_not() {
        let task = task();
        let ended = result(&task, Status::Succeeded);
        let bytes = ended.encode().len();
        for (bound, is_kept) in [(bytes, true), (bytes - 1, false)] {
            let (ledger, key) = (Ledger::default(), Key::of(&task));
            let _ = ledger.enter(&key, &task, Digest::of_bytes(b""), 1);
            ledger.update(&key, &ended, ended.encode().into(), bound);
            assert_eq!(
                matches!(ledger.look(&key, None), Sight::Latest { .. }),
                is_kept
            );
        }
    }

    // spec: SAP-10-1
    #[test]
    fn only_the_latest_result_of_a_task_counts_its_bytes() {
        let task = task();
        let (ledger, key) = (Ledger::default(), Key::of(&task));
        let _ = ledger.enter(&key, &task, Digest::of_bytes(b""), 1);
        for status in [Status::Running, Status::Partial] {
            let said = result(&task, status);
            ledger.update(&key, &said, said.encode().into(), usize::MAX);
            assert_eq!(ledger.tasks().bytes, said.encode().len());
        }
    }
}
