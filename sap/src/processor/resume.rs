//! What a transcript shows of the tasks of an earlier process.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::time::Timestamp;

use super::answer::{Answer, ProcessError};
use super::drive::Driver;
use super::effects::Effects;
use super::key::Key;
use super::ledger::Interruption;
use super::peer::Peer;
use super::recorded::once_taken;
use super::state::Processor;
use crate::evidence::BodyDigest;
use crate::future::yield_once;
use crate::ident::TaskId;
use crate::role::until;
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, TranscriptError};
use crate::validate::{decode_result, decode_task};
use crate::work::{self, For};

/// What becomes of a task that ran when an earlier process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interrupted {
    /// It ends as FAILED, `INTERNAL`, or `TIMEOUT` where its deadline is over. For handlers whose effects must not happen twice.
    Fail,
    /// It runs again when it comes again. The transcript then has a second RUNNING. One whose time is over ends as FAILED,
    /// `TIMEOUT`, for it could only end so: its deadline, or where it names none the
    /// [time](super::Config::with_default_time) of such a task, from the entry of the task. Of one that nobody sends again
    /// [`Processor::end_interrupted`] sees to that.
    RunAgain,
}

/// What was taken up from a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Resumed {
    /// Tasks that had ended.
    pub ended: usize,
    /// Tasks that were interrupted, and have ended as FAILED now.
    pub failed: Vec<TaskId>,
    /// Tasks that were interrupted, and run again when they come. Nobody waits for them unless somebody sends
    /// them again, to which end they are here: up to 64 MiB of them.
    pub interrupted: Vec<Task>,
    /// Tasks that were interrupted, and run again only when their sender sends them again: of those the transcript keeps a redacted
    /// form, which is not what was asked for, or they are above the 64 MiB.
    pub left_to_sender: Vec<TaskId>,
}

/// A task that was begun, as far as the transcript was read.
struct Begun {
    /// Where the transcript has the task.
    entry: u64,
    /// The last second that it has.
    ends: Timestamp,
    /// Of what the transcript has.
    body: Digest,
    /// Of the task as it was, where the transcript has a redacted form.
    whole: Option<Digest>,
    status: Option<Status>,
}

impl Begun {
    /// What a copy of the task is known by. Nobody sends what was redacted, so that its bytes are those of no task.
    fn copy(&self) -> Digest {
        self.whole.unwrap_or(self.body)
    }

    fn interruption(&self) -> Interruption {
        Interruption {
            status: self.status.clone(),
            ends: self.ends,
            is_cancelled: false,
        }
    }
}

/// The tasks without an end.
#[derive(Default)]
struct Open {
    begun: BTreeMap<Key, Begun>,
    /// By the entry of the task.
    entries: BTreeMap<u64, Key>,
    /// The last one of an id, for results that do not name their entry.
    latest: BTreeMap<TaskId, Key>,
}

impl Open {
    fn insert(&mut self, key: Key, begun: Begun) {
        self.entries.insert(begun.entry, key);
        self.latest.insert(key.task_id(), key);
        if let Some(before) = self.begun.insert(key, begun) {
            self.entries.remove(&before.entry);
        }
    }

