//! A handler at work.

use core::panic::AssertUnwindSafe;
use core::task::{Context as Waking, Poll};
use std::sync::Arc;

use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _};
use ubos_common::trace_context::TraceContext;

use super::config::MAX_REPORTS;
use super::guard::Fragile;
use super::handler::{Context, Handler, Spending};
use super::stop::Stop;
use crate::role::consumer::{Ended, Progress};
use crate::task::Task;

/// What a handler says.
pub(super) enum Said {
    Report(Progress),
    Ended(Ended),
}

/// A handler at work.
pub(super) struct Running<'p> {
    pub(super) id: u64,
    reports: mpsc::Receiver<Progress>,
    work: Option<Fragile<'p, Ended>>,
    ended: Option<Ended>,
    spending: Arc<Spending>,
}

impl<'p> Running<'p> {
    pub(super) fn new(
        id: u64,
        handler: &'p dyn Handler,
        (task, trace): (&Arc<Task>, Option<TraceContext>),
        stop: Stop,
    ) -> Self {
        let (sender, reports) = mpsc::channel(MAX_REPORTS);
        let spending = Arc::new(Spending::default());
        let context = Context {
            task: Arc::clone(task),
            trace,
            reports: sender,
            stop,
            spending: Arc::clone(&spending),
        };
        // The call itself may panic too, so it is made inside.
        let run = AssertUnwindSafe(async move { handler.run(context).await });
        let ended = run.catch_unwind().map(|answer| match answer {
            Ok(Ok(outcome)) => Ended::Outcome(Box::new(outcome)),
            Ok(Err(error)) => Ended::Error(error),
            Err(_panic) => Ended::Panicked,
        });
        Self {
            id,
            reports,
            work: Some(ended.boxed().into()),
            ended: None,
            spending,
        }
    }

    /// Its next report, or its end. Reports that were made before the end come before it.
    pub(super) fn poll_said(&mut self, is_heard: bool, cx: &mut Waking<'_>) -> Poll<Said> {
        loop {
            if is_heard {
                if let Poll::Ready(Some(progress)) = self.reports.poll_next_unpin(cx) {
                    return Poll::Ready(Said::Report(progress));
                }
                if let Some(ended) = self.ended.take() {
                    let over = self.spending.over();
                    let ended = over.map_or(ended, Ended::OverBudget);
                    return Poll::Ready(Said::Ended(ended));
                }
            }
            let Some(work) = &mut self.work else {
                return Poll::Pending;
            };
            match work.poll_unpin(cx) {
                Poll::Ready(ended) => {
                    self.work = None;
                    self.ended = Some(ended);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
