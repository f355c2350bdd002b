//! The tasks that a processor knows: to run each once, and to stop those that run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use ubos_common::canon::Digest;
use ubos_common::time::Timestamp;

use super::config::{MAX_FINISHED, Room};
use super::finished::Finished;
use super::key::Key;
use super::stop::Stop;
use crate::result::TaskResult;
use crate::role::consumer::StopReason;
use crate::status::Status;
use crate::task::Task;

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    held: HashMap<Key, Held>,
    finished: Finished,
    /// Those of them whose result is kept here.
    kept: Finished,
    running: usize,
    /// Those of each issuer that has any.
    running_of: HashMap<Digest, usize>,
    /// Of the tasks that run.
    running_bytes: usize,
    /// Of the latest results that are kept here.
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    /// Of the bytes as they are written here.
    body: Digest,
    before: Before,
    /// Of the task, while it runs.
    task_bytes: usize,
    latest: Latest,
    /// How many results there were: who follows a task knows by it whether the latest is new.
    results: u64,
    /// Who waits for the next one; at most [`MAX_FOLLOWERS`].
    followers: Vec<oneshot::Sender<()>>,
    state: State,
}

/// The latest result of a task.
#[derive(Clone, Debug, Default)]
pub(super) enum Latest {
    /// There is none yet.
    #[default]
    None,
    /// Encoded, and which entry of the transcript it is, where that is known.
    Kept(Arc<[u8]>, Option<u64>),
    /// Only the transcript has it, as this entry.
    Recorded(u64),
    /// Only the transcript has it, and nobody here knows as which entry: its recording was cut off.
    Lost,
}

#[derive(Debug)]
enum State {
    Running(Stop),
    /// It ran when an earlier process ended.
    Interrupted(Interruption),
    Ended,
}

/// What is known of a task that ran when an earlier process ended.
#[derive(Clone, Debug)]
pub(super) struct Interruption {
    pub(super) status: Option<Status>,
    /// The last second that it has.
    pub(super) ends: Timestamp,
    /// Whether it is to end when it comes again.
    pub(super) is_cancelled: bool,
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
    /// It ran when an earlier process ended, with this as its last status; the last second that it has.
    Interrupted(Stop, Option<Status>, Timestamp),
    /// It came before, with an equal body; its latest result.
    Known(Latest),
    /// It came before, with other bytes: those.
    Other(Before),
    Full,
}

/// What there is to see of a task.
pub(super) enum Sight {
    /// Its latest result; none where it was taken and has none yet.
    Latest {
        latest: Latest,
        results: u64,
    },
    /// Nothing new; this is ready when there is, or when the task is forgotten.
    Wait(oneshot::Receiver<()>),
    /// As many follow it as may.
    Full,
    Unknown,
}

impl Tasks {
    /// Whether one more of so many bytes may run. One alone may be as long as it is.
    fn has_room(&self, key: &Key, bytes: usize, room: Room) -> bool {
        let of_issuer = self.running_of.get(&key.issuer());
        self.running < room.tasks
            && of_issuer.is_none_or(|running| *running < room.of_issuer)
            && (self.running == 0 || bytes <= room.bytes.saturating_sub(self.running_bytes))
    }

    fn begin(&mut self, key: &Key, bytes: usize) {
        self.running += 1;
        *self.running_of.entry(key.issuer()).or_default() += 1;
        self.running_bytes += bytes;
    }