    fn find(&self, entry: &Entry, task_id: TaskId) -> Option<Key> {
        let of_entry = |number| self.entries.get(&u64::from(number)).cloned();
        match &entry.task {
            Some(number) => of_entry(number).filter(|key| key.task_id() == task_id),
            None => self.latest.get(&task_id).cloned(),
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(begun) = self.begun.remove(key) {
            self.entries.remove(&begun.entry);
        }
        if self.latest.get(&key.task_id()) == Some(key) {
            self.latest.remove(&key.task_id());
        }
    }
}

/// Bytes that may still be handed out.
struct BytesLeft(usize);

impl BytesLeft {
    /// Takes so many, where they are there.
    fn takes(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

impl Processor {
    /// Reads the whole transcript and takes up what it shows, before the first task. A task that had ended is
    /// answered with its result when it comes again; what becomes of one that ran is `interrupted`. A task of
    /// which the transcript keeps a redacted form is known by its digest; nothing runs on that form.
    ///
    /// It remembers within the bounds of the processor. Tasks whose entry was moved into an archive are not known.
    ///
    /// # Errors
    ///
    /// The transcript cannot be read, or an end cannot be recorded; more tasks have no end than
    /// [may](super::Config::with_max_interrupted).
    // impl: SAP-5-10
    pub async fn resume<S: Sleep + Clone + Send + Sync + 'static>(
        &mut self,
        clock: &S,
        interrupted: Interrupted,
    ) -> Result<Resumed, TranscriptError> {
        let mut resumed = Resumed::default();
        let begun = self.read_begun(&mut resumed).await?;
        let mut left = BytesLeft(MAX_INTERRUPTED_BYTES);
        for (key, begun) in begun {
            let known = (begun.copy(), begun.entry);
            self.ledger.resume(&key, known, begun.interruption());
            let Some((task, bytes)) = self.read_task(For::Task, begun.entry).await? else {
                continue;
            };
            match interrupted {
                Interrupted::RunAgain if !is_over(clock, begun.ends) => {
                    match begun.whole.is_none() && left.takes(bytes.len()) {
                        true => resumed.interrupted.push(task),
                        false => resumed.left_to_sender.push(key.task_id()),
                    }
                }
                Interrupted::Fail | Interrupted::RunAgain => {
                    self.end_as_recorded(clock, &key, task, &bytes).await?;
                    resumed.failed.push(key.task_id());
                }
            }
        }
        Ok(resumed)
    }

    /// Ends the tasks that [are to run again](Interrupted::RunAgain) and that nobody sends again, each when its time is over:
    /// as FAILED, `TIMEOUT`. Ready once there is none left. An application that resumes so runs it beside its server; one that
    /// drops it may begin anew.
    ///
    /// # Errors
    ///
    /// An end cannot be recorded, or a task cannot be read. What is left may be ended by another call.
    // impl: SAP-5-8, SAP-5-10
    pub async fn end_interrupted<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
    ) -> Result<(), TranscriptError> {
        for (ends, key) in self.ledger.interrupted() {
            while let Some((entry, before)) = self.ledger.interrupted_at(&key) {
                if !is_over(clock, ends) {
                    clock.sleep_until(until(ends, clock.now())).await;
                    continue;
                }
                let Some((task, bytes)) = self.read_task(For::Task, entry).await? else {
                    break;
                };
                let ended = self.end_as_recorded(clock, &key, task, &bytes).await;
                if ended.is_err() {
                    // Whoever sends it is not to have it run, and another call ends it.
                    let known = (Digest::of_bytes(&bytes), entry);
                    self.ledger.resume_again(&key, known, before);
                }
                ended?;
                if self.ledger.interrupted_at(&key).is_some() {
                    // As many tasks run as may.
                    let later = clock.now().mono.saturating_add(PAUSE);
                    clock.sleep_until(later).await;
                }
            }
        }
        Ok(())
    }

    /// Ends a task that nobody has brought again as what the transcript has of it, which is not what was asked for where it was
    /// redacted.
    async fn end_as_recorded<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        key: &Key,
        task: Task,
        bytes: &[u8],
    ) -> Result<(), TranscriptError> {
        self.ledger.known_as_recorded(key, Digest::of_bytes(bytes));
        let ended = self.end_unrun(clock, Arc::new(task), bytes).await;
        ended.map_err(|ProcessError::Transcript(lost)| lost)?;
        Ok(())
    }

    /// The tasks that have no end; those that have one are remembered.
    async fn read_begun(
        &self,
        resumed: &mut Resumed,
    ) -> Result<BTreeMap<Key, Begun>, TranscriptError> {
        let mut open = Open::default();
        let mut next = 0;
        loop {
            let page = match self.transcript.read(next, PAGE).await {
                // What was archived is over: a task that still ran is not looked for there.
                Err(TranscriptError::Archived { first }) if first > next => {
                    next = first;
                    continue;
                }
                page => page?,
            };
            if page.is_empty() {
                return Ok(open.begun);
            }
            for entry in page {
                self.take_up(next, &entry, &mut open, resumed);
                next += 1;
                // Each takes its time where it is long, and others run beside a start.
                yield_once().await;
            }
            let limit = self.config.max_interrupted;
            if open.begun.len() > limit {
                return Err(TranscriptError::TooManyOpen { limit });
            }
        }
    }

