//! The result: the envelope of one outcome.

use ubos_common::json::{RawBuf, RawObject, to_vec};
use ubos_common::time::{Timestamp, WholeSecond};

use crate::error::{ErrorCode, ErrorObject};
use crate::evidence::ConstitutionalEvidence;
use crate::ident::{AgentId, CorrelationId, TaskId, Version};
use crate::status::Status;
use crate::task::Task;

ubos_common::words! {
    /// What kind of party produces a result. Spec: SAP 4.2
    // impl: SAP-4-3
    closed pub enum ProducerKind {
        /// An agent.
        Agent = "agent",
        /// A system.
        System = "system",
    }
}

ubos_common::wire! {
    /// Who produced a result. Spec: SAP 4.2
    // impl: SAP-4.2-1
    pub struct Producer {
        /// The logical id.
        required agent_id: AgentId = "agentId", "SAP-4.2-1";
        /// What kind of party it is.
        required agent_kind: ProducerKind = "agentKind", "SAP-4.2-1";
    }
}

ubos_common::wire! {
    /// An outcome of a task, on the way or at the end. Spec: SAP 4.2
    // impl: SAP-2-2, SAP-2-3, SAP-2-4, SAP-4.2-1
    pub struct TaskResult {
        /// The version of the protocol.
        required protocol_version: Version = "protocolVersion", "SAP-2-1";
        /// The task that it belongs to.
        required task_id: TaskId = "taskId", "SAP-4.2-1";
        /// The task's correlation id.
        required correlation_id: CorrelationId = "correlationId", "SAP-4.2-1";
        /// When it was produced.
        required reported_at: WholeSecond = "reportedAt", "SAP-4.2-1";
        /// Who produced it.
        required producer: Producer = "producer", "SAP-4.2-1";
        /// How far the task is.
        required status: Status = "status", "SAP-4.2-2";
        /// The alignment proof.
        required constitutional_evidence: ConstitutionalEvidence = "constitutionalEvidence", "SAP-4.2-1";
        /// The data, any JSON value; null and absence are told apart.
        // impl: SAP-4.2-5
        verbatim output: RawBuf = "output", "SAP-4.2-5";
        /// Outputs kept elsewhere.
        // impl: SAP-4.2-6
        optional artifacts: Vec<RawObject> = "artifacts", "SAP-4.2-6";
        /// What was used up.
        optional metrics: RawObject = "metrics", "SAP-4.2-6";
        /// What went wrong.
        optional error: ErrorObject = "error", "SAP-4.2-6";
        /// What is proposed to be done next.
        optional next_actions: Vec<RawObject> = "nextActions", "SAP-4.2-6";
        /// Whatever else goes along.
        optional meta: RawObject = "meta", "SAP-4.2-6";
    }
}

impl TaskResult {
    /// A result of `task`, its ids taken over.
    #[must_use]
    pub fn of(
        task: &Task,
        reported_at: Timestamp,
        producer: Producer,
        status: Status,
        evidence: ConstitutionalEvidence,
    ) -> Self {
        Self::new(
            Version::V2,
            task.task_id,
            task.correlation_id,
            reported_at.into(),
            producer,
            status,
            evidence,
        )
    }

    /// Sets the error.
    pub(crate) fn with_error(mut self, code: ErrorCode, message: impl Into<String>) -> Self {
        self.error = Some(ErrorObject::with(code, message));
        self
    }

    /// The code of the error, if there is one.
    #[must_use]
    pub fn error_code(&self) -> Option<&ErrorCode> {
        self.error.as_ref()?.code.as_ref()
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        to_vec(self)
    }
}
