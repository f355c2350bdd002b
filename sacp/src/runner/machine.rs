//! The machine's inputs and outputs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};

use super::outcome::{End, Outcome};
use super::schedule::{ScopeRun, Todo};
use super::steps::{Gate, Given, Progress, StepRun, Ticket, lay_out};
use super::{Cause, Config, Failure};
use crate::draw::{StepState, StepView};
use crate::graph::Graph;
use crate::message::{Message, State};
use crate::plan::Act;
use crate::reply::{Clarify, ErrReply, Reply};

/// What becomes of attempts, and of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// An attempt ended well.
    Succeeded {
        /// Which attempt.
        ticket: Ticket,
        /// What it gave.
        output: RawBuf,
    },
    /// An attempt failed.
    Failed {
        /// Which attempt.
        ticket: Ticket,
        /// Why.
        cause: Cause,
    },
    /// An attempt is alive: its idle time begins anew.
    Progress {
        /// Which attempt.
        ticket: Ticket,
    },
    /// No more steps are to start; those that run go on. When none runs, [`Output::Paused`] says so.
    Pause,
    /// Steps start again.
    Resume,
    /// The run is to end.
    Cancel,
}

/// What the run asks for and tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Run an act, and answer with [`Input::Succeeded`] or [`Input::Failed`]. Never asked for in test mode.
    Dispatch {
        /// Which attempt at which step.
        ticket: Ticket,
        /// The act.
        act: Act,
        /// Outputs of the steps it waited for: for a join, those of its group.
        given: Given,
        /// Which of the agents for the act is meant, from the best, 0.
        rank: usize,
    },
    /// Stop an attempt that runs; no answer is waited for, and a late one is refused.
    Cancel {
        /// Which attempt.
        ticket: Ticket,
    },
    /// A step changed: only told if [`Config::telling_steps`] was asked for.
    Step {
        /// Its number.
        step: usize,
        /// What it is now.
        state: StepState,
    },
    /// Nothing runs any more, and nothing will before [`Input::Resume`].
    Paused,
    /// The run has ended.
    Ended(Box<Outcome>),
}

/// Why an input is refused. The run goes on unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The run has not begun or has ended.
    #[error("the run has {}", if *.began { "ended" } else { "not begun" })]
    NotRunning {
        /// Whether it ever began.
        began: bool,
    },
    /// Not the attempt that runs at this step.
    #[error("attempt {} at step {} is not running", .ticket.attempt, .ticket.step)]
    NotDispatched {
        /// The attempt.
        ticket: Ticket,
    },
}

/// Why a message cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its plan is empty, or that of a subtask: the sender is asked back.
    #[error("nothing to do")]
    Empty {
        /// The pointer of the message that has no plan.
        pointer: String,
    },
    /// It has ended already.
    #[error("the message is {state}")]
    Ended {
        /// Its state.
        state: State,
    },
    /// More steps than the configuration lets.
    #[error("{seen} steps where at most {limit} are run")]
    TooManySteps {
        /// The steps, those of subtasks included.
        seen: usize,
        /// The bound.
        limit: usize,
    },
}

impl StartError {
    /// The answer to the message.
    ///
    /// Spec: SACP 4
    #[must_use]
    pub fn reply(&self, message: &Message) -> Reply {
        let code = match self {
            Self::Empty { pointer } => {
                let plan = format!("{pointer}/plan");
                let mut clarify = Clarify::new([plan.trim_start_matches('/')], "nothing to do");
                clarify.reply_to = message.msg_id.as_ref().map(|id| id.as_str().to_owned());
                return Reply::Clarify(clarify);
            }
            Self::Ended { .. } => crate::Code::InvalidState,
            Self::TooManySteps { .. } => crate::Code::MalformedPlan,
        };
        Reply::Err(ErrReply::new(code, self.to_string()).to(message))
    }
}

/// Runs one message's plan. See the [module](super).
///
/// The order of a run is decided by its inputs alone: of steps that may start, those with the lower number do first.
#[derive(Debug)]
pub struct Runner {
    pub(super) graph: Arc<Graph>,
    pub(super) config: Config,
    pub(super) test_mode: bool,
    pub(super) steps: Vec<StepRun>,
    pub(super) gates: Vec<Gate>,
    pub(super) scopes: Vec<ScopeRun>,
    pub(super) ready: BTreeSet<usize>,
    pub(super) timers: BTreeSet<(Mono, usize)>,
    pub(super) todo: VecDeque<Todo>,
    pub(super) running: usize,
    pub(super) bytes: usize,
    pub(super) began: Option<Mono>,
    pub(super) deadline: Option<Mono>,
    pub(super) paused: bool,
    pub(super) quiet: bool,
    pub(super) end: Option<End>,
    pub(super) out: Outbox<Output>,
}

