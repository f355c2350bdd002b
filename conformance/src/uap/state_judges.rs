//! Judges of the states that a run saved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Judge, Verdict};
use ubos_common::json::decode;
use ubos_common::violation::Profile;
use upp::Message;

use super::event::limits;
use super::event::{AgentEvent, ReadEvent};
use super::event_judges::one_line;
use super::fault::FirstFault;
use super::recording::RecordedLine;
use uap_agent::UapEventType;
use uap_agent::{AgentState, PlanStep, PlanStepStatus, StateId};

/// A rule about valid states and the agent's events between them.
pub(super) trait StateRule: Default {
    const NOT_APPLICABLE: &'static str = "no state";

    fn first(&mut self) -> &mut FirstFault;
    fn state(&mut self, state: &AgentState, text: &[u8]);
    fn event(&mut self, _event: &AgentEvent) {}
    /// Called after the last line.
    fn end(&mut self) {}
}

/// Judges a recording by a rule about its states.
#[derive(Default)]
pub(super) struct StateJudge<R>(R);

impl<R: StateRule> Judge<RecordedLine> for StateJudge<R> {
    fn see(&mut self, line: &RecordedLine) {
        self.0.first().next();
        match line {
            RecordedLine::State(recorded) => {
                if let Ok(state) = &recorded.read {
                    self.0.state(state, &recorded.text);
                }
            }
            RecordedLine::Event(event) => {
                if let Ok(ReadEvent::Uap(event)) = &event.read {
                    self.0.event(event);
                }
            }
            _ => {}
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.0.end();
        self.0.first().verdict(R::NOT_APPLICABLE)
    }
}

/// Every state can be read.
#[derive(Default)]
pub(super) struct Valid(FirstFault);

impl Judge<RecordedLine> for Valid {
    fn see(&mut self, line: &RecordedLine) {
        self.0.next();
        if let RecordedLine::State(seen) = line {
            self.0.look();
            if let Err(why) = &seen.read {
                self.0.refuse(one_line(why));
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.0.verdict("no state")
    }
}

ubos_common::wire! {
    /// The version alone.
    struct VersionOnly {
        /// Any text.
        required version: String = "version", "UAP-12-1";
    }
}

/// What is written today is of today's version.
#[derive(Default)]
pub(super) struct Version(FirstFault);

impl StateRule for Version {
    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, _: &AgentState, text: &[u8]) {
        self.0.look();
        let read = decode::<VersionOnly>(text, &limits(), Profile::Lenient);
        let today = read.is_ok_and(|(read, _)| read.version == "1.1.0");
        self.0.refuse_if(!today, "another version than 1.1.0");
    }
}

/// After each end of a step, its state; where no events are at hand, no step is left out.
#[derive(Default)]
pub(super) struct Saved {
    first: FirstFault,
    has_events: bool,
    states: usize,
    last: u64,
    /// The step whose state is wanted.
    wanted: Option<u64>,
    missing: bool,
}

impl StateRule for Saved {
    const NOT_APPLICABLE: &'static str = "no steps whose states are at hand";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.first
    }

    fn state(&mut self, state: &AgentState, _: &[u8]) {
        self.states += 1;
        let step = state.step();
        if let Some(wanted) = self.wanted.take() {
            self.first.look();
            self.first.refuse_if(
                step != wanted,
                "the state of another step than the one that ended",
            );
        } else if !self.has_events {
            let follows = step <= 1 || step == self.last.saturating_add(1);
            if self.states > 1 {
                self.first.look();
                self.first
                    .refuse_if(!follows, "a state that is not of the next step");
            }
        }
        self.last = step;
    }

    fn event(&mut self, event: &AgentEvent) {
        self.has_events = true;
        self.missing |= self.wanted.is_some() && event.event_type == UapEventType::StepStart;
        // A recording without states says nothing of saving.
        if self.missing && self.states > 0 {
            self.first
                .refuse("a step begins before the state of the last one is saved");
        }
        if event.event_type == UapEventType::StepEnd {
            self.wanted = Some(event.step);
        }
    }

    fn end(&mut self) {
        let missing = self.states > 0 && (self.missing || self.wanted.is_some());
        self.first
            .refuse_if(missing, "a step ended, and its state is not there");
    }
}

/// Another state has another id.
#[derive(Default)]
pub(super) struct Ids(FirstFault, BTreeMap<StateId, Box<[u8]>>);

impl StateRule for Ids {
    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, state: &AgentState, text: &[u8]) {
        self.0.look();
        let before = self.1.insert(state.id(), text.into());
        let other = before.is_some_and(|before| *before != *text);
        self.0.refuse_if(other, "the id of an earlier state");
    }
}

/// Within a run messages are added behind the others. Between two runs a history may be replaced.
#[derive(Default)]
pub(super) struct Grows(FirstFault, Option<AgentState>);

