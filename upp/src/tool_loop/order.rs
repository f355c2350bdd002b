//! The order in which the tool calls of one message run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::json::{Limits, read_raw};
use ubos_common::violation::Profile;

use crate::tool::{ToolCall, ToolSet};

ubos_common::wire! {
    /// A tool's metadata under `uap`.
    struct Ordering {
        /// Whether the tool must end before others start.
        nullable sequential: bool = "sequential", "UAP-8-2";
        /// Tools that must end before this one starts.
        nullable depends_on: Vec<Arc<str>> = "dependsOn", "UAP-8-2";
    }
}

/// The calls of one tool: they share their dependencies and their dependents.
#[derive(Clone, Debug, Default)]
struct Group {
    sequential: bool,
    /// Groups that depend on this one.
    dependents: Vec<usize>,
    /// The number of dependencies that have not ended.
    unmet: BTreeSet<usize>,
    /// Calls that have not started.
    waiting: Vec<usize>,
    /// The number of calls without a result.
    pending: usize,
}

/// The calls of one message and their dependencies.
///
/// A start or an end of a call takes time proportional to what it changes, because a message may hold many calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallOrder {
    groups: Vec<Group>,
    /// The group of each call.
    group_of: Vec<usize>,
    /// Calls that may start concurrently.
    ready: BTreeSet<usize>,
    /// Calls that may start, alone.
    alone: BTreeSet<usize>,
    running: BTreeSet<usize>,
    /// Whether the running call is sequential.
    is_alone: bool,
    /// The number of calls without a result.
    pending: usize,
}

impl CallOrder {
    pub(super) fn new(calls: &[ToolCall], tools: &ToolSet) -> Self {
        let mut order = Self::default();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, call) in calls.iter().enumerate() {
            let next = names.len();
            let group = *names.entry(&call.tool_name).or_insert(next);
            if group == next {
                order.groups.push(Group::default());
            }
            order.add(n, group);
        }
        for (name, &group) in &names {
            let (sequential, depends_on) = ordering(name, tools);
            // A tool that is not called is not waited for.
            let needs = depends_on.iter().filter_map(|name| names.get(&**name));
            order.depend(group, sequential, needs.copied());
        }
        for group in 0..order.groups.len() {
            order.release(group);
        }
        order
    }

    fn add(&mut self, call: usize, group: usize) {
        self.group_of.push(group);
        self.pending += 1;
        if let Some(group) = self.groups.get_mut(group) {
            group.waiting.push(call);
            group.pending += 1;
        }
    }

    fn depend(&mut self, group: usize, sequential: bool, needs: impl Iterator<Item = usize>) {
        for need in needs {
            if let Some(needed) = self.groups.get_mut(need) {
                needed.dependents.push(group);
            }
            if let Some(group) = self.groups.get_mut(group) {
                group.unmet.insert(need);
            }
        }
        if let Some(group) = self.groups.get_mut(group) {
            group.sequential = sequential;
        }
    }

    /// A call has ended.
    pub(super) fn done(&mut self, call: usize) {
        if !self.running.remove(&call) {
            return;
        }
        self.is_alone = false;
        self.pending -= 1;
        let Some(&number) = self.group_of.get(call) else {
            return;
        };
        let Some(group) = self.groups.get_mut(number) else {
            return;
        };
        group.pending -= 1;
        if group.pending > 0 {
            return;
        }
        for dependent in core::mem::take(&mut group.dependents) {
            if let Some(group) = self.groups.get_mut(dependent) {
                group.unmet.remove(&number);
            }
            self.release(dependent);
        }
    }

    /// Whether every call has ended.
    pub(super) const fn is_complete(&self) -> bool {
        self.pending == 0
    }

    /// Starts calls; their places, in call order.
    // impl: UAP-8-2
    pub(super) fn start(&mut self) -> Vec<usize> {
        if self.running.is_empty() && self.ready.is_empty() && self.alone.is_empty() {
            self.open_cycles();
        }
        let chosen = if self.is_alone {
            Vec::new()
        } else if self.alone.is_empty() {
            core::mem::take(&mut self.ready).into_iter().collect()
        } else if self.running.is_empty() {
            self.is_alone = true;
            self.alone.pop_first().into_iter().collect()
        } else {
            Vec::new()
        };
        self.running.extend(&chosen);
        chosen
    }

    /// Makes the calls of a group without open dependencies ready.
    fn release(&mut self, group: usize) {
        let Some(group) = self.groups.get_mut(group) else {
            return;
        };
        if group.unmet.is_empty() {
            let calls = core::mem::take(&mut group.waiting);
            if group.sequential {
                self.alone.extend(calls);
            } else {
                self.ready.extend(calls);
            }
        }
    }

    /// Breaks dependency cycles: where nothing runs and nothing is ready, the remaining calls run one by one.
    // impl: UAP-8-4
    fn open_cycles(&mut self) {
        let is_member = |&group: &usize| self.waits_for_itself(group);
        let members: Vec<usize> = (0..self.groups.len()).filter(is_member).collect();
        for member in members {
            if let Some(group) = self.groups.get_mut(member) {
                group.unmet.clear();
                group.sequential = true;
            }
            self.release(member);
        }
    }

    fn waits_for_itself(&self, group: usize) -> bool {
        let needs = |group: usize| self.groups.get(group).map(|group| &group.unmet);
        let mut seen = BTreeSet::new();
        let mut next: Vec<usize> = needs(group).into_iter().flatten().copied().collect();
        while let Some(need) = next.pop() {
            if need == group {
                return true;
            }
            if seen.insert(need) {
                next.extend(needs(need).into_iter().flatten());
            }
        }
        false
    }
}

