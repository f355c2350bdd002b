//! Journals that releases wrote are resumed by this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{
    Decision, Journal, JournalError, MemoryJournal, Ownership, Paused, Recording, Verdict,
};
use uap_agent::{
    AgentOptions, ApprovalPolicy, ApprovalRequest, ExecutionStrategy, GenerateResult, LoopOptions,
    MemoryCheckpoints, Middleware, PlanOptions, ReactOptions, Runtime, agent, plan, react,
    tool_loop,
};
use ubos_common::driver::Sleep as _;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use upp::{LlmRequest, Message, Reply, ScriptedModel, ToolCall, object};

use super::Windowing;
use crate::support::{Noting, Still, echo};

/// Set to a folder: the journals of this version are written there.
const WRITE: &str = "UAP_GOLDEN_WRITE";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/journal")
}

/// Two calls side by side, one of which fails, then words.
fn reply(request: &LlmRequest) -> Option<Reply> {
    let rounds = request
        .messages
        .iter()
        .filter(|m| matches!(m, Message::ToolResult(_)))
        .count();
    let asks = !request.offers_tools() || rounds >= 2;
    if asks || request.messages.last()?.text().starts_with("Think") {
        return Some(Reply::text(format!("after {rounds}")).costing(50, 5));
    }
    let reply = Reply::text("calling")
        .calling(format!("c{rounds}-1"), "echo", object(r#"{"n":1}"#).ok()?)
        .calling(
            format!("c{rounds}-2"),
            "echo",
            object(r#"{"fail":1}"#).ok()?,
        );
    Some(reply.costing(100, 10))
}

/// The program of the golden journals. It must not change.
fn program(execution: Arc<dyn ExecutionStrategy>) -> AgentOptions {
    AgentOptions::new(Arc::new(ScriptedModel::with(reply)))
        .with_system("You call a tool twice.")
        .with_tools([echo("echo")])
        .with_execution(execution)
        .with_strategy(Arc::new(Noting::default()))
        .with_middleware([Arc::new(Windowing) as Arc<dyn Middleware>])
        .with_checkpoints(Arc::new(MemoryCheckpoints::default()))
        .with_session_id("golden")
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(11)))
}

fn looped() -> AgentOptions {
    program(tool_loop(LoopOptions::default()).unwrap())
}

fn reacting() -> AgentOptions {
    program(react(ReactOptions::default()).unwrap())
}

/// A plan of two steps, each of which calls a tool.
fn planned(request: &LlmRequest) -> Option<Reply> {
    let last = request.messages.last()?;
    let rounds = request
        .messages
        .iter()
        .filter(|m| matches!(m, Message::ToolResult(_)))
        .count();
    if last.text().starts_with("Make a plan") {
        let plan = r#"{"steps":[{"id":"a","description":"x"},{"id":"b","description":"y","dependsOn":["a"]}]}"#;
        return Some(Reply::text(plan).costing(50, 5));
    }
    if !request.offers_tools() || matches!(last, Message::ToolResult(_)) {
        return Some(Reply::text(format!("after {rounds}")).costing(50, 5));
    }
    let reply =
        Reply::text("calling").calling(format!("c{rounds}"), "echo", object(r#"{"n":1}"#).ok()?);
    Some(reply.costing(100, 10))
}

/// Calls of one tool are approved by Ann.
struct Careful;

impl ApprovalPolicy for Careful {
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        let request = ApprovalRequest::default().with_persons(["ann"]);
        (&*call.tool_name == "echo").then_some(request)
    }
}

/// The program of the golden journal of a plan whose calls persons approve.
fn asking_people() -> AgentOptions {
    program(plan(PlanOptions::default()).unwrap())
        .map_llm(|llm| llm.with_model(Arc::new(ScriptedModel::with(planned))))
        .with_approvals(Arc::new(Careful))
        .with_ownership(Ownership::new("golden").with_term(Duration::from_secs(30)))
}

/// Decides all that is asked, and resumes, until the run ends.
fn led_to_its_end(options: fn() -> AgentOptions, journal: &Arc<MemoryJournal>) -> GenerateResult {
    loop {
        let forced = Ownership::new("golden").with_term(Duration::from_secs(30));
        let agent = agent(options().with_ownership(forced.with_force(true))).unwrap();
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        for question in recording.questions() {
            let approve = Decision::new(&question, "ann", Verdict::Approve);
            block_on(Recording::decide(journal.as_ref(), Still.now(), &approve)).unwrap();
        }
        let run = block_on(agent.resume(journal.clone())).unwrap();
        match block_on(run.result()) {
            Ok(result) => return result,
            Err(error) => assert!(Paused::of(&error.error).is_some(), "{error}"),
        }
    }
}

fn lines(entries: &[RawObject]) -> String {
    let lines = entries.iter().map(|entry| format!("{}\n", entry.as_str()));
    lines.collect()
}

fn recorded(options: AgentOptions) -> Vec<RawObject> {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let state = agent.initial_state();
    let result = block_on(agent.record(journal.clone(), "go", &state).result());
    if let Err(error) = result {
        assert!(Paused::of(&error.error).is_some(), "{error}");
        led_to_its_end(asking_people, &journal);
    }
    block_on(journal.read()).unwrap()
}

fn read(name: &str) -> Vec<RawObject> {
    let text = fs::read_to_string(golden().join(name)).unwrap();
    text.lines().map(|line| object(line).unwrap()).collect()
}

// spec: UAP-12-5
#[test]
fn golden_journals_are_what_this_version_writes() {
    for (name, options) in [
        ("loop", looped()),
        ("react", reacting()),
        ("people", asking_people()),
    ] {
        let written = lines(&recorded(options));
        if let Some(folder) = std::env::var_os(WRITE) {
            let name = format!("{name}.v{VERSION}.jsonl");
            fs::write(Path::new(&folder).join(name), written).unwrap();
            continue;
        }
        let known = fs::read_to_string(golden().join(format!("{name}.v{VERSION}.jsonl"))).unwrap();
        assert_eq!(
            written, known,
            "the format has changed: it needs a new version"
        );
    }
}

/// The journal's first entries.
fn kept(entries: &[RawObject]) -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::default());
    block_on(journal.append(0, entries.to_vec())).unwrap();
    journal
}

