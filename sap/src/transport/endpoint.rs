//! The way of results to the endpoints that tasks name.

use core::fmt;
use core::future::Future;
use core::pin::pin;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::{BoxFuture, Either, select};
use ubos_common::driver::Sleep;
use ubos_common::trace_context::TraceContext;

use super::Message;
use crate::processor::Unreachable;
use crate::result::TaskResult;

/// Sends results to the endpoints that tasks name.
pub trait Replies: fmt::Debug + Send + Sync {
    /// Sends one result.
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>>;
}

/// A result on its way to the endpoint that its task names, and what goes beside it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ToEndpoint<'a> {
    /// The endpoint, as the task names it.
    pub endpoint: &'a str,
    /// The result.
    pub result: &'a TaskResult,
    /// Its signature as text, where the service signs and the result has a canonical form.
    pub signature: Option<&'a str>,
    /// The place in a trace that came beside the task.
    pub trace: Option<&'a TraceContext>,
}

/// No endpoint can be reached: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoReplies;

impl Replies for NoReplies {
    fn send<'a>(&'a self, _: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(core::future::ready(Err(Unreachable::NoWay)))
    }
}

/// What was said of one task and is not delivered yet.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    messages: AtomicUsize,
    /// It goes to an endpoint that is slow.
    is_slow: AtomicBool,
}

impl Undelivered {
    pub(super) fn add(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove(&self) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
    }

    fn are(&self, messages: usize) -> bool {
        self.messages.load(Ordering::Relaxed) >= messages
    }

    /// Whether the task waits until some are delivered. It does not for an endpoint that is slow.
    pub(super) fn hold_up(&self) -> bool {
        self.are(MAX_WAITING) && !self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether a message is not kept for an endpoint that is slow, because as many wait as may.
    pub(super) fn is_too_much(&self, message: &Message) -> bool {
        self.are(MAX_WAITING) && self.is_passed_over(message)
    }

    /// Whether a message, whose turn it is, is left out because something newer waits for an endpoint that is slow. The
    /// last is not.
    pub(super) fn is_overtaken(&self, message: &Message) -> bool {
        self.are(2) && self.is_passed_over(message)
    }

    fn is_passed_over(&self, message: &Message) -> bool {
        let is_on_the_way =
            matches!(message, Message::Result(result) if !result.status.is_terminal());
        is_on_the_way && self.is_slow.load(Ordering::Relaxed)
    }

    /// Waits until an endpoint has taken a result, as long as one may take. Before that it counts as slow.
    pub(super) async fn taken(
        &self,
        clock: &(dyn Sleep + Send + Sync),
        sent: impl Future<Output = Result<(), Unreachable>>,
    ) -> Result<(), Unreachable> {
        let since = clock.now().mono;
        let sent = pin!(sent);
        let slow = clock.sleep_until(since.saturating_add(SLOW));
        let sent = match select(sent, slow).await {
            Either::Left((sent, _)) => {
                self.is_slow.store(false, Ordering::Relaxed);
                return sent;
            }
            Either::Right(((), sent)) => sent,
        };
        self.is_slow.store(true, Ordering::Relaxed);
        let late = clock.sleep_until(since.saturating_add(MAX_SENDING));
        match select(sent, late).await {
            Either::Left((sent, _)) => sent,
            Either::Right(_) => Err(Unreachable::Carrier("nothing within 30 s".into())),
        }
    }
}

/// Messages that wait for one that is slow to take them.
pub(crate) const MAX_WAITING: usize = 64;
/// After so long with one result, an endpoint is slow.
const SLOW: Duration = Duration::from_secs(1);
/// How long an endpoint may take with one result.
const MAX_SENDING: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::status::Status;

    // spec: SAP-4.1-17
    #[test]
    fn a_slow_endpoint_is_kept_no_more_than_may_wait_but_the_end() {
        let task = samples::task();
        let [part, end] = [Status::Partial, Status::Succeeded]
            .map(|status| Message::Result(Box::new(samples::result(&task, status))));
        for is_slow in [false, true] {
            let waiting = Undelivered::default();
            waiting.is_slow.store(is_slow, Ordering::Relaxed);
            for _ in 1..MAX_WAITING {
                waiting.add();
            }
            assert!(!waiting.is_too_much(&part) && !waiting.hold_up());
            waiting.add();
            // One that is not slow holds its task up instead.
            assert_eq!(
                (waiting.is_too_much(&part), waiting.hold_up()),
                (is_slow, !is_slow)
            );
            assert!(!waiting.is_too_much(&end));
        }
    }
}
