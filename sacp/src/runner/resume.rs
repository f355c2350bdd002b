//! Saving a run as text, and restoring it in another process.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::json::{self, DecodeError, Limits, RawBuf, RawObject};
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Profile;

use super::state::{Runner, ScopeRun};
use super::steps::{Progress, StepRun};
use super::{Cause, Recovery};
use crate::graph::{OnError, Policy};
use crate::plan::Act;

ubos_common::wire! {
    struct Saved {
        required version: u64 = "sacp_run", "SACP-3-1";
        required plan: String = "plan", "SACP-3-1";
        required epoch: u32 = "epoch", "SACP-3-1";
        required paused: bool = "paused", "SACP-3-1";
        required steps: Vec<SavedStep> = "steps", "SACP-3-1";
        optional left_ms: u64 = "left_ms", "SACP-3-1";
        optional took_ms: u64 = "took_ms", "SACP-3-1";
    }
}

ubos_common::words! {
    closed enum Stage {
        Waiting = "waiting",
        Ready = "ready",
        Running = "running",
        Inner = "inner",
        BackingOff = "resting",
        Replaced = "replaced",
        Done = "done",
        Failed = "failed",
        Skipped = "skipped",
    }
}

ubos_common::wire! {
    struct SavedStep {
        required stage: Stage = "stage", "SACP-3-1";
        required attempt: u32 = "attempt", "SACP-3-1";
        verbatim output: RawBuf = "output", "SACP-3-1";
        optional recovery: u64 = "recovery", "SACP-3-1";
        optional tries: u32 = "tries", "SACP-3-1";
        optional rank: u64 = "rank", "SACP-3-1";
        optional instead: SavedAct = "instead", "SACP-3-1";
        optional cause: SavedCause = "cause", "SACP-3-1";
        optional rest_ms: u64 = "rest_ms", "SACP-3-1";
        optional stands_for: Vec<u64> = "stands_for", "SACP-3-1";
        optional called: bool = "called", "SACP-3-1";
    }
}

ubos_common::wire! {
    struct SavedAct {
        required verb: String = "verb", "SACP-3-1";
        required tool: String = "tool", "SACP-3-1";
        required params: RawObject = "params", "SACP-3-1";
    }
}

ubos_common::wire! {
    struct SavedCause {
        required code: String = "code", "SACP-3-1";
        required message: String = "why", "SACP-3-1";
        required retryable: bool = "retryable", "SACP-3-1";
    }
}

/// Why a saved run cannot be restored. The runner is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The text is not a saved run.
    #[error("the text is not a saved run: {0}")]
    Unreadable(String),
    /// The text has another format version.
    #[error("the saved run has version {seen}, but only version {wanted} can be read")]
    Version {
        /// Its version.
        seen: u64,
        /// The version that can be read.
        wanted: u64,
    },
    /// The saved run belongs to another plan.
    #[error("the saved run belongs to another plan")]
    OtherPlan,
    /// A step has started although a step that it depends on is not done, or the subtask that it belongs to does not run.
    #[error("step {step} has started before the steps that it depends on are done")]
    Inconsistent {
        /// The step's number.
        step: usize,
    },
    /// This run has started.
    #[error("the run has started; restore a saved run into a new runner")]
    Started,
}

impl Runner {
    /// The run as JSON text, for [`restore`](Self::restore), here or in another process.
    ///
    /// A run can be saved at any time. Running attempts are dispatched again after the restore: to avoid that,
    /// [`pause`](Self::pause) and wait for [`Output::Paused`](super::Output::Paused) first. The text does not contain the
    /// message. `None` if the run has not started or has ended.
    ///
    /// ```
    /// use sacp::Message;
    /// use sacp::runner::{Config, Input, Output, Runner};
    /// use sacp::ubos_common::json::RawBuf;
    /// use sacp::ubos_common::time::{Mono, Now, Timestamp};
    ///
    /// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    /// let message = Message::decode(br#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#)?;
    /// let mut runner = Runner::new(&message, Config::default())?;
    /// runner.start(now);
    /// let Some(Output::Dispatch { ticket, .. }) = runner.poll_output() else { panic!() };
    /// runner.handle_input(now, Input::Succeeded { ticket, output: RawBuf::parse("1")? })?;
    /// let saved = runner.save(now).unwrap();
    ///
    /// let mut elsewhere = Runner::new(&message, Config::default())?;
    /// elsewhere.restore(now, &saved)?;
    /// let Some(Output::Dispatch { ticket, inputs, .. }) = elsewhere.poll_output() else { panic!() };
    /// assert_eq!((ticket.step, inputs.len()), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Spec: SACP 1 (state)
    #[must_use]
    pub fn save(&self, now: Now) -> Option<Vec<u8>> {
        let began = self.began.filter(|_| self.end.is_none())?;
        let steps = self
            .steps
            .iter()
            .zip(1..)
            .map(|(run, step)| save_step(run, now.mono, self.timers.get(&step)))
            .collect();
        let mut saved = Saved::new(VERSION, self.fingerprint(), self.epoch, self.paused, steps);
        saved.left_ms = self
            .deadline
            .map(|deadline| millis(deadline.saturating_since(now.mono)));
        let took = now.mono.saturating_since(began);
        saved.took_ms = Some(millis(self.took_before.saturating_add(took)));
        Some(json::to_vec(&saved))
    }

