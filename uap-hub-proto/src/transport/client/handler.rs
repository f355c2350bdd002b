//! Handlers, and their access to a session.

use std::{
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use ubos_common::trace_context::TraceContext;

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
pub(crate) struct Handler(Arc<HandlerFn>);

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

type FailureFn = dyn Fn(&SessionId, &HandlerError) + Send + Sync;

/// A user's function that is told of the failures of handlers.
#[derive(Clone, Default)]
pub(crate) struct Failures(Option<Arc<FailureFn>>);

impl Failures {
    pub(super) fn new(told: impl Fn(&SessionId, &HandlerError) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Tells of a failure. A panic changes nothing of it.
    pub(super) fn tell(&self, session: &SessionId, error: &HandlerError) {
        if let Some(told) = &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| told(session, error)));
        }
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failures")
    }
}

/// Causes of an error whose words are told.
const MAX_CAUSES: usize = 16;

/// What a handler reports of its session.
#[derive(Debug)]
pub(super) enum Report {
    /// The session runs, with a description.
    Running(String),
    /// A line of log.
    Telemetry(Telemetry),
}

/// Where reports of handlers go.
pub(super) trait ReportSink: fmt::Debug + Send + Sync {
    /// Sends a report of a session; the permit is released when it is on its way.
    fn report(
        self: Arc<Self>,
        session: &SessionId,
        report: Report,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), CommandError>;
}

/// Reports of a handler to the hub. Each call waits while the hub reads too slowly.
#[derive(Clone, Debug)]
pub struct Context {
    session: SessionId,
    trace: Option<TraceContext>,
    sink: Arc<dyn ReportSink>,
    /// Reports that may still wait to be sent, of `max_waiting`.
    room: Arc<Semaphore>,
    max_waiting: usize,
    cancel: Cancel,
}

/// Whether a session was lost or cancelled, between the agent and its handler.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancel(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    is_cancelled: AtomicBool,
    /// The handler has asked, and is given time to end by itself.
    is_watched: AtomicBool,
    told: Notify,
}

impl Cancel {
    /// Tells the handler; returns whether it listens.
    pub(super) fn tell(&self) -> bool {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.told.notify_waiters();
        self.0.is_watched.load(Ordering::SeqCst)
    }
}

impl Context {
    pub(super) fn new(
        (session, trace): (SessionId, Option<TraceContext>),
        sink: Arc<dyn ReportSink>,
        max_waiting: usize,
        cancel: Cancel,
    ) -> Self {
        Self {
            session,
            trace,
            sink,
            room: Arc::new(Semaphore::new(max_waiting)),
            max_waiting,
            cancel,
        }
    }

    /// Waits until the session is lost or cancelled. A handler that has called this is then given 5 s to end by itself, in
    /// which its reports and its result are dropped; any other is stopped at its next `await`. When the agent is dropped,
    /// all are stopped.
    pub async fn cancelled(&self) {
        let Cancelled {
            is_cancelled,
            is_watched,
            told,
        } = &*self.cancel.0;
        is_watched.store(true, Ordering::SeqCst);
        // Made before the flag is read: whoever sets it afterwards wakes this.
        let told = told.notified();
        if !is_cancelled.load(Ordering::SeqCst) {
            told.await;
        }
    }

    /// The session's name.
    #[must_use]
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// The place in a distributed trace that the job was submitted from, as the hub told it; `None` where it told none, or
    /// none that is valid. What the handler does is a [`child`](TraceContext::child) of it.
    #[must_use]
    pub const fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// Reports that the session runs, with a description.
    ///
    /// # Errors
    ///
    /// The session was lost, or the message is too large.
    pub async fn status(&self, message: impl Into<String>) -> Result<(), CommandError> {
        self.report(Report::Running(message.into())).await
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
        self.report(Report::Telemetry(telemetry)).await
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

    async fn report(&self, report: Report) -> Result<(), CommandError> {
        let permit = self.room.clone().acquire_owned().await;
        let waiting = (self.max_waiting).saturating_sub(self.room.available_permits());
        trace::queue("reports", waiting, self.max_waiting);
        // The semaphore is never closed.
        let permit = permit.map_err(|_| CommandError::NotRunning)?;
        self.sink.clone().report(&self.session, report, permit)
    }
}

/// The failure of a handler. Every error converts into it, so that `?` works in handlers; the hub is then told its words and
/// those of its causes. [`on_failure`](super::AgentBuilder::on_failure) gets the error itself.
///
/// ```
/// use uap_hub_proto::transport::client::HandlerError;
///
/// fn read() -> Result<String, HandlerError> {
///     Ok(std::fs::read_to_string("/nowhere")?)
/// }
/// let source = read().unwrap_err().into_source().unwrap();
/// assert!(source.is::<std::io::Error>());
/// ```
#[derive(Debug)]
pub struct HandlerError {
    state: State,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl HandlerError {
    /// The job failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            state: State::Failed,
            message: message.into(),
            source: None,
        }
    }

    /// The job makes no sense: a payload is missing or cannot be read.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            state: State::Invalid,
            message: message.into(),
            source: None,
        }
    }

    /// What the hub is told.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that it was made of.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// The error that it was made of.
    #[must_use]
    pub fn into_source(self) -> Option<Box<dyn Error + Send + Sync>> {
        self.source
    }

    pub(super) fn into_result(self, kind: crate::capability::Kind) -> JobResult {
        JobResult::bare(kind, self.state, self.message)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let error = error.into();
        let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
        let message = causes
            .take(MAX_CAUSES)
            .fold(error.to_string(), |words, cause| {
                let cause = cause.to_string();
                // Many errors repeat their cause in their own words.
                if words.ends_with(&cause) {
                    return words;
                }
                format!("{words}: {cause}")
            });
        Self {
            source: Some(error),
            ..Self::new(message)
        }
    }
}
