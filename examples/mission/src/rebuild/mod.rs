//! Builds the tree of a mission again, from what its stores hold.
//!
//! ```text
//! steps       the mission, its parts, its acts      own      names: the step that caused it
//! transcript  tasks, results                        SAP      names: cause, parentTaskId, correlationId
//! audit       calls, their ends                     core     names: request_id, correlation_id, session_id
//! jobs        jobs, sessions                        hub      names: taskId, correlationId
//! journals    the run of the report's writer        UAP      names: taskId, correlationId
//! ```
//!
//! Nothing is guessed: a step stands below the one whose id it names, and a message that names an id which no store holds
//! is told ([`Missing`]). A message of a run that was never begun here belongs to another folder, and is told with every run.

mod build;
mod calls;
mod jobs;
mod journals;
mod read;
mod settle;
mod steps;
mod tasks;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use self::build::Builder;
pub use self::read::{Condition, State};
use super::screen::Who;
use super::stores::Store;
use super::trace::Spans;

/// Steps that are looked at. A mission has some sixty.
pub const MOST_STEPS: usize = 16_384;
/// Runs of one folder.
const MOST_RUNS: usize = 1 << 20;
/// Bytes of an id; a longer one is none of ours.
const MOST_ID: usize = 256;

/// Which runs of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The one that began last.
    Last,
    /// The one whose id begins so.
    Run(String),
    /// All.
    All,
}

/// What the stores say.
#[derive(Debug)]
pub struct Rebuilt {
    /// The runs that were looked at, by their correlation ids, in the order of their beginning.
    pub runs: Vec<String>,
    /// The runs of the folder.
    pub all_runs: usize,
    /// Their steps.
    pub spans: Spans,
    /// The messages whose cause is missing, as many as steps at most.
    pub missing: Vec<Missing>,
    /// How the stores were found.
    pub stores: Vec<Condition>,
}

/// A message that names an id which no store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its protocol.
    pub who: Who,
    /// The message, by its id.
    pub message: String,
    /// What it names.
    pub names: String,
}

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The folder cannot be read.
    #[error("{}", super::words::about_path(.0))]
    Folder(#[source] io::Error),
    /// No store holds a run.
    #[error("no run of a mission is in its stores ({})", listed(.0))]
    NoRuns(Vec<Condition>),
    /// The run is not there.
    #[error("{seen} runs have an id that begins with {wanted}; 1 is wanted")]
    Run {
        /// What was asked for.
        wanted: String,
        /// Runs that it fits.
        seen: usize,
    },
    /// There are too many.
    #[error("the folder holds more than {MOST_RUNS} runs, which is the bound")]
    TooMany,
}

fn listed(stores: &[Condition]) -> String {
    let each: Vec<String> = stores.iter().map(ToString::to_string).collect();
    each.join("; ")
}

impl Rebuilt {
    /// Steps that have no end.
    pub fn endless(&self) -> impl Iterator<Item = &super::trace::Span> {
        self.spans.list.iter().filter(|span| span.ended.is_none())
    }

    /// Whether every step has an end and every message its cause, in stores that were all there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
            && self.spans.more == 0
            && self.endless().next().is_none()
            && !self
                .stores
                .iter()
                .any(|store| store.state == State::Missing)
    }

    /// Whether a store was there and could not be read to its end.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        self.stores.iter().any(Condition::is_unreadable)
    }
}

/// Builds the tree of the runs that are asked for.
pub fn rebuild(folder: &Path, choice: &Choice) -> Result<Rebuilt, Refused> {
    std::fs::read_dir(folder).map_err(Refused::Folder)?;
    let found = Found::in_folder(folder)?;
    if found.runs.is_empty() {
        return Err(Refused::NoRuns(conditions(folder)));
    }
    let runs = found.choose(choice)?;
    let all_runs = found.runs.len();
    let mut builder = Builder::new(found.runs.into_iter().collect(), &runs);
    let mut stores = vec![
        steps::read(folder, &mut builder),
        tasks::read(folder, &mut builder),
        calls::read(folder, &mut builder),
        jobs::read(folder, &mut builder),
    ];
    stores.extend(journals::read(folder, &mut builder));
    let (spans, missing) = builder.finish();
    Ok(Rebuilt {
        runs,
        all_runs,
        spans,
        missing,
        stores,
    })
}

/// How the stores are, where nothing of them is wanted.
fn conditions(folder: &Path) -> Vec<Condition> {
    let logs = Store::ALL
        .into_iter()
        .filter(|store| *store != Store::Journals);
    logs.map(|store| read::records(folder, store, store.name(), &mut |_| true))
        .collect()
}

/// The runs of a folder.
struct Found {
    runs: Vec<String>,
}

impl Found {
    /// As the log of steps has them, else the transcript.
    fn in_folder(folder: &Path) -> Result<Self, Refused> {
        let mut runs = Runs::default();
        steps::runs(folder, &mut |run| runs.add(run));
        if runs.list.is_empty() {
            tasks::runs(folder, &mut |run| runs.add(run));
        }
        match runs.is_full {
            true => Err(Refused::TooMany),
            false => Ok(Self { runs: runs.list }),
        }
    }

    fn choose(&self, choice: &Choice) -> Result<Vec<String>, Refused> {
        Ok(match choice {
            Choice::All => self.runs.clone(),
            Choice::Last => self.runs.last().cloned().into_iter().collect(),
            Choice::Run(wanted) => {
                let fits = |run: &&String| run.starts_with(wanted.as_str());
                let fitting: Vec<String> = self.runs.iter().filter(fits).cloned().collect();
                if fitting.len() != 1 {
                    return Err(Refused::Run {
                        wanted: wanted.clone(),
                        seen: fitting.len(),
                    });
                }
                fitting
            }
        })
    }
}

/// Runs in the order in which they are met, each once.
#[derive(Default)]
struct Runs {
    list: Vec<String>,
    seen: BTreeSet<String>,
    is_full: bool,
}

impl Runs {
    fn add(&mut self, run: &str) {
        if run.len() > MOST_ID || self.seen.contains(run) {
            return;
        }
        self.is_full = self.list.len() == MOST_RUNS;
        if !self.is_full {
            self.seen.insert(run.to_owned());
            self.list.push(run.to_owned());
        }
    }
}
