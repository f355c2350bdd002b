//! Checks that a run which is interrupted and resumed ends like one that is not.

use core::future::poll_fn;
use core::task::Poll;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uap_agent::engine::Input;
use uap_agent::journal::{Journal, JournalError, MemoryJournal, Recording};
use uap_agent::{Agent, AgentError, AgentOptions, GenerateResult, agent};
use ubos_common::json::{RawObject, to_string};
use upp::{CancelToken, Tool, UppError};

use super::interruption::Interruption;
use super::monitor::{Calls, InterruptedJournal, MonitoredModel, MonitoredTool};

/// What [`check_resume`] has tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeReport {
    /// Entries of the run that was not interrupted.
    pub entries: usize,
    /// Runs that were interrupted and resumed.
    pub interruptions: usize,
    /// Tool calls that were repeated: they had started, and their results were not recorded.
    pub repeated_tools: usize,
}

/// A fault of a resumed run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeFault {
    /// The agent could not be created.
    #[error("the agent could not be created: {0}")]
    Agent(UppError),
    /// The journal refused an operation.
    #[error("interrupted {interruption}: {error}")]
    Journal {
        /// Where the run was interrupted.
        interruption: Interruption,
        /// The error of the journal.
        #[source]
        error: JournalError,
    },
    /// The run ended with another result.
    #[error("interrupted {interruption}: the result differs from that of the uninterrupted run")]
    Result {
        /// Where the run was interrupted.
        interruption: Interruption,
        /// The result of the uninterrupted run, as JSON.
        wanted: String,
        /// The result of the resumed run, as JSON.
        seen: String,
    },
    /// The journal of the resumed run differs.
    #[error(
        "interrupted {interruption}: entry {entry} of the journal differs from that of the uninterrupted run"
    )]
    Entries {
        /// Where the run was interrupted.
        interruption: Interruption,
        /// The first entry that differs.
        entry: usize,
    },
    /// A tool ran again although its result was recorded.
    #[error(
        "interrupted {interruption}: tool call {call} ran again although its result was recorded"
    )]
    RanAgain {
        /// Where the run was interrupted.
        interruption: Interruption,
        /// The id of the call.
        call: String,
    },
    /// A tool or the model was called before the request was recorded. The call would be repeated unnoticed.
    #[error(
        "interrupted {interruption}: a tool or the model was called before the request was recorded"
    )]
    Unrecorded {
        /// Where the run was interrupted.
        interruption: Interruption,
    },
    /// The model was called again although its response was recorded.
    #[error(
        "interrupted {interruption}: the model was called {seen} times where {wanted} responses were missing"
    )]
    CalledAgain {
        /// Where the run was interrupted.
        interruption: Interruption,
        /// Missing responses.
        wanted: usize,
        /// Calls of the model.
        seen: usize,
    },
}

/// Interrupts a run at every place, resumes it, and compares the results.
///
/// The run is cut after each entry of its journal, and its process ends at each write, once before the write is done and
/// once after. Each time it is resumed by a new agent. It must end with the same result, ids included, and leave the same
/// journal. No tool whose result was recorded may run again, and no recorded response of the model may be requested again.
///
/// `options` must return the same options each time: ids from one seed, a clock that stands still, a model whose responses
/// depend on the request only, and tools that return the same result at once.
///
/// # Errors
///
/// The first fault, and where the run was interrupted.
pub async fn check_resume(
    options: impl Fn() -> AgentOptions,
    input: &str,
) -> Result<ResumeReport, ResumeFault> {
    let runner = Runner { options, input };
    let journal = Arc::new(MemoryJournal::default());
    let (agent, _) = runner.agent()?;
    let state = agent.initial_state();
    let result = agent.record(journal.clone(), input, &state).result().await;
    let entries = read(&journal, Interruption::After(0)).await?;
    let mut report = ResumeReport {
        entries: entries.len(),
        ..ResumeReport::default()
    };
    let interruption = Interruption::After(entries.len());
    let recording = Recording::from_entries(&entries);
    let recording = recording.map_err(|error| ResumeFault::Journal {
        interruption,
        error,
    })?;
    let expected = Expected {
        result: result_text(&result),
        entries,
        responses: RecordedWork::of(&recording).responses,
    };
    for count in 1..=expected.entries.len() {
        let kept = expected.entries.get(..count).unwrap_or_default();
        let interruption = Interruption::After(count);
        runner
            .resume(interruption, kept, &expected, &mut report)
            .await?;
    }
    for nth in 0.. {
        let mut reached = false;
        for interruption in [
            Interruption::BeforeWrite(nth),
            Interruption::AfterWrite(nth),
        ] {
            if let Some(kept) = runner.interrupt(interruption).await? {
                reached = true;
                // Before the first write there is no run to resume.
                if !kept.is_empty() {
                    runner
                        .resume(interruption, &kept, &expected, &mut report)
                        .await?;
                }
            }
        }
        if !reached {
            break;
        }
    }
    Ok(report)
}

/// What the uninterrupted run left.
struct Expected {
    result: String,
    entries: Vec<RawObject>,
    /// Responses of the model.
    responses: usize,
}

struct Runner<'a, F> {
    options: F,
    input: &'a str,
}

