//! The report's writer: an agent with the react strategy and two tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use uap_agent::{
    Agent, AgentOptions, AgentState, AgentStreamEvent, EventData, ReactOptions, Runtime, agent,
    react,
};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use upp::{FnTool, LlmModel, Reply, ScriptedModel, Tool, ToolError, json_text, object};

use super::checkpoints::FileCheckpoints;
use super::clock::RuntimeClock;
use super::findings::Findings;
use super::fleet::Check;
use super::output::AgentPart;
use super::screen::{Screen, Who};
use super::sections::{SECTIONS, section};
use super::step_id::{self, Cause};
use super::step_words::{self, DONE, WRITES_REPORT};
use super::stores::{Store, open_journal};
use super::trace::OpenSpan;

/// The name of the strategy in the output.
const STRATEGY: &str = "react";
/// The session of the report's agent.
const SESSION: &str = "report";
/// Steps after which a real model has had its say.
const MAX_STEPS: u64 = 12;

/// Writes the report: by script, or with a real model.
pub struct Writer {
    model: Option<Arc<dyn LlmModel>>,
    checkpoints: FileCheckpoints,
    journals: PathBuf,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("real", &self.model.is_some())
            .finish()
    }
}

impl Writer {
    /// A writer with the model of a name, whose key is in the environment; without a name it works by script.
    ///
    /// Its agent's checkpoints live below `state`; each mission replaces those of the one before. So do the journals of its
    /// runs, of which the last few are kept.
    pub fn new(model: Option<&str>, state: &Path) -> Result<Self, String> {
        let checkpoints = FileCheckpoints::new(state.join("checkpoints"));
        let model = model.map(real).transpose()?;
        Ok(Self {
            model,
            checkpoints,
            journals: state.join(Store::Journals.name()),
        })
    }

    /// Writes the report on findings and their check.
    pub async fn write(
        &self,
        findings: &Findings,
        check: &Check,
        screen: &Screen,
        cause: &Cause,
    ) -> Result<(String, AgentPart), String> {
        let desk = Arc::new(Desk {
            findings: findings.clone(),
            check: *check,
            written: Mutex::default(),
        });
        let agent = self.agent(&desk)?;
        let (id, task) = (step_id::run(agent.id()), step_id::task(&cause.task));
        let open = screen
            .trace()
            .begin(Who::Agent, id, Some(&task), WRITES_REPORT);
        let written = self.run(&agent, &desk, screen, cause).await;
        open.end_with(&written);
        written
    }

    fn agent(&self, desk: &Arc<Desk>) -> Result<Agent, String> {
        let model: Arc<dyn LlmModel> = match &self.model {
            Some(model) => Arc::clone(model),
            None => Arc::new(script().map_err(|err| err.to_string())?),
        };
        let ids = IdSource::from_os().map_err(|err| err.to_string())?;
        let strategy = react(ReactOptions::default().with_max_steps(MAX_STEPS))
            .map_err(|err| err.to_string())?;
        let options = AgentOptions::new(model)
            .with_runtime(Runtime::new(Arc::new(RuntimeClock::default()), ids))
            .with_system(SYSTEM)
            .with_tools(tools(desk).map_err(|err| err.to_string())?)
            .with_checkpoints(Arc::new(self.checkpoints.clone()))
            .with_session_id(SESSION)
            .with_execution(strategy);
        agent(options).map_err(|err| err.to_string())
    }

    async fn run(
        &self,
        agent: &Agent,
        desk: &Desk,
        screen: &Screen,
        cause: &Cause,
    ) -> Result<(String, AgentPart), String> {
        let journal = open_journal(&self.journals, &cause.run)?;
        let state = of_task(&agent.initial_state(), cause)?;
        let mut run = agent.record(Arc::new(journal), "Write the report of this audit.", &state);
        let (run_step, mut steps, mut open) = (step_id::run(agent.id()), 0, None);
        while let Some(event) = run.next().await {
            if let AgentStreamEvent::Uap(event) = event {
                if event.step != steps {
                    end(open.take());
                    let id = step_id::step(agent.id(), event.step);
                    let name = step_words::agent_step(event.step);
                    let trace = screen.trace();
                    open = Some(trace.begin(Who::Agent, id, Some(&run_step), name));
                }
                steps = event.step;
                tell(screen, event.step, &event.data);
            }
        }
        end(open);
        let turn = run
            .result()
            .await
            .map_err(|err| format!("the report's agent: {err}"))?
            .turn;
        let part = AgentPart {
            strategy: STRATEGY.to_owned(),
            steps,
            tool_calls: turn.tool_executions.len() as u64,
            input_tokens: turn.usage.input_tokens,
            output_tokens: turn.usage.output_tokens,
        };
        let remarks = self.model.is_some().then(|| turn.response.text());
        Ok((desk.report(remarks.as_deref()), part))
    }
}

