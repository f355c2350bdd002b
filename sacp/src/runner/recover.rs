//! Recovery from failed attempts.

use std::sync::Arc;

use ubos_common::time::Now;

use super::outcome::End;
use super::state::{Runner, Work};
use super::steps::Progress;
use super::{Cause, Failure, Recovery};
use crate::draw::StepState;
use crate::graph::Retry;
use crate::trace::debug;

impl Runner {
    /// An attempt failed: applies the next recovery that can still help.
    // impl: SACP-3-3
    pub(super) fn on_failure(&mut self, now: Now, step: usize, cause: Cause) {
        loop {
            let Some(run) = self.step_mut(step) else {
                return;
            };
            run.cause = Some(cause.clone());
            let recoveries = Arc::clone(&run.recoveries);
            let Some(recovery) = recoveries.get(run.recovery) else {
                return self.fail_scope(now, step, cause);
            };
            debug!(step, recovery = run.recovery, "recovery considered");
            let applied = match recovery {
                Recovery::Retry(retry) => self.retry(now, step, retry, &cause),
                Recovery::OtherAgents { up_to } if run.rank < *up_to => {
                    run.rank += 1;
                    self.requeue(step);
                    true
                }
                Recovery::OtherAgents { .. } => false,
                Recovery::OtherAct(act) => {
                    (run.instead, run.rank, run.tries) = (Some(act.clone()), 0, 0);
                    run.recovery += 1;
                    self.requeue(step);
                    true
                }
                Recovery::Skip(value) => self.keep(step, value.clone()).is_ok(),
                Recovery::Continue => {
                    self.finish(step, Progress::Failed);
                    true
                }
                Recovery::Fallback(other) => self.start_fallback(step, *other),
            };
            if applied {
                return;
            }
            if let Some(run) = self.step_mut(step) {
                run.recovery += 1;
                run.tries = 0;
            }
        }
    }

    /// Runs an attempt again, after its wait; returns whether one is left.
    // impl: SACP1-6-4
    pub(super) fn retry(&mut self, now: Now, step: usize, retry: &Retry, cause: &Cause) -> bool {
        let Some(run) = self.step_mut(step) else {
            return false;
        };
        if !cause.is_retryable() || run.tries.saturating_add(1) >= retry.max_attempts {
            return false;
        }
        run.tries += 1;
        let wait = retry.wait_after(run.tries);
        if wait.is_zero() {
            self.requeue(step);
        } else {
            let until = now.mono.saturating_add(wait);
            run.progress = Progress::BackingOff { until };
            self.set_timer(step, Some(until));
            self.emit_state(step, StepState::Waiting);
        }
        true
    }

    /// Queues a step for another attempt.
    pub(super) fn requeue(&mut self, step: usize) {
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Ready;
            self.ready.insert(step);
            self.emit_state(step, StepState::Waiting);
        }
    }

    /// Starts a fallback step; returns whether it can still replace this one.
    // impl: SACP1-6-3
    pub(super) fn start_fallback(&mut self, step: usize, other: usize) -> bool {
        let Some(run) = self.step_mut(other) else {
            return false;
        };
        match &run.progress {
            Progress::Done(output) => {
                let output = Arc::clone(output);
                self.finish(step, Progress::Done(output));
                return true;
            }
            Progress::Failed | Progress::Skipped | Progress::Cancelled => return false,
            _ => {}
        }
        run.replacing.push(step);
        let first = core::mem::replace(&mut run.is_deferred, false);
        let (gate, scope) = (
            run.gate,
            self.graph.step(other).map_or(0, |node| node.scope),
        );
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::FallbackRunning;
        }
        if first {
            if let Some(scope) = self.scopes.get_mut(scope) {
                scope.open += 1;
            }
            if self.gates.get(gate).is_some_and(|gate| gate.broken) {
                self.finish(other, Progress::Skipped);
            } else {
                self.make_ready(other);
            }
        }
        true
    }

    /// A step failed for good, and its scope with it.
    pub(super) fn fail_scope(&mut self, now: Now, step: usize, cause: Cause) {
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Failed;
            run.cause = Some(cause.clone());
            run.ended = Some(now.mono);
        }
        self.emit_state(step, StepState::Failed);
        let scope = self.graph.step(step).map_or(0, |node| node.scope);
        let parent = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.parent);
        match parent {
            Some(parent) => {
                self.stop_subtask(parent);
                let reason = self
                    .graph
                    .step(step)
                    .map(|node| format!("act {} of its subtask: {cause}", node.place));
                let cause = Cause::tool(reason.unwrap_or_default());
                self.work.push_back(Work::Failed(parent, cause));
            }
            None => self.end_run(
                now,
                End::Failed,
                Some(Failure {
                    step: Some(step),
                    cause,
                }),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::time::{Mono, Timestamp};

    use super::*;
    use crate::graph::{Graph, OnError};
    use crate::plan::Act;
    use crate::runner::{Config, Input, Output, Ticket};

    /// No message can share a fallback step, but the runner does not depend on that.
    // spec: SACP1-6-3
    #[test]
    fn two_steps_can_share_a_fallback_step() {
        let mut graph = Graph::default();
        let scope = graph.open(None, "G", None);
        for n in 0..3 {
            graph.add(scope, format!("/plan/{n}"), Act::new("v", "T"), []);
        }
        for n in [1, 2] {
            graph.step_mut(n).unwrap().policy.on_error = Some(OnError::Fallback(3));
        }
        graph.step_mut(3).unwrap().policy.replaces = Some(1);
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let mut runner = Runner::of_graph(graph, false, Config::default()).unwrap();
        runner.start(now);
        let mut attempts = Vec::new();
        let outcome = loop {
            match runner.poll_output().unwrap() {
                Output::Dispatch { ticket, .. } if ticket.step == 3 => {
                    attempts.push(ticket);
                    let output = ubos_common::json::Raw::NULL.to_owned();
                    let input = Input::Succeeded { ticket, output };
                    runner.handle_input(now, input).unwrap();
                }
                Output::Dispatch { ticket, .. } => {
                    let cause = Cause::permanent("down");
                    let input = Input::Failed { ticket, cause };
                    runner.handle_input(now, input).unwrap();
                }
                Output::Ended(outcome) => break outcome,
                other => panic!("{other:?}"),
            }
        };
        let once = Ticket {
            step: 3,
            attempt: 1,
            epoch: 0,
        };
        assert_eq!(attempts, [once]);
        assert_eq!(outcome.end, End::Done);
        assert!(
            outcome
                .steps
                .iter()
                .all(|step| step.state == StepState::Done)
        );
    }
}
