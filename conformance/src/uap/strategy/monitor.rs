//! A strategy that is watched while it moves.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use upp::{ErrorCode, UppError};

use super::breach::StrategyBreach;
use uap_agent::strategy::{Command, ExecutionContext, ExecutionStrategy, Outcome, StrategyRun};

/// Moves between two questions to the model.
const MOVES: usize = 1_000;

/// What was seen of a run of a strategy.
#[derive(Default)]
pub(super) struct Monitor {
    moves: usize,
    steps: u64,
    is_open: bool,
    answered: bool,
    breach: Option<StrategyBreach>,
}

/// Shared by the run, which the engine owns, and who looks on.
#[derive(Clone, Default)]
pub(super) struct Observations(Arc<Mutex<Monitor>>);

impl Observations {
    fn lock(&self) -> MutexGuard<'_, Monitor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn breach(&self) -> Option<StrategyBreach> {
        self.lock().breach
    }
}

/// A strategy with the one run that is monitored.
pub(super) struct MonitoredStrategy {
    run: Arc<Mutex<Box<dyn StrategyRun>>>,
    seen: Observations,
}

impl MonitoredStrategy {
    pub(super) fn new(run: Box<dyn StrategyRun>, seen: Observations) -> Self {
        let run = Arc::new(Mutex::new(run));
        Self { run, seen }
    }
}

impl ExecutionStrategy for MonitoredStrategy {
    fn name(&self) -> &str {
        "monitored"
    }

    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(MonitoredRun {
            run: Arc::clone(&self.run),
            seen: self.seen.clone(),
        })
    }
}

struct MonitoredRun {
    run: Arc<Mutex<Box<dyn StrategyRun>>>,
    seen: Observations,
}

impl StrategyRun for MonitoredRun {
    /// Makes the strategy's move, or ends the run where it may not be made.
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        if matches!(outcome, Outcome::Inferred { .. }) {
            self.seen.lock().answered = true;
        }
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            run.next(outcome, context)
        }));
        let mut watch = self.seen.lock();
        let breach = match &made {
            Err(_) => Some(StrategyBreach::Panicked),
            Ok(made) => watch.breach_of(made),
        };
        watch.breach = watch.breach.or(breach);
        match made {
            Ok(made) if breach.is_none() => made,
            _ => Command::Fail(UppError::new(
                ErrorCode::InvalidRequest,
                "uap",
                "the checker ends this run",
            )),
        }
    }
}

impl Monitor {
    fn breach_of(&mut self, made: &Command) -> Option<StrategyBreach> {
        self.moves += 1;
        if self.moves > MOVES {
            return Some(StrategyBreach::EndlessMoves { limit: MOVES });
        }
        let outside = |doing| (!self.is_open).then_some(StrategyBreach::OutsideStep { doing });
        let open = || {
            let step = self.steps;
            self.is_open.then_some(StrategyBreach::StepOpen { step })
        };
        let breach = match made {
            Command::StartStep(_) => open(),
            Command::Infer(_) => outside("asking the model"),
            Command::Reason(_) => outside("reasoning"),
            Command::EndStep(_) => outside("ending a step"),
            Command::Finish if !self.answered => Some(StrategyBreach::NoAnswer),
            Command::Finish => open(),
            _ => None,
        };
        match made {
            Command::StartStep(_) => {
                self.steps += 1;
                self.is_open = true;
            }
            Command::EndStep(_) => self.is_open = false,
            Command::Infer(_) => self.moves = 0,
            _ => {}
        }
        breach
    }
}
