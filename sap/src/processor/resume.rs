//! What a transcript shows of the tasks of an earlier process.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::violation::Profile;

use super::effects::Effects;
use super::state::Processor;
use crate::ident::TaskId;
use crate::role::consumer::{
    Access, Admission, Input, Output, ReceivedTask, Record, Reply, Request, Written,
};
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, TranscriptError};
use crate::validate::{Options, decode_result, decode_task};

/// What becomes of a task that ran when an earlier process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interrupted {
    /// It ends as FAILED, `INTERNAL`. For handlers whose effects must not happen twice.
    Fail,
    /// It runs again when it comes again. The transcript then has a second RUNNING.
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
    /// them again, to which end they are here.
    pub interrupted: Vec<Task>,
}

/// A task that was begun, as far as the transcript was read.
struct Begun {
    /// Where the transcript has the task.
    entry: u64,
    body: Digest,
    status: Option<Status>,
}

impl Processor {
    /// Reads the whole transcript and takes up what it shows, before the first task. A task that had ended is
    /// answered with its result when it comes again; what becomes of one that ran is `interrupted`. A task of
    /// which the transcript keeps a redacted form is another one when it comes again.
    ///
    /// It remembers within the bounds of the processor.
    ///
    /// # Errors
    ///
    /// The transcript cannot be read, or an end cannot be recorded; more than 100,000 tasks have no end.
    // impl: SAP-5-10
    pub async fn resume<S: Sleep + Sync + ?Sized>(
        &mut self,
        clock: &S,
        interrupted: Interrupted,
    ) -> Result<Resumed, TranscriptError> {
        let mut resumed = Resumed::default();
        let begun = self.read_begun(&mut resumed).await?;
        for (task_id, begun) in begun {
            self.ledger
                .resume(task_id, begun.body, begun.entry, begun.status.clone());
            let Some(task) = self.read_task(begun.entry).await? else {
                continue;
            };
            match interrupted {
                Interrupted::RunAgain => resumed.interrupted.push(task),
                Interrupted::Fail => {
                    self.fail_interrupted(clock, task, begun.status).await?;
                    resumed.failed.push(task_id);
                }
            }
        }
        Ok(resumed)
    }

    /// The tasks that have no end; those that have one are remembered.
    async fn read_begun(
        &self,
        resumed: &mut Resumed,
    ) -> Result<BTreeMap<TaskId, Begun>, TranscriptError> {
        let mut begun = BTreeMap::new();
        let mut next = 0;
        loop {
            let page = self.transcript.read(next, PAGE).await?;
            if page.is_empty() {
                return Ok(begun);
            }
            for entry in page {
                self.take_up(next, &entry, &mut begun, resumed);
                next += 1;
            }
            if begun.len() > MAX_BEGUN {
                return Err(TranscriptError::Full { limit: MAX_BEGUN });
            }
        }
    }

    fn take_up(
        &self,
        number: u64,
        entry: &Entry,
        begun: &mut BTreeMap<TaskId, Begun>,
        resumed: &mut Resumed,
    ) {
        let body = entry.body.as_str().as_bytes();
        match entry.kind {
            EntryKind::Task => {
                let Some(task) = decoded_task(body) else {
                    return;
                };
                let body = Digest::of_bytes(body);
                let new = Begun {
                    entry: number,
                    body,
                    status: None,
                };
                begun.insert(task.task_id, new);
            }
            EntryKind::Result => {
                let Ok((result, _)) = decode_result(body, &Options::from(Profile::Lenient)) else {
                    return;
                };
                let Some(task) = begun.get_mut(&result.task_id) else {
                    return;
                };
                if !result.status.may_follow(task.status.as_ref()) {
                    return;
                }
                if !result.status.is_terminal() {
                    task.status = Some(result.status);
                    return;
                }
                let (task_id, max_bytes) = (result.task_id, self.config.max_remembered_bytes);
                self.ledger.resume(task_id, task.body, task.entry, None);
                self.ledger.update(&result, body.into(), max_bytes);
                begun.remove(&task_id);
                resumed.ended += 1;
            }
            EntryKind::Nack | EntryKind::Other(_) => {}
        }
    }

    async fn read_task(&self, entry: u64) -> Result<Option<Task>, TranscriptError> {
        let entries = self.transcript.read(entry, 1).await?;
        let entry = entries.first();
        Ok(entry.and_then(|entry| decoded_task(entry.body.as_str().as_bytes())))
    }

    /// Ends a task by its machine, as a shutdown does.
    async fn fail_interrupted<S: Sleep + Sync + ?Sized>(
        &self,
        clock: &S,
        task: Task,
        status: Option<Status>,
    ) -> Result<(), TranscriptError> {
        let effects = Effects::new(self, task, Vec::new().into());
        let (now, task) = (clock.now(), Arc::clone(&effects.task));
        let mut machine = ReceivedTask::new(now, task, self.consumer.clone());
        let mut begins = Some(status);
        while let Some(output) = machine.poll_output() {
            let (id, reply) = match output {
                Output::Request { id, request } => match request {
                    Request::Authorize => (id, Reply::Access(Access::Allowed)),
                    Request::Enter => match begins.take() {
                        Some(status) => (id, Reply::Admission(Admission::Interrupted(status))),
                        None => continue,
                    },
                    Request::Record(Record::Result(written)) => {
                        self.record_end(&written, clock).await?;
                        (id, Reply::Recorded)
                    }
                    _ => continue,
                },
                Output::Remember(written) => {
                    // Nobody is there who could be told that a signal is not kept.
                    drop(effects.remember(&written));
                    continue;
                }
                _ => continue,
            };
            let is_in = matches!(reply, Reply::Admission(_));
            drop(machine.handle_input(clock.now(), Input::Reply { id, reply }));
            if is_in {
                drop(machine.handle_input(clock.now(), Input::Shutdown));
            }
        }
        Ok(())
    }

    async fn record_end<S: Sleep + Sync + ?Sized>(
        &self,
        written: &Written,
        clock: &S,
    ) -> Result<(), TranscriptError> {
        let now = clock.now();
        let entry = Entry::encoded(EntryKind::Result, now.wall, &written.encoded);
        self.record(&entry).await.map(drop)
    }
}

/// What the transcript has was taken once, strictly or not.
fn decoded_task(bytes: &[u8]) -> Option<Task> {
    let decoded = decode_task(bytes, &Options::from(Profile::Lenient));
    decoded.ok().map(|(task, _)| task)
}

/// Entries that are read at once.
const PAGE: usize = 64;
/// Tasks without an end that a transcript may have.
const MAX_BEGUN: usize = 100_000;