/// Whether the calls of a tool run alone, and the tools that they depend on.
fn ordering(name: &str, tools: &ToolSet) -> (bool, Vec<Arc<str>>) {
    let raw = tools
        .find(name)
        .and_then(|tool| tool.metadata()?.get("uap"));
    // Metadata that says nothing sensible orders nothing.
    let read =
        raw.and_then(|raw| read_raw::<Ordering>(raw, &Limits::default(), Profile::Lenient).ok());
    read.map_or((false, Vec::new()), |(ordering, _)| {
        let depends_on = ordering.depends_on.unwrap_or_default();
        (ordering.sequential.unwrap_or(false), depends_on)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FnTool, Metadata, Tool, object};
    use ubos_common::json::RawObject;

    /// Tools are `name`, `name!` (sequential) or `name<a,b` (depends on a and b).
    fn tools(tools: &[&str]) -> Vec<Arc<dyn Tool>> {
        let tool = |text: &&str| {
            let (head, needs) = text.split_once('<').unwrap_or((text, ""));
            let name = head.trim_end_matches('!');
            let needs: Vec<&str> = needs.split(',').filter(|n| !n.is_empty()).collect();
            let mut metadata = Metadata::default();
            let uap = format!(
                r#"{{"sequential":{},"dependsOn":{needs:?}}}"#,
                head.ends_with('!')
            );
            metadata.set("uap", object(&uap).unwrap());
            let run = |arguments: RawObject, _| async { Ok(arguments.into()) };
            Arc::new(FnTool::new(name, "", RawObject::empty(), run).with_metadata(metadata))
                as Arc<dyn Tool>
        };
        tools.iter().map(tool).collect()
    }

    /// Calls of tools with names of one letter.
    fn calls(names: &str) -> Vec<ToolCall> {
        names
            .chars()
            .map(|c| ToolCall::new("id".into(), c.to_string().into(), RawObject::empty()))
            .collect()
    }

    /// The groups in which calls ran.
    fn groups(names: &[&str], called: &str) -> String {
        let set = ToolSet::new(tools(names), None);
        let calls = calls(called);
        let mut order = CallOrder::new(&calls, &set);
        let mut groups = Vec::new();
        while !order.is_complete() {
            let started = order.start();
            assert!(!started.is_empty() && groups.len() < 20);
            groups.push(
                started
                    .iter()
                    .map(|&n| &*calls[n].tool_name)
                    .collect::<String>(),
            );
            started.into_iter().for_each(|n| order.done(n));
        }
        groups.join("|")
    }

    // spec: UAP-8-2, UAP-8-4
    #[test]
    fn calls_run_when_what_they_wait_for_is_done() {
        assert_eq!(groups(&["a", "b"], "abx"), "abx");
        assert_eq!(groups(&["a", "s!", "b", "t!"], "asbt"), "s|t|ab");
        assert_eq!(groups(&["a", "b<a", "c<b"], "cba"), "a|b|c");
        assert_eq!(groups(&["a", "b", "d<a,b"], "dab"), "ab|d");
        assert_eq!(groups(&["r", "w<r"], "rwr"), "rr|w");
        assert_eq!(groups(&["a", "w<never"], "wa"), "wa");
        assert_eq!(groups(&["a", "s!<a", "b"], "sab"), "ab|s");
        assert_eq!(groups(&["a<b", "b<a", "c<a", "d"], "cabd"), "d|a|b|c");
        assert_eq!(groups(&["a<a"], "a"), "a");
    }

    // spec: UAP-8-2
    #[test]
    fn a_sequential_call_waits_for_those_that_run() {
        // `s` may run once `a` has, while `b` still runs; `c` waits for both.
        let set = ToolSet::new(tools(&["a", "b", "s!<a", "c<s"]), None);
        let mut order = CallOrder::new(&calls("absc"), &set);
        assert_eq!(order.start(), [0, 1]);
        order.done(0);
        assert!(order.start().is_empty());
        order.done(1);
        assert_eq!(order.start(), [2]);
        assert!(order.start().is_empty());
        // What does not run cannot end.
        order.done(3);
        order.done(2);
        assert_eq!(order.start(), [3]);
        order.done(3);
        assert!(order.is_complete());
    }
}
