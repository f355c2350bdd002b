//! See the [module above](super).

use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::json::RawBuf;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};

use crate::error::Code;
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::plan::{Act, Plan};
use crate::reply::{self, ErrReply};

/// Bounds and deadlines of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Steps that run at the same time; further ones wait.
    pub max_running: usize,
    /// How long one step may take; `None` is without end.
    pub step_timeout: Option<Duration>,
    /// Bytes of one step's output.
    pub max_output_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_running: 64,
            step_timeout: None,
            max_output_bytes: 4_194_304,
        }
    }
}

impl Config {
    /// Sets how many steps run at the same time; at least one does.
    #[must_use]
    pub fn with_max_running(mut self, steps: usize) -> Self {
        self.max_running = steps.max(1);
        self
    }

    /// Sets how long one step may take.
    #[must_use]
    pub const fn with_step_timeout(mut self, timeout: Duration) -> Self {
        self.step_timeout = Some(timeout);
        self
    }
}

/// What becomes of steps, and of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// A step ended well.
    Succeeded {
        /// The step's number.
        step: usize,
        /// What it gave.
        output: RawBuf,
    },
    /// A step failed.
    Failed {
        /// The step's number.
        step: usize,
        /// Why, in words that may be shown.
        why: String,
    },
    /// The run is to end.
    Cancel,
}

/// What the run asks for and tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Run an act, and answer with [`Input::Succeeded`] or [`Input::Failed`].
    Dispatch {
        /// The step's number: every act counted in document order, from 1.
        step: usize,
        /// The act.
        act: Act,
        /// Outputs of the steps it waited for, in plan order: for a join, those of its group.
        inputs: Vec<RawBuf>,
        /// Whether it is only to be simulated.
        test_mode: bool,
    },
    /// Stop a step that runs; no answer is waited for.
    Cancel {
        /// The step's number.
        step: usize,
    },
    /// The run ended well: the message with `ctx.result` and `ctx.results`.
    Finished(Box<Reply>),
    /// The run failed.
    Failed(ErrReply),
}

/// The answer of a run that ended well.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The message that is answered.
    pub reply_to: Option<String>,
    /// Results by name: `result` is the last output, `results` holds all by act number.
    pub ctx: BTreeMap<String, RawBuf>,
    /// The answer as a message, in state `DONE`.
    pub message: Message,
}

/// Why an input is refused. The run goes on unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The run has not begun or has ended.
    #[error("the run is {state} and takes no input")]
    NotRunning {
        /// Its state.
        state: State,
    },
    /// The step does not run.
    #[error("step {step} is not running")]
    NotDispatched {
        /// The step's number.
        step: usize,
    },
}

#[derive(Debug)]
enum Progress {
    Waiting,
    Running { deadline: Option<Mono> },
    Done(RawBuf),
}

#[derive(Debug)]
struct Node {
    act: Act,
    pointer: String,
    after: Vec<usize>,
    progress: Progress,
}

/// Runs one message's plan. See the [module](super).
#[derive(Debug)]
pub struct Runner {
    message: Message,
    config: Config,
    nodes: Vec<Node>,
    state: State,
    out: Outbox<Output>,
}

