//! One handler against its clock.

use core::future::poll_fn;
use core::panic::AssertUnwindSafe;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::time::{Mono, Now, Timestamp};

use super::config::{CANCEL_GRACE, MAX_REPORTS};
use super::flight::Completion;
use super::handler::{Context, Handler, HandlerError, Outcome, OverBudget, Progress, Spending};
use super::stop::{Stop, StopReason};
use crate::number::Amount;
use crate::task::Task;

/// How a run ends.
#[derive(Debug)]
pub(super) enum Ended {
    Outcome(Box<Outcome>),
    Error(HandlerError),
    Panicked,
    Cancelled,
    TimedOut(&'static str),
    OverBudget(OverBudget),
}

/// What happens next in a run.
pub(super) enum Step {
    Progress(Progress),
    Ended(Ended),
}

type Work<'a> = BoxFuture<'a, Ended>;

pub(super) struct Race<'a, S: ?Sized> {
    clock: &'a S,
    limits: TimeLimits,
    stop: Stop,
    stopped: BoxFuture<'static, StopReason>,
    reports: mpsc::Receiver<Progress>,
    work: Work<'a>,
    ended: Option<Ended>,
    spending: Arc<Spending>,
    grace_end: Option<Mono>,
}

impl<'a, S: Sleep + Sync + ?Sized> Race<'a, S> {
    pub(super) fn new(
        clock: &'a S,
        handler: &'a dyn Handler,
        task: &Arc<Task>,
        stop: Stop,
        limits: TimeLimits,
    ) -> Self {
        let (sender, reports) = mpsc::channel(MAX_REPORTS);
        let spending = Arc::new(Spending::default());
        let context = Context {
            task: Arc::clone(task),
            reports: sender,
            stop: stop.clone(),
            spending: Arc::clone(&spending),
        };
        Self {
            clock,
            limits,
            stopped: stop.stopped().boxed(),
            stop,
            reports,
            work: work(handler, context),
            ended: None,
            spending,
            grace_end: None,
        }
    }