    /// Continues a saved run, in place of [`start`](Self::start). This runner must have the same message.
    ///
    /// Attempts that were running are dispatched again, under tickets of a new epoch: an answer to the life before is refused.
    /// Waits between attempts and the deadlines of subtasks and of the run go on; a new attempt has its whole timeout.
    ///
    /// # Errors
    ///
    /// The text is not a saved run of this plan and version, or this run has started.
    pub fn restore(&mut self, now: Now, saved: &[u8]) -> Result<(), ResumeError> {
        if self.began.is_some() {
            return Err(ResumeError::Started);
        }
        let (saved, _) = json::decode::<Saved>(saved, &saved_limits(saved.len()), Profile::Strict)
            .map_err(|err: DecodeError| ResumeError::Unreadable(err.to_string()))?;
        if saved.version != VERSION {
            return Err(ResumeError::Version {
                seen: saved.version,
                wanted: VERSION,
            });
        }
        if saved.plan != self.fingerprint() || saved.steps.len() != self.steps.len() {
            return Err(ResumeError::OtherPlan);
        }
        let left: Vec<Option<u64>> = saved.steps.iter().map(|step| step.rest_ms).collect();
        let mut steps = self.steps.clone();
        for (run, saved) in steps.iter_mut().zip(saved.steps) {
            restore_step(run, saved, now.mono);
        }
        let before = core::mem::replace(&mut self.steps, steps);
        if let Err(err) = self.rebuild(now.mono, &left) {
            self.steps = before;
            self.gates.iter_mut().for_each(super::steps::Gate::reset);
            return Err(err);
        }
        self.epoch = saved.epoch.saturating_add(1);
        self.began = Some(now.mono);
        self.took_before = Duration::from_millis(saved.took_ms.unwrap_or(0));
        self.deadline = saved
            .left_ms
            .map(|left| now.mono.saturating_add(Duration::from_millis(left)));
        self.paused = saved.paused;
        self.advance(now);
        Ok(())
    }