    fn take_up(&self, number: u64, entry: &Entry, open: &mut Open, resumed: &mut Resumed) {
        let body = entry.body.as_str().as_bytes();
        match entry.kind {
            EntryKind::Task => {
                let Some(task) = decoded_task(body) else {
                    return;
                };
                open.insert(Key::of(&task), self.begun(number, entry, &task));
            }
            EntryKind::Result => {
                let Ok((result, _)) = decode_result(body, &once_taken()) else {
                    return;
                };
                let Some(key) = open.find(entry, result.task_id) else {
                    return;
                };
                let Some(task) = open.begun.get_mut(&key) else {
                    return;
                };
                if !result.status.may_follow(task.status.as_ref()) {
                    return;
                }
                if !result.status.is_terminal() {
                    task.status = Some(result.status);
                    return;
                }
                let max_bytes = self.config.max_remembered_bytes;
                let known = (task.copy(), task.entry);
                self.ledger.resume(&key, known, task.interruption());
                let entry = (body.into(), Some(number));
                self.ledger.update(&key, &result, entry, max_bytes);
                open.remove(&key);
                resumed.ended += 1;
            }
            EntryKind::Nack | EntryKind::Other(_) => {}
        }
    }

    /// A task that has no result yet.
    fn begun(&self, number: u64, entry: &Entry, task: &Task) -> Begun {
        let default_end = || {
            let at = entry.at.timestamp();
            at.saturating_add(self.config.default_time)
        };
        Begun {
            entry: number,
            ends: task.deadline().unwrap_or_else(default_end),
            body: Digest::of_bytes(entry.body.as_str().as_bytes()),
            whole: entry.digest.map(|BodyDigest(digest)| digest),
            status: None,
        }
    }

    pub(super) async fn read_task(
        &self,
        whom: For,
        entry: u64,
    ) -> Result<Option<(Task, Vec<u8>)>, TranscriptError> {
        let entries = self.transcript.read(entry, 1).await?;
        let Some(entry) = entries.first() else {
            return Ok(None);
        };
        let bytes = entry.body.as_str().as_bytes().to_vec();
        let read = work::done(whom, bytes.len(), move || {
            Some((decoded_task(&bytes)?, bytes))
        });
        Ok(read.await)
    }

    /// Ends a task that nobody goes on with, as a shutdown does: FAILED, `INTERNAL`. One that has its end, or runs,
    /// is answered as if it had come again.
    pub(super) async fn end_unrun<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        task: Arc<Task>,
        bytes: &[u8],
    ) -> Result<Answer, ProcessError> {
        let peer = Peer::default();
        let effects = Effects::abandoning(self, task, bytes.into(), &peer);
        // Nobody is there who could be told of a warning.
        Box::pin(Driver::new(clock, &effects).run(&mut |_| {})).await
    }
}

/// Whether the last second of a task is over.
fn is_over(clock: &impl Sleep, ends: Timestamp) -> bool {
    clock.now().wall.truncated_to_second() > ends
}

fn decoded_task(bytes: &[u8]) -> Option<Task> {
    let decoded = decode_task(bytes, &once_taken());
    decoded.ok().map(|(task, _)| task)
}

/// Entries that are read at once.
const PAGE: usize = 64;
/// How long a task whose time is over waits, where as many run as may.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the tasks that are handed out to be sent again.
const MAX_INTERRUPTED_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(entry: u64) -> Begun {
        Begun {
            entry,
            ends: Timestamp::EPOCH,
            body: Digest::of_bytes(b""),
            whole: None,
            status: None,
        }
    }

    fn key(issuer: &str) -> Key {
        let task_id = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        Key::new(task_id, &issuer.parse().unwrap())
    }

    // spec: SAP-5-10
    #[test]
    fn a_task_that_ended_leaves_nothing_behind() {
        let mut open = Open::default();
        open.insert(key("a"), begun(0));
        // Recorded twice, for the first record was not known to be kept.
        open.insert(key("a"), begun(1));
        assert_eq!(open.entries.keys().collect::<Vec<_>>(), [&1]);
        open.remove(&key("a"));
        assert!(open.begun.is_empty() && open.entries.is_empty() && open.latest.is_empty());
    }

    // spec: SAP-5-10
    #[test]
    fn tasks_are_handed_out_up_to_a_bound_of_bytes() {
        let mut left = BytesLeft(10);
        assert!(
            left.takes(7) && !left.takes(4) && left.takes(3) && !left.takes(1) && left.takes(0)
        );
    }

    // spec: SAP-5-10, SAP-11-2
    #[test]
    fn a_result_without_an_entry_is_that_of_the_latest_task_of_its_id() {
        let mut open = Open::default();
        open.insert(key("a"), begun(0));
        open.insert(key("b"), begun(1));
        open.remove(&key("a"));
        assert_eq!(open.latest.get(&key("b").task_id()), Some(&key("b")));
    }
}