/// A state that names the task that its run is for.
fn of_task(state: &AgentState, cause: &Cause) -> Result<AgentState, String> {
    let mut ids = IdSource::from_os().map_err(|err| err.to_string())?;
    let members = [("correlationId", &cause.run), ("taskId", &cause.task)];
    members.iter().try_fold(state.clone(), |state, (name, id)| {
        let id = RawBuf::from_serialize(id).map_err(|err| err.to_string())?;
        Ok(state.with_metadata(&mut ids, *name, id))
    })
}

fn end(step: Option<OpenSpan>) {
    if let Some(step) = step {
        step.end(DONE);
    }
}

/// The model of a name, whose key is in the environment.
#[cfg(feature = "model")]
fn real(name: &str) -> Result<Arc<dyn LlmModel>, String> {
    use ubos_common::secret::Secret;
    use upp::transport::{OpenAiModel, ProviderConfig};

    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let key = variable("OPENAI_API_KEY")
        .ok_or_else(|| format!("--model {name} needs a key: set OPENAI_API_KEY, and OPENAI_BASE_URL for another provider"))?;
    let mut config = ProviderConfig::default().with_key(Secret::new(key));
    if let Some(url) = variable("OPENAI_BASE_URL") {
        config = config.with_base_url(url);
    }
    let model = OpenAiModel::new(name, config).map_err(|err| format!("--model {name}: {err}"))?;
    Ok(Arc::new(model))
}

#[cfg(not(feature = "model"))]
fn real(name: &str) -> Result<Arc<dyn LlmModel>, String> {
    Err(format!(
        "--model {name} needs another build: cargo run -p mission --features model"
    ))
}

const SYSTEM: &str = "You write the report of an audit of a folder of source text. First call read_figures. Then call \
add_section once for each section that the figures give reason for; their names are summary, languages, largest, notes, \
duplicates and secrets. End with two or three sentences on what stands out. Do not repeat the lists.";

fn tell(screen: &Screen, step: u64, data: &EventData) {
    match data {
        EventData::Reasoning(text) => {
            screen.say(Who::Agent, format!("step {step}: {}", first_line(text)))
        }
        EventData::ToolCalls(calls) => {
            let names: Vec<&str> = calls.iter().map(|call| call.tool_name.as_ref()).collect();
            screen.say(
                Who::Agent,
                format!("step {step}: calls {}", names.join(", ")),
            );
        }
        _ => {}
    }
}

fn first_line(text: &str) -> String {
    const SHOWN: usize = 100;
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(SHOWN)
        .collect()
}

/// What the scripted model says: a thought and an action a step.
fn script() -> Result<ScriptedModel, ToolError> {
    let sections = SECTIONS
        .iter()
        .enumerate()
        .try_fold(Reply::default(), |reply, (n, name)| {
            let arguments = object(&json!({ "name": name }).to_string())?;
            Ok::<_, ToolError>(reply.calling(format!("section-{n}"), "add_section", arguments))
        })?;
    Ok(ScriptedModel::new([
        Reply::text("The figures come first."),
        Reply::default().calling("figures", "read_figures", object("{}")?),
        Reply::text("Every section has something to say, if only that there is nothing."),
        sections,
        Reply::text("The report is whole."),
        Reply::text("The report is written."),
    ]))
}

