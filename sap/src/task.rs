//! The task: the envelope of one unit of work.

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{RawObject, to_vec};
use ubos_common::time::{Timestamp, WholeSecond};

use crate::context::ConstitutionalContext;
use crate::ident::{AgentId, Capability, CorrelationId, TaskId, Version};
use crate::number::Amount;

ubos_common::words! {
    /// What kind of party issues a task. Spec: SAP 4.1
    // impl: SAP-4-3
    closed pub enum AgentKind {
        /// A person.
        User = "user",
        /// A system.
        System = "system",
        /// An agent.
        Agent = "agent",
    }
}

ubos_common::words! {
    /// How urgent a task is. Spec: SAP 4.1
    // impl: SAP-4-3
    closed pub enum Priority {
        /// Whenever there is room.
        Low = "low",
        /// As it comes.
        Normal = "normal",
        /// Before others.
        High = "high",
        /// Before all others.
        Urgent = "urgent",
    }
}

ubos_common::wire! {
    /// Who issues the task. Spec: SAP 4.1
    // impl: SAP-4.1-3
    pub struct Issuer {
        /// The logical id.
        required agent_id: AgentId = "agentId", "SAP-4.1-3";
        /// What kind of party it is.
        required agent_kind: AgentKind = "agentKind", "SAP-4.1-3";
        /// A name to show.
        optional name: String = "name", "SAP-4.1-3";
    }
}

ubos_common::wire! {
    /// Where the task goes. Spec: SAP 4.1
    // impl: SAP-4.1-4
    pub struct Target {
        /// What is to be done.
        required capability: Capability = "capability", "SAP-4.1-4";
        /// The one agent that may do it; absent means any that can.
        optional agent_id: String = "agentId", "SAP-4.1-4";
        /// Hints for routing, not interpreted here.
        optional routing_hints: RawObject = "routingHints", "SAP-4.1-4";
    }
}

ubos_common::wire! {
    /// What the output is to look like. Spec: SAP 4.1
    pub struct OutputContract {
        /// A JSON Schema, or a descriptor that is kept and not enforced.
        optional schema: RawObject = "schema", "SAP-4.1-10";
        /// An open word such as `json` or `markdown`.
        optional format: String = "format", "SAP-4.1-10";
    }
}

ubos_common::wire! {
    /// What a task may use up; members of other names are budgets too. Spec: SAP 4.1
    // impl: SAP-4.1-11
    pub struct Budget {
        /// Tokens of a model.
        optional tokens: Amount = "tokens", "SAP-4.1-11";
        /// Seconds from the start.
        optional seconds: Amount = "seconds", "SAP-4.1-11";
    }
}

ubos_common::wire! {
    /// Controls of the execution. Spec: SAP 4.1
    // impl: SAP-4.1-11
    pub struct Telemetry {
        /// How urgent it is.
        optional priority: Priority = "priority", "SAP-4.1-11";
        /// The last second in which a result counts.
        optional deadline: WholeSecond = "deadline", "SAP-4.1-11";
        /// What may be used up.
        optional budget: Budget = "budget", "SAP-4.1-11";
        /// Whether deep tracing is asked for.
        optional trace: bool = "trace", "SAP-4.1-11";
    }
}

ubos_common::wire! {
    /// Where results go. Spec: SAP 4.1
    // impl: SAP-4.1-12
    pub struct ReplyTo {
        /// A URI or the key of a channel.
        optional @secret endpoint: String = "endpoint", "SAP-4.1-12";
        /// Whether an Ack is wanted; absent means yes.
        optional expect_ack: bool = "expectAck", "SAP-4.1-12";
    }
}

ubos_common::wire! {
    /// A payload kept elsewhere. Spec: SAP 4.1
    // impl: SAP-4.1-13
    pub struct Attachment {
        /// Where it is.
        optional @secret uri: String = "uri", "SAP-4.1-13";
        /// What it is, an open word.
        optional kind: String = "kind", "SAP-4.1-13";
        /// Its digest.
        optional digest: String = "digest", "SAP-4.1-13";
    }
}

