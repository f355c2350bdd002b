//! The content of a page, made from events: runs, their steps, and the rows of each step.

mod data;

use std::sync::Arc;

use ubos_common::json::{Limits, RawObject};
use upp::{EventDelta, StreamEvent, StreamEventType, TokenUsage, ToolExecution};

use data::{Data, plan_text};

use super::entry::{LineKind, TraceEntry};
use super::row::{GIST, Kind, Mark, Part, Row, Run, Step};
use super::text::{gist, readable, spaced};
use super::wire::{AgentEvent, End, Event, lenient, raw};

use crate::event::UapEventType;
use crate::state::{PlanStep, PlanStepStatus};

/// The most events of a page. A browser takes no more rows, and a row takes more bytes than a small event.
const MAX_EVENTS: usize = 100_000;

/// Splits events into runs, and counts those that are too many for a page. An end, or the repetition of a step's number,
/// closes a run.
pub(super) fn runs(entries: &[TraceEntry], limits: &Limits) -> (Vec<Run>, u64) {
    let mut runs: Vec<Run> = Vec::new();
    let (mut ended, mut hidden) = (true, 0);
    for (n, entry) in entries.iter().enumerate() {
        // The end of a run that is shown is shown, too.
        if n >= MAX_EVENTS && (ended || matches!(entry.what, LineKind::Event(_))) {
            hidden += 1;
            continue;
        }
        match &entry.what {
            LineKind::End(end) => {
                if ended {
                    runs.push(Run::new(entry.at));
                }
                if let Some(run) = runs.last_mut() {
                    run.finish(entry.at, lenient(end, limits));
                }
                ended = true;
            }
            LineKind::Event(event) => {
                let Some(event) = lenient::<Event>(event, limits) else {
                    continue;
                };
                if ended || runs.last().is_some_and(|run| run.begins_again(&event)) {
                    runs.push(Run::new(entry.at));
                }
                ended = false;
                if let Some(run) = runs.last_mut() {
                    run.event(entry.at, event, limits);
                }
            }
        }
    }
    (runs, hidden)
}

impl Run {
    fn new(at: u64) -> Self {
        Self {
            from: at,
            to: at,
            ..Self::default()
        }
    }

    fn begins_again(&self, event: &Event) -> bool {
        let last = self.steps.last().map_or(0, |step| step.number);
        event
            .uap
            .as_ref()
            .is_some_and(|event| event.event_type == UapEventType::StepStart && event.step <= last)
    }

    fn event(&mut self, at: u64, event: Event, limits: &Limits) {
        let before = core::mem::replace(&mut self.to, at);
        if let Some(event) = event.uap {
            self.agent_event(at, &event, limits);
        } else if let Some(event) = event.upp {
            self.model_or_tool(before, at, &event);
        }
    }

    fn finish(&mut self, at: u64, end: Option<End>) {
        self.to = self.to.max(at);
        let usage = end.as_ref().and_then(|end| end.usage.as_ref());
        if let Some(usage) = usage {
            self.tell_tokens(usage);
        }
        let failed = end.as_ref().is_some_and(|end| end.error.is_some());
        if let Some(step) = self.steps.last_mut().filter(|step| step.to.is_none()) {
            step.to = Some(at);
            if failed {
                step.mark = Mark::Failed;
                for row in &mut step.rows {
                    row.close(at, Mark::Failed);
                }
            }
        }
        self.end = end;
    }

    /// The n-th answer cost what the n-th cycle says. Where there are fewer, nobody can say which.
    fn tell_tokens(&mut self, usage: &TokenUsage) {
        let cycles = usage.cycles.iter().flatten();
        let rows = self.steps.iter_mut().flat_map(|step| &mut step.rows);
        let answers = rows.filter(|row| row.kind == Kind::Model && row.mark == Mark::Good);
        for (row, cycle) in answers.zip(cycles) {
            row.tokens = Some((cycle.input_tokens, cycle.output_tokens));
        }
    }