    /// Waits for the next report, or the end. Reports that were made before the end come before it.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            let now = self.clock.now();
            if let Some(why) = self.limits.over(now) {
                self.stop.fire(StopReason::TimedOut);
                return Step::Ended(Ended::TimedOut(why));
            }
            if self.grace_end.is_some_and(|end| now.mono >= end) {
                return Step::Ended(Ended::Cancelled);
            }
            if let Some(step) = self.step(now).await {
                return step;
            }
        }
    }

    /// The next report or end; `None` when time went on and is to be looked at.
    async fn step(&mut self, now: Now) -> Option<Step> {
        let wake = [self.limits.next(now), self.grace_end]
            .into_iter()
            .flatten()
            .min();
        let mut timer = wake.map(|at| self.clock.sleep_until(at));
        poll_fn(|cx| {
            if timer
                .as_mut()
                .is_some_and(|timer| timer.poll_unpin(cx).is_ready())
            {
                return Poll::Ready(None);
            }
            if self.grace_end.is_none() && self.stopped.poll_unpin(cx).is_ready() {
                self.grace_end = Some(now.mono.saturating_add(CANCEL_GRACE));
                return Poll::Ready(None);
            }
            loop {
                if let Poll::Ready(Some(progress)) = self.reports.poll_next_unpin(cx) {
                    // A task that is being stopped has nothing more to say.
                    if self.grace_end.is_some() {
                        continue;
                    }
                    return Poll::Ready(Some(Step::Progress(progress)));
                }
                if let Some(ended) = self.ended.take() {
                    return Poll::Ready(Some(Step::Ended(self.judge(ended))));
                }
                match self.work.poll_unpin(cx) {
                    // What it reported last is taken first.
                    Poll::Ready(ended) => self.ended = Some(ended),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// An answer counts only if time, budgets and the caller still let it.
    fn judge(&self, ended: Ended) -> Ended {
        if self.stop.reason() == Some(StopReason::Cancelled) {
            return Ended::Cancelled;
        }
        if let Some(why) = self.limits.over(self.clock.now()) {
            return Ended::TimedOut(why);
        }
        match self.spending.over() {
            Some(over) => Ended::OverBudget(over),
            None => ended,
        }
    }
}

/// Waits for somebody else's outcome; gives the end where the task's own comes first.
pub(super) async fn wait<S: Sleep + Sync + ?Sized>(
    clock: &S,
    limits: &TimeLimits,
    stop: &Stop,
    mut completion: Completion,
) -> Option<Ended> {
    let mut stopped = stop.stopped().boxed();
    loop {
        let now = clock.now();
        if let Some(why) = limits.over(now) {
            return Some(Ended::TimedOut(why));
        }
        let mut timer = limits.next(now).map(|at| clock.sleep_until(at));
        let wake = poll_fn(|cx| {
            if completion.poll_unpin(cx).is_ready() {
                return Poll::Ready(Some(None));
            }
            if stopped.poll_unpin(cx).is_ready() {
                return Poll::Ready(Some(Some(Ended::Cancelled)));
            }
            match timer.as_mut().map(|timer| timer.poll_unpin(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(None),
                Some(Poll::Pending) | None => Poll::Pending,
            }
        });
        if let Some(end) = wake.await {
            return end;
        }
    }
}

fn work(handler: &dyn Handler, context: Context) -> Work<'_> {
    // The call itself may panic too, so it is made inside.
    let run = AssertUnwindSafe(async move { handler.run(context).await });
    let ended = run.catch_unwind().map(|answer| match answer {
        Ok(Ok(outcome)) => Ended::Outcome(Box::new(outcome)),
        Ok(Err(error)) => Ended::Error(error),
        Err(_panic) => Ended::Panicked,
    });
    ended.boxed()
}

/// When a task's time is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    deadline: Option<Timestamp>,
    /// The end of a task that names no deadline.
    default: Option<Mono>,
    seconds: Option<Duration>,
    last: Option<Mono>,
}

// impl: SAP-5-8
impl TimeLimits {
    /// The limits of a task that has just come. `default` is the time of one without a deadline.
    pub(super) fn of(task: &Task, now: Now, default: Duration) -> Self {
        let seconds = task.budget().and_then(|budget| budget.seconds.as_ref());
        let seconds = seconds.map(|seconds| {
            Duration::try_from_secs_f64(Amount::value(seconds)).unwrap_or(Duration::MAX)
        });
        let deadline = task.deadline();
        let default = deadline.is_none().then(|| now.mono.saturating_add(default));
        let limits = Self {
            deadline,
            default,
            seconds,
            last: None,
        };
        limits.beginning(now)
    }

    /// The same limits with the budget of seconds counted from now.
    pub(super) fn beginning(mut self, now: Now) -> Self {
        let last = |seconds| now.mono.saturating_add(seconds);
        self.last = self.seconds.map(last);
        self
    }

    /// Why the time is over; equal is within.
    pub(super) fn over(&self, now: Now) -> Option<&'static str> {
        if self
            .deadline
            .is_some_and(|deadline| now.wall.truncated_to_second() > deadline)
        {
            return Some("the deadline is over");
        }
        if self.default.is_some_and(|end| now.mono > end) {
            return Some("the time of a task without a deadline is over");
        }
        let is_over = self.last.is_some_and(|last| now.mono > last);
        is_over.then_some("the budget of seconds is used up")
    }

    /// When to look again.
    fn next(&self, now: Now) -> Option<Mono> {
        let deadline = self.deadline.map(|deadline| {
            // Times on the wire are whole seconds: all of the deadline's second is in time.
            let over = deadline.saturating_add(Duration::from_secs(1));
            let left = over.saturating_since(now.wall);
            now.mono.saturating_add(left)
        });
        let behind = |last: Mono| last.saturating_add(Duration::from_nanos(1));
        let ends = [deadline, self.default.map(behind), self.last.map(behind)];
        ends.into_iter().flatten().min()
    }
}