ubos_common::wire! {
    /// A unit of work issued to an agent or capability.
    ///
    /// It can be made only with all that the specification demands; the other members are set by name.
    ///
    /// ```
    /// use sap::{AgentKind, ConstitutionalContext, Issuer, PressureLevel, Target, Task};
    /// use sap::ubos_common::id::IdSource;
    /// use sap::ubos_common::json::RawObject;
    /// use sap::ubos_common::time::{Timestamp, WholeSecond};
    ///
    /// let mut task = Task::draft(
    ///     &mut IdSource::seeded(1),
    ///     "2025-09-28T10:15:23Z".parse()?,
    ///     Issuer::new("A-prime".parse()?, AgentKind::Agent),
    ///     Target::new("consult.align".parse()?),
    ///     ConstitutionalContext::new(PressureLevel::Consulted),
    ///     RawObject::empty(),
    /// );
    /// task.constitutional_context.territory = Some("EUFM".into());
    /// assert!(sap::dispatch(&task, sap::SecretPolicy::Refuse).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Spec: SAP 4.1
    // impl: SAP-2-2, SAP-2-3, SAP-2-4, SAP-4.1-1
    pub struct Task {
        /// The version of the protocol.
        required protocol_version: Version = "protocolVersion", "SAP-2-1";
        /// Names this task.
        required task_id: TaskId = "taskId", "SAP-4.1-1";
        /// Ties it to other messages.
        required correlation_id: CorrelationId = "correlationId", "SAP-4.1-1";
        /// When it was issued.
        required issued_at: WholeSecond = "issuedAt", "SAP-4.1-1";
        /// Who issues it.
        required issuer: Issuer = "issuer", "SAP-4.1-1";
        /// Where it goes.
        required target: Target = "target", "SAP-4.1-1";
        /// The alignment inputs.
        required constitutional_context: ConstitutionalContext = "constitutionalContext", "SAP-4.1-1";
        /// The inputs of the capability: an object, kept as it was read.
        // impl: SAP-4.1-9
        required payload: RawObject = "payload", "SAP-4.1-9";
        /// The task that this one belongs to.
        // impl: SAP-4.1-2
        nullable parent_task_id: TaskId = "parentTaskId", "SAP-4.1-2";
        /// What the output is to look like.
        advised output_contract: OutputContract = "outputContract", "SAP-4.1-10", "SAP-4-2";
        /// Controls of the execution.
        optional telemetry: Telemetry = "telemetry", "SAP-4.1-11";
        /// Where results go; absent means back to the caller.
        optional reply_to: ReplyTo = "replyTo", "SAP-4.1-12";
        /// Payloads kept elsewhere.
        optional attachments: Vec<Attachment> = "attachments", "SAP-4.1-13";
        /// Labels.
        optional tags: Vec<String> = "tags", "SAP-4.1-13";
        /// Whatever else goes along.
        optional meta: RawObject = "meta", "SAP-4.1-13";
    }
}

/// A copy, for what takes a task as it is given: by reference, whole, or shared.
impl From<&Task> for Arc<Task> {
    fn from(task: &Task) -> Self {
        Self::new(task.clone())
    }
}

impl Task {
    /// A task with ids of its own, from `ids`.
    // impl: SAP-4.1-15
    pub fn draft(
        ids: &mut IdSource,
        issued_at: Timestamp,
        issuer: Issuer,
        target: Target,
        context: ConstitutionalContext,
        payload: RawObject,
    ) -> Self {
        let (task_id, correlation_id) = (ids.next_id(), ids.next_id());
        Self::new(
            Version::V2,
            task_id,
            correlation_id,
            issued_at.into(),
            issuer,
            target,
            context,
            payload,
        )
    }

    /// Whether the issuer wants an Ack first. Spec: SAP 4.1, 5
    // impl: SAP-4.1-12, SAP-5-9
    #[must_use]
    pub fn expects_ack(&self) -> bool {
        let reply_to = self.reply_to.as_ref();
        reply_to.and_then(|to| to.expect_ack).unwrap_or(true)
    }

    /// The last second in which a result counts.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.telemetry.as_ref()?.deadline.map(Timestamp::from)
    }

    /// The budget.
    pub(crate) fn budget(&self) -> Option<&Budget> {
        self.telemetry.as_ref()?.budget.as_ref()
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        to_vec(self)
    }
}
