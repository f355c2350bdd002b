//! The calls of one connection that are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::JsonObject;
use serde_json::Value;

use super::about::CANCEL;
use crate::error::ErrorCode;
use crate::receipt::{Nack, ReceiptStatus};

/// Places for the calls of one connection. The library below starts a task for each call that it reads, however many there are.
#[derive(Debug)]
pub(super) struct Calls {
    under_way: Arc<AtomicUsize>,
    max: usize,
}

/// A place, until it is dropped.
pub(super) struct Call(Arc<AtomicUsize>);

impl Calls {
    pub(super) fn new(max: usize) -> Self {
        Self {
            under_way: Arc::default(),
            max,
        }
    }

    /// A place for a call of a tool, where one is free. Who cancels makes room, and has places beyond those of all.
    pub(super) fn enter(&self, tool: &str) -> Option<Call> {
        let beyond = if tool == CANCEL { CANCELS } else { 0 };
        let max = self.max.saturating_add(beyond);
        let more = |calls: usize| (calls < max).then_some(calls + 1);
        let order = Ordering::Relaxed;
        let entered = self.under_way.fetch_update(order, order, more);
        entered.ok().map(|_| Call(Arc::clone(&self.under_way)))
    }

    /// What a call is told for which there is no place: it may be made again.
    #[expect(clippy::expect_used, reason = "the reason is a text of this file")]
    pub(super) fn refusal(&self, arguments: Option<&JsonObject>) -> Nack {
        let text = |name| arguments?.get(name).and_then(Value::as_str);
        let why = format!(
            "{} calls of this connection are under way; call again later",
            self.max
        );
        let reason = why.parse().expect("the reason is not blank");
        let mut nack = Nack::new(ReceiptStatus::Nack, ErrorCode::RateLimit, reason);
        nack.message_id = text("taskId").and_then(|id| id.parse().ok());
        nack.correlation_id = text("correlationId").and_then(|id| id.parse().ok());
        nack
    }
}

/// A clone of a server serves another connection.
impl Clone for Calls {
    fn clone(&self) -> Self {
        Self::new(self.max)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls of one connection where nothing else is set: as many as tasks run at the same time.
pub(super) const MAX_CALLS: usize = 1_024;

/// Places that only a cancel takes.
const CANCELS: usize = 64;
