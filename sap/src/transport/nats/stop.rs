//! Whether a task is to be stopped.

use async_nats::HeaderMap;
use tokio::time::{sleep, timeout};
use ubos_common::canon::Digest;
use ubos_common::trace_context::TraceContext;

use super::cancel::Stored;
use super::{Queue, QueueError, is_of, only, peer_of, trace_of};
use crate::processor::Processor;
use crate::task::Task;
use crate::transport::about::MAX_AUTHORIZE;
use crate::transport::beside;

/// Looks for somebody who may stop one task.
pub(super) struct Stopping<'a> {
    pub(super) queue: &'a Queue,
    pub(super) processor: &'a Processor,
    pub(super) task: &'a Task,
    pub(super) body: &'a Digest,
    /// On whose subject the task was published.
    pub(super) user: Option<String>,
    pub(super) stored: Stored<'a>,
    /// Not all was looked at that is known to be there.
    pub(super) is_behind: bool,
}

impl Stopping<'_> {
    /// Whether the task was stopped before it begins. That is looked at for 30 s, and the rest while the task runs.
    pub(super) async fn is_stopped(&mut self) -> Result<bool, QueueError> {
        let Some(last) = self.stored.last(self.queue).await? else {
            return Ok(false);
        };
        let looked = timeout(MAX_AUTHORIZE, self.look(last)).await;
        self.is_behind = looked.is_err();
        looked.unwrap_or(Ok(false))
    }

    /// Waits until somebody stops the task who may.
    pub(super) async fn stopped(mut self) {
        loop {
            if !self.is_behind {
                self.stored.more().await;
            }
            match self.look(u64::MAX).await {
                Ok(true) => return,
                Ok(false) => self.is_behind = false,
                Err(_) => {
                    self.is_behind = true;
                    sleep(self.queue.config.busy_delay).await;
                }
            }
        }
    }

    /// Looks at what is stored, up to a message, until somebody may stop the task.
    async fn look(&mut self, last: u64) -> Result<bool, QueueError> {
        let mut refused = Vec::new();
        while let Some(message) = self.stored.next(self.queue).await? {
            if message.sequence > last {
                break;
            }
            let headers = &message.headers;
            let who = who(headers);
            if is_of(headers, self.body) && !refused.contains(&who) {
                match self.may_stop(headers).await {
                    Some(true) => return Ok(true),
                    Some(false) if refused.len() < MAX_REFUSED => refused.push(who),
                    _ => {}
                }
            }
            self.stored.pass(&message);
        }
        Ok(false)
    }

    /// Whether who said so may stop the task; nothing where that is not decided in time.
    async fn may_stop(&self, headers: &HeaderMap) -> Option<bool> {
        let peer = peer_of(self.user.clone(), Some(headers));
        let allowed = async {
            loop {
                if let Some(allowed) = self.processor.allows(&peer, self.task).await {
                    return allowed;
                }
                sleep(self.queue.config.busy_delay).await;
            }
        };
        timeout(MAX_AUTHORIZE, allowed).await.ok()
    }
}

/// All that tells those apart who may publish on one subject.
fn who(headers: &HeaderMap) -> (Option<String>, Option<TraceContext>) {
    let signature = only(headers, beside::SIGNATURE).map(str::to_owned);
    (signature, trace_of(headers))
}

/// Those who were refused and are not asked about again in one look.
const MAX_REFUSED: usize = 64;
