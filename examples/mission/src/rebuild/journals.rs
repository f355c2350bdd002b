//! The journals: a run of an agent each.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use ubos_common::time::Timestamp;

use super::build::{Begins, Builder, When, is_id};
use super::read::{Condition, State, records};
use crate::screen::Who;
use crate::step_id;
use crate::step_words::{self, DONE, WRITES_REPORT};
use crate::stores::Store;

/// Folders of journals that are looked into; a mission keeps sixteen.
const MOST_JOURNALS: usize = 1_024;
/// The task whose handler runs the agent.
const REPORT: &str = "audit.report";

/// What is wanted of an entry.
#[derive(Deserialize)]
struct Entry {
    at: Option<Clocks>,
    begin: Option<Begin>,
    effect: Option<Effect>,
    answer: Option<Answer>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct Clocks {
    wall: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begin {
    agent_id: String,
    state: BeginState,
}

#[derive(Deserialize)]
struct BeginState {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    correlation_id: Option<String>,
    task_id: Option<String>,
}

#[derive(Deserialize)]
struct Effect {
    id: u64,
}

#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    saved: Option<bool>,
    unsaved: Option<String>,
}

#[derive(Deserialize)]
struct End {
    success: bool,
}

/// The runs of agents in the chosen missions.
pub(super) fn read(folder: &Path, builder: &mut Builder) -> Vec<Condition> {
    let store = Store::Journals;
    let mut conditions = Vec::new();
    let mut found = BTreeSet::new();
    let entries = std::fs::read_dir(folder.join(store.name()));
    for entry in entries.into_iter().flatten().flatten() {
        if found.len() == MOST_JOURNALS {
            let (most, records) = (MOST_JOURNALS, 0);
            let (place, state) = (store.name().to_owned(), State::TooMany { most });
            conditions.push(Condition {
                place,
                records,
                state,
            });
            break;
        }
        found.insert(entry.file_name().to_string_lossy().into_owned());
    }
    for name in &found {
        let place = format!("{}/{name}", store.name());
        let mut run = Run::default();
        let condition = records(folder, store, &place, &mut |bytes| run.take(bytes, builder));
        // Whose journal it is, its folder says where its first entry does not.
        if builder.takes(Some(run.of.as_deref().unwrap_or(name))) {
            conditions.push(condition);
        }
    }
    let reported = builder.runs_with(REPORT);
    conditions.extend(reported.difference(&found).map(|run| Condition {
        place: format!("{}/{run}", store.name()),
        records: 0,
        state: State::Missing,
    }));
    conditions
}

/// A run, as far as its journal was read.
#[derive(Default)]
struct Run {
    /// The mission.
    of: Option<String>,
    agent: Option<String>,
    /// The time of the last entry that has one.
    now: Option<Timestamp>,
    steps: u64,
    /// The step that is under way.
    open: Option<String>,
    asked: u64,
}

impl Run {
    fn take(&mut self, bytes: &[u8], builder: &mut Builder) -> bool {
        let Ok(entry) = serde_json::from_slice::<Entry>(bytes) else {
            return false;
        };
        if let Some(at) = entry.at.and_then(|at| at.wall.parse().ok()) {
            self.now = Some(at);
        }
        if let Some(begin) = entry.begin {
            return self.begin(begin, builder);
        }
        let Some(agent) = self.agent.clone() else {
            // Entries before a beginning are none of a journal.
            return false;
        };
        if let Some(effect) = entry.effect {
            self.asked = self.asked.max(effect.id);
            self.step(&agent, builder);
        }
        if let Some(answer) = entry.answer {
            let is_save = answer.saved.is_some() || answer.unsaved.is_some();
            if is_save {
                self.end_step(builder);
            }
            return answer.id.is_none_or(|id| id <= self.asked);
        }
        if let Some(end) = entry.end {
            self.end_step(builder);
            let outcome = if end.success { DONE } else { "failed" };
            let of = (Who::Agent, "end", self.of.as_deref());
            builder.end(of, &step_id::run(&agent), self.when(), outcome);
        }
        true
    }

    fn begin(&mut self, begin: Begin, builder: &mut Builder) -> bool {
        let Metadata {
            correlation_id,
            task_id,
        } = begin.state.metadata;
        let ids = [&correlation_id, &task_id].into_iter().flatten();
        if !ids.chain([&begin.agent_id]).map(String::as_str).all(is_id) {
            return false;
        }
        let task = task_id.map_or_else(|| "a task, but no id".to_owned(), step_id::task);
        let mut causes = vec![task];
        causes.extend(correlation_id.as_ref().map(step_id::mission));
        builder.begin(Begins {
            who: Who::Agent,
            id: step_id::run(&begin.agent_id),
            name: WRITES_REPORT,
            start: self.when(),
            run: correlation_id.as_deref(),
            causes,
        });
        self.of = correlation_id;
        self.agent = Some(begin.agent_id);
        true
    }

    /// The first request after a saved state begins a step.
    fn step(&mut self, agent: &str, builder: &mut Builder) {
        if self.open.is_some() {
            return;
        }
        self.steps += 1;
        let id = step_id::step(agent, self.steps);
        builder.begin(Begins {
            who: Who::Agent,
            id: id.clone(),
            name: &step_words::agent_step(self.steps),
            start: self.when(),
            run: self.of.as_deref(),
            causes: vec![step_id::run(agent)],
        });
        self.open = Some(id);
    }

    fn end_step(&mut self, builder: &mut Builder) {
        if let Some(id) = self.open.take() {
            let of = (Who::Agent, "end", self.of.as_deref());
            builder.end(of, &id, self.when(), DONE);
        }
    }

    fn when(&self) -> When {
        self.now.map_or(When::Unknown, When::At)
    }
}
