//! Runs, their steps, and the rows of each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{RawBuf, RawObject};
use upp::{StreamEvent, StreamEventType};

use super::text::{gist, readable};
use super::wire::End;
use crate::state::{PlanStep, PlanStepStatus};

/// One run of the agent or of a sub-agent.
#[derive(Default)]
pub(super) struct Run {
    pub(super) agent: Option<Arc<str>>,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) steps: Vec<Step>,
    pub(super) plan: Vec<PlanStep>,
    /// The status of the plan's steps by their id, where an event after the plan reported it.
    pub(super) came_to: BTreeMap<Arc<str>, PlanStepStatus>,
    pub(super) end: Option<End>,
    /// The arguments of announced calls, by their id.
    pub(super) announced: BTreeMap<Arc<str>, RawObject>,
}

/// One step. Rows outside of any step are in a step with number 0.
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) mark: Mark,
    pub(super) rows: Vec<Row>,
    /// The rows of tools, by the id of their call.
    pub(super) tools: BTreeMap<Arc<str>, usize>,
    /// The places of sub-agents' rows by their id: the index of the row, and the index among its children if it is a child.
    pub(super) subagents: BTreeMap<Arc<str>, (usize, Option<usize>)>,
}

/// One row of a step: an inference, a tool call, a sub-agent or a note.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) gist: String,
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) mark: Mark,
    /// Input and output tokens.
    pub(super) tokens: Option<(u64, u64)>,
    pub(super) parts: Vec<Part>,
    pub(super) children: Vec<Self>,
    /// The run of a sub-agent.
    pub(super) run: Option<Box<Run>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Model,
    Tool,
    Subagent,
    Reasoning,
    Plan,
    Note,
}

/// The outcome of a row or step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    Failed,
    /// The end was not recorded.
    Open,
}

/// A text below a row.
pub(super) struct Part {
    pub(super) title: &'static str,
    pub(super) text: String,
    pub(super) is_code: bool,
}

impl Step {
    pub(super) const fn new(number: u64, title: String, from: u64) -> Self {
        Self {
            number,
            title,
            from,
            to: None,
            mark: Mark::Open,
            rows: Vec::new(),
            tools: BTreeMap::new(),
            subagents: BTreeMap::new(),
        }
    }

    /// The most tools that ran at the same time.
    pub(super) fn most_at_once(&self) -> isize {
        let tools = self.rows.iter().filter(|row| row.kind == Kind::Tool);
        // At equal times an end sorts before a start. A call without duration counts as running.
        let moments = tools.flat_map(|row| {
            let to = row.to.unwrap_or(u64::MAX).max(row.from.saturating_add(1));
            [(row.from, 1), (to, -1)]
        });
        let mut moments: Vec<(u64, isize)> = moments.collect();
        moments.sort_unstable();
        let (mut running, mut most) = (0, 0);
        for (_, change) in moments {
            running += change;
            most = most.max(running);
        }
        most
    }

    pub(super) fn tool(&mut self, id: &Arc<str>) -> Option<&mut Row> {
        self.rows.get_mut(*self.tools.get(id)?)
    }
}

impl Row {
    pub(super) fn new(kind: Kind, name: &str, gist: String, from: u64) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            gist,
            from,
            to: None,
            mark: Mark::Open,
            tokens: None,
            parts: Vec::new(),
            children: Vec::new(),
            run: None,
        }
    }

    pub(super) fn with(mut self, title: &'static str, text: String, is_code: bool) -> Self {
        self.parts.push(Part::new(title, text, is_code));
        self
    }

    pub(super) const fn done(mut self, at: u64) -> Self {
        (self.to, self.mark) = (Some(at), Mark::Good);
        self
    }

    pub(super) fn close(&mut self, at: u64, mark: Mark) {
        if self.to.is_none() {
            (self.to, self.mark) = (Some(at), mark);
        }
    }

    /// Adds a part of the model's response.
    pub(super) fn say(&mut self, at: u64, event: &StreamEvent) {
        let delta = &event.delta;
        let (title, more) = match event.event_type {
            StreamEventType::MessageStop => {
                (self.to, self.mark) = (Some(at), Mark::Good);
                self.lay_out_object();
                self.gist = match self.parts.iter().find(|part| part.title != CALLS) {
                    Some(said) => gist(&said.text, GIST),
                    None => self.parts.first().map_or_else(String::new, |part| {
                        format!("calls {}", gist(&part.text, GIST))
                    }),
                };
                return;
            }
            StreamEventType::TextDelta => ("Text", delta.text.as_deref()),
            StreamEventType::ReasoningDelta => ("Thinking", delta.text.as_deref()),
            StreamEventType::ObjectDelta => (OBJECT, delta.text.as_deref()),
            StreamEventType::ToolCallDelta => {
                if let Some(name) = &delta.tool_name {
                    let is_first = self.parts.iter().all(|part| part.title != CALLS);
                    self.add(CALLS, if is_first { "" } else { ", " });
                    self.add(CALLS, name);
                }
                return;
            }
            _ => return,
        };
        self.add(title, more.unwrap_or_default());
    }

    /// Formats structured output, which is complete at this point.
    fn lay_out_object(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.title == OBJECT) {
            if let Ok(object) = RawBuf::parse(&part.text) {
                part.text = readable(&object);
            }
        }
    }

    fn add(&mut self, title: &'static str, more: &str) {
        match self.parts.iter_mut().find(|part| part.title == title) {
            Some(part) => part.text.push_str(more),
            None => self
                .parts
                .push(Part::new(title, more.to_owned(), title == OBJECT)),
        }
    }
}

impl Part {
    pub(super) const fn new(title: &'static str, text: String, is_code: bool) -> Self {
        Self {
            title,
            text,
            is_code,
        }
    }
}

/// The most characters of a heading.
pub(super) const GIST: usize = 120;
/// The part of an answer that names the tools it calls.
const CALLS: &str = "Calls";
/// The part of an answer that is structured output.
const OBJECT: &str = "Object";