impl<F: Fn() -> AgentOptions> Runner<'_, F> {
    /// A new agent, and the calls that it makes.
    fn agent(&self) -> Result<(Agent, Arc<Calls>), ResumeFault> {
        let calls = Arc::new(Calls::default());
        let monitored = |tool: &Arc<dyn Tool>| -> Arc<dyn Tool> {
            let (tool, calls) = (Arc::clone(tool), Arc::clone(&calls));
            Arc::new(MonitoredTool { tool, calls })
        };
        let options = (self.options)().map_llm(|llm| {
            let tools: Vec<_> = llm.tools().tools.iter().map(monitored).collect();
            let model = MonitoredModel {
                model: Arc::clone(llm.model()),
                calls: Arc::clone(&calls),
            };
            llm.with_tools(tools).with_model(Arc::new(model))
        });
        Ok((agent(options).map_err(ResumeFault::Agent)?, calls))
    }

    /// The journal of a run whose process ends at a write; `None` where the run ends before that write.
    async fn interrupt(
        &self,
        interruption: Interruption,
    ) -> Result<Option<Vec<RawObject>>, ResumeFault> {
        let kept = Arc::new(MemoryJournal::default());
        let journal = Arc::new(InterruptedJournal {
            kept: Arc::clone(&kept),
            interruption,
            writes: Mutex::new(0),
            ended: CancelToken::default(),
        });
        let (agent, calls) = self.agent()?;
        let state = agent.initial_state();
        let run = agent.record(journal.clone(), self.input, &state);
        let mut result = Box::pin(run.result());
        let mut ended = Box::pin(journal.ended.cancelled());
        let was_interrupted = poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let has_result = result.as_mut().poll(cx).is_ready();
            // The poll above may have reached the write.
            if journal.ended.is_cancelled() {
                return Poll::Ready(true);
            }
            if has_result {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await;
        drop(result);
        if !was_interrupted {
            return Ok(None);
        }
        let kept = read(&kept, interruption).await?;
        let (tools, inferences) = requests(&kept);
        if calls.tools().len() > tools || calls.requests() > inferences {
            return Err(ResumeFault::Unrecorded { interruption });
        }
        Ok(Some(kept))
    }

    async fn resume(
        &self,
        interruption: Interruption,
        kept: &[RawObject],
        expected: &Expected,
        report: &mut ResumeReport,
    ) -> Result<(), ResumeFault> {
        let failed = |error| ResumeFault::Journal {
            interruption,
            error,
        };
        let recording = Recording::from_entries(kept).map_err(failed)?;
        let journal = Arc::new(MemoryJournal::default());
        journal.append(0, kept.to_vec()).await.map_err(failed)?;
        let (agent, calls) = self.agent()?;
        let run = agent.resume(journal.clone()).await.map_err(failed)?;
        let seen = result_text(&run.result().await);
        report.interruptions += 1;
        if seen != expected.result {
            let wanted = expected.result.clone();
            return Err(ResumeFault::Result {
                interruption,
                wanted,
                seen,
            });
        }
        let entries = read(&journal, interruption).await?;
        // Resumptions are recorded, and have no counterpart in the uninterrupted run: `to_entries` leaves them out.
        let entries = Recording::from_entries(&entries).map_err(failed)?;
        let entries = entries.to_entries();
        let mut pairs = entries.iter().zip(&expected.entries);
        let differs = pairs.position(|(seen, wanted)| seen != wanted);
        if differs.is_some() || entries.len() != expected.entries.len() {
            let entry = differs.unwrap_or(entries.len());
            return Err(ResumeFault::Entries {
                interruption,
                entry,
            });
        }
        let done = RecordedWork::of(&recording);
        if let Some(call) = calls.tools().into_iter().find(|id| done.tools.contains(id)) {
            return Err(ResumeFault::RanAgain { interruption, call });
        }
        let outstanding = recording.outstanding();
        report.repeated_tools += outstanding
            .iter()
            .filter(|effect| effect.kind == "tool")
            .count();
        let wanted = expected.responses.saturating_sub(done.responses);
        let seen = calls.requests();
        if wanted != seen {
            return Err(ResumeFault::CalledAgain {
                interruption,
                wanted,
                seen,
            });
        }
        Ok(())
    }
}

/// The work whose results are recorded.
struct RecordedWork {
    /// Ids of tool calls.
    tools: BTreeSet<String>,
    /// Responses of the model.
    responses: usize,
}

impl RecordedWork {
    fn of(recording: &Recording) -> Self {
        let mut work = Self {
            tools: BTreeSet::new(),
            responses: 0,
        };
        for effect in recording.effects() {
            match recording.answer(effect.effect) {
                Some(Input::Tool(_, execution, _)) => {
                    work.tools.insert(execution.tool_call_id.to_string());
                }
                Some(_) if effect.kind == "infer" => work.responses += 1,
                _ => {}
            }
        }
        work
    }
}

/// How many tool calls and inferences are requested.
fn requests(entries: &[RawObject]) -> (usize, usize) {
    // A journal without entries holds no run.
    let recording = Recording::from_entries(entries).ok();
    let count = |kind: &str| {
        let effects = recording.iter().flat_map(Recording::effects);
        effects.filter(|effect| effect.kind == kind).count()
    };
    (count("tool"), count("infer"))
}

async fn read(
    journal: &Arc<MemoryJournal>,
    interruption: Interruption,
) -> Result<Vec<RawObject>, ResumeFault> {
    let read = journal.read().await;
    read.map_err(|error| ResumeFault::Journal {
        interruption,
        error,
    })
}

/// The result of a run, as JSON.
fn result_text(result: &Result<GenerateResult, Box<AgentError>>) -> String {
    match result {
        Ok(result) => format!("{}{}", to_string(&result.turn), result.state.to_json()),
        Err(error) => {
            let turn = to_string(&error.turn);
            format!("{}{}{turn}", to_string(&error.error), error.state.to_json())
        }
    }
}
