//! Plan steps and traces.

use std::sync::Arc;

use ubos_common::json::RawObject;
use upp::TokenUsage;

ubos_common::words! {
    /// The status of a plan step.
    closed pub enum PlanStepStatus {
        /// It has not started.
        Pending = "pending",
        /// It runs.
        InProgress = "in_progress",
        /// It is done.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
    }
}

ubos_common::wire! {
    /// One step of a plan.
    ///
    /// Spec: UAP-1.1 6.1
    pub struct PlanStep {
        /// The id, unique in its plan.
        required id: Arc<str> = "id", "UAP-12-6";
        /// The description of the work.
        required description: Arc<str> = "description", "UAP-12-6";
        /// The tool, if the plan names one.
        nullable tool: Arc<str> = "tool", "UAP-12-6";
        /// The ids of the steps that must be completed first.
        required depends_on: Vec<Arc<str>> = "dependsOn", "UAP-12-6";
        /// The status.
        required status: PlanStepStatus = "status", "UAP-12-6";
    }
}

ubos_common::wire! {
    /// The trace of an agent that was called as a tool.
    ///
    /// Spec: UAP-1.1 8.5
    pub struct SubagentExecutionTrace {
        /// The id of the call, a UUIDv4.
        required subagent_id: Arc<str> = "subagentId", "UAP-8-5";
        /// The type of the sub-agent.
        required subagent_type: Arc<str> = "subagentType", "UAP-8-5";
        /// The id of the tool call of the parent's model.
        required parent_tool_call_id: Arc<str> = "parentToolCallId", "UAP-8-5";
        /// The prompt.
        required prompt: Arc<str> = "prompt", "UAP-8-5";
        /// The start, in milliseconds since 1970.
        required start_time: i64 = "startTime", "UAP-8-5";
        /// The end, in milliseconds since 1970.
        required end_time: i64 = "endTime", "UAP-8-5";
        /// Whether it succeeded.
        required success: bool = "success", "UAP-8-5";
        /// The result, if it succeeded.
        nullable result: Arc<str> = "result", "UAP-8-5";
        /// The error, if it failed.
        nullable error: Arc<str> = "error", "UAP-8-5";
        /// The calls of its tools.
        nullable tool_executions: Vec<ToolExecutionTrace> = "toolExecutions", "UAP-8-5";
        /// The tokens that it used.
        nullable usage: TokenUsage = "usage", "UAP-8-5";
    }
}

ubos_common::wire! {
    /// One tool call of a sub-agent.
    pub struct ToolExecutionTrace {
        /// The name of the tool.
        required tool_name: Arc<str> = "toolName", "UAP-8-5";
        /// The id of the call.
        nullable tool_call_id: Arc<str> = "toolCallId", "UAP-8-5";
        /// The arguments.
        required arguments: RawObject = "arguments", "UAP-8-5";
        /// The result: text as it is, anything else as JSON.
        required result: Arc<str> = "result", "UAP-8-5";
        /// Whether the result is an error.
        nullable is_error: bool = "isError", "UAP-8-5";
        /// The duration in milliseconds.
        nullable duration: u64 = "duration", "UAP-8-5";
    }
}
