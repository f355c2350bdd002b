//! Plan steps and traces, as they are written.

use std::sync::Arc;

use ubos_common::json::RawObject;
use upp::TokenUsage;

ubos_common::words! {
    /// How far a plan step is.
    closed pub enum PlanStepStatus {
        /// Not begun.
        Pending = "pending",
        /// Being done.
        InProgress = "in_progress",
        /// Done.
        Completed = "completed",
        /// Given up.
        Failed = "failed",
    }
}

ubos_common::wire! {
    /// One step of a plan.
    ///
    /// Spec: UAP-1.1 6.1
    pub struct PlanStep {
        /// Unique in its plan.
        required id: Arc<str> = "id", "UAP-12-6";
        /// What is to be done.
        required description: Arc<str> = "description", "UAP-12-6";
        /// With which tool, where the plan says it.
        nullable tool: Arc<str> = "tool", "UAP-12-6";
        /// The steps that must be completed first.
        required depends_on: Vec<Arc<str>> = "dependsOn", "UAP-12-6";
        /// How far it is.
        required status: PlanStepStatus = "status", "UAP-12-6";
    }
}

ubos_common::wire! {
    /// What an agent that was called as a tool did.
    ///
    /// Spec: UAP-1.1 8.5
    pub struct SubagentExecutionTrace {
        /// One call of it, UUIDv4.
        required subagent_id: Arc<str> = "subagentId", "UAP-8-5";
        /// What kind of agent it was.
        required subagent_type: Arc<str> = "subagentType", "UAP-8-5";
        /// The tool call of the parent's model.
        required parent_tool_call_id: Arc<str> = "parentToolCallId", "UAP-8-5";
        /// What it was asked.
        required prompt: Arc<str> = "prompt", "UAP-8-5";
        /// Milliseconds since 1970.
        required start_time: i64 = "startTime", "UAP-8-5";
        /// Milliseconds since 1970.
        required end_time: i64 = "endTime", "UAP-8-5";
        /// Whether it came to an answer.
        required success: bool = "success", "UAP-8-5";
        /// The answer.
        nullable result: Arc<str> = "result", "UAP-8-5";
        /// What went wrong.
        nullable error: Arc<str> = "error", "UAP-8-5";
        /// What its tools did.
        nullable tool_executions: Vec<ToolExecutionTrace> = "toolExecutions", "UAP-8-5";
        /// What it cost.
        nullable usage: TokenUsage = "usage", "UAP-8-5";
    }
}

ubos_common::wire! {
    /// What one tool of such an agent did.
    pub struct ToolExecutionTrace {
        /// Which tool.
        required tool_name: Arc<str> = "toolName", "UAP-8-5";
        /// Which call.
        nullable tool_call_id: Arc<str> = "toolCallId", "UAP-8-5";
        /// What it was given.
        required arguments: RawObject = "arguments", "UAP-8-5";
        /// What it gave; JSON where that was no text.
        required result: Arc<str> = "result", "UAP-8-5";
        /// Whether it went wrong.
        nullable is_error: bool = "isError", "UAP-8-5";
        /// Milliseconds.
        nullable duration: u64 = "duration", "UAP-8-5";
    }
}
