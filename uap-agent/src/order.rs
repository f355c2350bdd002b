//! Which tool calls of one message may run, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use ubos_common::json::{Limits, read_raw};
use ubos_common::violation::Profile;
use upp::{ToolCall, ToolSet};

ubos_common::wire! {
    /// What a tool's metadata says under `uap`.
    struct Ordering {
        /// Must be complete before other tools.
        nullable sequential: bool = "sequential", "UAP-8-2";
        /// Tools that must be complete before.
        nullable depends_on: Vec<Arc<str>> = "dependsOn", "UAP-8-2";
    }
}

/// How far one call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Running,
    Done,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Arc<str>,
    sequential: bool,
    depends_on: Vec<Arc<str>>,
    progress: Progress,
}

/// The calls of one message, and what each waits for.
#[derive(Clone, Debug)]
pub(crate) struct CallOrder(Vec<Entry>);

impl CallOrder {
    pub(crate) fn new(calls: &[ToolCall], tools: &ToolSet) -> Self {
        let entry = |call: &ToolCall| {
            let raw = tools
                .find(&call.tool_name)
                .and_then(|tool| tool.metadata()?.get("uap"));
            // Metadata that says nothing sensible orders nothing.
            let read = raw.and_then(|raw| {
                read_raw::<Ordering>(raw, &Limits::default(), Profile::Lenient).ok()
            });
            let ordering = read.map(|(ordering, _)| ordering);
            let (sequential, depends_on) =
                ordering.map_or((None, None), |o| (o.sequential, o.depends_on));
            Entry {
                name: Arc::clone(&call.tool_name),
                sequential: sequential.unwrap_or(false),
                depends_on: depends_on.unwrap_or_default(),
                progress: Progress::Waiting,
            }
        };
        Self(calls.iter().map(entry).collect())
    }

    /// A call has its result.
    pub(crate) fn done(&mut self, call: usize) {
        if let Some(entry) = self.0.get_mut(call) {
            entry.progress = Progress::Done;
        }
    }

    /// Whether every call has its result.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.iter().all(|entry| entry.progress == Progress::Done)
    }

    /// The calls that start now, in call order.
    // impl: UAP-8-2
    pub(crate) fn start(&mut self) -> Vec<usize> {
        let mut chosen = self.choose();
        if chosen.is_empty()
            && self
                .0
                .iter()
                .all(|entry| entry.progress != Progress::Running)
        {
            self.open_cycles();
            chosen = self.choose();
        }
        for &call in &chosen {
            if let Some(entry) = self.0.get_mut(call) {
                entry.progress = Progress::Running;
            }
        }
        chosen
    }

    fn choose(&self) -> Vec<usize> {
        let running = || {
            self.0
                .iter()
                .filter(|entry| entry.progress == Progress::Running)
        };
        if running().any(|entry| entry.sequential) {
            return Vec::new();
        }
        let waiting = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.progress == Progress::Waiting);
        let ready: Vec<usize> = waiting
            .clone()
            .filter(|(_, entry)| self.is_ready(entry))
            .map(|(n, _)| n)
            .collect();
        let alone = ready
            .iter()
            .copied()
            .find(|&n| self.0.get(n).is_some_and(|entry| entry.sequential));
        let is_idle = running().next().is_none();
        match alone {
            Some(call) if is_idle => vec![call],
            Some(_) => Vec::new(),
            None => ready,
        }
    }

    /// Nothing runs and nothing may: the members of cycles wait no longer, and run one by one.
    // impl: UAP-8-4
    fn open_cycles(&mut self) {
        let waiting =
            |entry: &Entry| entry.progress == Progress::Waiting && self.waits_for_itself(entry);
        let members: Vec<bool> = self.0.iter().map(waiting).collect();
        for (entry, is_member) in self.0.iter_mut().zip(members) {
            if is_member {
                entry.depends_on.clear();
                entry.sequential = true;
            }
        }
    }

    /// Whether all calls of every tool that it depends on have their results.
    fn is_ready(&self, entry: &Entry) -> bool {
        let pending = |name: &Arc<str>| {
            self.0
                .iter()
                .any(|other| other.name == *name && other.progress != Progress::Done)
        };
        !entry.depends_on.iter().any(pending)
    }

    fn waits_for_itself(&self, entry: &Entry) -> bool {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Arc<str>> = entry.depends_on.iter().collect();
        while let Some(name) = next.pop() {
            if *name == entry.name {
                return true;
            }
            if seen.insert(name) {
                let others = self
                    .0
                    .iter()
                    .filter(|other| other.name == *name && other.progress == Progress::Waiting);
                next.extend(others.flat_map(|other| &other.depends_on));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubos_common::json::RawObject;
    use upp::{FnTool, Metadata, Tool, object};

    /// Tools are `name`, `name!` (sequential) or `name<a,b` (depends on a and b); the groups in which calls ran.
    fn groups(tools: &[&str], calls: &str) -> String {
        let tool = |text: &&str| {
            let (head, needs) = text.split_once('<').unwrap_or((text, ""));
            let name = head.trim_end_matches('!');
            let needs: Vec<&str> = needs.split(',').filter(|n| !n.is_empty()).collect();
            let mut metadata = Metadata::new();
            let uap = format!(
                r#"{{"sequential":{},"dependsOn":{needs:?}}}"#,
                head.ends_with('!')
            );
            metadata.set("uap", object(&uap).unwrap());
            let run = |arguments: RawObject, _| async { Ok(arguments.into()) };
            Arc::new(FnTool::new(name, "", RawObject::empty(), run).with_metadata(metadata))
                as Arc<dyn Tool>
        };
        let set = ToolSet::new(tools.iter().map(tool).collect::<Vec<_>>(), None);
        let calls: Vec<ToolCall> = calls
            .chars()
            .map(|c| ToolCall::new("id".into(), c.to_string().into(), RawObject::empty()))
            .collect();
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

    #[test]
    fn a_sequential_call_waits_for_those_that_run() {
        let mut order = CallOrder(Vec::new());
        let entry = |name: &str, sequential, progress| Entry {
            name: name.into(),
            sequential,
            depends_on: Vec::new(),
            progress,
        };
        order.0 = vec![
            entry("a", false, Progress::Running),
            entry("s", true, Progress::Waiting),
            entry("b", false, Progress::Waiting),
        ];
        assert!(order.start().is_empty());
        order.done(0);
        assert_eq!(order.start(), [1]);
        assert!(order.start().is_empty());
        order.done(1);
        assert_eq!(order.start(), [2]);
    }
}
