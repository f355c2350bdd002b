//! One task on its way, run by the producer's machine.

use core::future::Future;
use core::pin::pin;

use futures::future::{Either, select};
#[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::time::Now;

use super::SendError;
use crate::ident::TaskId;
use crate::lifecycle::LifecycleError;
#[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
use crate::result::TaskResult;
use crate::role::producer::{Config, Error, Input, Output, SentTasks, Waiting};
use crate::task::Task;

/// A task that was sent, and how long it is waited for.
#[derive(Debug)]
pub(crate) struct Sent {
    machine: SentTasks,
    task_id: TaskId,
}

/// What comes while a client waits.
pub(crate) enum Heard<T> {
    /// What it waits for.
    Said(T),
    /// Nothing, for so long that the task is to be sent again.
    SendAgain,
}

impl Sent {
    /// The task is on its way.
    pub(crate) fn new(task: &Task, now: Now, config: Config) -> Result<Self, SendError> {
        let mut sent = Self {
            machine: SentTasks::of_one(config),
            task_id: task.task_id,
        };
        // The client sends it first by itself.
        sent.take(now, Input::Dispatch(task))?;
        Ok(sent)
    }

    #[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
    pub(crate) const fn task_id(&self) -> TaskId {
        self.task_id
    }

    /// Gives the machine an input; true where something is new.
    pub(crate) fn take(&mut self, now: Now, input: Input<'_>) -> Result<bool, SendError> {
        let taken = self.machine.handle_input(now, input);
        self.has_moved(taken)
    }

    /// The same for a result whose digest was made before.
    #[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
    pub(crate) fn take_digested(
        &mut self,
        now: Now,
        result: &TaskResult,
        digest: Option<Digest>,
    ) -> Result<bool, SendError> {
        let taken = self.machine.take_digested(now, result, digest);
        self.has_moved(taken)
    }

    fn has_moved(&mut self, taken: Result<(), Error>) -> Result<bool, SendError> {
        taken.map_err(|error| refused(error, self.task_id))?;
        let mut is_new = false;
        // A copy has no output.
        while self.machine.poll_output().is_some() {
            is_new = true;
        }
        Ok(is_new)
    }

    /// Whether the task is sent again once nothing came in time.
    #[cfg(feature = "http")]
    pub(crate) fn may_resend(&self) -> bool {
        self.machine.may_resend(&self.task_id)
    }

    /// Waits for what comes next, as long as the machine has patience.
    ///
    /// # Errors
    ///
    /// [`SendError::NoAnswer`].
    pub(crate) async fn hear<T>(
        &mut self,
        clock: &(impl Sleep + ?Sized),
        next: impl Future<Output = T>,
    ) -> Result<Heard<T>, SendError> {
        let mut next = pin!(next);
        loop {
            let Some(at) = self.machine.poll_timeout() else {
                return Ok(Heard::Said(next.await));
            };
            match select(next, clock.sleep_until(at)).await {
                Either::Left((said, _)) => return Ok(Heard::Said(said)),
                Either::Right(((), waiting)) => next = waiting,
            }
            self.machine.handle_timeout(clock.now());
            if let Some(output) = self.machine.poll_output() {
                return match output {
                    Output::Overdue(_, waiting) => Err(overdue(waiting)),
                    _ => Ok(Heard::SendAgain),
                };
            }
        }
    }
}

fn refused(error: Error, wanted: TaskId) -> SendError {
    match error {
        Error::Lifecycle(error) => SendError::Refused(error),
        Error::Correlation { wanted, seen } => {
            SendError::Refused(LifecycleError::Correlation { wanted, seen })
        }
        Error::Unknown { task_id: seen } => {
            SendError::Refused(LifecycleError::Task { wanted, seen })
        }
        error => SendError::NoAnswer {
            what: error.to_string(),
        },
    }
}

fn overdue(waiting: Waiting) -> SendError {
    let what = match waiting {
        Waiting::Receipt => "neither Ack nor result for longer than the patience of the client",
        Waiting::Result => "nothing for longer than the patience of the client",
        Waiting::End => "no end before the deadline",
    };
    SendError::NoAnswer { what: what.into() }
}
