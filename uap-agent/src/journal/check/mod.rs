//! What every agent that is resumed must hold to, for who writes strategies, middleware or journals.

mod keeps;
mod watch;

use core::future::poll_fn;
use core::task::Poll;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ubos_common::json::{RawObject, to_string};
use upp::{CancelToken, Tool, UppError};

pub use keeps::{JournalFault, check_journal};
use watch::{CutJournal, Seen, WatchedModel, WatchedTool};

use super::answer::{EffectResult, ErrorJson, ResultJson, object};
use super::entry::{Entry, Kind};
use super::recording::limits;
use super::{Journal, JournalError, MemoryJournal, Recording};
use crate::agent::{Agent, AgentOptions, agent};

use crate::result::{AgentError, GenerateResult};

/// What [`check_resume`] has tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeCheck {
    /// Entries of the run that nobody broke off.
    pub entries: usize,
    /// Runs that were broken off and resumed.
    pub cuts: usize,
    /// Tool calls that were asked for again: they had run, or begun to, and their answers were not recorded.
    pub tools_again: usize,
}

/// What a run that was resumed got wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeFault {
    /// The agent cannot be made.
    #[error("no agent: {0}")]
    Agent(UppError),
    /// The journal refused.
    #[error("cut at {cut}: {error}")]
    Journal {
        /// Where the run was cut.
        cut: Cut,
        /// Why.
        #[source]
        error: JournalError,
    },
    /// The run came to another end.
    #[error("cut at {cut}: the run came to another end than the one that was not cut")]
    Result {
        /// Where the run was cut.
        cut: Cut,
        /// The end of the run that was not cut, as JSON.
        wanted: String,
        /// The end of this one.
        seen: String,
    },
    /// The journal of the run that was resumed is not that of the one that was not cut.
    #[error(
        "cut at {cut}: the journal differs from that of the run that was not cut, at entry {entry}"
    )]
    Entries {
        /// Where the run was cut.
        cut: Cut,
        /// The first entry that differs.
        entry: usize,
    },
    /// A tool ran again although its answer was recorded.
    #[error("cut at {cut}: tool call {call} ran again although its answer was recorded")]
    RanAgain {
        /// Where the run was cut.
        cut: Cut,
        /// The model's name for the call.
        call: String,
    },
    /// Something was done that no entry asks for: it would be done again, and nobody would know.
    #[error("cut at {cut}: a tool or the model was called before the journal knew of it")]
    Unwritten {
        /// Where the run was cut.
        cut: Cut,
    },
    /// The model was asked again although its answer was recorded.
    #[error("cut at {cut}: the model was asked {seen} times where {wanted} answers were missing")]
    AskedAgain {
        /// Where the run was cut.
        cut: Cut,
        /// Answers that were missing.
        wanted: usize,
        /// Questions.
        seen: usize,
    },
}

/// Where a run was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Behind so many entries.
    Behind(usize),
    /// The process ended when something was to be written for the nth time, from 0, and was not.
    Before(usize),
    /// The process ended when something was written for the nth time, before anybody knew.
    After(usize),
}

impl core::fmt::Display for Cut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Behind(n) => write!(f, "{n} entries"),
            Self::Before(n) => write!(f, "write {n}, not done"),
            Self::After(n) => write!(f, "write {n}, done"),
        }
    }
}

/// Breaks a run off at every place, resumes it, and compares.
///
/// The run is cut behind each entry of its journal, and its process is ended at each write, once before it is done and
/// once after. Each time it is resumed by an agent made anew; it must come to the same end, ids and all, and leave the
/// same journal; no tool whose answer was recorded may run again, and no recorded answer of the model be asked for again.
///
/// The options must be the same each time: ids from one seed, a clock that stands still, a model that answers by what it
/// is asked and not by how often, tools that give the same again and are ready at once.
///
/// # Errors
///
/// The first thing that is wrong, and at which cut.
// impl: UAP-12-5
pub async fn check_resume(
    options: impl Fn() -> AgentOptions,
    input: &str,
) -> Result<ResumeCheck, ResumeFault> {
    let bench = Bench { options, input };
    let journal = Arc::new(MemoryJournal::default());
    let (agent, _) = bench.agent()?;
    let state = agent.initial_state();
    let result = agent.record(journal.clone()).generate(input, &state).await;
    let whole = entries(&journal, Cut::Behind(0)).await?;
    let mut report = ResumeCheck {
        entries: whole.len(),
        ..ResumeCheck::default()
    };
    let cut = Cut::Behind(whole.len());
    let recording = Recording::from_entries(&whole);
    let recording = recording.map_err(|error| ResumeFault::Journal { cut, error })?;
    let wanted = Wanted {
        result: told(&result),
        entries: whole,
        answers: Done::of(&recording).answers,
    };
    for count in 1..=wanted.entries.len() {
        let (cut, kept) = (Cut::Behind(count), wanted.entries.get(..count));
        bench
            .resume(cut, kept.unwrap_or_default(), &wanted, &mut report)
            .await?;
    }
    for nth in 0.. {
        let mut reached = false;
        for cut in [Cut::Before(nth), Cut::After(nth)] {
            if let Some(kept) = bench.cut(cut).await? {
                reached = true;
                // Before anything was written there is no run.
                if !kept.is_empty() {
                    bench.resume(cut, &kept, &wanted, &mut report).await?;
                }
            }
        }
        if !reached {
            break;
        }
    }
    Ok(report)
}

/// The run that nobody broke off.
struct Wanted {
    result: String,
    entries: Vec<RawObject>,
    /// Of the model.
    answers: usize,
}

struct Bench<'a, F> {
    options: F,
    input: &'a str,
}