impl Runner {
    /// A run that has not begun. The message is taken to be valid: see [`validate`](crate::validate) and
    /// [`check`](crate::check).
    #[must_use]
    pub fn new(message: Message, config: Config) -> Self {
        let node = |step: crate::plan::Step<'_>| Node {
            act: step.act.clone(),
            pointer: step.pointer,
            after: step.after.to_vec(),
            progress: Progress::Waiting,
        };
        let nodes = message.plan.steps().into_iter().map(node).collect();
        Self {
            message,
            config,
            nodes,
            state: State::Pending,
            out: Outbox::new(1024),
        }
    }

    /// Begins the run: the first steps are dispatched. A second start changes nothing.
    pub fn start(&mut self, now: Now) {
        if self.state == State::Pending {
            self.state = State::InProgress;
            self.advance(now);
        }
    }

    /// How far the run is.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Steps of the plan.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.nodes.len()
    }

    fn node(&mut self, step: usize) -> Option<&mut Node> {
        self.nodes.get_mut(step.checked_sub(1)?)
    }

    fn on_success(&mut self, now: Now, step: usize, output: RawBuf) {
        if output.as_str().len() > self.config.max_output_bytes {
            let limit = self.config.max_output_bytes;
            return self.fail(step, &format!("an output of more than {limit} bytes"));
        }
        if let Some(node) = self.node(step) {
            node.progress = Progress::Done(output);
        }
        self.advance(now);
    }

    /// Dispatches what is ready, or ends the run.
    fn advance(&mut self, now: Now) {
        let mut running = self
            .nodes
            .iter()
            .filter(|n| matches!(n.progress, Progress::Running { .. }))
            .count();
        let ready: Vec<usize> = (1..=self.nodes.len())
            .filter(|step| self.is_ready(*step))
            .collect();
        for step in ready {
            if running >= self.config.max_running {
                break;
            }
            self.dispatch(now, step);
            running += 1;
        }
        if running == 0 {
            self.finish();
        }
    }

    fn is_ready(&self, step: usize) -> bool {
        let node = step.checked_sub(1).and_then(|n| self.nodes.get(n));
        node.is_some_and(|node| {
            matches!(node.progress, Progress::Waiting)
                && node
                    .after
                    .iter()
                    .all(|before| self.output(*before).is_some())
        })
    }

    fn output(&self, step: usize) -> Option<&RawBuf> {
        match &self.nodes.get(step.checked_sub(1)?)?.progress {
            Progress::Done(output) => Some(output),
            _ => None,
        }
    }

    fn dispatch(&mut self, now: Now, step: usize) {
        let deadline = self
            .config
            .step_timeout
            .map(|timeout| now.mono.saturating_add(timeout));
        let test_mode = self.message.is_test();
        let Some(node) = self.node(step) else { return };
        node.progress = Progress::Running { deadline };
        let (act, after) = (node.act.clone(), node.after.clone());
        let inputs = after
            .iter()
            .filter_map(|before| self.output(*before).cloned())
            .collect();
        self.out.push(Output::Dispatch {
            step,
            act,
            inputs,
            test_mode,
        });
    }

    fn finish(&mut self) {
        self.state = State::Done;
        let outputs: Vec<(usize, &RawBuf)> = (1..=self.nodes.len())
            .filter_map(|n| Some((n, self.output(n)?)))
            .collect();
        let mut ctx = self.message.context.clone().unwrap_or_default();
        let results: BTreeMap<String, RawBuf> = outputs
            .iter()
            .map(|(n, o)| (n.to_string(), (*o).clone()))
            .collect();
        let last = self.last_output(&outputs);
        if let Some(last) = last {
            ctx.insert("result".to_owned(), last);
        }
        let text = ubos_common::json::to_string(&results);
        if let Ok(results) = RawBuf::parse(&text) {
            ctx.insert("results".to_owned(), results);
        }
        let mut message = Message::with_goal(self.message.goal(), Plan::default());
        message.reply_to = self.message.msg_id.as_deref().and_then(NonEmpty::new);
        message.context = Some(ctx.clone());
        message.plan = self.message.plan.clone();
        message.out_fmt = Some(OutFmt::Raw);
        message.state = Some(State::Done);
        let reply_to = message.reply_to.as_ref().map(|id| id.as_str().to_owned());
        self.out.push(Output::Finished(Box::new(Reply {
            reply_to,
            ctx,
            message,
        })));
    }

    /// The output of the plan's last entry; of a group, the list of all.
    fn last_output(&self, outputs: &[(usize, &RawBuf)]) -> Option<RawBuf> {
        let waited_for: Vec<usize> = self
            .nodes
            .iter()
            .flat_map(|node| node.after.iter().copied())
            .collect();
        let ends: Vec<&RawBuf> = outputs
            .iter()
            .filter(|(n, _)| !waited_for.contains(n))
            .map(|(_, o)| *o)
            .collect();
        match ends.as_slice() {
            [] => None,
            [one] => Some((*one).clone()),
            many => Some(reply::list(many)),
        }
    }

    fn fail(&mut self, step: usize, why: &str) {
        let pointer = self
            .node(step)
            .map(|node| node.pointer.clone())
            .unwrap_or_default();
        let error = ErrReply::new(Code::StepFailed, format!("act {step}: {why}"))
            .at(pointer)
            .to(&self.message);
        self.end_failed(Some(step), error);
    }

    fn end_failed(&mut self, failed: Option<usize>, error: ErrReply) {
        self.state = State::Failed;
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let step = n + 1;
            if matches!(node.progress, Progress::Running { .. }) {
                node.progress = Progress::Waiting;
                if Some(step) != failed {
                    self.out.push(Output::Cancel { step });
                }
            }
        }
        self.out.push(Output::Failed(error));
    }
}

impl Machine for Runner {
    type Input<'a> = Input;
    type Output = Output;
    type Error = RunnerError;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), RunnerError> {
        if self.state != State::InProgress {
            return Err(RunnerError::NotRunning {
                state: self.state.clone(),
            });
        }
        let step = match &input {
            Input::Succeeded { step, .. } | Input::Failed { step, .. } => *step,
            Input::Cancel => {
                let error = ErrReply::new(Code::StepFailed, "canceled").to(&self.message);
                self.end_failed(None, error);
                return Ok(());
            }
        };
        if !self
            .node(step)
            .is_some_and(|node| matches!(node.progress, Progress::Running { .. }))
        {
            return Err(RunnerError::NotDispatched { step });
        }
        match input {
            Input::Succeeded { output, .. } => self.on_success(now, step, output),
            Input::Failed { why, .. } => self.fail(step, &why),
            Input::Cancel => {}
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        let late = self.nodes.iter().position(|node| {
            matches!(node.progress, Progress::Running { deadline: Some(at) } if at <= now.mono)
        });
        if let (Some(n), State::InProgress) = (late, &self.state) {
            self.out.push(Output::Cancel { step: n + 1 });
            self.fail(n + 1, "over its time");
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let deadline = |node: &Node| match node.progress {
            Progress::Running { deadline } => deadline,
            _ => None,
        };
        self.nodes.iter().filter_map(deadline).min()
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        matches!(self.state, State::Done | State::Failed) && self.out.is_empty()
    }
}
