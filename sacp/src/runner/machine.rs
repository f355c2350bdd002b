//! The commands and machine methods of the runner.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::machine::{Outbox, Timers};
use ubos_common::time::{Mono, Now};

use super::attempt::Ticket;
use super::event::{Input, Output, RunnerError, StartError};
use super::outcome::End;
use super::state::{Runner, ScopeRun, Work};
use super::steps::{Progress, StepRun, lay_out};
use super::{Cause, Config, Failure};
use crate::any::MessageRef;
use crate::draw::StepView;
use crate::graph::Graph;
use crate::message::State;
use crate::trace::{debug, trace};

impl Runner {
    /// A run of a message of either edition that has not started.
    ///
    /// A decoded message is valid; [`check`](mod@crate::check) tells whether the registry can serve it.
    ///
    /// # Errors
    ///
    /// The plan is empty, the message has ended, the plan has too many steps, or the configuration cannot work.
    // impl: SACP-3-1, SACP1-6-3
    pub fn new<'a>(message: impl Into<MessageRef<'a>>, config: Config) -> Result<Self, StartError> {
        let message = message.into();
        if let Some(state) = message.ended() {
            return Err(StartError::Ended { state });
        }
        Self::of_graph(Graph::from(message), message.is_test(), config)
    }

    /// A run of a graph.
    // impl: SACP-3-7
    pub(crate) fn of_graph(
        graph: Graph,
        test_mode: bool,
        config: Config,
    ) -> Result<Self, StartError> {
        config.check()?;
        let seen = graph.steps().len();
        if let Some(empty) = graph.scopes().iter().find(|scope| scope.steps.is_empty()) {
            let parent = empty.parent.and_then(|parent| graph.step(parent));
            let pointer = parent
                .map(crate::graph::Step::subtask_pointer)
                .unwrap_or_default();
            return Err(StartError::Empty { pointer });
        }
        if seen > config.max_steps {
            return Err(StartError::TooManySteps {
                seen,
                limit: config.max_steps,
            });
        }
        let (steps, gates) = lay_out(&graph, &config);
        let scopes = vec![ScopeRun::default(); graph.scopes().len()];
        let bound = config.max_outputs();
        Ok(Self {
            graph: Arc::new(graph),
            config,
            test_mode,
            steps,
            gates,
            scopes,
            ready: BTreeSet::new(),
            timers: Timers::new(),
            work: VecDeque::new(),
            running: 0,
            bytes: 0,
            epoch: 0,
            began: None,
            took_before: Duration::ZERO,
            deadline: None,
            paused: false,
            pause_reported: false,
            end: None,
            out: Outbox::new(bound),
        })
    }

    /// Starts the run: dispatches the first steps. A second call changes nothing.
    pub fn start(&mut self, now: Now) {
        if self.began.is_none() {
            self.began = Some(now.mono);
            debug!(
                steps = self.steps.len(),
                test_mode = self.test_mode,
                "run started"
            );
            self.deadline = self
                .config
                .run_timeout
                .map(|timeout| now.mono.saturating_add(timeout));
            self.open_scope(0);
            self.advance(now);
        }
    }

    /// Starts no further steps; running attempts go on. [`Output::Paused`] follows when none is left.
    ///
    /// # Errors
    ///
    /// The run has not started, or has ended.
    pub fn pause(&mut self, now: Now) -> Result<(), RunnerError> {
        self.check_running()?;
        (self.paused, self.pause_reported) = (true, false);
        self.advance(now);
        Ok(())
    }

    /// Starts steps again after a [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// The run has not started, or has ended.
    pub fn resume(&mut self, now: Now) -> Result<(), RunnerError> {
        self.check_running()?;
        (self.paused, self.pause_reported) = (false, false);
        self.advance(now);
        Ok(())
    }

    /// Ends the run: running attempts are cancelled, and the outcome is [`End::Cancelled`].
    ///
    /// # Errors
    ///
    /// The run has not started, or has ended.
    pub fn cancel(&mut self, now: Now) -> Result<(), RunnerError> {
        self.check_running()?;
        self.end_run(now, End::Cancelled, None);
        Ok(())
    }

    /// Takes the report of an attempt.
    ///
    /// # Errors
    ///
    /// The run has not started or has ended, or the attempt is not running. The run is unchanged.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), RunnerError> {
        self.check_running()?;
        match input {
            Input::Succeeded { ticket, output } => {
                self.check(ticket)?;
                trace!(
                    step = ticket.step,
                    attempt = ticket.attempt,
                    bytes = output.as_str().len(),
                    "attempt succeeded"
                );
                self.leave_running(ticket.step);
                self.on_output(ticket.step, output);
            }
            Input::Failed { ticket, cause } => {
                self.check(ticket)?;
                trace!(
                    step = ticket.step,
                    attempt = ticket.attempt,
                    retryable = cause.is_retryable(),
                    "attempt failed"
                );
                self.leave_running(ticket.step);
                self.work.push_back(Work::Failed(ticket.step, cause));
            }
            Input::Progress { ticket } => {
                self.check(ticket)?;
                trace!(
                    step = ticket.step,
                    attempt = ticket.attempt,
                    "attempt made progress"
                );
                self.on_progress(now, ticket.step);
            }
        }
        self.advance(now);
        Ok(())
    }

    /// Does what is due at `now`: timeouts of attempts and of the run, and retries whose wait is over. Before the start
    /// it changes nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.check_running().is_err() {
            return;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            let after = self.config.run_timeout.unwrap_or_default();
            debug!(?after, "run timed out");
            let cause = Cause::RunTimeout { after };
            return self.end_run(now, End::Failed, Some(Failure { step: None, cause }));
        }
        while let Some(step) = self.timers.pop_due(now.mono) {
            self.on_timer(now, step);
        }
        self.advance(now);
    }

    /// The next output; `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        if self.end.is_some() {
            return None;
        }
        self.timers.next().into_iter().chain(self.deadline).min()
    }

    /// Whether the runner takes more input; `false` while too many outputs wait.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    /// Whether the run has ended and every output is taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.end.is_some() && self.out.is_empty()
    }

    /// The steps and their order.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// A step for a picture of the run: its state, and its duration so far.
    ///
    /// ```
    /// use sacp::Message;
    /// use sacp::draw::mermaid;
    /// use sacp::runner::{Config, Runner};
    /// use sacp::ubos_common::time::{Mono, Now, Timestamp};
    ///
    /// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    /// let message = Message::decode(br#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#)?;
    /// let mut runner = Runner::new(&message, Config::default())?;
    /// runner.start(now);
    /// let picture = mermaid(runner.graph(), |step| runner.view(now, step));
    /// assert!(picture.contains("running"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn view(&self, now: Now, step: usize) -> StepView {
        let Some(run) = self.step_run(step) else {
            return StepView::default();
        };
        let until = run.ended.unwrap_or(now.mono);
        StepView::new(
            run.state(),
            run.began.map(|began| until.saturating_since(began)),
        )
    }

    /// The output of a step that is done.
    #[must_use]
    pub fn output(&self, step: usize) -> Option<&RawBuf> {
        self.done(step).map(AsRef::as_ref)
    }

    /// Whether an attempt is running.
    ///
    /// A driver that asks before it starts an attempt skips those that were cancelled while their [`Output::Dispatch`]
    /// was still queued.
    #[must_use]
    pub fn is_running(&self, ticket: Ticket) -> bool {
        self.end.is_none() && self.check(ticket).is_ok()
    }

    /// How the run ended; `None` before its end.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The state of the message, by the lifecycle of 0.1.
    #[must_use]
    pub const fn state(&self) -> State {
        match (&self.end, self.began) {
            (Some(End::Done), _) => State::Done,
            (Some(_), _) => State::Failed,
            (None, Some(_)) => State::InProgress,
            (None, None) => State::Pending,
        }
    }

    pub(super) fn step_run(&self, step: usize) -> Option<&StepRun> {
        self.steps.get(step.checked_sub(1)?)
    }

    pub(super) fn step_mut(&mut self, step: usize) -> Option<&mut StepRun> {
        self.steps.get_mut(step.checked_sub(1)?)
    }

    pub(super) fn done(&self, step: usize) -> Option<&Arc<RawBuf>> {
        match &self.step_run(step)?.progress {
            Progress::Done(output) => Some(output),
            _ => None,
        }
    }

    const fn check_running(&self) -> Result<(), RunnerError> {
        if self.began.is_none() || self.end.is_some() {
            let started = self.began.is_some();
            return Err(RunnerError::NotRunning { started });
        }
        Ok(())
    }

    /// Refuses a ticket that is not that of the running attempt.
    fn check(&self, ticket: Ticket) -> Result<(), RunnerError> {
        match self.step_run(ticket.step) {
            Some(StepRun {
                progress: Progress::Running { .. },
                attempt,
                ..
            }) if *attempt == ticket.attempt && self.epoch == ticket.epoch => Ok(()),
            _ => Err(RunnerError::NotDispatched { ticket }),
        }
    }
}

ubos_common::forward_machine! { [] Runner: Input => Output, RunnerError }
