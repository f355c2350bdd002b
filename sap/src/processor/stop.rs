//! The signal that tells a handler to stop.

use core::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::Shared;

use crate::role::consumer::StopReason;

/// The signal; clones are one signal.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    sender: Arc<Mutex<Option<oneshot::Sender<StopReason>>>>,
    signal: Shared<oneshot::Receiver<StopReason>>,
}

impl Stop {
    pub(super) fn new() -> Self {
        let (sender, receiver) = oneshot::channel();
        Self {
            sender: Arc::new(Mutex::new(Some(sender))),
            signal: receiver.shared(),
        }
    }

    /// Gives the signal; the first reason stays.
    pub(super) fn fire(&self, reason: StopReason) {
        let sender = self
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sender) = sender {
            let _ = sender.send(reason);
        }
    }

    pub(super) fn stopped(&self) -> impl Future<Output = StopReason> + Send + 'static + use<> {
        let signal = self.signal.clone();
        async move {
            match signal.await {
                Ok(reason) => reason,
                // Nobody is left to stop the task.
                Err(oneshot::Canceled) => core::future::pending().await,
            }
        }
    }
}
