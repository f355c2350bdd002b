//! The program that proves the kit of resumed runs: an agent of `uap-agent` with its journal and checkpoints in files, or in a
//! database.
//!
//! The variable `UAP_RESUME_MUTANT` names the property that it breaks; `once-paid` breaks it behind the pause alone, `late`
//! and `unreadable` by telling the one reason as the other.

use core::fmt::Display;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::BufRead as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use futures::executor::block_on;
use futures_core::future::BoxFuture;
use uap_agent::engine::Input;
use uap_agent::journal::{
    Decision, DecisionError, Journal, JournalError, Ownership, Paused, Recording, Verdict,
};
use uap_agent::{
    Agent, AgentOptions, AgentState, ApprovalPolicy, ApprovalRequest, CheckpointError,
    GenerateResult, Runtime, agent,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::{RawObject, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_conformance::uap::MARK;
use upp::{
    FnTool, LlmRequest, Message, Reply, ScriptedModel, Tool, ToolCall, UppError, json_text, object,
};

use super::resume_owner::own;
use super::resume_store::{checkpoints, journal, locks_runs};

/// The session of the checkpoints, but for those of the other run.
const SESSION: &str = "run";

/// The exit codes of the kit.
const PAUSED: u8 = 10;
const LATE: u8 = 11;
const DIFFERS: u8 = 12;
const UNREADABLE: u8 = 13;

/// Is the program under test, where it was started as such.
pub(super) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|word| word == "uap-resume-agent")?;
    let arguments: Vec<OsString> = arguments.collect();
    Some(ExitCode::from(
        run(&arguments).unwrap_or_else(|stop| stop.tell()),
    ))
}

/// Why a verb was not carried out.
pub(super) enum Stop {
    /// Another process owns the run, or the question was answered.
    Late(String),
    Differs(String),
    Unreadable(String),
    Unknown,
}

impl Stop {
    pub(super) fn unreadable(error: &dyn Display) -> Self {
        Self::Unreadable(error.to_string())
    }

    fn tell(self) -> u8 {
        match self {
            Self::Late(why) => {
                say(&format!("refused {why}"));
                if is_mutant("late") { UNREADABLE } else { LATE }
            }
            Self::Differs(what) => {
                say(&format!("differs {what}"));
                DIFFERS
            }
            Self::Unreadable(why) => {
                say(&format!("refused {why}"));
                if is_mutant("unreadable") {
                    LATE
                } else {
                    UNREADABLE
                }
            }
            Self::Unknown => super::UNKNOWN.try_into().unwrap_or(u8::MAX),
        }
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        let why = error.to_string();
        match error {
            JournalError::Differs { .. } | JournalError::Program { .. } => Self::Differs(why),
            JournalError::InUse
            | JournalError::Conflict { .. }
            | JournalError::Leased { .. }
            | JournalError::Superseded { .. } => Self::Late(why),
            _ => Self::Unreadable(why),
        }
    }
}

impl From<CheckpointError> for Stop {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::InUse | CheckpointError::Conflict { .. } => {
                Self::Late(error.to_string())
            }
            error => Self::unreadable(&error),
        }
    }
}

/// Why a run has ended with an error.
fn stopped(error: &UppError) -> Stop {
    let cause = error.cause.as_deref();
    let journal = cause.and_then(|cause| cause.downcast_ref::<JournalError>());
    match journal {
        Some(error) => error.clone().into(),
        None => Stop::unreadable(error),
    }
}

fn say(line: &str) {
    // A line of its own, whatever a text holds.
    let line = format!("{MARK}{}\n", line.replace('\n', " "));
    // Who reads it may have gone; nothing else is done then.
    let _ = super::out::print(&line);
}

fn is_mutant(property: &str) -> bool {
    std::env::var_os("UAP_RESUME_MUTANT").is_some_and(|mutant| mutant == property)
}

fn run(arguments: &[OsString]) -> Result<u8, Stop> {
    let (Some(verb), Some(folder)) = (arguments.first(), arguments.get(1)) else {
        return Err(Stop::Unknown);
    };
    let (folder, rest) = (Path::new(folder), arguments.get(2..).unwrap_or_default());
    let text = |n: usize| {
        rest.get(n)
            .and_then(|word| word.to_str())
            .unwrap_or_default()
    };
    match verb.to_str() {
        Some("start") => start(folder, SESSION, "go"),
        Some("other") => start(folder, "other", "go elsewhere"),
        Some("resume") => resume(folder, "Work."),
        Some("changed") => resume(folder, "Work, but otherwise."),
        Some("answer") => answer(folder, text(0)),
        Some("record") => record(folder),
        Some("states") => states(folder),
        Some("checkpoint") => last_checkpoint(folder),
        Some("fork") => fork(folder, Path::new(text(0)), text(1).parse().unwrap_or(0)),
        _ => Err(Stop::Unknown),
    }
}

