//! Scheduling: which steps start, and what the end of a step causes.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf};
use ubos_common::time::Now;

use super::attempt::StepInputs;
use super::state::{Runner, ScopeRun, Work};
use super::steps::Progress;
use super::{Cause, Output};
use crate::draw::StepState;
use crate::plan::Act;
use crate::trace::trace;

impl Runner {
    /// Applies all consequences, starts the steps that can start, and ends the run when nothing is left.
    pub(super) fn advance(&mut self, now: Now) {
        if self.end.is_some() {
            return;
        }
        loop {
            while let Some(work) = self.work.pop_front() {
                match work {
                    Work::Failed(step, cause) => self.on_failure(now, step, cause),
                    Work::Ended(step) => self.on_end(now, step),
                }
                if self.end.is_some() {
                    return;
                }
            }
            if !self.start_next(now) {
                break;
            }
        }
        let active = self.running > 0 || !self.ready.is_empty() || self.has_timers();
        if self.paused {
            if self.running == 0 && !self.pause_reported {
                self.pause_reported = true;
                self.out.push(Output::Paused);
            }
        } else if !active {
            self.skip_rest(now);
        }
    }

    /// Starts the first step that can start; returns whether there was one.
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

    pub(super) fn has_timers(&self) -> bool {
        // Running attempts and steps that back off have timers. Nothing runs when this is asked, so only the latter count.
        !self.timers.is_empty()
    }

    pub(super) fn begin(&mut self, now: Now, step: usize) {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.step(step) else { return };
        let inputs = self.inputs(step);
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
        let (rank, instead) = (run.rank, run.instead.clone());
        let ticket = self.ticket(step);
        if let (Some(scope), None) = (inner, &instead) {
            if let Some(run) = self.step_mut(step) {
                run.progress = Progress::Subtask;
            }
            self.set_timer(step, hard);
            self.emit_state(step, StepState::Running);
            return self.open_scope(scope);
        }
        let act = instead.unwrap_or_else(|| node.act.clone());
        if self.test_mode {
            let output = simulated(&act, &inputs);
            return self.on_output(step, output);
        }
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Running { hard, idle };
        }
        trace!(step, attempt = ticket.attempt, rank, "attempt dispatched");
        self.running += 1;
        self.set_timer(step, hard.into_iter().chain(idle).min());
        self.emit_state(step, StepState::Running);
        self.out.push(Output::Dispatch {
            ticket,
            act,
            inputs,
            rank,
        });
    }

    /// The inputs of a step, built once for all steps behind the same gate.
    pub(super) fn inputs(&mut self, step: usize) -> StepInputs {
        let Some(run) = self.step_run(step) else {
            return StepInputs::default();
        };
        let place = run.gate;
        let Some(gate) = self.gates.get(place) else {
            return StepInputs::default();
        };
        if let Some(inputs) = &gate.inputs {
            return inputs.clone();
        }
        let output = |member: &usize| Some((*member, Arc::clone(self.done(*member)?)));
        let inputs: StepInputs = gate.members.iter().filter_map(output).collect();
        if let Some(gate) = self.gates.get_mut(place) {
            gate.inputs = Some(inputs.clone());
        }
        inputs
    }

    /// Starts a scope: steps without dependencies become ready.
    pub(super) fn open_scope(&mut self, scope: usize) {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.scopes().get(scope) else {
            return;
        };
        let is_deferred = |step: &&usize| self.step_run(**step).is_some_and(|run| run.is_deferred);
        let open = node.steps.len() - node.steps.iter().filter(is_deferred).count();
        if let Some(run) = self.scopes.get_mut(scope) {
            *run = ScopeRun {
                open,
                last_begun: false,
            };
        }
        for step in &node.steps {
            self.make_ready(*step);
        }
    }

    /// Queues a step if all that it waits for is done.
    pub(super) fn make_ready(&mut self, step: usize) {
        let Some(run) = self.step_run(step) else {
            return;
        };
        let open = self
            .gates
            .get(run.gate)
            .is_some_and(|gate| gate.left == 0 && !gate.broken);
        if open && !run.is_deferred && matches!(run.progress, Progress::Waiting) {
            self.ready.insert(step);
            if let Some(run) = self.step_mut(step) {
                run.progress = Progress::Ready;
            }
        }
    }

    /// An attempt succeeded.
    pub(super) fn on_output(&mut self, step: usize, output: RawBuf) {
        if let Err(cause) = self.keep(step, output) {
            self.work.push_back(Work::Failed(step, cause));
        }
    }

    /// Ends a step with an output, if the limits leave room for it.
    pub(super) fn keep(&mut self, step: usize, output: RawBuf) -> Result<(), Cause> {
        let bytes = output.as_str().len();
        let (one, all) = (self.config.max_output_bytes, self.config.max_total_bytes);
        let over = |limit, total| Err(Cause::TooLarge { limit, total });
        if bytes > one {
            return over(one, false);
        }
        if self.bytes.saturating_add(bytes) > all {
            return over(all, true);
        }
        self.finish(step, Progress::Done(Arc::new(output)));
        Ok(())
    }

    pub(super) fn finish(&mut self, step: usize, progress: Progress) {
        if let Progress::Done(output) = &progress {
            self.bytes = self.bytes.saturating_add(output.as_str().len());
        }
        if let Some(run) = self.step_mut(step) {
            run.progress = progress;
            self.work.push_back(Work::Ended(step));
        }
    }

    /// A step ended: its dependents start or are skipped.
    pub(super) fn on_end(&mut self, now: Now, step: usize) {
        let Some(run) = self.step_mut(step) else {
            return;
        };
        run.ended = Some(now.mono);
        let state = run.state();
        let (gates, replaced) = (run.gates.clone(), core::mem::take(&mut run.replacing));
        let output = self.done(step).cloned();
        self.emit_state(step, state);
        for place in gates {
            self.on_gate(place, output.is_some());
        }
        for other in replaced {
            match &output {
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

    /// A member of a gate ended. A gate without an open member lets its waiters start; a broken one skips them.
    pub(super) fn on_gate(&mut self, place: usize, succeeded: bool) {
        let Some(gate) = self.gates.get_mut(place) else {
            return;
        };
        gate.left = gate.left.saturating_sub(1);
        // Only the first failure skips the waiters: later ones find them skipped.
        let broke = !succeeded && !gate.broken;
        gate.broken |= !succeeded;
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
            } else if matches!(run.progress, Progress::Waiting) && !run.is_deferred {
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
                // A saved run must show that it started.
                run.is_deferred = false;
            }
            // It follows the plan as a whole, even after a failure that the plan continued past.
            return self.requeue(last);
        }
        match node.parent {
            Some(parent) => {
                let answer = self.subtask_answer(scope);
                self.set_timer(parent, None);
                if let Err(cause) = self.keep(parent, answer) {
                    // Else its steps would count as done in its next attempt, and their outputs against the limit.
                    self.stop_subtask(parent);
                    self.work.push_back(Work::Failed(parent, cause));
                }
            }
            None => self.conclude(),
        }
    }

    pub(super) fn emit_state(&mut self, step: usize, state: StepState) {
        trace!(step, ?state, "step changed");
        if self.config.step_events {
            self.out.push(Output::Step { step, state });
        }
    }
}

/// The output of an act in test mode: it names the act.
// impl: SACP-3-4
fn simulated(act: &Act, inputs: &StepInputs) -> RawBuf {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    object.member("simulated", &true);
    object.member("verb", &act.verb);
    object.member("tool", &act.tool);
    object.member("inputs", &(inputs.len() as u64));
    object.end();
    crate::reply::raw(text)
}
