//! The events of a run.

mod json;

use std::borrow::Cow;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawObject, Write};
use upp::{StreamEvent, TokenUsage, ToolCall, ToolExecution};

use crate::state::{PlanStep, PlanSteps, SubagentExecutionTrace, ToolExecutionTrace};

ubos_common::words! {
    /// The type of an agent's event.
    ///
    /// Spec: UAP-1.1 11.2
    open pub enum UapEventType {
        /// A step starts.
        StepStart = "step_start",
        /// A step has ended.
        StepEnd = "step_end",
        /// The model has produced reasoning.
        Reasoning = "reasoning",
        /// The model calls tools. None has run yet.
        Action = "action",
        /// The results of the tools.
        Observation = "observation",
        /// A sub-agent starts.
        SubagentStart = "subagent_start",
        /// An event of a sub-agent.
        SubagentEvent = "subagent_event",
        /// A sub-agent has ended.
        SubagentEnd = "subagent_end",
        /// A plan was created; only with plan events enabled.
        PlanCreated = "plan_created",
        /// A step of the plan starts; only with plan events enabled.
        PlanStepStart = "plan_step_start",
        /// A step of the plan has ended; only with plan events enabled.
        PlanStepEnd = "plan_step_end",
        /// A state was not saved; the run continues. Beyond the specification, and only where a save fails.
        SaveFailed = "save_failed",
    }
}

/// An event of an agent, or of its model and tools.
///
/// Spec: UAP-1.1 11.2
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentStreamEvent {
    /// An event of the agent.
    Uap(UapEvent),
    /// An event of the model or of a tool.
    Upp(StreamEvent),
}

/// An event of the agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UapEvent {
    /// The type.
    pub event_type: UapEventType,
    /// The step, from 1 in each run.
    pub step: u64,
    /// The agent's id.
    pub agent_id: Arc<str>,
    /// The data.
    pub data: EventData,
}

impl UapEvent {
    pub(crate) const fn new(
        event_type: UapEventType,
        step: u64,
        agent_id: Arc<str>,
        data: EventData,
    ) -> Self {
        Self {
            event_type,
            step,
            agent_id,
            data,
        }
    }
}

/// The data of an agent's event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventData {
    /// The iteration of the loop: `{"iteration"}`.
    Iteration(u64),
    /// The phase of a step: `{"phase","plan"?,"planStep"?}`.
    Phase {
        /// The name of the layer.
        phase: Cow<'static, str>,
        /// The plan, where the phase created one.
        plan: Option<PlanSteps>,
        /// The plan step that the phase executes.
        plan_step: Option<PlanStep>,
    },
    /// `{"reasoning"}`
    Reasoning(Arc<str>),
    /// `{"toolCalls"}`
    ToolCalls(Arc<[ToolCall]>),
    /// `{"observations"}`
    Observations(Arc<[ToolExecution]>),
    /// `{"plan"}`
    Plan(PlanSteps),
    /// `{"planStep"}`
    PlanStep(PlanStep),
    /// An event of a sub-agent.
    Subagent(Arc<SubagentData>),
    /// `{"error"}`: why a state was not saved.
    SaveFailed(Arc<str>),
    /// Data of a custom strategy.
    Custom(RawObject),
}

impl EventData {
    /// A phase without a plan.
    #[must_use]
    pub const fn phase(phase: &'static str) -> Self {
        Self::Phase {
            phase: Cow::Borrowed(phase),
            plan: None,
            plan_step: None,
        }
    }
}

/// The data of a sub-agent's event.
///
/// Spec: UAP-1.1 8.4
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SubagentData {
    /// The id of the call, a UUIDv4. All events of the call have it.
    pub subagent_id: Arc<str>,
    /// The type of the sub-agent.
    pub subagent_type: Arc<str>,
    /// The tool call of the parent's model.
    pub parent_tool_call_id: Arc<str>,
    /// The event.
    pub event: SubagentEvent,
}

impl SubagentData {
    /// An event of the sub-agent that the tool call with this id runs.
    pub fn new(
        subagent_id: impl Into<Arc<str>>,
        subagent_type: impl Into<Arc<str>>,
        parent_tool_call_id: impl Into<Arc<str>>,
        event: SubagentEvent,
    ) -> Self {
        Self {
            subagent_id: subagent_id.into(),
            subagent_type: subagent_type.into(),
            parent_tool_call_id: parent_tool_call_id.into(),
            event,
        }
    }
}

