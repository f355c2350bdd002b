//! What every strategy must do, for who writes one.

mod breach;
mod monitor;
mod script;
mod simulation;

use std::sync::Arc;

use ubos_common::id::IdSource;
use upp::{ErrorCode, ModelReference, Reply};

pub use breach::{StrategyBreach, StrategyFault};
use script::{FailingModel, Script, all};
use simulation::{Record, Simulation};
use uap_agent::AgentState;
use uap_agent::strategy::ExecutionStrategy;

/// Places at which one script is aborted, spread evenly where there are more answers.
const ABORTS: usize = 200;
/// Questions of one script that fail in turn.
const FAILURES: usize = 16;
/// Steps of one script at which the stop condition says stop in turn.
const STOPS: u64 = 8;

/// Puts a strategy through all that strategies do, on scripts that answer, call tools, fail and never end.
///
/// Each script is run more than once: as it is, from the state that it came to, with an abort in place of each answer
/// in turn, with an error in place of each of the model's, and with a stop at the end of each step. In all of them
/// steps count from 1 and each is ended, no state changes once it was seen, every state can be kept and gone on from,
/// the run ends, and ends as it must; two runs of one script are the same to the last id. A panic is a fault, and so
/// are moves or questions without end. What is not found is a strategy that never comes back from one move.
///
/// ```
/// use ubos_conformance::uap::check_strategy;
/// use uap_agent::{ReactOptions, react};
///
/// check_strategy(react(ReactOptions::default())?.as_ref())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The first thing that the strategy does otherwise.
///
/// Spec: UAP-1.1 5.1
pub fn check_strategy(strategy: &dyn ExecutionStrategy) -> Result<(), StrategyFault> {
    all().iter().try_for_each(|script| check(strategy, script))
}

/// As [`check_strategy`], on a script of the author's own: one that reaches what the strategy does specially. The
/// tools `echo`, which gives back its arguments, and `fail`, which fails, may be called.
///
/// # Errors
///
/// The first thing that the strategy does otherwise.
pub fn check_strategy_with<R: IntoIterator<Item = Reply>>(
    strategy: &dyn ExecutionStrategy,
    script: impl Fn() -> R,
) -> Result<(), StrategyFault> {
    check(strategy, &Script::of_author(script))
}

fn check(strategy: &dyn ExecutionStrategy, script: &Script<'_>) -> Result<(), StrategyFault> {
    let checker = Checker { strategy, script };
    let start = AgentState::initial(&mut IdSource::seeded(5));
    // Begun before the other has run: what two runs share shows.
    let second = checker.simulation();
    let first = checker.run("the first run", checker.simulation(), &start)?;
    let again = checker.run("the second run", second, &start)?;
    checker.same(&first, &again)?;
    if let Some(Ok(result)) = &first.result {
        let mut simulation = checker.simulation();
        simulation.seed += 1;
        checker.run("going on", simulation, &result.state)?;
    }
    checker.aborts(&first, &start)?;
    checker.failures(&first, &start)?;
    checker.stops(&first, &start)
}

struct Checker<'a> {
    strategy: &'a dyn ExecutionStrategy,
    script: &'a Script<'a>,
}

impl Checker<'_> {
    fn simulation(&self) -> Simulation {
        self.simulation_with((self.script.make)())
    }

    fn simulation_with(&self, model: ModelReference) -> Simulation {
        Simulation {
            run: self.strategy.begin(),
            model,
            seed: 12,
            tools: self.script.tools,
            stop_at: self.script.stop_at,
            abort_at: None,
        }
    }

    fn run(
        &self,
        run: impl Into<String>,
        simulation: Simulation,
        start: &AgentState,
    ) -> Result<Record, StrategyFault> {
        let stop_at = simulation.stop_at;
        let played = simulation.run(start).and_then(|record| {
            // Without tools to offer a call is but a part of the answer.
            if self.script.tools {
                record.check_calls()?;
            }
            match stop_at {
                Some(stopped) if record.steps > stopped => {
                    let seen = record.steps;
                    Err(StrategyBreach::PastStop { stopped, seen })
                }
                _ => Ok(record),
            }
        });
        played.map_err(|breach| self.fault(run, breach))
    }

    fn fault(&self, run: impl Into<String>, breach: StrategyBreach) -> StrategyFault {
        StrategyFault {
            script: self.script.name,
            run: run.into(),
            breach,
        }
    }

    fn same(&self, first: &Record, again: &Record) -> Result<(), StrategyFault> {
        let differs = first.log.iter().zip(&again.log).position(|(a, b)| a != b);
        let longer = || {
            let (a, b) = (first.log.len(), again.log.len());
            (a != b).then_some(a.min(b))
        };
        match differs.or_else(longer) {
            None => Ok(()),
            Some(line) => {
                let breach = StrategyBreach::NotDeterministic { line };
                Err(self.fault("the second run", breach))
            }
        }
    }

    /// Aborts in place of each answer.
    fn aborts(&self, first: &Record, start: &AgentState) -> Result<(), StrategyFault> {
        let every = first.answers.div_ceil(ABORTS).max(1);
        for at in (0..first.answers).step_by(every) {
            let run = format!("aborted at answer {at}");
            let mut simulation = self.simulation();
            simulation.abort_at = Some(at);
            let record = self.run(run.as_str(), simulation, start)?;
            let cancelled = match &record.result {
                Some(Err(error)) => error.error.code == ErrorCode::Cancelled,
                _ => false,
            };
            // An abort while the error hook is told comes too late.
            if !cancelled && matches!(first.result, Some(Ok(_))) {
                return Err(self.fault(run, StrategyBreach::NotCancelled));
            }
        }
        Ok(())
    }

    /// Lets the model fail at each question, and at all of them.
    fn failures(&self, first: &Record, start: &AgentState) -> Result<(), StrategyFault> {
        let each = (0..first.questions.min(FAILURES)).map(Some);
        for at in each.chain([None]) {
            let run = match at {
                Some(at) => format!("with an error at question {at}"),
                None => "with errors alone".to_owned(),
            };
            let model = FailingModel::new((self.script.make)(), at);
            self.run(run, self.simulation_with(Arc::new(model)), start)?;
        }
        Ok(())
    }

    /// Stops at the end of each step.
    fn stops(&self, first: &Record, start: &AgentState) -> Result<(), StrategyFault> {
        for step in 1..=first.steps.min(STOPS) {
            let run = format!("stopped at step {step}");
            let mut simulation = self.simulation();
            simulation.stop_at = Some(step);
            let record = self.run(run.as_str(), simulation, start)?;
            if record.result.is_some_and(|result| result.is_err())
                && first.result.as_ref().is_some_and(Result::is_ok)
            {
                return Err(self.fault(
                    run,
                    StrategyBreach::PastStop {
                        stopped: step,
                        seen: record.steps,
                    },
                ));
            }
        }
        Ok(())
    }
}