    /// The step that things happen in now.
    fn step(&mut self, at: u64) -> &mut Step {
        if self.steps.is_empty() {
            self.steps.push(Step::new(0, String::new(), at));
        }
        #[expect(
            clippy::expect_used,
            reason = "one was put in above, where there was none"
        )]
        self.steps.last_mut().expect("there is a step")
    }

    fn agent_event(&mut self, at: u64, event: &AgentEvent, limits: &Limits) {
        self.agent
            .get_or_insert_with(|| Arc::clone(&event.agent_id));
        let data = lenient::<Data>(&event.data, limits);
        let data = data.unwrap_or_else(Data::new);
        match &event.event_type {
            UapEventType::StepStart => {
                self.steps.push(Step::new(event.step, data.title(), at));
            }
            UapEventType::StepEnd => self.step_end(at, data),
            UapEventType::Reasoning => {
                let text = data.reasoning.unwrap_or_default();
                let row = Row::new(Kind::Reasoning, "", gist(&text, GIST), at);
                let row = row.with("Reasoning", text.to_string(), false).done(at);
                self.step(at).rows.push(row);
            }
            UapEventType::Action => {
                let calls = data.tool_calls.into_iter().flatten();
                self.announced = calls
                    .map(|call| (call.tool_call_id, call.arguments))
                    .collect();
            }
            UapEventType::Observation => self.observe(data.observations.unwrap_or_default()),
            UapEventType::SubagentStart => self.subagent_start(at, data),
            UapEventType::SubagentEvent => self.subagent_event(at, data, limits),
            UapEventType::SubagentEnd => self.subagent_end(at, data),
            other => self.other(at, other, data, &event.data),
        }
    }

    fn step_end(&mut self, at: u64, data: Data) {
        let title = data.title();
        if let Some(plan) = data.plan {
            self.planned(at, plan);
        }
        if let Some(done) = &data.plan_step {
            self.mark_plan(done);
        }
        let failed = data
            .plan_step
            .is_some_and(|step| step.status == PlanStepStatus::Failed);
        let step = self.step(at);
        step.to = Some(at);
        step.mark = if failed { Mark::Failed } else { Mark::Good };
        if step.title.is_empty() {
            step.title = title;
        }
        for row in &mut step.rows {
            row.close(at, Mark::Open);
        }
    }

    fn planned(&mut self, at: u64, plan: Vec<PlanStep>) {
        // Where plans have events of their own, the step's end tells it once more.
        let ids = |plan: &[PlanStep]| {
            plan.iter()
                .map(|step| Arc::clone(&step.id))
                .collect::<Vec<_>>()
        };
        if ids(&plan) == ids(&self.plan) {
            return;
        }
        let text = plan_text(&plan);
        let steps = match plan.len() {
            1 => "1 step".to_owned(),
            count => format!("{count} steps"),
        };
        let row = Row::new(Kind::Plan, "", steps, at);
        let row = row.with("Plan", text, false).done(at);
        self.step(at).rows.push(row);
        self.plan = plan;
        self.came_to.clear();
    }

    fn mark_plan(&mut self, done: &PlanStep) {
        let (id, status) = (Arc::clone(&done.id), done.status.clone());
        self.came_to.insert(id, status);
    }

    fn other(&mut self, at: u64, kind: &UapEventType, data: Data, whole: &RawObject) {
        if let Some(plan) = data.plan {
            return self.planned(at, plan);
        }
        if let Some(step) = data.plan_step {
            return self.mark_plan(&step);
        }
        let text = readable(&raw(whole));
        let row = Row::new(
            Kind::Note,
            kind.as_str(),
            gist(&spaced(whole.as_str()), GIST),
            at,
        );
        self.step(at)
            .rows
            .push(row.with("Data", text, true).done(at));
    }

    /// Takes the arguments of tools from their executions.
    fn observe(&mut self, executions: Vec<ToolExecution>) {
        let Some(step) = self.steps.last_mut() else {
            return;
        };
        for execution in executions {
            let Some(row) = step.tool(&execution.tool_call_id) else {
                continue;
            };
            if execution.approved == Some(false) {
                row.gist = "denied".into();
            }
            let given = readable(&execution.arguments.into());
            if let Some(part) = row.parts.iter_mut().find(|part| part.title == "Arguments") {
                part.text = given;
            }
        }
    }

    fn model_or_tool(&mut self, before: u64, at: u64, event: &StreamEvent) {
        match event.event_type {
            StreamEventType::ToolExecutionStart => self.tool_start(at, &event.delta),
            StreamEventType::ToolExecutionEnd => self.tool_end(at, &event.delta),
            _ => {
                let step = self.step(before);
                let open = |row: &&mut Row| row.kind == Kind::Model && row.to.is_none();
                match step.rows.last_mut().filter(open) {
                    Some(row) => row.say(at, event),
                    None => {
                        let mut row = Row::new(Kind::Model, "", String::new(), before);
                        row.say(at, event);
                        step.rows.push(row);
                    }
                }
            }
        }
    }

    fn tool_start(&mut self, at: u64, delta: &EventDelta) {
        let name = delta.tool_name.as_deref().unwrap_or_default();
        let mut row = Row::new(Kind::Tool, name, String::new(), at);
        let id = delta.tool_call_id.as_ref();
        if let Some(arguments) = id.and_then(|id| self.announced.remove(id)) {
            row.gist = gist(&spaced(arguments.as_str()), GIST);
            row.parts
                .push(Part::new("Arguments", readable(&arguments.into()), true));
        }
        let step = self.step(at);
        if let Some(id) = id {
            step.tools.insert(Arc::clone(id), step.rows.len());
        }
        step.rows.push(row);
    }

    fn tool_end(&mut self, at: u64, delta: &EventDelta) {
        let Some(id) = &delta.tool_call_id else {
            return;
        };
        let row = self.step(at).tool(id);
        let Some(row) = row.filter(|row| row.to.is_none()) else {
            return;
        };
        let failed = delta.is_error == Some(true);
        row.to = Some(at);
        row.mark = if failed { Mark::Failed } else { Mark::Good };
        if let Some(result) = &delta.result {
            let title = if failed { "Error" } else { "Result" };
            row.parts.push(Part::new(title, readable(result), true));
        }
    }

    fn subagent_start(&mut self, at: u64, data: Data) {
        let mut row = Row::new(
            Kind::Subagent,
            &data.subagent_type.unwrap_or_default(),
            String::new(),
            at,
        );
        row.run = Some(Box::new(Self::new(at)));
        if let Some(prompt) = data.prompt {
            row.gist = gist(&prompt, GIST);
            row.parts
                .push(Part::new("Asked", prompt.to_string(), false));
        }
        let step = self.step(at);
        let parent = data.parent_tool_call_id;
        let parent = parent.and_then(|id| step.tools.get(&id).copied());
        let place = match parent.and_then(|n| step.rows.get_mut(n).map(|tool| (n, tool))) {
            Some((n, tool)) => {
                tool.children.push(row);
                (n, Some(tool.children.len() - 1))
            }
            None => {
                step.rows.push(row);
                (step.rows.len() - 1, None)
            }
        };
        if let Some(id) = data.subagent_id {
            step.subagents.insert(id, place);
        }
    }

    fn subagent(&mut self, id: Option<&Arc<str>>) -> Option<&mut Row> {
        let step = self.steps.last_mut()?;
        let (row, child) = *step.subagents.get(id?)?;
        let row = step.rows.get_mut(row)?;
        match child {
            Some(n) => row.children.get_mut(n),
            None => Some(row),
        }
    }

    fn subagent_event(&mut self, at: u64, data: Data, limits: &Limits) {
        let inner = data
            .inner_event
            .and_then(|inner| lenient::<Event>(&inner, limits));
        let run = self
            .subagent(data.subagent_id.as_ref())
            .and_then(|row| row.run.as_mut());
        if let (Some(event), Some(run)) = (inner, run) {
            run.event(at, event, limits);
        }
    }

    fn subagent_end(&mut self, at: u64, data: Data) {
        let Some(row) = self.subagent(data.subagent_id.as_ref()) else {
            return;
        };
        row.to = Some(at);
        row.mark = if data.success == Some(false) {
            Mark::Failed
        } else {
            Mark::Good
        };
        if let Some(usage) = &data.usage {
            row.tokens = Some((usage.input_tokens, usage.output_tokens));
        }
        for (title, text) in [("Answered", data.result), ("Error", data.error)] {
            if let Some(text) = text {
                row.parts.push(Part::new(title, text.to_string(), false));
            }
        }
        if let Some(run) = row.run.as_mut() {
            let mut end = End::new();
            end.usage = data.usage;
            run.finish(at, Some(end));
        }
    }
}