    fn end(&mut self, key: &Key, bytes: usize) {
        self.running -= 1;
        if let Some(running) = self.running_of.get_mut(&key.issuer()) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(&key.issuer());
            }
        }
        self.running_bytes -= bytes;
    }

    fn remove(&mut self, key: &Key) {
        let Some(held) = self.held.remove(key) else {
            return;
        };
        self.bytes -= held.latest.bytes();
        self.kept.remove(key);
        if matches!(held.state, State::Running(_)) {
            self.end(key, held.task_bytes);
        }
    }

    /// Lets in a task of so many bytes that came before.
    fn enter_again(&mut self, key: &Key, bytes: usize, room: Room) -> Option<Entered> {
        let has_room = self.has_room(key, bytes, room);
        let held = self.held.get_mut(key)?;
        let State::Interrupted(before) = &held.state else {
            return Some(Entered::Known(held.latest.clone()));
        };
        if !has_room {
            return Some(Entered::Full);
        }
        let (stop, before) = (Stop::new(), before.clone());
        if before.is_cancelled {
            stop.fire(StopReason::Cancelled);
        }
        held.state = State::Running(stop.clone());
        held.task_bytes = bytes;
        self.begin(key, bytes);
        Some(Entered::Interrupted(stop, before.status, before.ends))
    }

    /// Keeps to the bounds: above their number ended tasks are forgotten, and above their bytes results are left to the
    /// transcript: what a running task says at once, and then those of ended tasks.
    fn shrink(&mut self, updated: &Key, max_bytes: usize) {
        while self.finished.len() > MAX_FINISHED
            && let Some(oldest) = self.finished.pop()
        {
            self.remove(&oldest);
        }
        let has_ended = self.held.get(updated).is_none_or(Held::has_ended);
        if self.bytes > max_bytes && !has_ended {
            self.leave_to_transcript(updated);
        }
        while self.bytes > max_bytes
            && let Some(oldest) = self.kept.pop()
        {
            self.leave_to_transcript(&oldest);
        }
    }

    /// Keeps a result here no more. The task stays known, so that it does not run again.
    fn leave_to_transcript(&mut self, key: &Key) {
        if let Some(held) = self.held.get_mut(key)
            && let Latest::Kept(encoded, entry) = &held.latest
        {
            self.bytes -= encoded.len();
            held.latest = entry.map_or(Latest::Lost, Latest::Recorded);
        }
    }
}

impl Latest {
    fn bytes(&self) -> usize {
        match self {
            Self::Kept(encoded, _) => encoded.len(),
            Self::None | Self::Recorded(_) | Self::Lost => 0,
        }
    }
}

impl Ledger {
    /// Lets a task in.
    pub(super) fn enter(
        &self,
        key: &Key,
        task: &Arc<Task>,
        body: Digest,
        bytes: usize,
        room: Room,
    ) -> Entered {
        let mut tasks = self.tasks();
        if let Some(held) = tasks.held.get(key)
            && held.body != body
        {
            return Entered::Other(held.before.clone());
        }
        if let Some(entered) = tasks.enter_again(key, bytes, room) {
            return entered;
        }
        if !tasks.has_room(key, bytes, room) {
            return Entered::Full;
        }
        let stop = Stop::new();
        let held = Held {
            body,
            state: State::Running(stop.clone()),
            before: Before::Unwritten(Arc::clone(task)),
            task_bytes: bytes,
            latest: Latest::None,
            results: 0,
            followers: Vec::new(),
        };
        tasks.held.insert(*key, held);
        tasks.begin(key, bytes);
        Entered::New(stop)
    }

    /// Lets in a task that is the one that came before, written otherwise. `None` where that was forgotten since.
    pub(super) fn enter_equal(&self, key: &Key, bytes: usize, room: Room) -> Option<Entered> {
        self.tasks().enter_again(key, bytes, room)
    }

    /// Takes up a task that an earlier process began.
    pub(super) fn resume(
        &self,
        key: &Key,
        (body, entry): (Digest, u64),
        interruption: Interruption,
    ) {
        let held = Held {
            body,
            before: Before::Written(entry),
            task_bytes: 0,
            latest: Latest::None,
            results: 0,
            followers: Vec::new(),
            state: State::Interrupted(interruption),
        };
        let mut tasks = self.tasks();
        let before = tasks.held.get(key);
        if before.is_some_and(|before| matches!(before.state, State::Ended)) {
            tasks.finished.remove(key);
        }
        tasks.remove(key);
        tasks.held.insert(*key, held);
    }

    /// The tasks that an earlier process began and nobody has brought again, and the last second that each has: the
    /// first to end first.
    pub(super) fn interrupted(&self) -> Vec<(Timestamp, Key)> {
        let tasks = self.tasks();
        let interrupted = tasks.held.iter().filter_map(|(key, held)| {
            let State::Interrupted(before) = &held.state else {
                return None;
            };
            Some((before.ends, *key))
        });
        let mut interrupted: Vec<_> = interrupted.collect();
        drop(tasks);
        interrupted.sort();
        interrupted
    }

