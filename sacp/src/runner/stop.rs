//! How attempts, subtasks and runs come to a halt: time limits, cancels, ends.

use std::sync::Arc;

use ubos_common::time::{Mono, Now};

use super::outcome::End;
use super::schedule::Todo;
use super::steps::{Progress, Ticket};
use super::{Cause, Failure, Output, Runner};
use crate::draw::StepState;

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

    pub(super) fn on_timer(&mut self, now: Now, step: usize) {
        self.set_timer(step, None);
        let Some(run) = self.step_mut(step) else {
            return;
        };
        let ticket = Ticket {
            step,
            attempt: run.attempt,
        };
        match run.progress {
            Progress::Resting { .. } => {
                run.progress = Progress::Ready;
                self.ready.insert(step);
            }
            Progress::Running { hard, .. } => {
                let idle = hard.is_none_or(|hard| hard > now.mono);
                self.leave_running(step);
                self.out.push(Output::Cancel { ticket });
                let after = self.time_limit(step, idle);
                self.todo
                    .push_back(Todo::Failed(step, Cause::Timeout { after, idle }));
            }
            Progress::Inner => {
                self.stop_inner(step);
                let after = self.time_limit(step, false);
                self.todo
                    .push_back(Todo::Failed(step, Cause::Timeout { after, idle: false }));
            }
            _ => {}
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
        let Some(run) = self.step_mut(step) else {
            return;
        };
        let before = core::mem::replace(&mut run.timer, at);
        if let Some(before) = before {
            self.timers.remove(&(before, step));
        }
        if let Some(at) = at {
            self.timers.insert((at, step));
        }
    }

    /// An attempt no longer runs; what its step is now is for the caller to say.
    pub(super) fn leave_running(&mut self, step: usize) {
        self.set_timer(step, None);
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Ready;
            self.running -= 1;
        }
    }

    /// Stops a step that has begun, with all inside it.
    pub(super) fn stop(&mut self, step: usize) {
        self.set_timer(step, None);
        self.ready.remove(&step);
        let Some(run) = self.step_run(step) else {
            return;
        };
        let ticket = Ticket {
            step,
            attempt: run.attempt,
        };
        match run.progress {
            Progress::Running { .. } => {
                self.leave_running(step);
                self.out.push(Output::Cancel { ticket });
            }
            Progress::Inner => self.stop_inner(step),
            _ => {}
        }
    }

    /// Stops the subtask of a step, and makes it as it was before.
    pub(super) fn stop_inner(&mut self, step: usize) {
        self.set_timer(step, None);
        let graph = Arc::clone(&self.graph);
        let scope = graph
            .step(step)
            .and_then(|node| node.subtask)
            .and_then(|scope| graph.scopes().get(scope));
        for inner in scope
            .iter()
            .flat_map(|scope| scope.steps.iter().chain(&scope.last))
        {
            let holds = graph
                .step(*inner)
                .is_some_and(|node| node.subtask.is_some());
            if holds && self.done(*inner).is_some() {
                // What is inside it would pass for run when it is tried again.
                self.stop_inner(*inner);
            }
            self.stop(*inner);
            let stands_by = graph.stands_by(*inner);
            let bytes = self.done(*inner).map_or(0, |output| output.as_str().len());
            self.bytes = self.bytes.saturating_sub(bytes);
            let Some(run) = self.step_mut(*inner) else {
                continue;
            };
            run.reset(stands_by);
            let gate = run.gate;
            if let Some(gate) = self.gates.get_mut(gate) {
                gate.reset();
            }
        }
        self.todo.retain(|todo| {
            let (Todo::Failed(about, _) | Todo::Ended(about)) = todo;
            !scope.is_some_and(|scope| scope.steps.contains(about) || scope.last == Some(*about))
        });
    }

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
                self.tell(step, StepState::Cancelled);
            }
        }
        self.todo.clear();
        let failure = failure.or_else(|| {
            (end == End::Cancelled).then_some(Failure {
                step: None,
                cause: Cause::Cancelled,
            })
        });
        self.end = Some(end);
        self.say_end(failure);
    }

    /// Nothing runs, rests or may start: what still waits is for a step that nobody needed.
    pub(super) fn skip_rest(&mut self, now: Now) {
        if self.end.is_some() {
            return;
        }
        let graph = Arc::clone(&self.graph);
        let waiting = |step: &&usize| {
            self.step_run(**step)
                .is_some_and(|run| matches!(run.progress, Progress::Waiting) && !run.stands_by)
        };
        let outermost = graph.scopes().first();
        let stuck: Vec<usize> = outermost
            .iter()
            .flat_map(|scope| &scope.steps)
            .filter(waiting)
            .copied()
            .collect();
        if stuck.is_empty() {
            return self.conclude();
        }
        for step in stuck {
            self.skip(step);
        }
        self.advance(now);
    }

    /// The run ended well. Steps that stood by for nothing are skipped.
    pub(super) fn conclude(&mut self) {
        for run in &mut self.steps {
            if matches!(run.progress, Progress::Waiting) {
                run.progress = Progress::Skipped;
            }
        }
        self.end = Some(End::Done);
        self.say_end(None);
    }

    pub(super) fn say_end(&mut self, failure: Option<Failure>) {
        let outcome = self.outcome(failure);
        self.out.push(Output::Ended(Box::new(outcome)));
    }
}
