//! Progress in its order among the answers.

use std::borrow::Cow;

use rmcp::model::{JsonRpcMessage, ProgressNotificationParam, ServerNotification};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::server::Progress;

/// A transport that hands reports of progress to their calls as it reads them. The library handles each notification in a task
/// of its own, so that an answer may overtake what the server said before it.
pub(super) struct Ordered<T> {
    inner: T,
    progress: Progress,
    /// A message that was read and is not handed on yet: reading may be dropped at any time.
    held: Option<RxJsonRpcMessage<RoleClient>>,
}

impl<T> Ordered<T> {
    pub(super) const fn new(inner: T, progress: Progress) -> Self {
        Self {
            inner,
            progress,
            held: None,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Ordered<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if self.held.is_none() {
            self.held = self.inner.receive().await;
        }
        if let Some(report) = self.held.as_ref().and_then(progress_of) {
            let calls = self.progress.lock().await;
            if let Some(call) = calls.get(&report.progress_token) {
                // One that says more follows; a slow core need not hear them all.
                let _ = call.try_send(report.clone());
            }
        }
        self.held.take()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

fn progress_of(message: &RxJsonRpcMessage<RoleClient>) -> Option<&ProgressNotificationParam> {
    match message {
        JsonRpcMessage::Notification(said) => match &said.notification {
            ServerNotification::ProgressNotification(report) => Some(&report.params),
            _ => None,
        },
        _ => None,
    }
}