    /// Where the transcript has a task that nobody has brought again, and what is known of it; `None` once it runs or has ended.
    pub(super) fn interrupted_at(&self, key: &Key) -> Option<(u64, Interruption)> {
        let tasks = self.tasks();
        let held = tasks.held.get(key)?;
        match (&held.state, &held.before) {
            (State::Interrupted(before), Before::Written(entry)) => Some((*entry, before.clone())),
            _ => None,
        }
    }

    /// Takes such a task up again that was forgotten, because its end could not be recorded.
    pub(super) fn resume_again(&self, key: &Key, known: (Digest, u64), interruption: Interruption) {
        let is_known = self.tasks().held.contains_key(key);
        if !is_known {
            self.resume(key, known, interruption);
        }
    }

    /// Knows a task that nobody has brought again by what the transcript has of it. Its sender's copy is compared with the
    /// transcript from then on.
    pub(super) fn known_as_recorded(&self, key: &Key, body: Digest) {
        if let Some(held) = self.tasks().held.get_mut(key)
            && matches!(held.state, State::Interrupted(_))
        {
            held.body = body;
        }
    }

    /// Keeps where the transcript has the task.
    pub(super) fn written(&self, key: &Key, entry: u64) {
        if let Some(held) = self.tasks().held.get_mut(key) {
            held.before = Before::Written(entry);
        }
    }

    /// Keeps the latest result; a terminal one ends the run. What is above the bounds is left to the transcript, and the
    /// oldest ended tasks are forgotten.
    pub(super) fn update(
        &self,
        key: &Key,
        result: &TaskResult,
        (encoded, entry): (Arc<[u8]>, Option<u64>),
        max_bytes: usize,
    ) {
        let mut held_tasks = self.tasks();
        let tasks = &mut *held_tasks;
        let Some(held) = tasks.held.get_mut(key) else {
            return;
        };
        let bytes = encoded.len();
        tasks.bytes += bytes;
        let before = core::mem::replace(&mut held.latest, Latest::Kept(encoded, entry));
        tasks.bytes -= before.bytes();
        held.results += 1;
        // Each of them looks again, when this is over.
        let _followers = core::mem::take(&mut held.followers);
        if result.status.is_terminal() {
            let task_bytes = held.task_bytes;
            let before = core::mem::replace(&mut held.state, State::Ended);
            if matches!(before, State::Running(_)) {
                tasks.end(key, task_bytes);
            }
            if !matches!(before, State::Ended) {
                tasks.finished.push(*key, 1);
                tasks.kept.push(*key, bytes);
            }
        }
        tasks.shrink(key, max_bytes);
        // Whom they wake may look here at once.
        drop(held_tasks);
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
        let stop = match &mut held.state {
            State::Running(stop) => stop.clone(),
            State::Interrupted(before) => {
                before.is_cancelled = true;
                return true;
            }
            State::Ended => return false,
        };
        drop(tasks);
        stop.fire(StopReason::Cancelled);
        true
    }

    /// What there is to see of a task for one who has seen so many results of it.
    pub(super) fn look(&self, key: &Key, seen: Option<u64>) -> Sight {
        let mut tasks = self.tasks();
        let Some(held) = tasks.held.get_mut(key) else {
            return Sight::Unknown;
        };
        if seen != Some(held.results) {
            return Sight::Latest {
                latest: held.latest.clone(),
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
        let running = tasks.held.iter().filter_map(|(key, held)| {
            let State::Running(stop) = &held.state else {
                return None;
            };
            Some((*key, stop.clone()))
        });
        let mut running: Vec<_> = running.collect();
        drop(tasks);
        // Who is told first does not depend on how a map is laid out.
        running.sort_by_key(|(key, _)| *key);
        for (_, stop) in &running {
            stop.fire(StopReason::Cancelled);
        }
        running.len()
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who wait for the next result of one task.
pub(super) const MAX_FOLLOWERS: usize = 1_024;

impl Held {
    const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

#[cfg(test)]
mod tests;