    /// Rebuilds gates, scopes, queues and timers from the progress of the steps.
    fn rebuild(&mut self, now: Mono, left: &[Option<u64>]) -> Result<(), ResumeError> {
        for gate in &mut self.gates {
            let ended = |member: &&usize| {
                let run = member.checked_sub(1).and_then(|n| self.steps.get(n));
                run.is_some_and(is_over)
            };
            let intact = |member: &usize| {
                let run = member.checked_sub(1).and_then(|n| self.steps.get(n));
                run.is_none_or(|run| !is_over(run) || matches!(run.progress, Progress::Done(_)))
            };
            gate.left = gate.members.len() - gate.members.iter().filter(ended).count();
            gate.broken = !gate.members.iter().all(intact);
        }
        let graph = Arc::clone(&self.graph);
        for (n, run) in self.steps.iter().enumerate() {
            let step = n + 1;
            let node = graph.step(step);
            let gate = self.gates.get(run.gate);
            let moved = !matches!(run.progress, Progress::Waiting | Progress::Skipped);
            let early = gate.is_some_and(|gate| gate.left > 0 || gate.broken);
            let scope = node.and_then(|node| graph.scopes().get(node.scope));
            let follows_all = scope.is_some_and(|scope| scope.last == Some(step));
            // Only a subtask that runs has steps that do.
            let parent = scope.and_then(|scope| self.step_run(scope.parent?));
            let parent_runs =
                parent.is_none_or(|parent| matches!(parent.progress, Progress::Subtask));
            let active = moved && !is_over(run);
            let consistent = match run.progress {
                _ if active && !parent_runs => false,
                Progress::Subtask => node.is_some_and(|node| node.subtask.is_some()),
                Progress::FallbackRunning => self.has_active_fallback(step, run),
                _ => true,
            };
            if !consistent || (moved && early && !follows_all) {
                return Err(ResumeError::Inconsistent { step });
            }
        }
        self.reopen_scopes();
        for step in 1..=self.steps.len() {
            let bytes = self.output(step).map_or(0, |output| output.as_str().len());
            self.bytes = self.bytes.saturating_add(bytes);
            let Some(run) = self.step_run(step) else {
                continue;
            };
            match run.progress {
                Progress::Ready => {
                    self.ready.insert(step);
                }
                Progress::BackingOff { until } => self.set_timer(step, Some(until)),
                Progress::Subtask => {
                    let left = left.get(step - 1).copied().flatten();
                    let left = left.map(Duration::from_millis);
                    self.set_timer(step, left.map(|left| now.saturating_add(left)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a fallback step that replaces this one is still open.
    fn has_active_fallback(&self, step: usize, run: &StepRun) -> bool {
        run.recoveries.iter().any(|recovery| match recovery {
            Recovery::Fallback(other) => self
                .step_run(*other)
                .is_some_and(|other| other.replacing.contains(&step) && !is_over(other)),
            _ => false,
        })
    }

    fn reopen_scopes(&mut self) {
        let graph = Arc::clone(&self.graph);
        for (scope, node) in graph.scopes().iter().enumerate() {
            let open = |step: &&usize| {
                self.step_run(**step)
                    .is_some_and(|run| !run.is_deferred && !is_over(run))
            };
            let begun = |step: usize| self.step_run(step).is_some_and(|run| !run.is_deferred);
            let last_begun = node.last.is_some_and(begun);
            let mut run = ScopeRun {
                open: node.steps.iter().filter(open).count(),
                last_begun,
            };
            run.open += node.last.filter(|last| open(&last)).map_or(0, |_| 1);
            let runs = node.parent.is_none_or(|parent| {
                self.step_run(parent)
                    .is_some_and(|run| matches!(run.progress, Progress::Subtask))
            });
            // A step that became startable just before the save was not yet saved as ready.
            // Of a scope in which none is open, the end may reset them.
            let starts = runs && run.open > 0;
            let startable = node.steps.iter().copied().filter(|_| starts);
            if let Some(slot) = self.scopes.get_mut(scope) {
                *slot = run;
            }
            if runs {
                self.close_scope_if_done(scope);
            }
            for step in startable {
                self.make_ready(step);
            }
        }
    }

    /// A hash of goals, acts, order, ids, policies and test mode that tells plans apart. It guards against mistakes, not against forgery.
    fn fingerprint(&self) -> String {
        let mut sum = FNV_OFFSET;
        let mut add = |bytes: &[u8]| {
            for byte in bytes.iter().chain(&[0xff]) {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
            }
        };
        for scope in self.graph.scopes() {
            add(scope.msg_id.as_deref().unwrap_or_default().as_bytes());
            add(scope.goal.as_bytes());
        }
        for step in self.graph.steps() {
            add(step.act.verb.as_bytes());
            add(step.act.tool.as_bytes());
            add(step.act.params.as_str().as_bytes());
            add(step.pointer.as_bytes());
            add(step.id.as_bytes());
            for number in step.after.iter() {
                add(&number.to_be_bytes());
            }
            add(policy_text(&step.policy).as_bytes());
        }
        add(&[u8::from(self.test_mode)]);
        format!("{sum:016x}")
    }
}

const fn is_over(run: &StepRun) -> bool {
    matches!(
        run.progress,
        Progress::Done(_) | Progress::Failed | Progress::Skipped
    )
}

/// A policy as a text that differs where it does.
fn policy_text(policy: &Policy) -> String {
    let retry = policy.retry.map(|retry| {
        let (attempts, backoff) = (retry.max_attempts, retry.backoff.as_nanos());
        format!("{attempts} {backoff} {}", retry.exponential)
    });
    let on_error = policy.on_error.map(|on_error| match on_error {
        OnError::FailFast => "fail_fast".to_owned(),
        OnError::Continue => "continue".to_owned(),
        OnError::Fallback(step) => format!("fallback {step}"),
    });
    let timeout = policy.timeout.map(|timeout| timeout.as_nanos());
    let (key, replaces) = (&policy.output_key, policy.replaces);
    format!("{timeout:?} {retry:?} {on_error:?} {key:?} {replaces:?}")
}

fn save_step(run: &StepRun, now: Mono, timer: Option<Mono>) -> SavedStep {
    let (stage, output, until) = match &run.progress {
        Progress::Waiting => (Stage::Waiting, None, None),
        Progress::Ready | Progress::Cancelled => (Stage::Ready, None, None),
        Progress::Running { .. } => (Stage::Running, None, None),
        Progress::Subtask => (Stage::Inner, None, timer),
        Progress::BackingOff { until } => (Stage::BackingOff, None, Some(*until)),
        Progress::FallbackRunning => (Stage::Replaced, None, None),
        Progress::Done(output) => (Stage::Done, Some(output), None),
        Progress::Failed => (Stage::Failed, None, None),
        Progress::Skipped => (Stage::Skipped, None, None),
    };
    let mut saved = SavedStep::new(stage, run.attempt);
    saved.output = output.map(|output| RawBuf::clone(output));
    saved.recovery = (run.recovery > 0).then_some(run.recovery as u64);
    saved.tries = (run.tries > 0).then_some(run.tries);
    saved.rank = (run.rank > 0).then_some(run.rank as u64);
    saved.instead = run
        .instead
        .as_ref()
        .map(|act| SavedAct::new(act.verb.clone(), act.tool.clone(), act.params.clone()));
    let cause = |cause: &Cause| {
        SavedCause::new(
            cause.code().to_owned(),
            cause.to_string(),
            cause.is_retryable(),
        )
    };
    saved.cause = run.cause.as_ref().map(cause);
    saved.rest_ms = until.map(|until| millis(until.saturating_since(now)));
    let stands_for = run.replacing.iter().map(|step| *step as u64).collect();
    saved.stands_for = (!run.replacing.is_empty()).then_some(stands_for);
    saved.called = (!run.is_deferred).then_some(true);
    saved
}

fn restore_step(run: &mut StepRun, saved: SavedStep, now: Mono) {
    let rest = Duration::from_millis(saved.rest_ms.unwrap_or(0));
    run.progress = match (saved.stage, saved.output) {
        (Stage::Waiting, _) => Progress::Waiting,
        (Stage::Ready | Stage::Running, _) => Progress::Ready,
        (Stage::Inner, _) => Progress::Subtask,
        (Stage::BackingOff, _) => Progress::BackingOff {
            until: now.saturating_add(rest),
        },
        (Stage::Replaced, _) => Progress::FallbackRunning,
        (Stage::Done, Some(output)) => Progress::Done(Arc::new(output)),
        (Stage::Done | Stage::Failed, _) => Progress::Failed,
        (Stage::Skipped, _) => Progress::Skipped,
        (_, _) => Progress::Waiting,
    };
    let size = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    run.attempt = saved.attempt;
    run.recovery = size(saved.recovery);
    run.tries = saved.tries.unwrap_or(0);
    run.rank = size(saved.rank);
    run.instead = saved
        .instead
        .map(|act| Act::new(&act.verb, &act.tool).with_object(act.params));
    run.cause = saved.cause.map(|cause| Cause::Tool {
        code: Some(cause.code),
        message: cause.message,
        retryable: cause.retryable,
    });
    let stands_for = saved.stands_for.unwrap_or_default();
    run.replacing = stands_for
        .into_iter()
        .filter_map(|step| usize::try_from(step).ok())
        .collect();
    run.is_deferred = run.is_deferred && saved.called != Some(true);
}

/// The limits of a saved text. It contains outputs, which have limits of their own and may be larger than any message.
pub(crate) fn saved_limits(bytes: usize) -> Limits {
    let all = bytes.max(1);
    Limits::default()
        .with_max_bytes(all)
        .with_max_depth(Limits::DEEPEST)
        .with_max_members(all)
        .with_max_array_len(all)
        .with_max_string_bytes(all)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The format that is written and read.
const VERSION: u64 = 2;

/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
