//! What follows what: the inside of the runner.

use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::time::Now;

use super::steps::{Given, Progress, Ticket};
use super::{Cause, Output, Runner};
use crate::draw::StepState;

/// A message whose plan runs.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopeRun {
    /// Steps that have not come to their end.
    pub(super) open: usize,
    /// Whether the subtask at its top level has had its turn.
    pub(super) last_begun: bool,
}

/// What is still to be worked out; a queue, so that no plan is deep enough to exhaust the stack.
#[derive(Clone, Debug)]
pub(super) enum Todo {
    /// An attempt failed: see what can be done.
    Failed(usize, Cause),
    /// A step has come to its end, with an output or without.
    Ended(usize),
}

impl Runner {
    /// Works out what follows, starts what may start, and ends the run where nothing is left.
    pub(super) fn advance(&mut self, now: Now) {
        if self.end.is_some() {
            return;
        }
        loop {
            while let Some(todo) = self.todo.pop_front() {
                match todo {
                    Todo::Failed(step, cause) => self.on_failure(now, step, cause),
                    Todo::Ended(step) => self.on_end(now, step),
                }
                if self.end.is_some() {
                    self.todo.clear();
                    return;
                }
            }
            if !self.start_next(now) {
                break;
            }
        }
        let waits = self.running > 0 || !self.ready.is_empty() || self.rests();
        if self.paused {
            if self.running == 0 && !self.quiet {
                self.quiet = true;
                self.out.push(Output::Paused);
            }
        } else if !waits {
            self.skip_rest(now);
        }
    }

    /// Starts the first step that may; gives whether there was one.
    pub(super) fn start_next(&mut self, now: Now) -> bool {
        if self.paused || self.running >= self.config.max_running {
            return false;
        }
        let Some(step) = self.ready.pop_first() else {
            return false;
        };
        self.begin(now, step);
        true
    }

    pub(super) fn rests(&self) -> bool {
        // Only attempts that run and steps that rest have timers, and none runs when this is asked.
        !self.timers.is_empty()
    }

