//! The plan model of both editions: steps, their dependencies, and their policies.
//!
//! A [`Plan`](crate::Plan) of 0.1 and the steps of 1.0 both become a [`Graph`], which the check, the runner and the
//! diagrams work on.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::json::{RawObject, Read as _, Reader};
use ubos_common::violation::Profile;

use crate::message::Message;
use crate::plan::{Act, Item, Plan};

/// The steps of a message, those of its subtasks included.
///
/// A step with a subtask represents a whole [`Scope`] of further steps. Steps are numbered over all scopes:
/// those of the message first, from 1, every act in document order.
///
/// ```
/// use sacp::Graph;
/// use sacp::{Act, Item, Message, Plan};
///
/// let mut plan = Plan::default();
/// plan.push(Item::group([Act::new("fetch", "WEATHER"), Act::new("fetch", "TRAINS")]));
/// plan.push(Act::join("MERGE"));
/// let graph = Graph::from(&Message::new("TRIP", plan));
/// assert_eq!(graph.step(3).unwrap().after[..], [1, 2]);
/// ```
///
/// Spec: SACP 3
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    steps: Vec<Step>,
    scopes: Vec<Scope>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Its number over all scopes, from 1.
    pub number: usize,
    /// Its id: that of 1.0, or `s` and its place in its own message.
    pub id: String,
    /// Its number among the acts of its own message, from 1.
    pub place: usize,
    /// Its pointer in the outermost message.
    pub pointer: String,
    /// The scope that it belongs to.
    pub scope: usize,
    /// Its act.
    pub act: Act,
    /// The numbers of its dependencies, in plan order. Members of a group share one list.
    pub after: Arc<[usize]>,
    /// The scope of its subtask, if it has one.
    pub subtask: Option<usize>,
    /// Its timeout, retries and reaction to failure.
    pub policy: Policy,
}

impl Step {
    /// The pointer of its subtask.
    #[must_use]
    pub(crate) fn subtask_pointer(&self) -> String {
        if self.pointer.ends_with("/subtask") {
            self.pointer.clone()
        } else {
            format!("{}/2/subtask", self.pointer)
        }
    }
}

/// One message: the outermost, or a subtask.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scope {
    /// Its `msg_id`.
    pub msg_id: Option<String>,
    /// Its goal.
    pub goal: String,
    /// The step that holds it; `None` for the outermost.
    pub parent: Option<usize>,
    /// Its steps, by number, in document order.
    pub steps: Vec<usize>,
    /// The step for the subtask at its top level, which runs when all others have ended.
    pub last: Option<usize>,
    /// The message, for a subtask of 0.1.
    pub message: Option<Box<Message>>,
}

/// The timeout, retries and reaction to failure of a step.
///
/// Version 0.1 has no policies: there the runner's configuration applies.
///
/// Spec: SACP 1.0, 6
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The timeout of one attempt; `None` leaves it to the runner.
    pub timeout: Option<Duration>,
    /// The retries; `None` leaves them to the runner.
    pub retry: Option<Retry>,
    /// What happens when the last attempt failed; `None` leaves it to the runner.
    pub on_error: Option<OnError>,
    /// The name of its output.
    pub output_key: Option<String>,
    /// The step that it is the fallback of: it runs only in its place.
    pub replaces: Option<usize>,
}

/// The retry policy of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts, the first included; at least 1.
    pub max_attempts: u32,
    /// The wait before the second attempt.
    pub backoff: Duration,
    /// Whether each further wait is twice the one before.
    pub exponential: bool,
}

/// What happens when a step's last attempt failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Running steps are cancelled, and the message fails.
    #[default]
    FailFast,
    /// Its dependents are skipped, all other steps go on.
    Continue,
    /// Another step runs in its place.
    Fallback(usize),
}

impl Retry {
    /// Attempts with the same wait between them.
    #[must_use]
    pub const fn fixed(max_attempts: u32, backoff: Duration) -> Self {
        Self {
            max_attempts: if max_attempts == 0 { 1 } else { max_attempts },
            backoff,
            exponential: false,
        }
    }

    /// Attempts with a wait that doubles.
    #[must_use]
    pub const fn exponential(max_attempts: u32, backoff: Duration) -> Self {
        Self {
            exponential: true,
            ..Self::fixed(max_attempts, backoff)
        }
    }

    /// The wait after attempt number `attempt`, from 1.
    ///
    /// Spec: SACP 1.0, 6
    // impl: SACP1-6-4
    #[must_use]
    pub(crate) fn wait_after(&self, attempt: u32) -> Duration {
        if self.exponential {
            let factor = 1_u32
                .checked_shl(attempt.saturating_sub(1))
                .unwrap_or(u32::MAX);
            self.backoff.saturating_mul(factor)
        } else {
            self.backoff
        }
    }
}

impl Graph {
    /// All steps, in the order of their numbers.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step with this number.
    #[must_use]
    pub fn step(&self, number: usize) -> Option<&Step> {
        self.steps.get(number.checked_sub(1)?)
    }

    /// The messages: the outermost first.
    #[must_use]
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Whether a step starts only when it is called for: as a fallback step, or when all others have ended.
    #[must_use]
    pub(crate) fn is_deferred(&self, number: usize) -> bool {
        let scope = |step: &Step| self.scopes.get(step.scope).and_then(|scope| scope.last);
        self.step(number)
            .is_some_and(|step| step.policy.replaces.is_some() || scope(step) == Some(number))
    }

    /// Opens a scope; returns its index.
    pub(crate) fn open(
        &mut self,
        msg_id: Option<&str>,
        goal: &str,
        parent: Option<usize>,
    ) -> usize {
        self.scopes.push(Scope {
            msg_id: msg_id.map(str::to_owned),
            goal: goal.to_owned(),
            parent,
            steps: Vec::new(),
            last: None,
            message: None,
        });
        self.scopes.len() - 1
    }

