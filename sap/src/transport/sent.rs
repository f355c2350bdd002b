//! One task on its way, run by the producer's machine.

use core::future::Future;
use core::pin::pin;

use futures::future::{Either, select};
use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::time::Now;

use super::SendError;
use crate::future::yield_once;
use crate::ident::TaskId;
use crate::lifecycle::LifecycleError;
use crate::result::TaskResult;
use crate::role::producer::{Config, Error, Input, Output, SentTasks, Waiting};
use crate::task::Task;

/// A task that was sent, and how long it is waited for.
#[derive(Debug)]
pub(crate) struct Sent {
    machine: SentTasks,
    task_id: TaskId,
    /// How often something was heard.
    heard: u32,
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
            heard: 0,
        };
        // The client sends it first by itself.
        sent.take(now, Input::Dispatch(task))?;
        Ok(sent)
    }

    /// Gives the machine an input; true where something is new.
    pub(crate) fn take(&mut self, now: Now, input: Input<'_>) -> Result<bool, SendError> {
        let taken = self.machine.handle_input(now, input);
        self.has_moved(taken)
    }

    /// The same for a result whose digest was made before.
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
    pub(crate) fn may_resend(&self) -> bool {
        self.machine.may_resend(&self.task_id)
    }

    /// Waits for what comes next, as long as the machine has patience. One who is told without pause looks at the time
    /// first, and gives way now and then.
    ///
    /// # Errors
    ///
    /// [`SendError::NoAnswer`].
    pub(crate) async fn hear<T>(
        &mut self,
        clock: &(impl Sleep + ?Sized),
        next: impl Future<Output = T>,
    ) -> Result<Heard<T>, SendError> {
        self.heard = self.heard.wrapping_add(1);
        if self.heard.is_multiple_of(YIELD_AFTER) {
            yield_once().await;
        }
        let mut next = pin!(next);
        loop {
            let now = clock.now();
            let Some(at) = self.machine.poll_timeout() else {
                return Ok(Heard::Said(next.await));
            };
            if now.mono >= at {
                self.machine.handle_timeout(now);
                match self.machine.poll_output() {
                    Some(Output::Overdue(_, waiting)) => return Err(overdue(waiting)),
                    Some(_) => return Ok(Heard::SendAgain),
                    None => {}
                }
            }
            let Some(at) = self.machine.poll_timeout() else {
                continue;
            };
            match select(next, clock.sleep_until(at)).await {
                Either::Left((said, _)) => return Ok(Heard::Said(said)),
                Either::Right(((), waiting)) => next = waiting,
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
        Waiting::End => "no end in the time that the task has",
    };
    SendError::NoAnswer { what: what.into() }
}

/// Lines after which a client gives way, whatever is there.
const YIELD_AFTER: u32 = 32;

#[cfg(test)]
pub(crate) mod tests {
    use core::future::ready;
    use core::sync::atomic::{AtomicU64, Ordering};
    use core::time::Duration;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use ubos_common::time::{Mono, Timestamp};

    use super::*;
    use crate::samples;

    /// A clock that is set by hand, in seconds.
    #[derive(Default)]
    pub(crate) struct Set(AtomicU64);

    impl Set {
        #[cfg(any(feature = "http", feature = "nats"))]
        pub(crate) fn set(&self, seconds: u64) {
            self.0.store(seconds, Ordering::SeqCst);
        }
    }

    impl Sleep for Set {
        fn now(&self) -> Now {
            let start = Now::new(Mono::ZERO, Timestamp::EPOCH);
            start.plus(Duration::from_secs(self.0.load(Ordering::SeqCst)))
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            Box::pin(core::future::pending())
        }
    }

    fn sent(clock: &Set) -> Sent {
        let task = samples::task();
        let config = Config::default().with_patience(Duration::MAX, Duration::MAX);
        Sent::new(&task, clock.now(), config).unwrap()
    }

    // spec: SAP-5-8
    #[test]
    fn one_who_is_told_without_pause_still_looks_at_the_time() {
        let clock = Set::default();
        let mut sent = sent(&clock);
        // An hour for a task without a deadline, and the patience after it.
        clock.0.store(3_600 + 299, Ordering::SeqCst);
        let heard = sent.hear(&clock, ready(())).now_or_never();
        assert!(matches!(heard, Some(Ok(Heard::Said(())))));
        clock.0.store(3_600 + 300, Ordering::SeqCst);
        let heard = sent.hear(&clock, ready(())).now_or_never();
        assert!(matches!(heard, Some(Err(SendError::NoAnswer { .. }))));
    }

    #[test]
    fn one_who_is_told_without_pause_gives_way() {
        let clock = Set::default();
        let mut sent = sent(&clock);
        let all = async {
            for _ in 0..100 {
                assert!(matches!(
                    sent.hear(&clock, ready(())).await,
                    Ok(Heard::Said(()))
                ));
            }
        };
        assert!(all.now_or_never().is_none());
    }
}
