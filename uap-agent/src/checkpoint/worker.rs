//! A thread that works for a store, so that no runtime waits for the disk.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use futures::channel::oneshot;

use super::{CheckpointError, StoreFuture};

type Job<W> = Box<dyn FnOnce(&mut W) + Send>;

/// Runs jobs in the order of the calls.
pub(super) struct Worker<W> {
    /// None while it is dropped.
    jobs: Mutex<Option<Sender<Job<W>>>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: Send + 'static> Worker<W> {
    pub(super) fn start(mut work: W) -> Result<Self, CheckpointError> {
        let (jobs, asked) = channel::<Job<W>>();
        let thread = thread::Builder::new().name("checkpoints".into());
        let started = thread.spawn(move || asked.iter().for_each(|job| job(&mut work)));
        let thread = started.map_err(|error| CheckpointError::Failed(error.to_string().into()))?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
        })
    }

    /// Runs a job on the thread. The queue is bounded by the callers, because each waits for its result.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut W) -> Result<T, CheckpointError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        // Nobody may wait for the answer any more.
        let job: Job<W> = Box::new(move |work| drop(reply.send(act(work))));
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        Box::pin(async move {
            let gone = || CheckpointError::Failed("the store's thread is gone".into());
            if !sent {
                return Err(gone());
            }
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl<W> Drop for Worker<W> {
    /// Waits until all jobs are done, so that the folder is complete and unlocked when it is opened next.
    fn drop(&mut self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take()
            // What the thread itself was told to call may own the store.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
