//! What the clients of all transports share: the exchange about one task.

use ubos_common::violation::Profile;

use super::{Message, SendError};
use crate::dispatch::dispatch;
use crate::lifecycle::{Accepted, Lifecycle, LifecycleError};
use crate::secrets::SecretPolicy;
use crate::task::Task;

/// Checks a task; gives its bytes and the exchange that its answers go to.
///
/// A task that holds a secret is not sent, and answers are read strictly.
pub(crate) fn begin(task: &Task) -> Result<(Vec<u8>, Exchange), SendError> {
    let (bytes, _) = dispatch(task, SecretPolicy::Refuse)?;
    Ok((bytes, Exchange::new(task)))
}

/// Takes the messages about a task, and passes on those that are new and allowed.
#[derive(Debug)]
pub(crate) struct Exchange {
    lifecycle: Lifecycle,
    ids: (crate::TaskId, crate::CorrelationId),
    acknowledged: bool,
    /// Whether results go to an endpoint of the task.
    elsewhere: bool,
    /// New messages so far.
    delivered: usize,
    last: Option<Message>,
}

impl Exchange {
    pub(crate) fn new(task: &Task) -> Self {
        Self {
            lifecycle: Lifecycle::new(task, Profile::Strict),
            ids: (task.task_id, task.correlation_id),
            acknowledged: false,
            elsewhere: task
                .reply_to
                .as_ref()
                .is_some_and(|to| to.endpoint.is_some()),
            delivered: 0,
            last: None,
        }
    }

    /// Takes a message; tells it if it is new. Gives whether it was the last.
    ///
    /// An Ack that is late or doubled changes nothing.
    // impl: SAP-4.3-3, SAP-5-5
    pub(crate) fn take(
        &mut self,
        message: Message,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<bool, SendError> {
        self.belongs(&message).map_err(SendError::Refused)?;
        let is_new = match &message {
            Message::Ack(_) => {
                let first = !self.acknowledged && self.lifecycle.status().is_none();
                self.acknowledged = true;
                first
            }
            Message::Nack(_) => true,
            Message::Result(result) => {
                self.lifecycle.accept(result).map_err(SendError::Refused)? != Accepted::Repeat
            }
        };
        let is_last = message.is_last();
        if is_new {
            on_message(&message);
            self.delivered += 1;
            self.last = Some(message);
        }
        Ok(is_last)
    }

    /// The last new message; `None` where nothing was said, because results go to an endpoint.
    ///
    /// One that does not end the task is an answer in two cases: where results go to an endpoint, and alone, as
    /// the latest result of a task that was sent before and still runs.
    // impl: SAP-4.3-1
    pub(crate) fn end(self) -> Result<Option<Message>, SendError> {
        let what = match &self.last {
            _ if self.elsewhere => return Ok(self.last),
            Some(message) if message.is_last() => return Ok(self.last),
            Some(Message::Result(_)) if self.delivered == 1 => return Ok(self.last),
            Some(Message::Result(_)) => "results without an end",
            Some(_) => "an Ack without a result",
            None => "nothing",
        };
        Err(SendError::NoAnswer { what: what.into() })
    }

    fn belongs(&self, message: &Message) -> Result<(), LifecycleError> {
        let (task_id, correlation_id) = self.ids;
        if let Some(seen) = message.task_id().filter(|seen| **seen != task_id) {
            return Err(LifecycleError::Task {
                wanted: task_id,
                seen: *seen,
            });
        }
        match message.correlation_id() {
            Some(seen) if *seen != correlation_id => Err(LifecycleError::Correlation {
                wanted: correlation_id,
                seen: *seen,
            }),
            _ => Ok(()),
        }
    }
}
