//! The end of a server, for the tasks that it began.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

/// The end of a server. It goes with requests for the routes of the application, too. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Closing(Arc<Signals>);

#[derive(Debug)]
struct Signals {
    is_closed: watch::Sender<bool>,
    is_over: watch::Sender<bool>,
    /// Every task that runs has a receiver of it.
    tasks: watch::Sender<()>,
}

/// One task of a server, which runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    of: Closing,
    _task: watch::Receiver<()>,
}

impl Default for Closing {
    fn default() -> Self {
        Self(Arc::new(Signals {
            is_closed: watch::Sender::new(false),
            is_over: watch::Sender::new(false),
            tasks: watch::Sender::new(()),
        }))
    }
}

impl Closing {
    /// Lets a task in, which the end of the server waits for.
    pub(crate) fn enter(&self) -> Running {
        Running {
            of: self.clone(),
            _task: self.0.tasks.subscribe(),
        }
    }

    /// Lets no more tasks in, and has those that run cancelled.
    pub(super) fn close(&self) {
        self.0.is_closed.send_replace(true);
    }

    /// Ready when the server is closed.
    pub(super) fn closed(&self) -> BoxFuture<'static, ()> {
        said(&self.0.is_closed)
    }

    /// Waits no longer for tasks that run: they are dropped.
    pub(super) fn end(&self) {
        self.0.is_over.send_replace(true);
    }

    /// Ready when no task runs.
    pub(super) async fn idle(&self) {
        self.0.tasks.closed().await;
    }
}

impl Running {
    /// Whether it came too late.
    pub(super) fn is_late(&self) -> bool {
        *self.of.0.is_closed.borrow()
    }

    /// Ready when the task is to be cancelled.
    pub(crate) fn cancelled(&self) -> BoxFuture<'static, ()> {
        self.of.closed()
    }

    /// Ready when the task is to be dropped.
    pub(super) fn dropped(&self) -> BoxFuture<'static, ()> {
        said(&self.of.0.is_over)
    }
}

fn said(signal: &watch::Sender<bool>) -> BoxFuture<'static, ()> {
    let mut signal = signal.subscribe();
    Box::pin(async move {
        if signal.wait_for(|is_said| *is_said).await.is_err() {
            // A server that is gone without an end cancels nothing.
            core::future::pending().await
        }
    })
}
