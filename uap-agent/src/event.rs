//! The events of a run.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawObject, Write};
use upp::{AssistantMessage, StreamEvent, ToolExecution};

use crate::state::{PlanStep, SubagentExecutionTrace};

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
        phase: &'static str,
        /// The plan, where the phase created one.
        plan: Option<Arc<[PlanStep]>>,
        /// The plan step that the phase executes.
        plan_step: Option<PlanStep>,
    },
    /// `{"reasoning"}`
    Reasoning(Arc<str>),
    /// `{"toolCalls"}`: the message that holds them.
    ToolCalls(Arc<AssistantMessage>),
    /// `{"observations"}`
    Observations(Arc<[ToolExecution]>),
    /// `{"plan"}`
    Plan(Arc<[PlanStep]>),
    /// `{"planStep"}`
    PlanStep(PlanStep),
    /// An event of a sub-agent.
    Subagent(Arc<SubagentData>),
    /// Data of a custom strategy.
    Custom(RawObject),
}

impl EventData {
    /// A phase without a plan.
    #[must_use]
    pub const fn phase(phase: &'static str) -> Self {
        Self::Phase {
            phase,
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
    End(Box<SubagentExecutionTrace>),
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
            SubagentEvent::End(trace) => {
                object.member("success", &trace.success);
                object.optional("result", trace.result.as_ref());
                object.optional("error", trace.error.as_ref());
                object.member("timestamp", &trace.end_time);
                object.optional("toolExecutions", trace.tool_executions.as_ref());
                object.optional("usage", trace.usage.as_ref());
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
                object.member("phase", *phase);
                object.optional("plan", plan.as_ref());
                object.optional("planStep", plan_step.as_ref());
            }
            Self::Reasoning(text) => object.member("reasoning", text),
            Self::ToolCalls(message) => object.member("toolCalls", message.calls()),
            Self::Observations(executions) => object.member("observations", executions),
            Self::Plan(plan) => object.member("plan", plan),
            Self::PlanStep(step) => object.member("planStep", step),
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