/// An event of a sub-agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SubagentEvent {
    /// It starts: `{"prompt","timestamp"}`.
    Start {
        /// The prompt.
        prompt: Arc<str>,
        /// Milliseconds since 1970.
        timestamp: i64,
    },
    /// An event of its own: `{"innerEvent"}`.
    Event(Box<AgentStreamEvent>),
    /// It has ended: `{"success","result"|"error","timestamp","toolExecutions"?,"usage"?}`.
    End(Box<SubagentEnd>),
}

ubos_common::wire! {
    /// What an event tells of the end of a sub-agent.
    ///
    /// Spec: UAP-1.1 8.4
    pub struct SubagentEnd {
        /// Whether it succeeded.
        required success: bool = "success", "UAP-8-3";
        /// The result, if it succeeded.
        nullable result: Arc<str> = "result", "UAP-8-3";
        /// The error, if it failed.
        nullable error: Arc<str> = "error", "UAP-8-3";
        /// Milliseconds since 1970.
        required timestamp: i64 = "timestamp", "UAP-8-3";
        /// The tools that it ran.
        nullable tool_executions: Vec<ToolExecutionTrace> = "toolExecutions", "UAP-8-3";
        /// The tokens that it took.
        nullable usage: TokenUsage = "usage", "UAP-8-3";
    }
}

impl From<&SubagentExecutionTrace> for SubagentEnd {
    fn from(trace: &SubagentExecutionTrace) -> Self {
        let mut end = Self::new(trace.success, trace.end_time);
        end.result.clone_from(&trace.result);
        end.error.clone_from(&trace.error);
        end.tool_executions.clone_from(&trace.tool_executions);
        end.usage.clone_from(&trace.usage);
        end
    }
}

impl Write for SubagentData {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("subagentId", &self.subagent_id);
        object.member("subagentType", &self.subagent_type);
        object.member("parentToolCallId", &self.parent_tool_call_id);
        match &self.event {
            SubagentEvent::Start { prompt, timestamp } => {
                object.member("prompt", prompt);
                object.member("timestamp", timestamp);
            }
            SubagentEvent::Event(event) => object.member("innerEvent", event.as_ref()),
            SubagentEvent::End(end) => {
                object.member("success", &end.success);
                object.optional("result", end.result.as_ref());
                object.optional("error", end.error.as_ref());
                object.member("timestamp", &end.timestamp);
                object.optional("toolExecutions", end.tool_executions.as_ref());
                object.optional("usage", end.usage.as_ref());
                end.extra.write_into(&mut object);
            }
        }
        object.end();
    }
}

impl Write for EventData {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Custom(data) => return data.write(out),
            Self::Subagent(data) => return data.write(out),
            _ => {}
        }
        let mut object = MemberWriter::begin(out);
        match self {
            Self::Iteration(round) => object.member("iteration", round),
            Self::Phase {
                phase,
                plan,
                plan_step,
            } => {
                object.member("phase", &**phase);
                object.optional("plan", plan.as_ref());
                object.optional("planStep", plan_step.as_ref());
            }
            Self::Reasoning(text) => object.member("reasoning", text),
            Self::ToolCalls(calls) => object.member("toolCalls", calls),
            Self::Observations(executions) => object.member("observations", executions),
            Self::Plan(plan) => object.member("plan", plan),
            Self::PlanStep(step) => object.member("planStep", step),
            Self::SaveFailed(why) => object.member("error", why),
            Self::Subagent(_) | Self::Custom(_) => {}
        }
        object.end();
    }
}

impl Write for UapEvent {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("type", &self.event_type);
        object.member("step", &self.step);
        object.member("agentId", &self.agent_id);
        object.member("data", &self.data);
        object.end();
    }
}

impl Write for AgentStreamEvent {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        match self {
            Self::Uap(event) => {
                object.member("source", "uap");
                object.member("uap", event);
            }
            Self::Upp(event) => {
                object.member("source", "upp");
                object.member("upp", event);
            }
        }
        object.end();
    }
}
