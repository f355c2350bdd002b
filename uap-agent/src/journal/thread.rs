//! A thread that works for a journal, so that no runtime waits for the disk.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use futures::channel::oneshot;

use super::{JournalError, JournalFuture};

type Job<W> = Box<dyn FnOnce(&mut W) + Send>;

/// Runs jobs in the order of the calls.
pub(super) struct JobThread<W> {
    jobs: Mutex<Option<Sender<Job<W>>>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: Send + 'static> JobThread<W> {
    pub(super) fn start(mut work: W) -> Result<Self, JournalError> {
        let (jobs, asked) = channel::<Job<W>>();
        let thread = std::thread::Builder::new().name("journal".into());
        // It ends with the journal.
        let thread = thread.spawn(move || asked.iter().for_each(|job| job(&mut work)));
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread.map_err(failed)?),
        })
    }

    /// Runs a job on the thread. The queue is bounded by the callers, because each waits for its result.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut W) -> Result<T, JournalError> + Send + 'static,
    ) -> JournalFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        // Nobody may wait for the answer any more.
        let job: Job<W> = Box::new(move |work| drop(reply.send(act(work))));
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that is gone gives no answer.
        let _ = jobs.as_ref().map(|jobs| jobs.send(job));
        drop(jobs);
        Box::pin(async move {
            let gone = |_| Err(JournalError::Failed("its thread has ended".into()));
            answer.await.unwrap_or_else(gone)
        })
    }
}

impl<W> Drop for JobThread<W> {
    /// Waits for the thread, so that what it has open can be opened again.
    fn drop(&mut self) {
        let jobs = self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(jobs.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// The text of an error and its cause.
pub(super) fn failed(error: impl core::error::Error) -> JournalError {
    let cause = error.source().map(|cause| format!(": {cause}"));
    JournalError::Failed(format!("{error}{}", cause.unwrap_or_default()).into())
}
