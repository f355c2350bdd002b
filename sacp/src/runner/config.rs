//! Bounds, deadlines, and what is done when a step fails.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf};

use super::Given;
use crate::graph::{OnError, Policy, Retry};
use crate::plan::Act;

/// How a plan is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Steps that a run may have, those of its subtasks included.
    pub max_steps: usize,
    /// Steps that run at the same time; further ones wait.
    pub max_running: usize,
    /// How long one attempt may take where its step does not say; `None` is without end.
    pub step_timeout: Option<Duration>,
    /// How long one attempt may go without [`Input::Progress`](super::Input::Progress); `None` is without end.
    pub idle_timeout: Option<Duration>,
    /// How long the whole run may take, pauses included; `None` is without end.
    pub run_timeout: Option<Duration>,
    /// Bytes of one step's output.
    pub max_output_bytes: usize,
    /// Bytes of all outputs.
    pub max_total_bytes: usize,
    /// What is done about failures, by verb and tool; the first that fits a step is taken. A step of 1.0 that has words
    /// of its own keeps to them.
    pub rules: Vec<Rule>,
    /// Whether [`Output::Step`](super::Output::Step) tells of every change.
    pub tells_steps: bool,
    /// What acts come to in test mode.
    pub simulate: Arc<dyn Simulate>,
}

/// What is done when steps of some verb or tool fail.
///
/// Spec: SACP 4
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The verb; `None` is any.
    pub verb: Option<String>,
    /// The tool; `None` is any.
    pub tool: Option<String>,
    /// What is tried, one after the other. When nothing is left, the message has failed.
    pub then: Vec<Recovery>,
}

/// One thing to do when a step has failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Recovery {
    /// Try again, unless the failure says that it is of no use.
    Retry(Retry),
    /// Ask the agents that come next: [`Output::Dispatch`](super::Output::Dispatch) counts up its `rank`.
    OtherAgents {
        /// How many of them.
        up_to: usize,
    },
    /// Do something else instead, once. What stands behind it in the rule is for when that fails.
    OtherAct(Act),
    /// Run a step of the plan that stands by for this one: what 1.0 calls a fallback step.
    StandIn(usize),
    /// Take a value for its output and go on.
    Skip(RawBuf),
    /// Let it be: what waits for it is skipped, the rest goes on.
    Continue,
}

/// What acts come to in test mode. It must call neither tool nor agent.
///
/// Spec: SACP 5
pub trait Simulate: core::fmt::Debug + Send + Sync {
    /// The output of an act that is only simulated.
    fn simulate(&self, act: &Act, given: &Given) -> RawBuf;
}

/// The default simulation: says which act it would have been.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Simulate for Echo {
    fn simulate(&self, act: &Act, given: &Given) -> RawBuf {
        let mut text = Vec::new();
        let mut object = MemberWriter::begin(&mut text);
        object.member("simulated", &true);
        object.member("verb", &act.verb);
        object.member("tool", &act.tool);
        object.member("inputs", &(given.len() as u64));
        object.end();
        crate::reply::raw(text)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_steps: crate::limits::MAX_ACTS,
            max_running: 64,
            step_timeout: None,
            idle_timeout: None,
            run_timeout: None,
            max_output_bytes: 4_194_304,
            max_total_bytes: 67_108_864,
            rules: Vec::new(),
            tells_steps: false,
            simulate: Arc::new(Echo),
        }
    }
}

impl Config {
    /// Sets how many steps a run may have.
    #[must_use]
    pub const fn with_max_steps(mut self, steps: usize) -> Self {
        self.max_steps = steps;
        self
    }

    /// Sets how many steps run at the same time; at least one does.
    #[must_use]
    pub fn with_max_running(mut self, steps: usize) -> Self {
        self.max_running = steps.max(1);
        self
    }

    /// Sets how long one attempt may take.
    #[must_use]
    pub const fn with_step_timeout(mut self, timeout: Duration) -> Self {
        self.step_timeout = Some(timeout);
        self
    }

    /// Sets how long one attempt may go without progress.
    #[must_use]
    pub const fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Sets how long the whole run may take.
    #[must_use]
    pub const fn with_run_timeout(mut self, timeout: Duration) -> Self {
        self.run_timeout = Some(timeout);
        self
    }

    /// Sets the bytes of one output, and of all.
    #[must_use]
    pub const fn with_max_bytes(mut self, output: usize, total: usize) -> Self {
        self.max_output_bytes = output;
        self.max_total_bytes = total;
        self
    }

    /// Adds a rule behind the others.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Has every change of a step told.
    #[must_use]
    pub const fn telling_steps(mut self) -> Self {
        self.tells_steps = true;
        self
    }

    /// Sets what acts come to in test mode.
    #[must_use]
    pub fn with_simulation(mut self, simulate: impl Simulate + 'static) -> Self {
        self.simulate = Arc::new(simulate);
        self
    }

    /// What is done when a step fails: its own words where it has some, else the first rule that fits.
    pub(super) fn recoveries(&self, act: &Act, policy: &Policy) -> Vec<Recovery> {
        if policy.retry.is_none() && policy.on_error.is_none() {
            let rule = self.rules.iter().find(|rule| rule.fits(act));
            return rule.map(|rule| rule.then.clone()).unwrap_or_default();
        }
        let mut then: Vec<Recovery> = policy.retry.map(Recovery::Retry).into_iter().collect();
        // A stand-in that fails ends the message, whatever its own words are.
        match policy.on_error {
            _ if policy.replaces.is_some() => {}
            Some(OnError::Continue) => then.push(Recovery::Continue),
            Some(OnError::Fallback(step)) => then.push(Recovery::StandIn(step)),
            _ => {}
        }
        then
    }
}

impl Rule {
    /// For every step.
    #[must_use]
    pub const fn any(then: Vec<Recovery>) -> Self {
        Self {
            verb: None,
            tool: None,
            then,
        }
    }

    /// For steps of a verb.
    #[must_use]
    pub fn verb(verb: &str, then: Vec<Recovery>) -> Self {
        Self {
            verb: Some(verb.to_owned()),
            ..Self::any(then)
        }
    }

    /// For steps with a tool.
    #[must_use]
    pub fn tool(tool: &str, then: Vec<Recovery>) -> Self {
        Self {
            tool: Some(tool.to_owned()),
            ..Self::any(then)
        }
    }

    fn fits(&self, act: &Act) -> bool {
        self.verb.as_ref().is_none_or(|verb| *verb == act.verb)
            && self.tool.as_ref().is_none_or(|tool| *tool == act.tool)
    }
}
