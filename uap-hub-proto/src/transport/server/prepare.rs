//! The preparation of sessions.

use std::{fmt, pin::Pin, sync::Arc};

use crate::id::{JobId, SessionId};

/// A hook that prepares a session, or fails with a reason.
///
/// Spec: UAP hub 3
#[derive(Clone)]
pub(crate) struct Prepare(pub(super) Arc<PrepareFn>);

type PrepareFn = dyn Fn(JobId, SessionId) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>
    + Send
    + Sync;

impl Prepare {
    /// A hook made of an async function.
    pub(super) fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(JobId, SessionId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move |job, session| Box::pin(hook(job, session))))
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}