    /// Adds a step to a scope; returns its number.
    pub(crate) fn add(
        &mut self,
        scope: usize,
        pointer: String,
        act: Act,
        after: impl Into<Arc<[usize]>>,
    ) -> usize {
        let number = self.steps.len() + 1;
        let place = self.scopes.get(scope).map_or(0, |scope| scope.steps.len()) + 1;
        self.steps.push(Step {
            number,
            id: format!("s{place}"),
            place,
            pointer,
            scope,
            act,
            after: after.into(),
            subtask: None,
            policy: Policy::default(),
        });
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.steps.push(number);
        }
        number
    }

    /// The step with this number, for building.
    pub(crate) fn step_mut(&mut self, number: usize) -> Option<&mut Step> {
        self.steps.get_mut(number.checked_sub(1)?)
    }

    fn add_message(&mut self, message: &Message, parent: Option<usize>, base: &str) -> usize {
        let scope = self.open(message.msg_id.as_deref(), &message.g, parent);
        let before = self.add_plan(scope, &message.plan, base);
        self.add_subtasks(scope);
        if let (Some(scope), Some(_)) = (self.scopes.get_mut(scope), parent) {
            scope.message = Some(Box::new(message.clone()));
        }
        if let Some(subtask) = &message.subtask {
            let pointer = format!("{base}/subtask");
            let number = self.add(
                scope,
                pointer.clone(),
                Act::new("subtask", "SUBTASK"),
                before,
            );
            let inner = self.add_message(subtask, Some(number), &pointer);
            if let Some(step) = self.step_mut(number) {
                step.subtask = Some(inner);
            }
            if let Some(scope) = self.scopes.get_mut(scope) {
                scope.last = scope.steps.pop();
            }
        }
        scope
    }

    /// Adds the steps of a plan; returns the numbers that an entry behind it waits for.
    fn add_plan(&mut self, scope: usize, plan: &Plan, base: &str) -> Arc<[usize]> {
        let mut before = Arc::default();
        for (n, item) in plan.items.iter().enumerate() {
            before = self.add_item(scope, item, format!("{base}/plan/{n}"), &before);
        }
        before
    }

    /// Adds the steps of an entry that starts after `before`; returns the numbers that the next entry waits for.
    fn add_item(
        &mut self,
        scope: usize,
        item: &Item,
        pointer: String,
        before: &Arc<[usize]>,
    ) -> Arc<[usize]> {
        match item {
            Item::Act(act) => {
                Arc::from([self.add(scope, pointer, act.clone(), Arc::clone(before))])
            }
            Item::Group(members) => self.add_group(scope, members, &pointer, before),
        }
    }

    fn add_group(
        &mut self,
        scope: usize,
        members: &[Item],
        pointer: &str,
        before: &Arc<[usize]>,
    ) -> Arc<[usize]> {
        let mut ends = Vec::new();
        for (n, member) in members.iter().enumerate() {
            let pointer = format!("{pointer}/parallel/{n}");
            ends.extend(self.add_item(scope, member, pointer, before).iter());
        }
        ends.into()
    }

    /// Adds the subtasks in the parameters of steps.
    fn add_subtasks(&mut self, scope: usize) {
        let steps = self.scopes.get(scope).map(|scope| scope.steps.clone());
        for number in steps.unwrap_or_default() {
            let Some(step) = self.step(number) else {
                continue;
            };
            let pointer = step.subtask_pointer();
            let Some(message) = subtask_of(&step.act.params) else {
                continue;
            };
            let inner = self.add_message(&message, Some(number), &pointer);
            if let Some(step) = self.step_mut(number) {
                step.subtask = Some(inner);
            }
        }
    }
}

impl From<&Message> for Graph {
    /// The graph of a message of 0.1, its subtasks included. The entry after a group waits for the whole group.
    fn from(message: &Message) -> Self {
        let mut graph = Self::default();
        graph.add_message(message, None, "");
        graph
    }
}

impl From<&Plan> for Graph {
    /// The graph of a plan alone: a subtask in the parameters of an act is an ordinary parameter.
    fn from(plan: &Plan) -> Self {
        let mut graph = Self::default();
        let scope = graph.open(None, "", None);
        graph.add_plan(scope, plan, "");
        graph
    }
}

/// The message in the parameter `subtask`, if it is an object.
///
/// It was validated together with the outer message.
fn subtask_of(params: &RawObject) -> Option<Message> {
    let mut found = None;
    let limits = ubos_common::json::Limits::default();
    let mut reader = Reader::of_raw(params.as_raw(), &limits, Profile::Strict);
    let read = reader.object(|reader, name| {
        if name == "subtask" && reader.peek()? == ubos_common::json::Kind::Object {
            found = Some(Message::read(reader)?);
            return Ok(());
        }
        reader.skip()
    });
    read.ok().and(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SACP1-6-4
    #[test]
    fn waits_are_fixed_or_double() {
        let second = Duration::from_secs(1);
        let waits = |retry: Retry| [1, 2, 3, 4].map(|n| retry.wait_after(n).as_secs());
        assert_eq!(waits(Retry::fixed(5, second)), [1, 1, 1, 1]);
        assert_eq!(waits(Retry::exponential(5, second)), [1, 2, 4, 8]);
        let longest = Retry::exponential(9, Duration::MAX);
        assert_eq!(longest.wait_after(u32::MAX), Duration::MAX);
        assert_eq!(Retry::fixed(0, second).max_attempts, 1);
    }
}