// spec: UAP-12-5
#[test]
fn journals_of_former_versions_are_resumed_at_every_entry() {
    for name in
        ["loop.v1", "loop.v2", "react.v2", "loop.v3", "react.v3"].map(|it| format!("{it}.jsonl"))
    {
        let options = || match name.starts_with("loop") {
            true => looped(),
            false => reacting(),
        };
        let entries = read(&name);
        let whole = Recording::from_entries(&entries).unwrap();
        assert_eq!(whole.to_entries(), entries, "{name}");
        let replay = agent(options()).unwrap().replay(&whole).unwrap();
        let wanted = replay.result.unwrap().unwrap();
        for count in 1..=entries.len() {
            let journal = kept(&entries[..count]);
            let agent = agent(options()).unwrap();
            let resumed =
                block_on(async { agent.resume(journal.clone()).await.unwrap().result().await });
            assert_eq!(resumed.unwrap(), wanted, "{name}, cut at {count}");
            let recording = block_on(Recording::load(journal.as_ref())).unwrap();
            assert_eq!(
                recording.to_entries(),
                whole.to_entries(),
                "{name}, cut at {count}"
            );
        }
    }
}

// spec: UAP-12-5
#[test]
fn a_plan_that_waits_for_persons_is_resumed_at_every_entry() {
    let entries = read("people.v3.jsonl");
    let has = |word: &str| entries.iter().any(|entry| entry.as_str().contains(word));
    assert!(
        has(r#""question""#)
            && has(r#""decision""#)
            && has(r#""termMs""#)
            && has(r#""strategy":"plan""#)
    );
    let whole = Recording::from_entries(&entries).unwrap();
    let replay = agent(asking_people()).unwrap().replay(&whole).unwrap();
    let wanted = replay.result.unwrap().unwrap();
    for count in 1..=entries.len() {
        let journal = kept(&entries[..count]);
        let result = led_to_its_end(asking_people, &journal);
        assert_eq!(result, wanted, "cut at {count}");
        let seen = block_on(journal.read()).unwrap();
        assert_eq!(seen[..count], entries[..count], "cut at {count}");
    }
}

// spec: UAP-12-5
#[test]
fn the_first_question_that_a_new_version_asks_otherwise_is_named() {
    // Version 1 declared no tools while it reasoned.
    let entries = read("react.v1.jsonl");
    let recording = Recording::from_entries(&entries).unwrap();
    let first = recording
        .effects()
        .find(|effect| effect.kind == "infer")
        .unwrap();
    let journal = kept(&entries);
    let error = block_on(agent(reacting()).unwrap().resume(journal.clone())).unwrap_err();
    let (effect, kind) = (first.effect, "infer");
    assert_eq!(
        error,
        JournalError::Differs {
            effect,
            kind,
            seen: Some("infer")
        }
    );
    assert!(
        error
            .to_string()
            .contains("the agent requests another infer"),
        "{error}"
    );
    assert_eq!(block_on(journal.read()).unwrap(), entries);
}

// spec: UAP-12-5
#[test]
fn resumptions_of_version_1_count_as_epochs() {
    let mut entries = read("loop.v1.jsonl");
    entries.truncate(9);
    for n in 9..11 {
        entries.push(object(&format!(r#"{{"n":{n},"resumed":true}}"#)).unwrap());
    }
    let recording = Recording::from_entries(&entries).unwrap();
    assert_eq!(recording.lease().epoch, 3);
    let journal = kept(&entries);
    let agent = agent(looped()).unwrap();
    block_on(async { agent.resume(journal.clone()).await.unwrap().result().await }).unwrap();
    assert_eq!(
        block_on(Recording::load(journal.as_ref()))
            .unwrap()
            .lease()
            .epoch,
        4
    );
}

/// The version that is written now.
const VERSION: u32 = 3;
