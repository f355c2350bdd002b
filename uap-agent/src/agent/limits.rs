//! How long a run, a request to the model and a tool may take.

use core::future::Future;
use core::pin::pin;
use core::time::Duration;

use futures::future::{self, Either};
use futures_core::future::BoxFuture;
use ubos_common::time::Mono;
use upp::{CancelToken, ErrorCode, ModelStream, UppError};

/// The limits of an agent; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeLimits {
    pub(super) run: Option<Duration>,
    pub(super) model: Option<Duration>,
    pub(super) tool: Option<Duration>,
}

/// A response that is being read.
pub(super) struct Response {
    pub(super) stream: ModelStream,
    /// When reading ends, and why.
    pub(super) ends: Option<(Mono, Cut)>,
}

/// Why a response is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// The middleware has no more time for the run.
    Spent,
    /// The request has taken too long.
    Slow,
}

/// What the work comes to; `None` where the end is there first.
pub(super) async fn until<T>(
    end: Option<BoxFuture<'static, ()>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(end) = end else {
        return Some(work.await);
    };
    match future::select(pin!(work), end).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// A token of one tool call: cancelled with the run, and where the call is dropped.
pub(super) struct CallToken(pub(super) CancelToken);

impl CallToken {
    /// What the call comes to, while it hears of an abort.
    pub(super) async fn over<T>(&self, run: CancelToken, work: impl Future<Output = T>) -> T {
        let aborted = pin!(async {
            run.cancelled().await;
            self.0.cancel();
            future::pending::<T>().await
        });
        match future::select(pin!(work), aborted).await {
            Either::Left((done, _)) | Either::Right((done, _)) => done,
        }
    }
}

impl Drop for CallToken {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(super) fn slow(what: &str) -> UppError {
    UppError::new(
        ErrorCode::Timeout,
        "uap",
        format!("{what} has taken too long"),
    )
}
