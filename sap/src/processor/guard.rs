//! Code of somebody else, which may panic.

use core::future::Future;
use core::panic::AssertUnwindSafe;

use futures::FutureExt as _;

/// Code of somebody else panicked; what it said then is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hook, a handler or a store panicked")]
pub(crate) struct Panicked;

/// What somebody else's code answers.
pub(crate) async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let answer = AssertUnwindSafe(work).catch_unwind().await;
    answer.map_err(|_payload| Panicked)
}
