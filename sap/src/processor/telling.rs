//! Those who learn of a task's results are told of one after the other.

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;

use super::answer::Warning;
use super::guard::Panicked;
use crate::error::StoreError;
use crate::future::{BoxFuture, ready};
use crate::work::{self, For, HEAVY};

/// What is to be told of one task.
#[derive(Default)]
pub(super) struct Telling(Mutex<Untold>);

#[derive(Default)]
struct Untold {
    /// Behind the one that is being told.
    waiting: VecDeque<Tell>,
    is_told: bool,
}

type Tell = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").finish_non_exhaustive()
    }
}

impl Telling {
    /// Tells something about messages of so many bytes: at once where that is short and nothing is being told.
    pub(super) fn tell(
        self: &Arc<Self>,
        bytes: usize,
        tell: impl FnOnce() -> Option<Warning> + Send + 'static,
    ) -> BoxFuture<'static, Option<Warning>> {
        let tell = move || {
            let told = catch_unwind(AssertUnwindSafe(tell));
            told.unwrap_or_else(|_| Some(Warning::Signal(StoreError::Failed(Box::new(Panicked)))))
        };
        let mut line = self.line();
        if !line.is_told && bytes <= HEAVY {
            drop(line);
            return ready(tell());
        }
        let (answer, answered) = oneshot::channel();
        line.waiting
            .push_back(Box::new(move || drop(answer.send(tell()))));
        let begins = !core::mem::replace(&mut line.is_told, true);
        drop(line);
        let told = Arc::clone(self);
        let refused = begins.then(|| work::hand_over(bytes, move || told.tell_all()).err());
        Box::pin(async move {
            if let Some(tell_all) = refused.flatten() {
                work::apart(For::Task, tell_all).await;
            }
            answered.await.ok().flatten()
        })
    }

    fn tell_all(&self) {
        loop {
            let mut line = self.line();
            let Some(next) = line.waiting.pop_front() else {
                line.is_told = false;
                return;
            };
            drop(line);
            next();
        }
    }

    fn line(&self) -> MutexGuard<'_, Untold> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::executor::block_on;

    use super::*;
    use crate::work::tests::Busy;

    // spec: SAP-7-6
    #[test]
    fn what_is_told_first_is_told_before_what_is_short_and_though_nobody_waits() {
        let telling = Arc::<Telling>::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = |bytes: usize| {
            let told = Arc::clone(&told);
            telling.tell(bytes, move || {
                told.lock().unwrap().push(bytes);
                None
            })
        };
        assert!(tell(1).now_or_never().is_some());
        let busy = Busy::all();
        drop(tell(HEAVY + 1));
        drop(tell(2));
        let last = tell(HEAVY + 2);
        assert_eq!(*told.lock().unwrap(), [1]);
        drop(busy);
        assert!(block_on(last).is_none());
        assert_eq!(*told.lock().unwrap(), [1, HEAVY + 1, 2, HEAVY + 2]);
    }

    #[test]
    fn a_sink_that_is_told_something_holds_up_nobody() {
        let telling = Arc::<Telling>::default();
        for bytes in [1, HEAVY + 1] {
            let of = Arc::clone(&telling);
            let told = telling.tell(bytes, move || {
                assert!(of.0.try_lock().is_ok());
                None
            });
            assert!(block_on(told).is_none());
        }
    }

    #[test]
    fn a_panic_is_a_warning_and_the_next_is_told() {
        let telling = Arc::<Telling>::default();
        for bytes in [1, HEAVY + 1] {
            let told = block_on(telling.tell(bytes, || panic!("a sink's own fault")));
            assert!(matches!(told, Some(Warning::Signal(_))));
            assert!(block_on(telling.tell(bytes, || None)).is_none());
        }
    }
}
