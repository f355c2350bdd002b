//! Reading events back.

use std::sync::Arc;

use ubos_common::json::{DecodeError, Limits, RawBuf, RawObject, Read, decode, read_raw, to_vec};
use ubos_common::violation::{Level, Profile, Report, Violation};
use upp::{StreamEvent, ToolCall, ToolExecution};

use super::{
    AgentStreamEvent, EventData, SubagentData, SubagentEnd, SubagentEvent, UapEvent, UapEventType,
};
use crate::state::PlanStep;

ubos_common::wire! {
    /// An event before its source is known.
    struct EventJson {
        /// `uap` or `upp`.
        required source: Arc<str> = "source", "UAP-11-3";
        /// With source `uap`.
        nullable uap: RawBuf = "uap", "UAP-11-3";
        /// With source `upp`.
        nullable upp: RawBuf = "upp", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// An event of the agent before its data is read.
    struct UapEventJson {
        /// The type.
        required event_type: UapEventType = "type", "UAP-11-3";
        /// The step.
        required step: u64 = "step", "UAP-11-3";
        /// The agent's id.
        required agent_id: Arc<str> = "agentId", "UAP-11-3";
        /// The data.
        required data: RawObject = "data", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// The data of any event but those of sub-agents.
    struct DataJson {
        /// Of the loop.
        nullable iteration: u64 = "iteration", "UAP-11-3";
        /// Of a step.
        nullable phase: Arc<str> = "phase", "UAP-11-3";
        /// Of a step and of a plan.
        nullable plan: Vec<PlanStep> = "plan", "UAP-11-3";
        /// Of a step and of a plan's step.
        nullable plan_step: PlanStep = "planStep", "UAP-11-3";
        /// Of reasoning.
        nullable reasoning: Arc<str> = "reasoning", "UAP-11-3";
        /// Of an action.
        nullable tool_calls: Vec<ToolCall> = "toolCalls", "UAP-11-3";
        /// Of an observation.
        nullable observations: Vec<ToolExecution> = "observations", "UAP-11-3";
        /// Of a save that failed.
        nullable error: Arc<str> = "error", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// What the data of all events of a sub-agent have.
    struct SubagentJson {
        /// The call.
        required subagent_id: Arc<str> = "subagentId", "UAP-8-3";
        /// The type.
        required subagent_type: Arc<str> = "subagentType", "UAP-8-3";
        /// The parent's tool call.
        required parent_tool_call_id: Arc<str> = "parentToolCallId", "UAP-8-3";
        /// Of its start.
        nullable prompt: Arc<str> = "prompt", "UAP-8-3";
        /// Of its start.
        nullable timestamp: i64 = "timestamp", "UAP-8-3";
        /// Of an event of its own.
        nullable inner_event: RawBuf = "innerEvent", "UAP-8-3";
    }
}

impl AgentStreamEvent {
    /// Reads an event as it was written. Data that this version does not know in full is kept as [`EventData::Custom`], so that
    /// nothing of it is lost.
    ///
    /// ```
    /// use uap_agent::AgentStreamEvent;
    /// use ubos_common::json::{Limits, to_string};
    ///
    /// let line = r#"{"source":"uap","uap":{"type":"reasoning","step":2,"agentId":"a","data":{"reasoning":"because"}}}"#;
    /// let event = AgentStreamEvent::from_json(line.as_bytes(), &Limits::default())?;
    /// assert_eq!(to_string(&event), line);
    /// # Ok::<(), ubos_common::json::DecodeError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It is no JSON within the limits, or no event.
    pub fn from_json(json: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (event, _) = decode::<EventJson>(json, limits, Profile::Strict)?;
        Self::of(event, limits)
    }

    fn of(event: EventJson, limits: &Limits) -> Result<Self, DecodeError> {
        match (&*event.source, &event.uap, &event.upp) {
            ("uap", Some(uap), None) => {
                let (event, _) = read_raw::<UapEventJson>(uap.as_raw(), limits, Profile::Strict)?;
                Ok(Self::Uap(UapEvent {
                    data: EventData::of(&event.event_type, &event.data, limits)?,
                    event_type: event.event_type,
                    step: event.step,
                    agent_id: event.agent_id,
                }))
            }
            ("upp", None, Some(upp)) => {
                let (event, _) = read_raw::<StreamEvent>(upp.as_raw(), limits, Profile::Strict)?;
                Ok(Self::Upp(event))
            }
            _ => Err(refused(
                "/source",
                "a source that names the one other member wanted",
            )),
        }
    }
}

impl EventData {
    fn of(
        event_type: &UapEventType,
        data: &RawObject,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let known = match event_type {
            UapEventType::SubagentStart
            | UapEventType::SubagentEvent
            | UapEventType::SubagentEnd => {
                let known = SubagentData::of(event_type, data, limits)?;
                let known = known.map(|known| Self::Subagent(Arc::new(known)));
                // The event inside was read by itself.
                let outer = |read: SubagentJson| SubagentJson {
                    inner_event: None,
                    ..read
                };
                known.filter(|known| is_whole(data, known, limits, outer))
            }
            _ => {
                let read = read_raw::<DataJson>(data.as_raw(), limits, Profile::Strict);
                let known = read.ok().and_then(|(read, _)| Self::known(read));
                known.filter(|known| is_whole(data, known, limits, |read: DataJson| read))
            }
        };
        // Nothing of what these types do not keep is lost.
        Ok(known.unwrap_or_else(|| Self::Custom(data.clone())))
    }

    fn known(read: DataJson) -> Option<Self> {
        Some(match read {
            DataJson {
                phase: Some(phase),
                plan,
                plan_step,
                ..
            } => Self::Phase {
                phase: phase.to_string().into(),
                plan: plan.map(Into::into),
                plan_step,
            },
            DataJson {
                iteration: Some(round),
                ..
            } => Self::Iteration(round),
            DataJson {
                reasoning: Some(text),
                ..
            } => Self::Reasoning(text),
            DataJson {
                tool_calls: Some(calls),
                ..
            } => Self::ToolCalls(calls.into()),
            DataJson {
                observations: Some(seen),
                ..
            } => Self::Observations(seen.into()),
            DataJson {
                plan: Some(plan), ..
            } => Self::Plan(plan.into()),
            DataJson {
                plan_step: Some(step),
                ..
            } => Self::PlanStep(step),
            DataJson {
                error: Some(why), ..
            } => Self::SaveFailed(why),
            _ => return None,
        })
    }
}

impl SubagentData {
    fn of(
        event_type: &UapEventType,
        data: &RawObject,
        limits: &Limits,
    ) -> Result<Option<Self>, DecodeError> {
        let Ok((read, _)) = read_raw::<SubagentJson>(data.as_raw(), limits, Profile::Strict) else {
            return Ok(None);
        };
        let event = match (event_type, read.inner_event) {
            (UapEventType::SubagentEvent, Some(inner)) => {
                let (inner, _) = read_raw::<EventJson>(inner.as_raw(), limits, Profile::Strict)?;
                SubagentEvent::Event(Box::new(AgentStreamEvent::of(inner, limits)?))
            }
            (UapEventType::SubagentStart, _) => match (read.prompt, read.timestamp) {
                (Some(prompt), Some(timestamp)) => SubagentEvent::Start { prompt, timestamp },
                _ => return Ok(None),
            },
            (UapEventType::SubagentEnd, _) => {
                match read_raw::<SubagentEnd>(data.as_raw(), limits, Profile::Strict) {
                    Ok((mut end, _)) => {
                        // Those of the data around it.
                        end.extra = Default::default();
                        SubagentEvent::End(Box::new(end))
                    }
                    Err(_) => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Self {
            subagent_id: read.subagent_id,
            subagent_type: read.subagent_type,
            parent_tool_call_id: read.parent_tool_call_id,
            event,
        }))
    }
}

/// Whether data that is written again reads as it did: nothing of it is lost then.
fn is_whole<T: for<'a> Read<'a> + PartialEq>(
    raw: &RawObject,
    known: &EventData,
    limits: &Limits,
    kept: impl Fn(T) -> T,
) -> bool {
    let read = |text: &[u8]| decode::<T>(text, limits, Profile::Strict).ok();
    let (one, other) = (read(raw.as_str().as_bytes()), read(&to_vec(known)));
    let kept = |read: Option<(T, Report)>| read.map(|(read, _)| kept(read));
    let (one, other) = (kept(one), kept(other));
    one.is_some() && one == other
}

fn refused(pointer: &str, what: &'static str) -> DecodeError {
    let mut report = Report::default();
    report.push(Violation::new(
        pointer,
        "event",
        "UAP-11-3",
        Level::Must,
        what,
    ));
    DecodeError::Invalid(report)
}
