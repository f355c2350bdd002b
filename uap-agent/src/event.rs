//! What a run tells while it runs.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawObject, Write};
use upp::{AssistantMessage, StreamEvent, ToolExecution};

use crate::state::PlanStep;

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

impl Write for EventData {
    fn write(&self, out: &mut Vec<u8>) {
        if let Self::Custom(data) = self {
            return data.write(out);
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
            Self::Custom(_) => {}
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