impl StateRule for Grows {
    const NOT_APPLICABLE: &'static str = "no two states of one run";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, state: &AgentState, _: &[u8]) {
        let last = self.1.replace(state.clone());
        let Some(last) = last.filter(|last| state.step() == last.step().saturating_add(1)) else {
            return;
        };
        // A first step after a state in which nothing has happened begins a run.
        if state.step() == 1 {
            return;
        }
        self.0.look();
        let (old, new) = (last.messages(), state.messages());
        let kept = old.len() <= new.len() && old.iter().zip(new.iter()).all(|(a, b)| a == b);
        self.0
            .refuse_if(!kept, "a message that was there is gone, or is another");
    }
}

/// Every call has one result behind it.
#[derive(Default)]
pub(super) struct Answered(FirstFault);

impl StateRule for Answered {
    const NOT_APPLICABLE: &'static str = "no call in a state";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, state: &AgentState, _: &[u8]) {
        let mut open: BTreeSet<&str> = BTreeSet::new();
        for message in state.messages() {
            match message {
                Message::ToolResult(message) => {
                    for result in &message.results {
                        let asked = open.remove(&*result.tool_call_id);
                        self.0
                            .refuse_if(!asked, "a result without a call, or a second one");
                    }
                    self.0
                        .refuse_if(!open.is_empty(), "a call without its result");
                }
                _ if !open.is_empty() => self.0.refuse("a call without its result"),
                // What a strategy asked aside offered no tools.
                Message::Assistant(answer) if !is_aside(message) => {
                    for call in answer.calls() {
                        self.0.look();
                        open.insert(&call.tool_call_id);
                    }
                }
                _ => {}
            }
        }
        self.0
            .refuse_if(!open.is_empty(), "a call without its result");
    }
}

fn is_aside(message: &Message) -> bool {
    message
        .metadata()
        .is_some_and(|metadata| metadata.get("uap").is_some())
}

/// Plans move on as they may.
#[derive(Default)]
pub(super) struct Plans(FirstFault, Vec<PlanStep>);

impl StateRule for Plans {
    const NOT_APPLICABLE: &'static str = "no plan in a state";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, state: &AgentState, _: &[u8]) {
        let before = core::mem::take(&mut self.1);
        let Some(plan) = state.plan() else {
            return;
        };
        self.0.look();
        self.1 = plan.iter().cloned().collect();
        let count =
            |status: PlanStepStatus| plan.iter().filter(|step| step.status == status).count();
        self.0.refuse_if(
            count(PlanStepStatus::InProgress) > 1,
            "two steps of a plan at once",
        );
        let done = |id: &Arc<str>| {
            let found = plan.iter().find(|step| step.id == *id);
            found.is_none_or(|step| step.status == PlanStepStatus::Completed)
        };
        let waits = |step: &&PlanStep| {
            step.status != PlanStepStatus::Pending && !step.depends_on.iter().all(done)
        };
        self.0.refuse_if(
            plan.iter().any(|step| waits(&step)),
            "a step before one that it waits for",
        );
        // A run begins with a plan of its own.
        if state.step() <= 1 {
            return;
        }
        let back = before.iter().any(|old| {
            let new = plan.iter().find(|step| step.id == old.id);
            match new {
                // A new plan may take up again what failed.
                Some(_) if old.status == PlanStepStatus::Failed => false,
                Some(new) => rank(&new.status) < rank(&old.status),
                None => old.status == PlanStepStatus::Completed,
            }
        });
        self.0.refuse_if(
            back,
            "a step of a plan that goes back, or a completed one that is gone",
        );
    }
}

const fn rank(status: &PlanStepStatus) -> u8 {
    match status {
        PlanStepStatus::Pending => 0,
        PlanStepStatus::InProgress => 1,
        _ => 2,
    }
}

/// The state behind a sub-agent's end has its trace.
#[derive(Default)]
pub(super) struct Traces(FirstFault, BTreeSet<Arc<str>>);

impl StateRule for Traces {
    const NOT_APPLICABLE: &'static str = "no agent was called before a state";

    fn first(&mut self) -> &mut FirstFault {
        &mut self.0
    }

    fn state(&mut self, state: &AgentState, _: &[u8]) {
        let wanted = core::mem::take(&mut self.1);
        if wanted.is_empty() {
            return;
        }
        self.0.look();
        let traces = state.subagent_traces().iter();
        let there: BTreeSet<&Arc<str>> = traces.map(|trace| &trace.subagent_id).collect();
        let missing = wanted.iter().any(|id| !there.contains(id));
        self.0
            .refuse_if(missing, "no trace of an agent that was called");
    }

    fn event(&mut self, event: &AgentEvent) {
        // What a run called that failed is no business of the next.
        if event.event_type == UapEventType::StepStart && event.step == 1 {
            self.1.clear();
        }
        if event.event_type == UapEventType::SubagentEnd {
            let id = event.judged_data().ok().and_then(|data| data.subagent_id);
            self.1.extend(id);
        }
    }
}
