//! Timeouts, cancellation, and the end of a run.

use std::sync::Arc;

use ubos_common::time::{Mono, Now};

use super::attempt::Ticket;
use super::outcome::End;
use super::state::{Runner, Work};
use super::steps::{Progress, StepRun};
use super::{Cause, Failure, Output};
use crate::draw::StepState;
use crate::trace::{debug, trace};

impl Runner {
    pub(super) fn on_progress(&mut self, now: Now, step: usize) {
        let idle_after = self
            .config
            .idle_timeout
            .map(|timeout| now.mono.saturating_add(timeout));
        let Some(run) = self.step_mut(step) else {
            return;
        };
        if let Progress::Running { hard, idle } = &mut run.progress {
            *idle = idle_after;
            let next = hard.iter().chain(idle.iter()).min().copied();
            self.set_timer(step, next);
        }
    }

    /// The timer of a step ran out: its wait is over, or its attempt exceeded a timeout.
    // impl: SACP1-6-4, SACP-3-5
    pub(super) fn on_timer(&mut self, now: Now, step: usize) {
        let ticket = self.ticket(step);
        let Some(run) = self.step_mut(step) else {
            return;
        };
        trace!(step, attempt = ticket.attempt, "timer of a step ran out");
        match run.progress {
            Progress::BackingOff { .. } => {
                run.progress = Progress::Ready;
                self.ready.insert(step);
            }
            Progress::Running { hard, .. } => {
                let idle = hard.is_none_or(|hard| hard > now.mono);
                self.leave_running(step);
                self.out.push(Output::Cancel { ticket });
                let after = self.time_limit(step, idle);
                self.work
                    .push_back(Work::Failed(step, Cause::Timeout { after, idle }));
            }
            Progress::Subtask => {
                self.stop_subtask(step);
                let after = self.time_limit(step, false);
                self.work
                    .push_back(Work::Failed(step, Cause::Timeout { after, idle: false }));
            }
            _ => {}
        }
    }

    /// The name of the last attempt of a step.
    pub(super) fn ticket(&self, step: usize) -> Ticket {
        Ticket {
            step,
            attempt: self.step_run(step).map_or(0, |run| run.attempt),
            epoch: self.epoch,
        }
    }

    pub(super) fn time_limit(&self, step: usize, idle: bool) -> core::time::Duration {
        let own = self.graph.step(step).and_then(|step| step.policy.timeout);
        let limit = if idle {
            self.config.idle_timeout
        } else {
            own.or(self.config.step_timeout)
        };
        limit.unwrap_or_default()
    }

    pub(super) fn set_timer(&mut self, step: usize, at: Option<Mono>) {
        match at {
            Some(at) => self.timers.set(step, at),
            None => self.timers.clear(&step),
        }
    }

    /// Takes an attempt out of the running ones. The caller sets the next state of its step.
    pub(super) fn leave_running(&mut self, step: usize) {
        self.set_timer(step, None);
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Ready;
            self.running -= 1;
        }
    }

    /// Stops a step that has started, with the subtask inside it.
    pub(super) fn stop(&mut self, step: usize) {
        self.set_timer(step, None);
        self.ready.remove(&step);
        let ticket = self.ticket(step);
        let Some(run) = self.step_run(step) else {
            return;
        };
        match run.progress {
            Progress::Running { .. } => {
                self.leave_running(step);
                self.out.push(Output::Cancel { ticket });
            }
            Progress::Subtask => self.stop_subtask(step),
            _ => {}
        }
    }

    /// Stops the subtask of a step and resets it.
    pub(super) fn stop_subtask(&mut self, step: usize) {
        self.set_timer(step, None);
        let graph = Arc::clone(&self.graph);
        let Some(scope) = graph
            .step(step)
            .and_then(|node| node.subtask)
            .and_then(|scope| graph.scopes().get(scope))
        else {
            return;
        };
        for inner in scope.steps.iter().chain(&scope.last) {
            if self.done(*inner).is_some() {
                // Without a reset, its own steps would count as done in the next attempt.
                self.stop_subtask(*inner);
            } else {
                self.stop(*inner);
            }
            let is_deferred = graph.is_deferred(*inner);
            let bytes = self.done(*inner).map_or(0, |output| output.as_str().len());
            self.bytes = self.bytes.saturating_sub(bytes);
            let Some(run) = self.step_mut(*inner) else {
                continue;
            };
            run.reset(is_deferred);
            let gate = run.gate;
            if let Some(gate) = self.gates.get_mut(gate) {
                gate.reset();
            }
        }
        self.work.retain(|work| {
            let (Work::Failed(about, _) | Work::Ended(about)) = work;
            !scope.steps.contains(about) && scope.last != Some(*about)
        });
    }

    // impl: SACP-3-5
    pub(super) fn end_run(&mut self, now: Now, end: End, failure: Option<Failure>) {
        let graph = Arc::clone(&self.graph);
        let outermost = graph.scopes().first();
        for step in outermost
            .iter()
            .flat_map(|scope| scope.steps.iter().chain(&scope.last))
        {
            self.stop(*step);
        }
        for step in 1..=self.steps.len() {
            let Some(run) = self.step_mut(step) else {
                continue;
            };
            if matches!(run.state(), StepState::Waiting | StepState::Running) {
                run.progress = Progress::Cancelled;
                run.ended = run.began.map(|_| now.mono);
                self.emit_state(step, StepState::Cancelled);
            }
        }
        let failure = failure.or_else(|| {
            (end == End::Cancelled).then_some(Failure {
                step: None,
                cause: Cause::Cancelled,
            })
        });
        self.end = Some(end);
        self.emit_end(failure);
    }

    /// Nothing runs, backs off or can start: steps that still wait depend on a deferred step that never started.
    pub(super) fn skip_rest(&mut self, now: Now) {
        if self.end.is_some() {
            return;
        }
        let graph = Arc::clone(&self.graph);
        let waiting = |step: &&usize| {
            self.step_run(**step)
                .is_some_and(|run| matches!(run.progress, Progress::Waiting) && !run.is_deferred)
        };
        let outermost = graph.scopes().first();
        let stuck: Vec<usize> = outermost
            .iter()
            .flat_map(|scope| &scope.steps)
            .filter(waiting)
            .copied()
            .collect();
        if stuck.is_empty() {
            let runs = |step: &usize| {
                self.step_run(*step)
                    .is_some_and(|run| run.state() == StepState::Running)
            };
            let Some(step) = (1..=self.steps.len()).rev().find(runs) else {
                return self.conclude();
            };
            // Rules can make steps the fallbacks of each other. Such a run does not end by itself, and is not done.
            self.fail_scope(
                now,
                step,
                Cause::permanent("its fallback step waits for it"),
            );
        }
        for step in stuck {
            self.skip(step);
        }
        self.advance(now);
    }

    /// The run is done. Deferred steps that were not needed are skipped.
    pub(super) fn conclude(&mut self) {
        for run in &mut self.steps {
            if matches!(run.progress, Progress::Waiting) {
                run.progress = Progress::Skipped;
            }
        }
        let is_open = |run| matches!(StepRun::state(run), StepState::Waiting | StepState::Running);
        debug_assert!(!self.steps.iter().any(is_open), "a step has not ended");
        self.end = Some(End::Done);
        self.emit_end(None);
    }

    pub(super) fn emit_end(&mut self, failure: Option<Failure>) {
        let outcome = self.outcome(failure);
        debug!(end = ?outcome.end, step = ?outcome.failure.as_ref().and_then(|f| f.step), "run ended");
        self.out.push(Output::Ended(Box::new(outcome)));
    }
}
