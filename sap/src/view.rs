//! A task as a router sees it: borrowed, without a copy.

use std::borrow::Cow;

use ubos_common::json::{self, DecodeError, Limits, Raw};
use ubos_common::time::WholeSecond;
use ubos_common::violation::{Profile, Report};

use crate::ident::{CorrelationId, TaskId, Version};
use crate::task::Priority;

ubos_common::wire! {
    /// A task read without a copy: what routing looks at is typed, the rest stays text.
    ///
    /// Limits hold and doubled members are refused at every depth. The rules of parts that stay text are not
    /// looked at: whoever acts on the task reads it with [`decode_task`](crate::validate::decode_task).
    ///
    /// ```
    /// use sap::TaskView;
    /// use sap::ubos_common::json::Limits;
    ///
    /// let text = br#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
    ///     "correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z",
    ///     "issuer":{"agentId":"A-prime","agentKind":"agent"},"target":{"capability":"consult.align"},
    ///     "constitutionalContext":{"pressureLevel":"instant"},"payload":{"n":1.50}}"#;
    /// let (task, _) = TaskView::decode(text, &Limits::default())?;
    /// assert_eq!((&*task.target.capability, task.payload.as_str()), ("consult.align", r#"{"n":1.50}"#));
    /// # Ok::<(), ubos_common::json::DecodeError>(())
    /// ```
    ///
    /// Spec: SAP 4.1
    pub struct TaskView<'a> {
        /// The version of the protocol.
        required protocol_version: Version = "protocolVersion", "SAP-2-1";
        /// Names this task.
        required task_id: TaskId = "taskId", "SAP-4.1-1";
        /// Ties it to other messages.
        required correlation_id: CorrelationId = "correlationId", "SAP-4.1-1";
        /// When it was issued.
        required issued_at: WholeSecond = "issuedAt", "SAP-4.1-1";
        /// Who issues it.
        required issuer: Raw<'a> = "issuer", "SAP-4.1-1";
        /// Where it goes.
        required target: TargetView<'a> = "target", "SAP-4.1-1";
        /// The alignment inputs.
        required constitutional_context: Raw<'a> = "constitutionalContext", "SAP-4.1-1";
        /// The inputs of the capability.
        required payload: Raw<'a> = "payload", "SAP-4.1-9";
        /// The task that this one belongs to.
        nullable parent_task_id: TaskId = "parentTaskId", "SAP-4.1-2";
        /// What the output is to look like.
        optional output_contract: Raw<'a> = "outputContract", "SAP-4.1-10";
        /// Controls of the execution.
        optional telemetry: TelemetryView<'a> = "telemetry", "SAP-4.1-11";
        /// Where results go.
        optional reply_to: Raw<'a> = "replyTo", "SAP-4.1-12";
        /// Payloads kept elsewhere.
        optional attachments: Raw<'a> = "attachments", "SAP-4.1-13";
        /// Labels.
        optional tags: Raw<'a> = "tags", "SAP-4.1-13";
        /// Whatever else goes along.
        optional meta: Raw<'a> = "meta", "SAP-4.1-13";
    }
}

ubos_common::wire! {
    /// Where a task goes.
    pub struct TargetView<'a> {
        /// What is to be done; whether it is namespaced is not looked at.
        required capability: Cow<'a, str> = "capability", "SAP-4.1-4";
        /// The one agent that may do it.
        optional agent_id: Cow<'a, str> = "agentId", "SAP-4.1-4";
        /// Hints for routing.
        optional routing_hints: Raw<'a> = "routingHints", "SAP-4.1-4";
    }
}

ubos_common::wire! {
    /// Controls of the execution.
    pub struct TelemetryView<'a> {
        /// How urgent it is.
        optional priority: Priority = "priority", "SAP-4.1-11";
        /// The last second in which a result counts.
        optional deadline: WholeSecond = "deadline", "SAP-4.1-11";
        /// What may be used up.
        optional budget: Raw<'a> = "budget", "SAP-4.1-11";
        /// Whether deep tracing is asked for.
        optional trace: bool = "trace", "SAP-4.1-11";
    }
}

impl<'a> TaskView<'a> {
    /// Reads a task strictly, as far as the view goes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`], with every finding.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, Report), DecodeError> {
        json::decode(bytes, limits, Profile::Strict)
    }
}
