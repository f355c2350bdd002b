//! What an agent's owner asks of it while it serves.

use tokio::sync::{mpsc, oneshot};

use super::tool::Tool;
use crate::error::CommandError;

/// Updates that wait for the driver.
const UPDATES: usize = 4;

pub(super) enum Update {
    Tools(Vec<Tool>, oneshot::Sender<Result<(), CommandError>>),
    Shutdown,
}

/// Changes an agent that serves. See [`Agent::control`](super::Agent::control).
#[derive(Clone, Debug)]
pub struct AgentControl(mpsc::Sender<Update>);

pub(super) fn channel() -> (AgentControl, mpsc::Receiver<Update>) {
    let (tx, rx) = mpsc::channel(UPDATES);
    (AgentControl(tx), rx)
}

impl AgentControl {
    /// Offers these tools and no others; calls that run go on. Before the core has welcomed the agent they replace those
    /// that it was built with.
    ///
    /// # Errors
    ///
    /// The agent does not serve any more, or the message would be too long: see [`CommandError`].
    ///
    /// Spec: OpenSentience 4.2.1
    pub async fn replace_tools(&self, tools: Vec<Tool>) -> Result<(), CommandError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send(Update::Tools(tools, reply)).await;
        sent.map_err(|_| CommandError::Closing)?;
        answer.await.unwrap_or(Err(CommandError::Closing))
    }

    /// Shuts the agent down. One that has ended stays so.
    pub async fn shutdown(&self) {
        // One that is gone has ended.
        let _ = self.0.send(Update::Shutdown).await;
    }
}
