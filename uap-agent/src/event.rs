//! What a run tells while it runs.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawObject, Write};
use upp::{AssistantMessage, StreamEvent, ToolExecution};

use crate::state::{PlanStep, SubagentExecutionTrace};

ubos_common::words! {
    /// What an event of the agent tells of.
    ///
    /// Spec: UAP-1.1 11.2
    open pub enum UapEventType {
        /// A step begins.
        StepStart = "step_start",
        /// A step is over.
        StepEnd = "step_end",
        /// What the model reasoned.
        Reasoning = "reasoning",
        /// The model wants tools called; none has run yet.
        Action = "action",
        /// What the tools came to.
        Observation = "observation",
        /// An agent that is called as a tool begins.
        SubagentStart = "subagent_start",
        /// An event of such an agent.
        SubagentEvent = "subagent_event",
        /// Such an agent is done.
        SubagentEnd = "subagent_end",
        /// A plan is made; told where it is asked for.
        PlanCreated = "plan_created",
        /// A step of the plan begins; told where it is asked for.
        PlanStepStart = "plan_step_start",
        /// A step of the plan is over; told where it is asked for.
        PlanStepEnd = "plan_step_end",
    }
}

/// One event: of the agent, or of its model and tools.
///
/// Spec: UAP-1.1 11.2
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentStreamEvent {
    /// The agent's.
    Uap(UapEvent),
    /// The model's or a tool's.
    Upp(StreamEvent),
}

/// An event of the agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UapEvent {
    /// What it tells of.
    pub event_type: UapEventType,
    /// The step, from 1 in each run.
    pub step: u64,
    /// Whose event it is.
    pub agent_id: Arc<str>,
    /// What it brings.
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

/// What an event of the agent brings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventData {
    /// Which round of the loop: `{"iteration"}`.
    Iteration(u64),
    /// Which phase of a step: `{"phase","plan"?,"planStep"?}`.
    Phase {
        /// Its name.
        phase: &'static str,
        /// The plan, where the phase made one.
        plan: Option<Arc<[PlanStep]>>,
        /// The plan step that is done in it.
        plan_step: Option<PlanStep>,
    },
    /// `{"reasoning"}`
    Reasoning(Arc<str>),
    /// `{"toolCalls"}`: the message that makes them.
    ToolCalls(Arc<AssistantMessage>),
    /// `{"observations"}`
    Observations(Arc<[ToolExecution]>),
    /// `{"plan"}`
    Plan(Arc<[PlanStep]>),
    /// `{"planStep"}`
    PlanStep(PlanStep),
    /// What an agent that was called as a tool tells.
    Subagent(Arc<SubagentData>),
    /// What a strategy of the developer's says.
    Custom(RawObject),
}

impl EventData {
    /// A phase, and nothing beside it.
    #[must_use]
    pub const fn phase(phase: &'static str) -> Self {
        Self::Phase {
            phase,
            plan: None,
            plan_step: None,
        }
    }
}

/// What one event of an agent that was called as a tool brings.
///
/// Spec: UAP-1.1 8.4
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SubagentData {
    /// One call of it, UUIDv4; the same in all events of the call.
    pub subagent_id: Arc<str>,
    /// What kind of agent it is.
    pub subagent_type: Arc<str>,
    /// The call of the parent's model.
    pub parent_tool_call_id: Arc<str>,
    /// What it tells.
    pub told: SubagentTold,
}

impl SubagentData {
    /// Something that an agent tells whom the tool call of this id runs.
    pub fn new(
        subagent_id: impl Into<Arc<str>>,
        subagent_type: impl Into<Arc<str>>,
        parent_tool_call_id: impl Into<Arc<str>>,
        told: SubagentTold,
    ) -> Self {
        Self {
            subagent_id: subagent_id.into(),
            subagent_type: subagent_type.into(),
            parent_tool_call_id: parent_tool_call_id.into(),
            told,
        }
    }
}

/// What an agent that was called as a tool tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SubagentTold {
    /// It begins: `{"prompt","timestamp"}`.
    Start {
        /// What it is asked.
        prompt: Arc<str>,
        /// Milliseconds since 1970.
        timestamp: i64,
    },
    /// An event of its own: `{"innerEvent"}`.
    Event(Box<AgentStreamEvent>),
    /// It is done: `{"success","result"|"error","timestamp","toolExecutions"?,"usage"?}`.
    End(Box<SubagentExecutionTrace>),
}

impl Write for SubagentData {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("subagentId", &self.subagent_id);
        object.member("subagentType", &self.subagent_type);
        object.member("parentToolCallId", &self.parent_tool_call_id);
        match &self.told {
            SubagentTold::Start { prompt, timestamp } => {
                object.member("prompt", prompt);
                object.member("timestamp", timestamp);
            }
            SubagentTold::Event(event) => object.member("innerEvent", event.as_ref()),
            SubagentTold::End(trace) => {
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
