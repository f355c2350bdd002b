//! The state of each step, and the sets of steps that others wait for.

use std::collections::HashMap;
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::time::Mono;

use super::attempt::StepInputs;
use super::{Cause, Config, Recovery};
use crate::draw::StepState;
use crate::graph::Graph;
use crate::plan::Act;

#[derive(Clone, Debug)]
pub(super) enum Progress {
    Waiting,
    Ready,
    Running {
        hard: Option<Mono>,
        idle: Option<Mono>,
    },
    /// The subtask of the step runs.
    Subtask,
    BackingOff {
        until: Mono,
    },
    /// Its fallback step runs.
    FallbackRunning,
    Done(Arc<RawBuf>),
    Failed,
    Skipped,
    Cancelled,
}

/// The run of one step.
#[derive(Clone, Debug)]
pub(super) struct StepRun {
    pub(super) progress: Progress,
    pub(super) attempt: u32,
    pub(super) recoveries: Arc<[Recovery]>,
    /// The current recovery, and how often it has been tried.
    pub(super) recovery: usize,
    pub(super) tries: u32,
    /// The rank of the agent to ask: 0 is the best.
    pub(super) rank: usize,
    /// The act that runs in place of its own.
    pub(super) instead: Option<Act>,
    pub(super) cause: Option<Cause>,
    pub(super) began: Option<Mono>,
    pub(super) ended: Option<Mono>,
    /// The gate that it waits behind.
    pub(super) gate: usize,
    /// The gates that it is a member of.
    pub(super) gates: Vec<usize>,
    /// The steps that it currently replaces.
    pub(super) replacing: Vec<usize>,
    /// Whether it starts only when it is called for: as a fallback step, or as the subtask behind the plan.
    pub(super) is_deferred: bool,
}

impl StepRun {
    pub(super) const fn state(&self) -> StepState {
        match self.progress {
            Progress::Waiting | Progress::Ready | Progress::BackingOff { .. } => StepState::Waiting,
            Progress::Running { .. } | Progress::Subtask | Progress::FallbackRunning => {
                StepState::Running
            }
            Progress::Done(_) => StepState::Done,
            Progress::Failed => StepState::Failed,
            Progress::Skipped => StepState::Skipped,
            Progress::Cancelled => StepState::Cancelled,
        }
    }

    /// Resets all but the count of attempts, so that the result of an earlier attempt cannot pass for a new one.
    pub(super) fn reset(&mut self, is_deferred: bool) {
        self.progress = Progress::Waiting;
        (self.recovery, self.tries, self.rank) = (0, 0, 0);
        (self.instead, self.cause) = (None, None);
        (self.began, self.ended) = (None, None);
        self.replacing.clear();
        self.is_deferred = is_deferred;
    }
}

/// A set of steps that others wait for. All members of a group wait behind the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) members: Arc<[usize]>,
    /// Members that have not ended.
    pub(super) left: usize,
    /// Whether a member ended without an output.
    pub(super) broken: bool,
    pub(super) waiters: Vec<usize>,
    /// The inputs of its waiters, built once.
    pub(super) inputs: Option<StepInputs>,
}

impl Gate {
    pub(super) fn reset(&mut self) {
        self.left = self.members.len();
        self.broken = false;
        self.inputs = None;
    }
}

/// The initial steps and gates of a graph.
pub(super) fn lay_out(graph: &Graph, config: &Config) -> (Vec<StepRun>, Vec<Gate>) {
    let mut gates: Vec<Gate> = Vec::new();
    let mut known: HashMap<(usize, *const usize), usize> = HashMap::new();
    let mut steps: Vec<StepRun> = Vec::with_capacity(graph.steps().len());
    for step in graph.steps() {
        // Members of a group share one list, so its address identifies the gate. Empty lists of two scopes may share an
        // address: hence the scope.
        let gate = *known
            .entry((step.scope, step.after.as_ptr()))
            .or_insert_with(|| {
                gates.push(Gate {
                    members: Arc::clone(&step.after),
                    left: step.after.len(),
                    broken: false,
                    waiters: Vec::new(),
                    inputs: None,
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
            began: None,
            ended: None,
            gate,
            gates: Vec::new(),
            replacing: Vec::new(),
            is_deferred: graph.is_deferred(step.number),
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
