//! What a runner knows of each step, and what steps wait for.

use std::collections::HashMap;
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::time::Mono;

use super::{Cause, Config, Recovery};
use crate::draw::StepState;
use crate::graph::Graph;
use crate::plan::Act;

/// One attempt at a step. An answer to an attempt that is over is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// exhaustive: two numbers that name an attempt
pub struct Ticket {
    /// The step's number.
    pub step: usize,
    /// Counts its attempts from 1.
    pub attempt: u32,
}

impl Ticket {
    /// Both numbers as one, for drivers that want an id.
    #[must_use]
    pub const fn id(self) -> u64 {
        ((self.step as u64) << 32) | self.attempt as u64
    }
}

/// Outputs of the steps that a step waited for, in plan order. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(Arc<[(usize, Arc<RawBuf>)]>);

impl Given {
    pub(super) fn new(outputs: Vec<(usize, Arc<RawBuf>)>) -> Self {
        Self(outputs.into())
    }

    /// Each step's number and its output.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &RawBuf)> {
        self.0.iter().map(|(step, output)| (*step, output.as_ref()))
    }

    /// The outputs alone.
    #[must_use]
    pub fn to_vec(&self) -> Vec<RawBuf> {
        self.iter().map(|(_, output)| output.clone()).collect()
    }

    /// How many outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Progress {
    Waiting,
    Ready,
    Running {
        hard: Option<Mono>,
        idle: Option<Mono>,
    },
    /// Its subtask runs.
    Inner,
    Resting {
        until: Mono,
    },
    /// Another step stands in for it.
    Replaced,
    Done(Arc<RawBuf>),
    Failed,
    Skipped,
    Cancelled,
}

/// What is known of one step.
#[derive(Clone, Debug)]
pub(super) struct StepRun {
    pub(super) progress: Progress,
    pub(super) attempt: u32,
    pub(super) recoveries: Arc<[Recovery]>,
    /// The recovery that is tried now, and how often it was.
    pub(super) recovery: usize,
    pub(super) tries: u32,
    /// Which of the agents is asked: 0 is the best.
    pub(super) rank: usize,
    /// What is done instead of its act.
    pub(super) instead: Option<Act>,
    pub(super) cause: Option<Cause>,
    pub(super) timer: Option<Mono>,
    pub(super) began: Option<Mono>,
    pub(super) ended: Option<Mono>,
    /// What it waits for.
    pub(super) gate: usize,
    /// The gates that wait for it.
    pub(super) gates: Vec<usize>,
    /// The steps that it stands in for now.
    pub(super) for_steps: Vec<usize>,
    /// Whether it only runs when a step that it stands in for has failed.
    pub(super) stands_by: bool,
}

impl StepRun {
    pub(super) const fn state(&self) -> StepState {
        match self.progress {
            Progress::Waiting | Progress::Ready | Progress::Resting { .. } => StepState::Waiting,
            Progress::Running { .. } | Progress::Inner | Progress::Replaced => StepState::Running,
            Progress::Done(_) => StepState::Done,
            Progress::Failed => StepState::Failed,
            Progress::Skipped => StepState::Skipped,
            Progress::Cancelled => StepState::Cancelled,
        }
    }

    /// Makes it as it was before the run, but for its count of attempts: no old answer may pass for a new one.
    pub(super) fn reset(&mut self, stands_by: bool) {
        self.progress = Progress::Waiting;
        (self.recovery, self.tries, self.rank) = (0, 0, 0);
        (self.instead, self.cause) = (None, None);
        (self.began, self.ended) = (None, None);
        self.for_steps.clear();
        self.stands_by = stands_by;
    }
}

/// A set of steps that others wait for. All members of a group that follows wait at the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) members: Arc<[usize]>,
    pub(super) left: usize,
    /// One of them ended without an output.
    pub(super) broken: bool,
    pub(super) waiters: Vec<usize>,
    /// What they are given, made once.
    pub(super) given: Option<Given>,
}

impl Gate {
    pub(super) fn reset(&mut self) {
        self.left = self.members.len();
        self.broken = false;
        self.given = None;
    }
}

/// Lays out a graph for running.
pub(super) fn lay_out(graph: &Graph, config: &Config) -> (Vec<StepRun>, Vec<Gate>) {
    let mut gates: Vec<Gate> = Vec::new();
    let mut known: HashMap<(usize, *const usize), usize> = HashMap::new();
    let mut steps: Vec<StepRun> = Vec::with_capacity(graph.steps().len());
    for step in graph.steps() {
        // Members of a group share one list; lists of two scopes may lie at one address when they are empty.
        let gate = *known
            .entry((step.scope, step.after.as_ptr()))
            .or_insert_with(|| {
                gates.push(Gate {
                    members: Arc::clone(&step.after),
                    left: step.after.len(),
                    broken: false,
                    waiters: Vec::new(),
                    given: None,
                });
                gates.len() - 1
            });
        if let Some(gate) = gates.get_mut(gate) {
            gate.waiters.push(step.number);
        }
        steps.push(StepRun {
            progress: Progress::Waiting,
            attempt: 0,
            recoveries: config.recoveries(&step.act, &step.policy).into(),
            recovery: 0,
            tries: 0,
            rank: 0,
            instead: None,
            cause: None,
            timer: None,
            began: None,
            ended: None,
            gate,
            gates: Vec::new(),
            for_steps: Vec::new(),
            stands_by: graph.stands_by(step.number),
        });
    }
    for (n, gate) in gates.iter().enumerate() {
        for member in gate.members.iter() {
            if let Some(step) = member.checked_sub(1).and_then(|n| steps.get_mut(n)) {
                step.gates.push(n);
            }
        }
    }
    (steps, gates)
}