/// What the tools work on.
struct Desk {
    findings: Findings,
    check: Check,
    written: Mutex<Vec<(&'static str, String)>>,
}

#[derive(Deserialize)]
struct SectionName {
    name: String,
}

fn tools(desk: &Arc<Desk>) -> Result<[Arc<dyn Tool>; 2], ToolError> {
    let (reading, writing) = (Arc::clone(desk), Arc::clone(desk));
    let nothing = object(r#"{"type":"object","properties":{},"additionalProperties":false}"#)?;
    let read = FnTool::new(
        "read_figures",
        "The audit's figures",
        nothing,
        move |_, _| {
            let figures = reading.figures();
            async move { figures }
        },
    );
    let names = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "enum": SECTIONS } },
        "required": ["name"],
    });
    let add = FnTool::new(
        "add_section",
        "Adds a section to the report",
        object(&names.to_string())?,
        move |arguments, _| {
            let added = arguments
                .deserialize::<SectionName>()
                .map_err(|_| ToolError::from("the name of a section is wanted"))
                .and_then(|section| writing.add(&section.name));
            async move { added }
        },
    );
    Ok([Arc::new(read), Arc::new(add)])
}

impl Desk {
    fn figures(&self) -> Result<RawBuf, ToolError> {
        let Findings {
            figures,
            notes,
            duplicates,
            secrets,
            ..
        } = &self.findings;
        let value = json!({
            "files": figures.files,
            "lines": figures.lines,
            "bytes": figures.bytes,
            "languages": figures.languages,
            "unreadable": figures.unreadable.len() as u64 + figures.more_unreadable,
            "notes": notes.len() as u64 + self.findings.more_notes,
            "duplicates": duplicates.len() as u64 + self.findings.more_duplicates,
            "secrets": secrets.len() as u64 + self.findings.more_secrets,
            "recounted": { "files": self.check.count.files, "lines": self.check.count.lines, "bytes": self.check.count.bytes },
        });
        RawBuf::from_serialize(&value).map_err(|err| err.to_string().into())
    }

    fn add(&self, name: &str) -> Result<RawBuf, ToolError> {
        let known = SECTIONS.into_iter().find(|known| *known == name);
        let (Some(known), Some(text)) = (known, section(name, &self.findings, &self.check)) else {
            return Err(format!("sections are {}", SECTIONS.join(", ")).into());
        };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.iter().any(|(other, _)| *other == known) {
            return Err(format!("{known} is in the report already").into());
        }
        written.push((known, text));
        Ok(json_text("added"))
    }

    /// The sections in their order, whatever the order in which they were written, and the writer's remarks.
    fn report(&self, remarks: Option<&str>) -> String {
        let mut written = self
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        written.sort_by_key(|(name, _)| SECTIONS.iter().position(|section| section == name));
        let mut parts: Vec<String> = written.into_iter().map(|(_, text)| text).collect();
        if let Some(remarks) = remarks.filter(|text| !text.trim().is_empty()) {
            parts.push(format!("## Remarks\n\n{}\n", remarks.trim()));
        }
        parts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_scripted_agent_writes_every_section_by_tools() {
        let state = tempfile::tempdir().unwrap();
        let writer = Writer::new(None, state.path()).unwrap();
        let (report, part) = writer
            .write(
                &Findings::default(),
                &Check::default(),
                &Screen::new(true),
                &Cause::new("run", "task"),
            )
            .await
            .unwrap();
        for title in [
            "# Audit",
            "## Languages",
            "## Largest",
            "## Notes",
            "## Duplicates",
            "## Secrets",
        ] {
            assert!(report.contains(title), "{report}");
        }
        assert_eq!(
            (part.strategy.as_str(), part.steps, part.tool_calls),
            ("react", 3, 7)
        );
        assert!(part.input_tokens > 0 && part.output_tokens > 0);
        assert!(
            state
                .path()
                .join("checkpoints/report/checkpoint.json")
                .exists()
        );
    }

    #[test]
    fn a_section_is_written_once_and_in_its_place() {
        let desk = Desk {
            findings: Findings::default(),
            check: Check::default(),
            written: Mutex::default(),
        };
        assert!(desk.add("notes").is_ok() && desk.add("summary").is_ok());
        assert!(desk.add("notes").is_err() && desk.add("poem").is_err());
        let report = desk.report(Some(" done "));
        assert!(
            report.find("# Audit") < report.find("## Notes")
                && report.ends_with("## Remarks\n\ndone\n"),
            "{report}"
        );
    }
}