/// Tells the kit of an effect, and waits until it may go on.
fn at(place: &str, key: &str) {
    say(&format!("{place} {key}"));
    let mut line = String::new();
    // The end of the input lets it go on, too.
    let _ = std::io::stdin().lock().read_line(&mut line);
}

/// A clock that stands still, so that two runs are the same.
struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Payments need an approval.
struct Payments;

impl ApprovalPolicy for Payments {
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        (&*call.tool_name == "pay").then(ApprovalRequest::default)
    }
}

/// The number of rounds of tools that a request shows, which is the number of the request.
fn rounds(request: &LlmRequest) -> usize {
    let results = |message: &&Message| matches!(message, Message::ToolResult(_));
    request.messages.iter().filter(results).count()
}

fn reply(request: &LlmRequest) -> Option<Reply> {
    let round = rounds(request);
    let key = format!("model-{round}");
    at("effect", &key);
    let call = |reply: Reply, id: &str, name: &str| {
        Some(reply.calling(id, name, object(&format!(r#"{{"of":"{id}"}}"#)).ok()?))
    };
    let said = match round {
        0 => call(
            call(Reply::text("Two at once."), "look-1", "look")?,
            "look-2",
            "look",
        ),
        1 => call(Reply::text("Now the payment."), "pay-1", "pay"),
        _ => Some(Reply::text("Paid.")),
    };
    at("done", &key);
    said
}

fn tool(name: &'static str) -> Option<Arc<dyn Tool>> {
    let run = |_, context: upp::ToolContext| {
        at("effect", &context.tool_call_id);
        at("done", &context.tool_call_id);
        std::future::ready(Ok(json_text("done")))
    };
    Some(Arc::new(FnTool::new(name, "", object("{}").ok()?, run)))
}

fn program(folder: &Path, system: &str, owner: Option<Ownership>) -> Result<Agent, Stop> {
    program_in(folder, system, owner, SESSION)
}

fn program_in(
    folder: &Path,
    system: &str,
    owner: Option<Ownership>,
    session: &str,
) -> Result<Agent, Stop> {
    let store = checkpoints(folder)?;
    let tools: Vec<_> = ["look", "pay"].into_iter().filter_map(tool).collect();
    let options = AgentOptions::new(Arc::new(ScriptedModel::with(reply)))
        .with_system(system)
        .with_tools(tools)
        .with_approvals(Arc::new(Payments))
        .with_checkpoints(store)
        .with_session_id(session)
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(1)));
    let options = match owner {
        Some(owner) => options.with_ownership(owner),
        None => options,
    };
    agent(options).map_err(|error| Stop::unreadable(&error))
}

/// How the run is owned, where its store does not lock it, and its journal.
fn owned(folder: &Path) -> Result<(Option<Ownership>, Arc<dyn Journal>), Stop> {
    let journal = journal(folder)?;
    if locks_runs() {
        return Ok((None, journal));
    }
    own(folder, journal).map(|(ownership, journal)| (Some(ownership), journal))
}

fn load(folder: &Path) -> Result<Recording, Stop> {
    Ok(block_on(Recording::load(journal(folder)?.as_ref()))?)
}

fn start(folder: &Path, session: &str, input: &str) -> Result<u8, Stop> {
    let (owner, journal) = owned(folder)?;
    let agent = program_in(folder, "Work.", owner, session)?;
    let run = agent.record(journal, input, &agent.initial_state());
    ended(folder, block_on(run.result()))
}

fn resume(folder: &Path, system: &str) -> Result<u8, Stop> {
    let system = match is_mutant("recovery") {
        true => "Work.",
        false => system,
    };
    let (owner, journal) = owned(folder)?;
    let agent = program(folder, system, owner)?;
    if system == "Work."
        && let Some(key) = done_again(&block_on(Recording::load(journal.as_ref()))?)
    {
        at("effect", &key);
        at("done", &key);
    }
    let resumed = block_on(agent.resume(journal));
    if let Err(JournalError::Paused(paused)) = &resumed {
        return Ok(waits(paused));
    }
    let result = block_on(resumed?.result());
    if is_mutant("prefix") {
        // A journal that is written anew loses what stood there.
        let _ = std::fs::write(folder.join("compacted"), "");
    }
    ended(folder, result)
}

/// The recorded effect that a mutant does again: before a person has decided, or behind the payment alone.
fn done_again(recording: &Recording) -> Option<String> {
    let has_decided = |entry: &RawObject| entry.as_str().contains("\"decision\"");
    let keys: Vec<_> = answered(recording).into_iter().flatten().collect();
    let is_wrong = if is_mutant("once") {
        !recording.to_entries().iter().any(has_decided)
    } else {
        is_mutant("once-paid") && keys.last().is_some_and(|key| key == "pay-1")
    };
    keys.into_iter().next().filter(|_| is_wrong)
}

fn waits(paused: &Paused) -> u8 {
    for question in &paused.questions {
        say(&format!("question {}", question.effect));
    }
    PAUSED
}

fn ended(
    folder: &Path,
    result: Result<GenerateResult, Box<uap_agent::AgentError>>,
) -> Result<u8, Stop> {
    let state = match &result {
        Ok(result) => &result.state,
        Err(error) => &error.state,
    };
    let plain = to_string(state);
    if is_mutant("checkpoint") && result.is_ok() {
        let _ = std::fs::write(folder.join("plain"), plain);
    } else if is_mutant("foreign") {
        let digest = digest(&plain);
        let _ = std::fs::write(folder.join("plain"), format!("{digest} {plain}"));
    }
    match result {
        Ok(result) => {
            say(&format!("result {}", result.turn.response.text()));
            Ok(0)
        }
        Err(error) => match Paused::of(&error.error) {
            Some(paused) => Ok(waits(paused)),
            None => Err(stopped(&error.error)),
        },
    }
}

fn answer(folder: &Path, id: &str) -> Result<u8, Stop> {
    let taken = decide(folder, id);
    match is_mutant("consume") {
        true => Ok(0),
        false => taken.map(|()| 0),
    }
}

fn decide(folder: &Path, id: &str) -> Result<(), Stop> {
    let journal = journal(folder)?;
    let recording = block_on(Recording::load(journal.as_ref()))?;
    let questions = recording.questions();
    let question = questions.iter().find(|it| it.effect.to_string() == id);
    let question = question.ok_or_else(|| Stop::Late("no such question is open".to_owned()))?;
    let decision = Decision::new(question, "person", Verdict::Approve);
    let decided = block_on(Recording::decide(journal.as_ref(), Still.now(), &decision));
    decided.map_err(|error| match error {
        DecisionError::Journal(error) => error.into(),
        error => Stop::Late(error.to_string()),
    })
}

/// The keys of effects that are answered, in order; `None` for other entries.
fn answered(recording: &Recording) -> Vec<Option<String>> {
    let mut requests = 0;
    let key = |effect: uap_agent::journal::RecordedEffect| match recording.answer(effect.effect)? {
        Input::Tool(_, execution, _) => Some(execution.tool_call_id.to_string()),
        Input::Model(..) => {
            requests += 1;
            Some(format!("model-{}", requests - 1))
        }
        _ => None,
    };
    recording.effects().map(key).collect()
}

fn record(folder: &Path) -> Result<u8, Stop> {
    let recording = load(folder)?;
    for (n, entry) in recording.to_entries().iter().enumerate() {
        let is_lost = n == 1 && folder.join("compacted").exists();
        let text = if is_lost { "compacted" } else { entry.as_str() };
        say(&format!("entry {text}"));
    }
    if folder.join("forked").exists() {
        say("entry forked");
    }
    for effect in recording.effects() {
        if matches!(effect.kind, "infer" | "tool") {
            say(&format!("asked {}", effect.kind));
        }
    }
    for key in answered(&recording).into_iter().flatten() {
        say(&format!("answered {key}"));
    }
    Ok(0)
}

fn states(folder: &Path) -> Result<u8, Stop> {
    let recording = load(folder)?;
    let replay = program(folder, "Work.", None)?.replay(&recording)?;
    for state in &replay.states {
        tell(state);
    }
    Ok(0)
}

fn tell(state: &AgentState) {
    say(&format!("state {}", to_string(state)));
}

/// The state that a mutant has kept: one without a digest, the other with a digest that does not cover the session.
fn plain(folder: &Path) -> Option<String> {
    let bytes = std::fs::read(folder.join("plain")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if is_mutant("checkpoint") {
        return Some(text);
    }
    let (digest, state) = text.split_once(' ')?;
    let is_sound = digest == self::digest(state);
    (is_sound && is_mutant("foreign")).then(|| state.to_owned())
}

fn digest(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish().to_string()
}

fn last_checkpoint(folder: &Path) -> Result<u8, Stop> {
    if let Some(state) = plain(folder) {
        say(&format!("state {state}"));
        return Ok(0);
    }
    let store = checkpoints(folder)?;
    if let Some(state) = block_on(store.load(SESSION))? {
        tell(&state);
    }
    Ok(0)
}

fn fork(folder: &Path, to: &Path, nth: usize) -> Result<u8, Stop> {
    let recording = load(folder)?;
    let keys = answered(&recording);
    let effects: Vec<_> = recording
        .effects()
        .zip(keys)
        .filter(|(_, key)| key.is_some())
        .collect();
    let chosen = nth.checked_sub(1).and_then(|n| effects.get(n));
    let input = chosen.and_then(|(effect, _)| recording.answer(effect.effect));
    let input = input.ok_or_else(|| Stop::Unreadable("no such answer is recorded".to_owned()))?;
    let forked = recording.fork(&input)?;
    block_on(journal(to)?.append(0, forked.to_entries()))?;
    if is_mutant("fork") {
        let _ = std::fs::write(folder.join("forked"), "");
    }
    Ok(0)
}
