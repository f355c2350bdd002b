//! Ack and Nack: what a transport may say before any result.

use core::fmt;

use ubos_common::time::Timestamp;
use ubos_common::violation::OneLine;

use crate::error::ErrorCode;
use crate::evidence::{Alignment, ConstitutionalEvidence};
use crate::ident::{CorrelationId, Reason, TaskId, Version};
use crate::result::{Producer, TaskResult};
use crate::status::Status;
use crate::task::Task;

ubos_common::words! {
    /// Which of the two receipts it is. Spec: SAP 4.3
    closed pub enum ReceiptStatus {
        /// Taken.
        Ack = "ACK",
        /// Turned away.
        Nack = "NACK",
    }
}

ubos_common::wire! {
    /// A valid and routable task was taken; at least one result follows. Spec: SAP 4.3
    pub struct Ack {
        /// `ACK`
        required status: ReceiptStatus = "status", "SAP-4.3-1";
        /// The task.
        required message_id: TaskId = "messageId", "SAP-4.3-1";
        /// Its correlation id.
        required correlation_id: CorrelationId = "correlationId", "SAP-4.3-1";
    }
}

ubos_common::wire! {
    /// A task was turned away before any handler ran; no result follows. Spec: SAP 4.3
    pub struct Nack {
        /// `NACK`
        required status: ReceiptStatus = "status", "SAP-4.3-2";
        /// Why, as a word.
        required code: ErrorCode = "code", "SAP-4.3-2";
        /// Why, for a person.
        required reason: Reason = "reason", "SAP-4.3-2";
        /// The task; absent where its id could not be read.
        optional message_id: TaskId = "messageId", "SAP-4.3-2";
        /// Its correlation id; absent where it could not be read.
        optional correlation_id: CorrelationId = "correlationId", "SAP-4.3-2";
    }
}

/// The Ack of a task.
// impl: SAP-4.3-1
impl From<&Task> for Ack {
    fn from(task: &Task) -> Self {
        Self::new(ReceiptStatus::Ack, task.task_id, task.correlation_id)
    }
}

impl Nack {
    /// A Nack of a task whose ids are known.
    #[must_use]
    pub fn of(task: &Task, code: ErrorCode, reason: Reason) -> Self {
        let mut nack = Self::new(ReceiptStatus::Nack, code, reason);
        nack.message_id = Some(task.task_id);
        nack.correlation_id = Some(task.correlation_id);
        nack
    }

    /// The Nack of a task for which nobody is here.
    #[expect(clippy::expect_used, reason = "a text of its own begins it")]
    pub(crate) fn not_here(task: &Task) -> Self {
        let target = &task.target;
        let mut why = format!(
            "no such capability or agent here: {}",
            quoted(target.capability.as_str())
        );
        if let Some(agent) = &target.agent_id {
            why.push_str(" of the agent ");
            why.push_str(&quoted(agent));
        }
        let reason = why.parse().expect("no reason here is blank");
        Self::of(task, ErrorCode::NotFound, reason)
    }

    /// The Nack of what is no task, for a reason of this crate's own.
    #[cfg(any(
        feature = "http",
        feature = "mcp",
        feature = "nats",
        all(test, feature = "driver")
    ))]
    #[expect(clippy::expect_used, reason = "every caller gives a text of its own")]
    pub(crate) fn malformed(why: &'static str) -> Self {
        let reason = why.parse().expect("no reason here is blank");
        Self::new(ReceiptStatus::Nack, ErrorCode::InvalidTask, reason)
    }

    /// The failed result of the same code, for a transport that has no Nack; `None` where an id is not known.
    ///
    /// Nothing was checked, so its alignment is VALID.
    // impl: SAP-4.3-2
    #[must_use]
    pub fn into_result(self, reported_at: Timestamp, producer: Producer) -> Option<TaskResult> {
        let result = TaskResult::new(
            Version::V2,
            self.message_id?,
            self.correlation_id?,
            reported_at.into(),
            producer,
            Status::Failed,
            ConstitutionalEvidence::new(Alignment::Valid),
        );
        Some(result.with_error(self.code, self.reason.as_str()))
    }
}

/// The code and why, in one line.
impl fmt::Display for Nack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, OneLine(self.reason.as_str()))
    }
}

/// A stranger's text in a message for people: its beginning, in quotes, what cannot be printed as escapes.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// Characters of a text that are quoted.
const MAX_QUOTED: usize = 120;
