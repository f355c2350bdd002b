//! Handlers, and their access to a session.

use std::{fmt, pin::Pin, sync::Arc};

use tokio::sync::Semaphore;

use super::shared::Shared;
use crate::{
    id::SessionId,
    message::JobResult,
    role::agent::CommandError,
    state::State,
    transport::trace,
    wire::{Payload, Severity, Telemetry},
};

/// A user's function, for either kind of result.
#[derive(Clone)]
pub(super) struct Handler(Arc<HandlerFn>);

type Running = Pin<Box<dyn Future<Output = Result<JobResult, HandlerError>> + Send>>;
type HandlerFn = dyn Fn(Vec<Payload>, Context) -> Running + Send + Sync;

impl Handler {
    pub(super) fn new<F, Fut, R>(handler: F) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Into<JobResult>,
    {
        Self(Arc::new(move |payloads, context| {
            let running = handler(payloads, context);
            Box::pin(async { running.await.map(Into::into) })
        }))
    }

    pub(super) fn run(&self, payloads: Vec<Payload>, context: Context) -> Running {
        (self.0)(payloads, context)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// Reports of a handler to the hub. Each call waits while the hub reads too slowly.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) session: SessionId,
    pub(super) shared: Arc<Shared>,
    /// Messages that may wait to be sent.
    pub(super) room: Arc<Semaphore>,
}

impl Context {
    /// The session's name.
    #[must_use]
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Reports that the session runs, with a description.
    ///
    /// # Errors
    ///
    /// The session was lost, or the message is too large.
    pub async fn status(&self, message: impl Into<String>) -> Result<(), CommandError> {
        let (id, message) = (&self.session, message.into());
        let permit = self.permit().await;
        self.shared.report(permit, |agent, now| {
            agent.status(now, id, State::Running, message)
        })
    }

    /// Reports progress: a running status whose message begins with `done/total`.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn progress(
        &self,
        done: usize,
        total: usize,
        message: &str,
    ) -> Result<(), CommandError> {
        self.status(format!("{done}/{total} {message}")).await
    }

    /// Sends a line of log.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn telemetry(&self, telemetry: Telemetry) -> Result<(), CommandError> {
        let permit = self.permit().await;
        self.shared.report(permit, |agent, now| {
            agent.telemetry(now, &self.session, telemetry)
        })
    }

    /// Sends a line of log without attachments.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub async fn log(
        &self,
        severity: Severity,
        message: impl Into<String>,
    ) -> Result<(), CommandError> {
        self.telemetry(Telemetry::new(severity, message)).await
    }

    async fn permit(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let permit = self.room.clone().acquire_owned().await.ok();
        let bound = self.shared.max_waiting;
        let waiting = bound.saturating_sub(self.room.available_permits());
        trace::queue("reports", waiting, bound);
        permit
    }
}

/// The failure of a handler. Every error converts into it, so that `?` works in handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    state: State,
    message: String,
}

impl HandlerError {
    /// The job failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            state: State::Failed,
            message: message.into(),
        }
    }

    /// The job makes no sense: a payload is missing or cannot be read.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            state: State::Invalid,
            message: message.into(),
        }
    }

    pub(super) fn into_result(self, kind: crate::capability::Kind) -> JobResult {
        JobResult::bare(kind, self.state, self.message)
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
