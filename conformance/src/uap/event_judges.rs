//! Judges of the events of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Judge, Verdict};
use ubos_common::id::parse_hyphenated;
use upp::{StreamEvent, StreamEventType};

use super::event::{AgentEvent, ReadEvent, RecordedEvent};
use super::fault::FirstFault;
use super::recording::RecordedLine;
use uap_agent::UapEventType;

/// A rule about valid events: those of the agent, and those of its model and tools.
pub(super) trait EventRule: Default {
    const NOT_APPLICABLE: &'static str = "no event";

    fn first(&mut self) -> &mut FirstFault;
    fn uap(&mut self, event: &AgentEvent);
    fn upp(&mut self, _event: &StreamEvent) {}
}

/// Judges a recording by a rule about its events.
#[derive(Default)]
pub(super) struct EventJudge<R>(R);

impl<R: EventRule> Judge<RecordedLine> for EventJudge<R> {
    fn see(&mut self, line: &RecordedLine) {
        self.0.first().next();
        if let RecordedLine::Event(event) = line {
            match &event.read {
                Ok(ReadEvent::Uap(event)) => self.0.uap(event),
                Ok(ReadEvent::Upp(event)) => self.0.upp(event),
                Err(_) => {}
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.0.first().verdict(R::NOT_APPLICABLE)
    }
}

/// Every event can be read.
#[derive(Default)]
pub(super) struct Form(FirstFault);

impl Judge<RecordedLine> for Form {
    fn see(&mut self, line: &RecordedLine) {
        self.0.next();
        if let RecordedLine::Event(event) = line {
            self.0.look();
            if let Err(why) = &event.read {
                self.0.refuse(one_line(why));
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.0.verdict("no event")
    }
}

/// The first line of a report.
pub(super) fn one_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Every type is one of the list, or one of plan events.
#[derive(Default)]
pub(super) struct Types(FirstFault);

impl EventRule for Types {
    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        self.0.look();
        if let UapEventType::Other(_) = event.event_type {
            self.0.refuse("a type that the specification does not have");
        }
    }
}

/// The phase of a step.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// The model responds.
    Speaking,
    /// Tools run.
    Acting,
}

/// No event is outside of a step; tools run between action and observation, and the model responds elsewhere.
#[derive(Default)]
pub(super) struct Order(FirstFault, Place);

impl Order {
    fn wants(&mut self, place: Place, why: &str) {
        let broken = self.1 != place;
        self.0.refuse_if(broken, why);
    }
}

impl EventRule for Order {
    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        self.0.look();
        match event.event_type {
            UapEventType::StepStart => self.1 = Place::Speaking,
            UapEventType::StepEnd => {
                self.wants(Place::Speaking, "the end of a step that is not at its end");
                self.1 = Place::Outside;
            }
            UapEventType::Reasoning => self.wants(Place::Speaking, "reasoning out of place"),
            UapEventType::Action => {
                self.wants(Place::Speaking, "an action out of place");
                self.1 = Place::Acting;
            }
            UapEventType::Observation => {
                self.wants(Place::Acting, "an observation without an action");
                self.1 = Place::Speaking;
            }
            UapEventType::SubagentStart
            | UapEventType::SubagentEvent
            | UapEventType::SubagentEnd => {
                self.wants(Place::Acting, "an agent that is called while no tool runs");
            }
            _ => {}
        }
    }

    fn upp(&mut self, event: &StreamEvent) {
        self.0.look();
        match event.event_type {
            StreamEventType::ToolExecutionStart | StreamEventType::ToolExecutionEnd => {
                self.wants(Place::Acting, "a tool runs outside of an action");
            }
            _ => self.wants(Place::Speaking, "the model speaks out of place"),
        }
    }
}

/// Steps count from 1, and each event has the number of its step.
#[derive(Default)]
pub(super) struct Steps {
    first: FirstFault,
    last: u64,
    is_open: bool,
}

impl EventRule for Steps {
    const NOT_APPLICABLE: &'static str = "no step";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.first
    }

    fn uap(&mut self, event: &AgentEvent) {
        let (seen, wanted) = (event.step, self.last.saturating_add(1));
        if event.event_type == UapEventType::StepStart {
            self.first.look();
            // A run that failed leaves its last step open; the next one begins with 1.
            if seen != 1 {
                if seen != wanted {
                    self.first
                        .refuse(format!("step {seen} where {wanted} is next"));
                }
                let open = self.is_open;
                self.first
                    .refuse_if(open, "a step begins before the last one has ended");
            }
            (self.last, self.is_open) = (seen, true);
            return;
        }
        if seen != self.last {
            let last = self.last;
            self.first
                .refuse(format!("an event of step {seen} in step {last}"));
        }
        if event.event_type == UapEventType::StepEnd {
            let open = self.is_open;
            self.first
                .refuse_if(!open, "a step ends that has not begun");
            self.is_open = false;
        }
    }
}

/// Each run has one agent, whose id is a UUIDv4.
#[derive(Default)]
pub(super) struct SingleAgent(FirstFault, Option<Arc<str>>);

impl EventRule for SingleAgent {
    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        self.0.look();
        if event.event_type == UapEventType::StepStart && event.step == 1 {
            self.1 = None;
        }
        let known = self.1.get_or_insert_with(|| Arc::clone(&event.agent_id));
        let other = *known != event.agent_id;
        self.0.refuse_if(other, "another agent within one run");
        self.0
            .refuse_if(!is_v4(&event.agent_id), "an agentId that is no UUIDv4");
    }
}

fn is_v4(text: &str) -> bool {
    parse_hyphenated(text).is_ok_and(|id| id.get_version_num() == 4)
}

