//! The state of a run.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::machine::{Outbox, Timers};
use ubos_common::time::Mono;

use super::event::Output;
use super::outcome::End;
use super::steps::{Gate, StepRun};
use super::{Cause, Config};
use crate::graph::Graph;

/// Runs the plan of one message. See the [module](super).
///
/// The order of a run depends on its inputs alone: of the steps that can start, the one with the lowest number starts
/// first.
#[derive(Debug)]
pub struct Runner {
    pub(super) graph: Arc<Graph>,
    pub(super) config: Config,
    pub(super) test_mode: bool,
    pub(super) steps: Vec<StepRun>,
    pub(super) gates: Vec<Gate>,
    pub(super) scopes: Vec<ScopeRun>,
    pub(super) ready: BTreeSet<usize>,
    pub(super) timers: Timers<usize>,
    pub(super) work: VecDeque<Work>,
    pub(super) running: usize,
    pub(super) bytes: usize,
    /// How often the run has been restored.
    pub(super) epoch: u32,
    pub(super) began: Option<Mono>,
    /// What the lives before a restore took.
    pub(super) took_before: Duration,
    pub(super) deadline: Option<Mono>,
    pub(super) paused: bool,
    pub(super) pause_reported: bool,
    pub(super) end: Option<End>,
    pub(super) out: Outbox<Output>,
}

/// The run of one scope: the message, or a subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopeRun {
    /// Steps that have not ended.
    pub(super) open: usize,
    /// Whether the subtask at its top level has started.
    pub(super) last_begun: bool,
}

/// Consequences still to be applied. They wait in a queue: with recursion a deep plan could exhaust the stack.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// An attempt failed: the next recovery applies.
    Failed(usize, Cause),
    /// A step ended, with an output or without.
    Ended(usize),
}
