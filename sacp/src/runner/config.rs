//! Limits, deadlines, and what happens when a step fails.

use core::time::Duration;

use ubos_common::json::RawBuf;

use crate::ConfigError;
use crate::graph::{OnError, Policy, Retry};
use crate::plan::Act;

ubos_common::config! {
    /// How a plan runs.
    ///
    /// [`Runner::new`](super::Runner::new) checks the values.
    Config {
        /// Sets the most steps of a run, those of its subtasks included: at least 1; 10,000 by default.
        with_max_steps: max_steps: usize = crate::limits::MAX_ACTS,
        /// Sets how many steps run at the same time: at least 1; 64 by default. Further steps wait.
        with_max_running: max_running: usize = 64,
        /// Sets whether [`Output::Step`](super::Output::Step) reports every change of a step's state. Off by default.
        with_step_events: step_events: bool = false,
    }
    into {
        /// Sets how long an attempt may take where its step has no timeout of its own. No limit by default.
        with_step_timeout: step_timeout: Option<Duration> = None,
        /// Sets how long an attempt may go without [`Input::Progress`](super::Input::Progress). No limit by default.
        with_idle_timeout: idle_timeout: Option<Duration> = None,
        /// Sets how long the whole run may take, pauses included. No limit by default.
        with_run_timeout: run_timeout: Option<Duration> = None,
    }
    also {
        max_output_bytes: usize = 4_194_304,
        max_total_bytes: usize = 67_108_864,
        rules: Vec<Rule> = Vec::new(),
    }
}

/// Recoveries for the steps of a verb, of a tool, or for all steps.
///
/// ```
/// use sacp::runner::{Config, Recovery, Rule};
///
/// let recoveries = vec![Recovery::OtherAgents { up_to: 2 }, Recovery::Continue];
/// let searches = Rule { verb: Some("search".into()), recoveries, ..Rule::default() };
/// let config = Config::default().with_rule(searches);
/// # drop(config);
/// ```
///
/// Spec: SACP 4
#[derive(Clone, Debug, Default, PartialEq)]
// exhaustive: which steps, and what happens
pub struct Rule {
    /// The verb of the steps; `None` for any.
    pub verb: Option<String>,
    /// The tool of the steps; `None` for any.
    pub tool: Option<String>,
    /// The recoveries, tried in order. When none is left, the message fails.
    pub recoveries: Vec<Recovery>,
}

/// One reaction to a failed step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Recovery {
    /// Runs the act again, unless the failure is permanent.
    Retry(Retry),
    /// Asks the agents that rank next: [`Output::Dispatch`](super::Output::Dispatch) counts up its `rank`.
    OtherAgents {
        /// The highest rank to ask.
        up_to: usize,
    },
    /// Runs another act in place of this one, once. The recoveries behind it apply when that act fails.
    OtherAct(Act),
    /// Runs a deferred step of the plan in place of this one: what 1.0 calls a fallback step.
    Fallback(usize),
    /// Takes this value as the output of the step, if the limits leave room for it.
    Skip(RawBuf),
    /// Leaves the step failed: its dependents are skipped, all other steps go on.
    Continue,
}

impl Config {
    /// Sets the most bytes of one output and of all outputs together: each at least 1; 4 MiB and 64 MiB by default.
    #[must_use]
    pub const fn with_max_bytes(mut self, output: usize, total: usize) -> Self {
        self.max_output_bytes = output;
        self.max_total_bytes = total;
        self
    }

    /// Appends a rule. The first rule that matches a step applies, unless a step of 1.0 has a policy of its own.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Refuses values with which a run could never end, or could start nothing.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::at_least("max_steps", self.max_steps, 1)?;
        ConfigError::at_least("max_running", self.max_running, 1)?;
        ConfigError::at_least("max_output_bytes", self.max_output_bytes, 1)?;
        ConfigError::at_least("max_total_bytes", self.max_total_bytes, 1)?;
        let timeouts = [
            ("step_timeout", self.step_timeout),
            ("idle_timeout", self.idle_timeout),
            ("run_timeout", self.run_timeout),
        ];
        timeouts.into_iter().try_for_each(|(setting, timeout)| {
            let holds = timeout.is_none_or(|timeout| !timeout.is_zero());
            let seen = timeout.unwrap_or_default();
            ConfigError::require(holds, setting, seen, "a timeout must be longer than zero")
        })
    }

    /// How many outputs one input can cause: every running step is cancelled, or as many start, each with an event.
    pub(crate) fn max_outputs(&self) -> usize {
        self.max_running.saturating_mul(2).max(1024)
    }

    /// The recoveries of a step: those of its own policy where it has one, else of the first rule that matches.
    pub(super) fn recoveries(&self, act: &Act, policy: &Policy) -> Vec<Recovery> {
        if policy.retry.is_none() && policy.on_error.is_none() {
            let rule = self.rules.iter().find(|rule| rule.matches(act));
            return rule.map(|rule| rule.recoveries.clone()).unwrap_or_default();
        }
        let mut recoveries: Vec<Recovery> = policy.retry.map(Recovery::Retry).into_iter().collect();
        // A fallback step that fails ends the message, whatever its own policy says.
        match policy.on_error {
            _ if policy.replaces.is_some() => {}
            Some(OnError::Continue) => recoveries.push(Recovery::Continue),
            Some(OnError::Fallback(step)) => recoveries.push(Recovery::Fallback(step)),
            _ => {}
        }
        recoveries
    }
}

impl Rule {
    fn matches(&self, act: &Act) -> bool {
        self.verb.as_ref().is_none_or(|verb| *verb == act.verb)
            && self.tool.as_ref().is_none_or(|tool| *tool == act.tool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_step_that_fails_ends_the_message() {
        let act = Act::new("a", "T");
        let own = Policy {
            on_error: Some(OnError::Continue),
            ..Policy::default()
        };
        let config = Config::default();
        assert_eq!(config.recoveries(&act, &own), [Recovery::Continue]);
        let fallback = Policy {
            replaces: Some(1),
            ..own
        };
        assert_eq!(config.recoveries(&act, &fallback), []);
    }
}