impl Runner {
    /// A run of a message of 0.1 that has not begun.
    ///
    /// What is decoded is valid; whether the registry can serve it is for [`check`](mod@crate::check) to say.
    ///
    /// # Errors
    ///
    /// An empty plan, a message that has ended, too many steps.
    pub fn new(message: &Message, config: Config) -> Result<Self, StartError> {
        if matches!(message.state(), State::Done | State::Failed) {
            return Err(StartError::Ended {
                state: message.state(),
            });
        }
        Self::of_graph(Graph::of_message(message), message.is_test(), config)
    }

    /// A run of any graph that has not begun.
    ///
    /// # Errors
    ///
    /// No step, or too many.
    pub fn of_graph(graph: Graph, test_mode: bool, config: Config) -> Result<Self, StartError> {
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
        // What one input can cause: every step that runs is stopped, or as many start, each of them told.
        let bound = config.max_running.saturating_mul(2).max(1024);
        Ok(Self {
            graph: Arc::new(graph),
            config,
            test_mode,
            steps,
            gates,
            scopes,
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            todo: VecDeque::new(),
            running: 0,
            bytes: 0,
            began: None,
            deadline: None,
            paused: false,
            quiet: false,
            end: None,
            out: Outbox::new(bound),
        })
    }

    /// Begins the run: the first steps are dispatched. A second start changes nothing.
    pub fn start(&mut self, now: Now) {
        if self.began.is_none() {
            self.began = Some(now.mono);
            self.deadline = self
                .config
                .run_timeout
                .map(|timeout| now.mono.saturating_add(timeout));
            self.open_scope(0);
            self.advance(now);
        }
    }

    /// The steps and their order.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many steps there are, those of subtasks included.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.steps.len()
    }

    /// How far a step is; `None` where there is no such step.
    #[must_use]
    pub fn step_state(&self, step: usize) -> Option<StepState> {
        self.step_run(step).map(StepRun::state)
    }

    /// A step for a picture of the run: its state, and how long it took or has taken so far.
    ///
    /// ```
    /// use sacp::Message;
    /// use sacp::draw::mermaid;
    /// use sacp::runner::{Config, Runner};
    /// use ubos_common::time::{Mono, Now, Timestamp};
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
        let view = StepView::new(run.state());
        match run.began {
            Some(began) => view.took(run.ended.unwrap_or(now.mono).saturating_since(began)),
            None => view,
        }
    }

    /// The output of a step that has one: later acts may look at it.
    #[must_use]
    pub fn output(&self, step: usize) -> Option<&RawBuf> {
        self.done(step).map(AsRef::as_ref)
    }

    /// Whether an attempt runs. One may have been stopped while its [`Output::Dispatch`] still waited to be taken: a driver
    /// that looks here first does not begin it.
    #[must_use]
    pub fn is_running(&self, ticket: Ticket) -> bool {
        self.end.is_none() && self.check(ticket).is_ok()
    }

    /// How the run ended; `None` while it has not.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The state of the message of 0.1.
    #[must_use]
    pub const fn state(&self) -> State {
        match (&self.end, self.began) {
            (Some(End::Done), _) => State::Done,
            (Some(_), _) => State::Failed,
            (None, Some(_)) => State::InProgress,
            (None, None) => State::Pending,
        }
    }

    /// Whether no step starts before [`Input::Resume`].
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
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

    /// Refuses what is not the attempt that runs.
    fn check(&self, ticket: Ticket) -> Result<(), RunnerError> {
        match self.step_run(ticket.step) {
            Some(StepRun {
                progress: Progress::Running { .. },
                attempt,
                ..
            }) if *attempt == ticket.attempt => Ok(()),
            _ => Err(RunnerError::NotDispatched { ticket }),
        }
    }
}

impl Machine for Runner {
    type Input<'a> = Input;
    type Output = Output;
    type Error = RunnerError;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), RunnerError> {
        if self.began.is_none() || self.end.is_some() {
            return Err(RunnerError::NotRunning {
                began: self.began.is_some(),
            });
        }
        match input {
            Input::Succeeded { ticket, output } => {
                self.check(ticket)?;
                self.leave_running(ticket.step);
                self.on_output(ticket.step, output);
            }
            Input::Failed { ticket, cause } => {
                self.check(ticket)?;
                self.leave_running(ticket.step);
                self.todo.push_back(Todo::Failed(ticket.step, cause));
            }
            Input::Progress { ticket } => {
                self.check(ticket)?;
                self.on_progress(now, ticket.step);
            }
            Input::Pause => (self.paused, self.quiet) = (true, false),
            Input::Resume => (self.paused, self.quiet) = (false, false),
            Input::Cancel => self.end_run(now, End::Cancelled, None),
        }
        self.advance(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.end.is_some() {
            return;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            let after = self.config.run_timeout.unwrap_or_default();
            let cause = Cause::RunTimeout { after };
            return self.end_run(now, End::Failed, Some(Failure { step: None, cause }));
        }
        while let Some((_, step)) = self
            .timers
            .first()
            .copied()
            .filter(|(at, _)| *at <= now.mono)
        {
            self.on_timer(now, step);
        }
        self.advance(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.end.is_some() {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.deadline).min()
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        self.end.is_some() && self.out.is_empty()
    }
}
