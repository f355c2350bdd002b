//! Steps, and what happened in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::RawBuf;
use upp::{StreamEvent, StreamEventType};

use super::Run;
use crate::trace::text::{gist, readable};

/// One step; what comes outside of any has number 0.
pub(in crate::trace) struct Step {
    pub(in crate::trace) number: u64,
    pub(in crate::trace) title: String,
    pub(in crate::trace) from: u64,
    pub(in crate::trace) to: Option<u64>,
    pub(in crate::trace) mark: Mark,
    pub(in crate::trace) rows: Vec<Row>,
    /// The rows of tools, by the id of their call.
    pub(super) tools: BTreeMap<Arc<str>, usize>,
    /// The rows of sub-agents, by their id: below which row, and the how-manieth child of it, if it is one.
    pub(super) subagents: BTreeMap<Arc<str>, (usize, Option<usize>)>,
}

/// One thing that happened.
pub(in crate::trace) struct Row {
    pub(in crate::trace) kind: Kind,
    pub(in crate::trace) name: String,
    pub(in crate::trace) gist: String,
    pub(in crate::trace) from: u64,
    pub(in crate::trace) to: Option<u64>,
    pub(in crate::trace) mark: Mark,
    /// In and out.
    pub(in crate::trace) tokens: Option<(u64, u64)>,
    pub(in crate::trace) parts: Vec<Part>,
    pub(in crate::trace) children: Vec<Self>,
    /// Below a sub-agent: its steps.
    pub(in crate::trace) run: Option<Box<Run>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::trace) enum Kind {
    Model,
    Tool,
    Subagent,
    Reasoning,
    Plan,
    Note,
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::trace) enum Mark {
    Good,
    Failed,
    /// No end was seen.
    Open,
}

/// A text below a row.
pub(in crate::trace) struct Part {
    pub(in crate::trace) title: &'static str,
    pub(in crate::trace) text: String,
    pub(in crate::trace) is_code: bool,
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

    /// The most tools that ran at one time.
    pub(in crate::trace) fn most_at_once(&self) -> usize {
        let tools = self.rows.iter().filter(|row| row.kind == Kind::Tool);
        // At one moment, what ends comes before what begins; what took no time ran all the same.
        let moments = tools.flat_map(|row| {
            let to = row.to.unwrap_or(u64::MAX).max(row.from.saturating_add(1));
            [(row.from, true), (to, false)]
        });
        let mut moments: Vec<(u64, bool)> = moments.collect();
        moments.sort_unstable();
        let (mut running, mut most) = (0_usize, 0);
        for (_, begins) in moments {
            running = if begins {
                running + 1
            } else {
                running.saturating_sub(1)
            };
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

    /// The model says more.
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

    /// Structured output is complete: it can be set in lines now.
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

/// Characters of a heading.
pub(super) const GIST: usize = 120;
/// The part of an answer that names the tools it calls.
const CALLS: &str = "Calls";
/// The part of an answer that is structured output.
const OBJECT: &str = "Object";