/// Each tool call starts and ends before its observation.
#[derive(Default)]
pub(super) struct Tools(FirstFault, BTreeSet<Arc<str>>);

impl EventRule for Tools {
    const NOT_APPLICABLE: &'static str = "no tool was called";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        match event.event_type {
            UapEventType::Observation | UapEventType::StepEnd => {
                let running = !self.1.is_empty();
                self.0.refuse_if(running, "a tool that began has not ended");
            }
            // What a run left behind that failed is no business of the next.
            UapEventType::StepStart => self.1.clear(),
            _ => {}
        }
    }

    fn upp(&mut self, event: &StreamEvent) {
        let begins = match event.event_type {
            StreamEventType::ToolExecutionStart => true,
            StreamEventType::ToolExecutionEnd => false,
            _ => return,
        };
        self.0.look();
        let Some(id) = &event.delta.tool_call_id else {
            return self.0.refuse("a tool's event without toolCallId");
        };
        let broken = if begins {
            !self.1.insert(Arc::clone(id))
        } else {
            !self.1.remove(id)
        };
        self.0
            .refuse_if(broken, "a tool begins twice, or ends without its beginning");
    }
}

/// The observed calls are the calls of the action.
#[derive(Default)]
pub(super) struct Observed(FirstFault, Option<Vec<Arc<str>>>);

impl EventRule for Observed {
    const NOT_APPLICABLE: &'static str = "no tool was called";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        match event.event_type {
            UapEventType::Action => match event.judged_data() {
                Ok(data) => {
                    let calls = data.tool_calls.unwrap_or_default();
                    self.0
                        .refuse_if(calls.is_empty(), "an action without toolCalls");
                    self.1 = Some(calls.into_iter().map(|call| call.tool_call_id).collect());
                }
                Err(why) => self.0.refuse(one_line(&why)),
            },
            UapEventType::Observation => match event.judged_data() {
                Ok(data) => {
                    self.0.look();
                    let seen = data.observations.unwrap_or_default();
                    let seen: Vec<_> = seen.into_iter().map(|done| done.tool_call_id).collect();
                    let other = self.1.take().is_some_and(|calls| calls != seen);
                    self.0.refuse_if(
                        other,
                        "observations that are not those of the calls, in their order",
                    );
                }
                Err(why) => self.0.refuse(one_line(&why)),
            },
            _ => {}
        }
    }
}

/// In a step that starts with reasoning, the reasoning comes before its other events.
#[derive(Default)]
pub(super) struct Reasons(FirstFault, bool);

impl EventRule for Reasons {
    const NOT_APPLICABLE: &'static str = "no step that begins with reasoning";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn uap(&mut self, event: &AgentEvent) {
        match event.event_type {
            UapEventType::StepStart => {
                let phase = event.judged_data().ok().and_then(|data| data.phase);
                self.1 = phase.as_deref() == Some("reasoning");
                if self.1 {
                    self.0.look();
                }
            }
            UapEventType::Reasoning => self.1 = false,
            UapEventType::Action | UapEventType::StepEnd if self.1 => {
                self.0.refuse("no reasoning came before it");
            }
            _ => {}
        }
    }
}

/// Each sub-agent starts, reports and ends inside the tool call of its parent.
#[derive(Default)]
pub(super) struct Subagents {
    first: FirstFault,
    calls: BTreeSet<Arc<str>>,
    /// The running sub-agents, each with its tool call.
    open: BTreeMap<Arc<str>, Arc<str>>,
}

impl Subagents {
    fn subagent(&mut self, event: &AgentEvent) -> Result<(), String> {
        let data = event.judged_data()?;
        let id = data.subagent_id.ok_or("no subagentId")?;
        let call = data.parent_tool_call_id.ok_or("no parentToolCallId")?;
        if event.event_type == UapEventType::SubagentStart {
            if !is_v4(&id) {
                return Err("a subagentId that is no UUIDv4".to_owned());
            }
            if !self.calls.contains(&call) {
                return Err("a parentToolCallId that is no call of the action".to_owned());
            }
            let twice = self.open.insert(id, call).is_some();
            return if twice {
                Err("an agent that begins twice".to_owned())
            } else {
                Ok(())
            };
        }
        if self.open.get(&id) != Some(&call) {
            return Err("of an agent that has not begun".to_owned());
        }
        if event.event_type == UapEventType::SubagentEnd {
            self.open.remove(&id);
            return data
                .success
                .map(drop)
                .ok_or_else(|| "an end without success".to_owned());
        }
        let inner = data.inner_event.ok_or("no innerEvent")?;
        RecordedEvent::read(inner.as_str().as_bytes())
            .read
            .map(drop)
    }
}

impl EventRule for Subagents {
    const NOT_APPLICABLE: &'static str = "no agent was called";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.first
    }

    fn uap(&mut self, event: &AgentEvent) {
        match event.event_type {
            UapEventType::StepStart => self.open.clear(),
            UapEventType::Action => {
                let calls = event.judged_data().ok().and_then(|data| data.tool_calls);
                let ids = calls
                    .unwrap_or_default()
                    .into_iter()
                    .map(|call| call.tool_call_id);
                self.calls = ids.collect();
            }
            UapEventType::Observation => {
                let running = !self.open.is_empty();
                self.first
                    .refuse_if(running, "an agent that was called has not ended");
            }
            UapEventType::SubagentStart
            | UapEventType::SubagentEvent
            | UapEventType::SubagentEnd => {
                self.first.look();
                if let Err(why) = self.subagent(event) {
                    self.first.refuse(one_line(&why));
                }
            }
            _ => {}
        }
    }
}
