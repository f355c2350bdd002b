//! What follows what: the inside of the runner.

use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now};

use super::outcome::End;
use super::steps::{Given, Progress, Ticket};
use super::{Cause, Failure, Output, Recovery, Runner};
use crate::draw::StepState;
use crate::graph::Retry;

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
    fn start_next(&mut self, now: Now) -> bool {
        if self.paused || self.running >= self.config.max_running {
            return false;
        }
        let Some(step) = self.ready.pop_first() else {
            return false;
        };
        self.begin(now, step);
        true
    }

    fn rests(&self) -> bool {
        // Only attempts that run and steps that rest have timers, and none runs when this is asked.
        !self.timers.is_empty()
    }

    fn begin(&mut self, now: Now, step: usize) {
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
    fn given(&mut self, step: usize) -> Given {
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

    fn finish(&mut self, step: usize, progress: Progress) {
        if let Some(run) = self.step_mut(step) {
            run.progress = progress;
            self.todo.push_back(Todo::Ended(step));
        }
    }

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

    fn time_limit(&self, step: usize, idle: bool) -> core::time::Duration {
        let own = self.graph.step(step).and_then(|step| step.policy.timeout);
        let limit = if idle {
            self.config.idle_timeout
        } else {
            own.or(self.config.step_timeout)
        };
        limit.unwrap_or_default()
    }

    /// An attempt failed: the next recovery that can still do something has its turn.
    fn on_failure(&mut self, now: Now, step: usize, cause: Cause) {
        loop {
            let Some(run) = self.step_mut(step) else {
                return;
            };
            run.cause = Some(cause.clone());
            let recoveries = Arc::clone(&run.recoveries);
            let Some(recovery) = recoveries.get(run.recovery) else {
                return self.fail_scope(now, step, cause);
            };
            let taken = match recovery {
                Recovery::Retry(retry) => self.retry(now, step, retry, &cause),
                Recovery::OtherAgents { up_to } if run.rank < *up_to => {
                    run.rank += 1;
                    self.again(step);
                    true
                }
                Recovery::OtherAgents { .. } => false,
                Recovery::OtherAct(act) => {
                    (run.instead, run.rank, run.tries) = (Some(act.clone()), 0, 0);
                    run.recovery += 1;
                    self.again(step);
                    true
                }
                Recovery::Skip(value) => {
                    self.finish(step, Progress::Done(Arc::new(value.clone())));
                    true
                }
                Recovery::Continue => {
                    self.finish(step, Progress::Failed);
                    true
                }
                Recovery::StandIn(other) => self.call_in(step, *other),
            };
            if taken {
                return;
            }
            if let Some(run) = self.step_mut(step) {
                run.recovery += 1;
                run.tries = 0;
            }
        }
    }

    fn retry(&mut self, now: Now, step: usize, retry: &Retry, cause: &Cause) -> bool {
        let Some(run) = self.step_mut(step) else {
            return false;
        };
        if !cause.is_retryable() || run.tries.saturating_add(1) >= retry.max_attempts {
            return false;
        }
        run.tries += 1;
        let wait = retry.wait_after(run.tries);
        if wait.is_zero() {
            self.again(step);
        } else {
            let until = now.mono.saturating_add(wait);
            run.progress = Progress::Resting { until };
            self.set_timer(step, Some(until));
            self.tell(step, StepState::Waiting);
        }
        true
    }

    fn again(&mut self, step: usize) {
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Ready;
            self.ready.insert(step);
            self.tell(step, StepState::Waiting);
        }
    }

    /// Has another step stand in; gives whether it still can.
    fn call_in(&mut self, step: usize, other: usize) -> bool {
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
        run.for_steps.push(step);
        let first = core::mem::replace(&mut run.stands_by, false);
        let (gate, scope) = (
            run.gate,
            self.graph.step(other).map_or(0, |node| node.scope),
        );
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Replaced;
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

    /// A step has come to its end: what waited for it starts or is skipped.
    fn on_end(&mut self, now: Now, step: usize) {
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

    fn on_gate(&mut self, place: usize, good: bool) {
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

    fn skip(&mut self, step: usize) {
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

    /// A step failed for good, and with it its message.
    fn fail_scope(&mut self, now: Now, step: usize, cause: Cause) {
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Failed;
            run.cause = Some(cause.clone());
            run.ended = Some(now.mono);
        }
        self.tell(step, StepState::Failed);
        let scope = self.graph.step(step).map_or(0, |node| node.scope);
        let parent = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.parent);
        match parent {
            Some(parent) => {
                self.stop_inner(parent);
                let why = self
                    .graph
                    .step(step)
                    .map(|node| format!("act {} of its subtask: {cause}", node.place));
                let cause = Cause::tool(why.unwrap_or_default());
                self.todo.push_back(Todo::Failed(parent, cause));
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

    /// Stops the subtask of a step, and makes it as it was before.
    fn stop_inner(&mut self, step: usize) {
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

    /// Stops a step that has begun, with all inside it.
    fn stop(&mut self, step: usize) {
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

    /// An attempt no longer runs; what its step is now is for the caller to say.
    pub(super) fn leave_running(&mut self, step: usize) {
        self.set_timer(step, None);
        if let Some(run) = self.step_mut(step) {
            run.progress = Progress::Ready;
            self.running -= 1;
        }
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
    fn skip_rest(&mut self, now: Now) {
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
    fn conclude(&mut self) {
        for run in &mut self.steps {
            if matches!(run.progress, Progress::Waiting) {
                run.progress = Progress::Skipped;
            }
        }
        self.end = Some(End::Done);
        self.say_end(None);
    }

    fn say_end(&mut self, failure: Option<Failure>) {
        let outcome = self.outcome(failure);
        self.out.push(Output::Ended(Box::new(outcome)));
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

    fn tell(&mut self, step: usize, state: StepState) {
        if self.config.tells_steps {
            self.out.push(Output::Step { step, state });
        }
    }
}
