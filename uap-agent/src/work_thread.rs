//! A thread that works for a store or a journal, so that no runtime waits for the disk or a server.

use core::convert::Infallible;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use core::time::Duration;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// What becomes of a job whose answer nobody awaits any more when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unawaited {
    /// It is done: whoever asked for a write may rely on it without waiting.
    Done,
    /// It is left out: it would be a read for nobody.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    Skipped,
}

/// Runs jobs in the order of the calls.
pub(crate) struct WorkThread<W> {
    /// None while it is dropped.
    jobs: Mutex<Option<Sender<Job<W>>>>,
    thread: Option<JoinHandle<()>>,
    /// Its other end is dropped when the thread has dropped what it works with.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(dead_code, reason = "only databases are not waited for without end")
    )]
    ends: Mutex<Receiver<Infallible>>,
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
        let (alive, ends) = channel();
        let run = move || {
            // The first to be bound is the last to be dropped.
            let _alive: Sender<Infallible> = alive;
            match make() {
                Ok(mut work) => {
                    // Whoever starts it waits for this.
                    let _ = made.send(Ok(()));
                    asked.iter().for_each(|job| job(&mut work));
                }
                Err(error) => drop(made.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|error| ThreadFault(error.to_string().into()))?;
        is_made
            .recv()
            .unwrap_or_else(|_| Err(ThreadFault::ended().into()))?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
            ends: Mutex::new(ends),
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
        self.ask_as(Unawaited::Done, act)
    }

    /// As [`ask`](Self::ask), for a job that may be one for nobody when its turn comes.
    pub(crate) fn ask_as<T, E>(
        &self,
        unawaited: Unawaited,
        act: impl FnOnce(&mut W) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<ThreadFault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job<W> = Box::new(move |work| {
            if unawaited == Unawaited::Done || !reply.is_canceled() {
                // Nobody may wait for the answer any more.
                drop(reply.send(act(work)));
            }
        });
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

impl<W> WorkThread<W> {
    /// Takes no more jobs. The thread ends behind those that it has.
    pub(crate) fn close(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Closes, and waits for the end of the thread, as long as this at most: then the thread does the rest by itself.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn end_within(&mut self, span: Duration) {
        self.close();
        if self.is_own() {
            return;
        }
        let ends = self.ends.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ends.recv_timeout(span) == Err(RecvTimeoutError::Timeout) {
            self.thread = None;
        }
    }

    /// Whether this is the thread: what it was told to call may own the store.
    fn is_own(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| thread.thread().id() == thread::current().id())
    }
}

impl<W> Drop for WorkThread<W> {
    /// Waits until all jobs are done, so that what the thread has open is complete and unlocked when it is opened next.
    fn drop(&mut self) {
        self.close();
        if self.is_own() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}