impl<F: Fn() -> AgentOptions> Bench<'_, F> {
    fn agent(&self) -> Result<(Agent, Arc<Seen>), ResumeFault> {
        let seen = Arc::new(Seen::default());
        let mut options = (self.options)();
        let watched = |tool: &Arc<dyn Tool>| -> Arc<dyn Tool> {
            let (tool, seen) = (Arc::clone(tool), Arc::clone(&seen));
            Arc::new(WatchedTool { tool, seen })
        };
        options.llm.tools.tools = options.llm.tools.tools.iter().map(watched).collect();
        let model = Arc::clone(&options.llm.model);
        let watched = WatchedModel {
            model,
            seen: Arc::clone(&seen),
        };
        options.llm.model = Arc::new(watched);
        Ok((agent(options).map_err(ResumeFault::Agent)?, seen))
    }

    /// What is in the journal of a run whose process ended at a write; none where the run ended before.
    async fn cut(&self, cut: Cut) -> Result<Option<Vec<RawObject>>, ResumeFault> {
        let kept = Arc::new(MemoryJournal::default());
        let journal = Arc::new(CutJournal {
            kept: Arc::clone(&kept),
            cut,
            writes: Mutex::new(0),
            ended: CancelToken::new(),
        });
        let (agent, seen) = self.agent()?;
        let state = agent.initial_state();
        let run = agent.record(journal.clone()).stream(self.input, &state);
        let mut result = Box::pin(run.result());
        let mut ended = Box::pin(journal.ended.cancelled());
        let was_cut = poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let done = result.as_mut().poll(cx).is_ready();
            // The run may have come to the cut just now.
            if journal.ended.is_cancelled() {
                return Poll::Ready(true);
            }
            if done {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await;
        drop(result);
        if !was_cut {
            return Ok(None);
        }
        let kept = entries(&kept, cut).await?;
        if seen.tools().len() > asked(&kept, Kind::Tool)
            || seen.questions() > asked(&kept, Kind::Infer)
        {
            return Err(ResumeFault::Unwritten { cut });
        }
        Ok(Some(kept))
    }

    async fn resume(
        &self,
        cut: Cut,
        kept: &[RawObject],
        wanted: &Wanted,
        report: &mut ResumeCheck,
    ) -> Result<(), ResumeFault> {
        let failed = |error| ResumeFault::Journal { cut, error };
        let recording = Recording::from_entries(kept).map_err(failed)?;
        let journal = Arc::new(MemoryJournal::default());
        journal.append(0, kept.to_vec()).await.map_err(failed)?;
        let (agent, seen) = self.agent()?;
        let run = agent.resume(journal.clone()).await.map_err(failed)?;
        let result = told(&run.result().await);
        report.cuts += 1;
        if result != wanted.result {
            let wanted = wanted.result.clone();
            return Err(ResumeFault::Result {
                cut,
                wanted,
                seen: result,
            });
        }
        let entries = entries(&journal, cut).await?;
        // That it was resumed is in its journal, and in that of the run that was not cut it is not.
        let entries = Recording::from_entries(&entries).map_err(failed)?;
        let entries = entries.to_entries();
        let mut pairs = entries.iter().zip(&wanted.entries);
        let differs = pairs.position(|(seen, wanted)| seen != wanted);
        if differs.is_some() || entries.len() != wanted.entries.len() {
            let entry = differs.unwrap_or(entries.len());
            return Err(ResumeFault::Entries { cut, entry });
        }
        let done = Done::of(&recording);
        let ran = seen.tools();
        if let Some(call) = ran.iter().find(|call| done.tools.contains(*call)) {
            let call = call.clone();
            return Err(ResumeFault::RanAgain { cut, call });
        }
        let outstanding = recording.outstanding();
        report.tools_again += outstanding
            .iter()
            .filter(|asked| asked.kind == "tool")
            .count();
        let missing = wanted.answers.saturating_sub(done.answers);
        let (wanted, seen) = (missing, seen.questions());
        if wanted != seen {
            return Err(ResumeFault::AskedAgain { cut, wanted, seen });
        }
        Ok(())
    }
}

/// What is recorded as done.
struct Done {
    tools: BTreeSet<String>,
    /// Of the model.
    answers: usize,
}

impl Done {
    fn of(recording: &Recording) -> Self {
        let mut done = Self {
            tools: BTreeSet::new(),
            answers: 0,
        };
        for entry in &recording.entries {
            let Entry::Answer(told) = entry else { continue };
            match &told.said {
                EffectResult::Tool(execution, _) => {
                    done.tools.insert(execution.tool_call_id.to_string());
                }
                said => done.answers += usize::from(said.kind() == Some(Kind::Infer.as_str())),
            }
        }
        done
    }
}

/// How many questions of a kind are written.
fn asked(entries: &[RawObject], kind: Kind) -> usize {
    let limits = limits();
    let entries = (0..).zip(entries);
    let is_asked = |(n, entry)| match Entry::read_at(n, entry, &limits) {
        Ok(Entry::Effect(asked)) => asked.kind == kind,
        _ => false,
    };
    entries.filter(|entry| is_asked(*entry)).count()
}

async fn entries(journal: &Arc<MemoryJournal>, cut: Cut) -> Result<Vec<RawObject>, ResumeFault> {
    let read = journal.read().await;
    read.map_err(|error| ResumeFault::Journal { cut, error })
}

/// The end of a run, as JSON.
fn told(result: &Result<GenerateResult, Box<AgentError>>) -> String {
    match result {
        Ok(result) => to_string(&ResultJson::of(result)),
        Err(error) => {
            let turn = to_string(&error.turn);
            let error_json = object(&ErrorJson::of(&error.error));
            format!("{}{}{turn}", error_json.as_str(), error.state.to_json())
        }
    }
}