    pub(super) fn begin(&mut self, now: Now, step: usize) {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.step(step) else { return };
        let given = self.given(step);
        let hard = node.policy.timeout.or(self.config.step_timeout);
        let hard = hard.map(|timeout| now.mono.saturating_add(timeout));
        let idle = self
            .config
            .idle_timeout
            .map(|timeout| now.mono.saturating_add(timeout));
        let inner = node.subtask;
        let Some(run) = self.step_mut(step) else {
            return;
        };
        run.attempt = run.attempt.saturating_add(1);
        run.began.get_or_insert(now.mono);
        let (ticket, rank) = (
            Ticket {
                step,
                attempt: run.attempt,
            },
            run.rank,
        );
        let instead = run.instead.clone();
        if let (Some(scope), None) = (inner, &instead) {
            run.progress = Progress::Inner;
            self.set_timer(step, hard);
            self.tell(step, StepState::Running);
            return self.open_scope(scope);
        }
        let act = instead.unwrap_or_else(|| node.act.clone());
        if self.test_mode {
            let output = self.config.simulate.simulate(&act, &given);
            return self.on_output(step, output);
        }
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Running { hard, idle };
        }
        self.running += 1;
        self.set_timer(step, hard.into_iter().chain(idle).min());
        self.tell(step, StepState::Running);
        self.out.push(Output::Dispatch {
            ticket,
            act,
            given,
            rank,
        });
    }

    /// What a step is given: made once for all that wait at the same gate.
    pub(super) fn given(&mut self, step: usize) -> Given {
        let Some(run) = self.step_run(step) else {
            return Given::default();
        };
        let place = run.gate;
        let Some(gate) = self.gates.get(place) else {
            return Given::default();
        };
        if let Some(given) = &gate.given {
            return given.clone();
        }
        let output = |member: &usize| Some((*member, Arc::clone(self.done(*member)?)));
        let given = Given::new(gate.members.iter().filter_map(output).collect());
        if let Some(gate) = self.gates.get_mut(place) {
            gate.given = Some(given.clone());
        }
        given
    }

    /// Makes ready what waits for nothing in a message.
    pub(super) fn open_scope(&mut self, scope: usize) {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.scopes().get(scope) else {
            return;
        };
        let stands_by = |step: &&usize| self.step_run(**step).is_some_and(|run| run.stands_by);
        let open = node.steps.len() - node.steps.iter().filter(stands_by).count();
        if let Some(run) = self.scopes.get_mut(scope) {
            *run = ScopeRun {
                open,
                last_begun: false,
            };
        }
        for step in &node.steps {
            self.make_ready(*step);
        }
        if open == 0 {
            self.close_scope_if_done(scope);
        }
    }

    /// Puts a step among those that may start, if it may.
    pub(super) fn make_ready(&mut self, step: usize) {
        let Some(run) = self.step_run(step) else {
            return;
        };
        let open = self
            .gates
            .get(run.gate)
            .is_some_and(|gate| gate.left == 0 && !gate.broken);
        if open && !run.stands_by && matches!(run.progress, Progress::Waiting) {
            self.ready.insert(step);
            if let Some(run) = self.step_mut(step) {
                run.progress = Progress::Ready;
            }
        }
    }

    /// An attempt gave an output.
    pub(super) fn on_output(&mut self, step: usize, output: RawBuf) {
        let bytes = output.as_str().len();
        let over = |limit, total| Todo::Failed(step, Cause::TooLarge { limit, total });
        let (one, all) = (self.config.max_output_bytes, self.config.max_total_bytes);
        if bytes > one {
            return self.todo.push_back(over(one, false));
        }
        if self.bytes.saturating_add(bytes) > all {
            return self.todo.push_back(over(all, true));
        }
        self.bytes += bytes;
        self.finish(step, Progress::Done(Arc::new(output)));
    }

    pub(super) fn finish(&mut self, step: usize, progress: Progress) {
        if let Some(run) = self.step_mut(step) {
            run.progress = progress;
            self.todo.push_back(Todo::Ended(step));
        }
    }

    /// A step has come to its end: what waited for it starts or is skipped.
    pub(super) fn on_end(&mut self, now: Now, step: usize) {
        self.set_timer(step, None);
        let Some(run) = self.step_mut(step) else {
            return;
        };
        run.ended = Some(now.mono);
        let state = run.state();
        let (gates, stands_for) = (run.gates.clone(), core::mem::take(&mut run.for_steps));
        let good = self.done(step).cloned();
        self.tell(step, state);
        for place in gates {
            self.on_gate(place, good.is_some());
        }
        for other in stands_for {
            match &good {
                Some(output) => self.finish(other, Progress::Done(Arc::clone(output))),
                None => {
                    let cause = self.step_run(step).and_then(|run| run.cause.clone());
                    let cause = cause.unwrap_or(Cause::Dependency);
                    return self.fail_scope(now, step, cause);
                }
            }
        }
        let scope = self.graph.step(step).map_or(0, |node| node.scope);
        if let Some(run) = self.scopes.get_mut(scope) {
            run.open = run.open.saturating_sub(1);
        }
        self.close_scope_if_done(scope);
    }

    pub(super) fn on_gate(&mut self, place: usize, good: bool) {
        let Some(gate) = self.gates.get_mut(place) else {
            return;
        };
        gate.left = gate.left.saturating_sub(1);
        let broke = !good && !gate.broken;
        gate.broken |= !good;
        if !broke && gate.left > 0 {
            return;
        }
        let waiters = if broke || !gate.broken {
            gate.waiters.clone()
        } else {
            return;
        };
        for waiter in waiters {
            let Some(run) = self.step_run(waiter) else {
                continue;
            };
            if !broke {
                self.make_ready(waiter);
            } else if matches!(run.progress, Progress::Waiting) && !run.stands_by {
                self.skip(waiter);
            }
        }
    }

    pub(super) fn skip(&mut self, step: usize) {
        if let Some(run) = self.step_mut(step) {
            run.cause = Some(Cause::Dependency);
        }
        self.finish(step, Progress::Skipped);
    }

    pub(super) fn close_scope_if_done(&mut self, scope: usize) {
        let Some(run) = self.scopes.get_mut(scope) else {
            return;
        };
        if run.open > 0 {
            return;
        }
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.scopes().get(scope) else {
            return;
        };
        if let (Some(last), false) = (node.last, run.last_begun) {
            (run.last_begun, run.open) = (true, 1);
            if let Some(run) = self.step_mut(last) {
                // It has been called: a saved run must know.
                run.stands_by = false;
            }
            // It follows the plan as a whole, even where a part of it failed and was let be.
            return self.again(last);
        }
        match node.parent {
            Some(parent) => {
                let answer = self.inner_answer(scope);
                self.set_timer(parent, None);
                self.on_output(parent, answer);
            }
            None => self.conclude(),
        }
    }

    pub(super) fn tell(&mut self, step: usize, state: StepState) {
        if self.config.tells_steps {
            self.out.push(Output::Step { step, state });
        }
    }
}
