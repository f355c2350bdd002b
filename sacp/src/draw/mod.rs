//! Diagrams of a plan: Mermaid and DOT, with the state and time of each step.
//!
//! ```
//! use sacp::draw::{StepView, mermaid};
//! use sacp::{AnyMessage, Graph, draw::StepState};
//!
//! let (message, _) = AnyMessage::decode(br#"{"g":"ADD","plan":[["get","ONE",{}],["show","PRES",{}]]}"#)?;
//! let picture = mermaid(&Graph::from(&message), |number| match number {
//!     1 => StepView::new(StepState::Done, None),
//!     _ => StepView::default(),
//! });
//! assert!(picture.contains("s1 --> s2"));
//! # Ok::<(), ubos_common::json::DecodeError>(())
//! ```
//!
//! Text of a plan is escaped: it can neither end a label nor begin a line.

mod dot;
mod mermaid;

pub use dot::dot;
pub use mermaid::mermaid;

use core::time::Duration;
use std::collections::BTreeMap;

use crate::graph::{Graph, OnError, Step};

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StepState {
    /// It has not started.
    #[default]
    Waiting,
    /// It runs.
    Running,
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
    /// It never ran: a dependency failed, or it was not needed.
    Skipped,
    /// It was cancelled.
    Cancelled,
}

impl StepState {
    const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// The word in the diagram.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Waiting => "#ffffff",
            Self::Running => "#fff3b0",
            Self::Done => "#c8f0c8",
            Self::Failed => "#f5b5b5",
            Self::Skipped => "#dddddd",
            Self::Cancelled => "#e6d5f0",
        }
    }
}

/// What a diagram shows of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepView {
    /// Its state.
    pub state: StepState,
    /// Its duration so far.
    pub took: Option<Duration>,
}

impl StepView {
    /// A state, and the duration so far.
    #[must_use]
    pub const fn new(state: StepState, took: Option<Duration>) -> Self {
        Self { state, took }
    }
}

/// The label of a step: number, verb, tool, state and time.
fn label(step: &Step, view: StepView) -> String {
    /// Characters of a verb or tool that are shown.
    const SHOWN: usize = 64;
    let cut = |word: &str| word.chars().take(SHOWN).collect::<String>();
    let mut label = format!(
        "{} {} {}",
        step.number,
        cut(&step.act.verb),
        cut(&step.act.tool)
    );
    if view.state != StepState::Waiting {
        label.push_str(" - ");
        label.push_str(view.state.as_str());
    }
    if let Some(took) = view.took {
        label.push_str(&format!(" {} ms", took.as_millis()));
    }
    label
}

/// An arrow between two nodes.
struct Edge {
    from: String,
    to: String,
    /// Its label, unless it means the order.
    why: Option<&'static str>,
}

/// The auxiliary nodes, and all arrows.
struct Arrows {
    /// Bars between groups: a group behind another is drawn with the sum of arrows and not with their
    /// product.
    bars: Vec<String>,
    edges: Vec<Edge>,
}

impl Arrows {
    fn of(graph: &Graph) -> Self {
        let mut followers: BTreeMap<&[usize], Vec<usize>> = BTreeMap::new();
        let mut lists: BTreeMap<*const usize, (&[usize], Vec<usize>)> = BTreeMap::new();
        for step in graph.steps() {
            let entry = lists
                .entry(step.after.as_ptr())
                .or_insert((&step.after, Vec::new()));
            entry.1.push(step.number);
        }
        for (after, steps) in lists.into_values() {
            followers.entry(after).or_default().extend(steps);
        }
        let mut arrows = Self {
            bars: Vec::new(),
            edges: Vec::new(),
        };
        for (after, mut steps) in followers {
            steps.sort_unstable();
            arrows.add(after, &steps);
        }
        for step in graph.steps() {
            if let Some(OnError::Fallback(other)) = step.policy.on_error {
                arrows.edge(node(step.number), node(other), Some("fallback"));
            }
            let inner = step.subtask.and_then(|scope| graph.scopes().get(scope));
            for first in inner.into_iter().flat_map(|scope| &scope.steps) {
                if graph
                    .step(*first)
                    .is_some_and(|first| first.after.is_empty())
                {
                    arrows.edge(node(step.number), node(*first), Some("subtask"));
                }
            }
        }
        arrows
    }

    fn add(&mut self, after: &[usize], steps: &[usize]) {
        if after.len() < 2 || steps.len() < 2 {
            for step in steps {
                for before in after {
                    self.edge(node(*before), node(*step), None);
                }
            }
            return;
        }
        let bar = format!("j{}", self.bars.len() + 1);
        for before in after {
            self.edge(node(*before), bar.clone(), None);
        }
        for step in steps {
            self.edge(bar.clone(), node(*step), None);
        }
        self.bars.push(bar);
    }

    fn edge(&mut self, from: String, to: String, why: Option<&'static str>) {
        self.edges.push(Edge { from, to, why });
    }
}

fn node(number: usize) -> String {
    format!("s{number}")
}
