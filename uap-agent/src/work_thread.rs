//! A thread that works for a store or a journal, so that no runtime waits for the disk or a server.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use futures::channel::oneshot;
use futures_core::future::BoxFuture;

use crate::checkpoint::CheckpointError;
#[cfg(feature = "log")]
use crate::journal::JournalError;

type Job<W> = Box<dyn FnOnce(&mut W) + Send>;

/// Why a thread gives no answer.
#[derive(Debug)]
pub(crate) struct ThreadFault(Box<str>);

impl ThreadFault {
    /// It has ended before it answered: a job panicked.
    pub(crate) fn ended() -> Self {
        Self("its thread has ended".into())
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn into_text(self) -> Box<str> {
        self.0
    }
}

impl From<ThreadFault> for CheckpointError {
    fn from(fault: ThreadFault) -> Self {
        Self::Failed(fault.0)
    }
}

#[cfg(feature = "log")]
impl From<ThreadFault> for JournalError {
    fn from(fault: ThreadFault) -> Self {
        Self::Failed(fault.0)
    }
}

/// Runs jobs in the order of the calls.
pub(crate) struct WorkThread<W> {
    /// None while it is dropped.
    jobs: Mutex<Option<Sender<Job<W>>>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: 'static> WorkThread<W> {
    /// Starts a thread, which makes what it works with.
    pub(crate) fn start<E>(
        name: &str,
        make: impl FnOnce() -> Result<W, E> + Send + 'static,
    ) -> Result<Self, E>
    where
        E: From<ThreadFault> + Send + 'static,
    {
        let (jobs, asked) = channel::<Job<W>>();
        let (made, is_made) = channel();
        let run = move || match make() {
            Ok(mut work) => {
                // Whoever starts it waits for this.
                let _ = made.send(Ok(()));
                asked.iter().for_each(|job| job(&mut work));
            }
            Err(error) => drop(made.send(Err(error))),
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|error| ThreadFault(error.to_string().into()))?;
        is_made
            .recv()
            .unwrap_or_else(|_| Err(ThreadFault::ended().into()))?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
        })
    }

    /// Runs a job on the thread. The queue is bounded by the callers, because each waits for its result.
    pub(crate) fn ask<T, E>(
        &self,
        act: impl FnOnce(&mut W) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<ThreadFault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        // Nobody may wait for the answer any more.
        let job: Job<W> = Box::new(move |work| drop(reply.send(act(work))));
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that has ended drops the job, and the answer with it.
        let _ = jobs.as_ref().map(|jobs| jobs.send(job));
        Box::pin(async move {
            answer
                .await
                .unwrap_or_else(|_| Err(ThreadFault::ended().into()))
        })
    }
}

impl<W> Drop for WorkThread<W> {
    /// Waits until all jobs are done, so that what the thread has open is complete and unlocked when it is opened next.
    fn drop(&mut self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take()
            // What the thread itself was told to call may own the store.
            && thread.thread().id() != thread::current().id()
        {
            // One that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}
