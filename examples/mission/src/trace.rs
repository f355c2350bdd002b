//! What happened when, and because of what: the steps of a mission as one tree.
//!
//! A step is known by the id that its protocol gives it ([`step_id`](super::step_id)). So the same tree can be built again
//! from what the stores hold ([`rebuild`](super::rebuild)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ubos_common::os::Clock;
use ubos_common::time::Timestamp;

use super::screen::Who;
use super::step_words::{self, DONE};
use super::steps::StepLog;

/// One step, in one of the two processes.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its id, in words: `task 0190…`.
    pub id: String,
    /// The id of the step that caused it; `None` for the mission itself.
    pub parent: Option<String>,
    /// Which protocol.
    pub who: Who,
    /// What was done.
    pub name: String,
    /// Whether the tool process did it.
    pub in_tools: bool,
    /// When it began.
    pub started: Timestamp,
    /// When it ended; `None` where it did not.
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub outcome: String,
}

/// Takes steps down while a mission runs.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    spans: Arc<Mutex<Spans>>,
    log: Arc<OnceLock<StepLog>>,
}

/// The steps so far.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// At most [`Spans::MOST`].
    pub list: Vec<Span>,
    /// Those that are not in the list.
    pub more: u64,
}

impl Spans {
    /// Steps that are kept. A mission has some sixty; a model that never ends could make more.
    pub const MOST: usize = 4_096;

    fn add(&mut self, span: Span) -> Option<usize> {
        if self.list.len() == Self::MOST {
            self.more += 1;
            return None;
        }
        self.list.push(span);
        Some(self.list.len() - 1)
    }

    /// The tree, depth first: each step behind the one that caused it, with its depth. Steps of one cause stand in the
    /// order of their beginning, and one whose cause is not here stands at the top.
    #[must_use]
    pub fn tree(&self) -> Vec<(usize, &Span)> {
        let mut children: BTreeMap<Option<&str>, Vec<&Span>> = BTreeMap::new();
        let known: BTreeSet<&str> = self.list.iter().map(|span| &*span.id).collect();
        for span in &self.list {
            let parent = span
                .parent
                .as_deref()
                .filter(|parent| known.contains(parent));
            children.entry(parent).or_default().push(span);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|span| span.started);
            // What waits last in a vector is taken first.
            siblings.reverse();
        }
        let mut open: Vec<(usize, &Span)> = Vec::new();
        let mut tree = Vec::new();
        let roots = children.remove(&None).unwrap_or_default();
        open.extend(roots.into_iter().map(|span| (0, span)));
        while let Some((depth, span)) = open.pop() {
            tree.push((depth, span));
            let caused = children.remove(&Some(&*span.id)).unwrap_or_default();
            open.extend(caused.into_iter().map(|span| (depth + 1, span)));
        }
        tree
    }
}

impl Trace {
    /// A step begins, which the store of its protocol holds.
    pub fn begin(
        &self,
        who: Who,
        id: impl Into<String>,
        parent: Option<&str>,
        name: impl Into<String>,
    ) -> OpenSpan {
        let span = Span {
            id: id.into(),
            parent: parent.map(str::to_owned),
            who,
            name: name.into(),
            in_tools: false,
            started: now(),
            ended: None,
            outcome: String::new(),
        };
        OpenSpan {
            trace: self.clone(),
            at: self.lock().add(span),
            logged: None,
        }
    }

    /// A step begins, which no other store holds: it goes into the log of steps, too.
    pub fn begin_logged(
        &self,
        who: Who,
        id: impl Into<String>,
        parent: Option<&str>,
        name: impl Into<String>,
    ) -> OpenSpan {
        let id = id.into();
        let mut open = self.begin(who, &*id, parent, name);
        if let (Some(log), Some(at)) = (self.log.get(), open.at)
            && let Some(span) = self.lock().list.get(at)
        {
            log.write(span);
        }
        open.logged = open.at.map(|_| id);
        open
    }

    /// Writes logged steps into a log from now on, and all steps that there are already.
    pub fn log_to(&self, log: StepLog) {
        let log = self.log.get_or_init(|| log);
        self.lock().list.iter().for_each(|span| log.write(span));
    }

    /// Adds a step that the tool process has told of.
    pub fn add(&self, span: Span) {
        if let Some(log) = self.log.get() {
            log.write(&span);
        }
        self.lock().add(span);
    }

    /// The steps so far.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step that has begun. It has no end where this is dropped.
#[derive(Debug)]
#[must_use = "a step that is dropped has no end"]
pub struct OpenSpan {
    trace: Trace,
    at: Option<usize>,
    /// Its id, where its end goes into the log.
    logged: Option<String>,
}

impl OpenSpan {
    /// The step ends.
    pub fn end(self, outcome: impl Into<String>) {
        let (outcome, ended) = (outcome.into(), now());
        if let (Some(id), Some(log)) = (&self.logged, self.trace.log.get()) {
            log.end(id, ended, &outcome);
        }
        let mut spans = self.trace.lock();
        if let Some(span) = self.at.and_then(|at| spans.list.get_mut(at)) {
            span.ended = Some(ended);
            span.outcome = outcome;
        }
    }

    /// Ends the step as a result says.
    pub fn end_with<T, E: std::fmt::Display>(self, result: &Result<T, E>) {
        match result {
            Ok(_) => self.end(DONE),
            Err(why) => self.end(step_words::failed(&why.to_string())),
        }
    }
}

fn now() -> Timestamp {
    Clock::default().now().wall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stands_behind_its_cause() {
        let trace = Trace::default();
        let root = trace.begin(Who::Mission, "mission", None, "audit");
        let task = trace.begin(Who::Sap, "task 1", Some("mission"), "audit.lines");
        trace
            .begin(Who::Hub, "lost", Some("nobody"), "a session")
            .end("done");
        trace
            .begin(Who::Sap, "task 2", Some("mission"), "audit.sizes")
            .end("done");
        trace
            .begin(Who::Wire, "call 1", Some("task 1"), "lines")
            .end_with(&Err::<(), _>("no"));
        task.end("done");
        drop(root);
        let spans = trace.spans();
        let tree: Vec<_> = spans
            .tree()
            .iter()
            .map(|(depth, span)| (*depth, span.id.as_str()))
            .collect();
        assert_eq!(
            tree,
            [
                (0, "mission"),
                (1, "task 1"),
                (2, "call 1"),
                (1, "task 2"),
                (0, "lost")
            ]
        );
        let [mission, _, _, _, call] = &spans.list[..] else {
            panic!("five steps")
        };
        assert_eq!((mission.ended, &*call.outcome), (None, "failed: no"));
    }

    #[test]
    fn steps_are_bounded_and_the_rest_is_counted() {
        let trace = Trace::default();
        for n in 0..Spans::MOST + 3 {
            trace.begin(Who::Agent, n.to_string(), None, "step").end("");
        }
        let spans = trace.spans();
        assert_eq!((spans.list.len(), spans.more), (Spans::MOST, 3));
        assert_eq!(spans.tree().len(), Spans::MOST);
    }

    #[test]
    fn steps_that_cause_each_other_end_the_tree() {
        let mut spans = Spans::default();
        for (id, parent) in [("a", "b"), ("b", "a")] {
            spans.add(Span {
                id: id.to_owned(),
                parent: Some(parent.to_owned()),
                who: Who::Sap,
                name: String::new(),
                in_tools: false,
                started: Timestamp::EPOCH,
                ended: None,
                outcome: String::new(),
            });
        }
        assert!(spans.tree().is_empty());
    }
}
