//! What an agent's owner asks of it while it serves.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};

use super::tool::Tool;
use crate::error::CommandError;

/// Updates that wait for the driver.
const UPDATES: usize = 4;

/// Tools to offer, and who waits for that.
pub(super) type Update = (Vec<Tool>, oneshot::Sender<Result<(), CommandError>>);

/// What an agent's owner asks of it.
pub(super) struct Asked {
    pub(super) updates: mpsc::Receiver<Update>,
    pub(super) shutdown: Arc<Notify>,
}

/// Changes an agent that serves. See [`Agent::control`](super::Agent::control).
#[derive(Clone, Debug)]
pub struct AgentControl {
    updates: mpsc::Sender<Update>,
    shutdown: Arc<Notify>,
}

pub(super) fn channel() -> (AgentControl, Asked) {
    let (tx, updates) = mpsc::channel(UPDATES);
    let shutdown = Arc::<Notify>::default();
    let control = AgentControl {
        updates: tx,
        shutdown: Arc::clone(&shutdown),
    };
    (control, Asked { updates, shutdown })
}

impl AgentControl {
    /// Offers these tools and no others; calls that run go on. Before the core has welcomed the agent they replace those
    /// that it was built with. While the core reads nothing this waits.
    ///
    /// # Errors
    ///
    /// The agent does not serve any more, or the message would be too long: see [`CommandError`].
    ///
    /// Spec: OpenSentience 4.2.1
    pub async fn replace_tools(&self, tools: Vec<Tool>) -> Result<(), CommandError> {
        let (reply, answer) = oneshot::channel();
        // An agent that has ended drops the reply, sent or not.
        let _ = self.updates.send((tools, reply)).await;
        answer.await.unwrap_or(Err(CommandError::Closing))
    }

    /// Shuts the agent down, whether or not its core reads. One that has ended stays so.
    #[expect(clippy::unused_async, reason = "it may have to wait one day")]
    pub async fn shutdown(&self) {
        self.shutdown.notify_one();
    }
}
