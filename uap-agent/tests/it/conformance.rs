//! The conformance kits hold, and our own agents pass them.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use futures::executor::block_on;
use futures::future::ready;
use uap_agent::StoreFuture;
use uap_agent::middleware::{LoggingOptions, logging};
use uap_agent::{
    AgentOptions, AgentState, AgentStreamEvent, CheckpointMetadata, CheckpointStore,
    ExecutionStrategy, LoopOptions, PlanOptions, PlanStep, PlanStepStatus, ReactOptions, Runtime,
    SubagentTool, ThreadTree, UapEventType, agent, plan, react, tool_loop,
};
use uap_agent::{StateError, StateId};
use ubos_common::id::IdSource;
use ubos_common::json::{DecodeError, Limits, to_string};
use ubos_conformance::uap::{
    FileKind, FileVector, Level, Recording, RecordingError, file_kit, levels, run_kit, vectors,
};
use ubos_conformance::{Expectations, Report, Validity};
use upp::{Reply, Tool, object};

use crate::support::{Still, echo, options, script};

/// Keeps every state that is saved.
#[derive(Default)]
struct Keeping(Mutex<Vec<AgentState>>);

impl CheckpointStore for Keeping {
    fn save<'a>(&'a self, _: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        self.0.lock().unwrap().push(state);
        Box::pin(ready(Ok(())))
    }
    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        _: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        self.save(metadata, state)
    }
    fn load<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        Box::pin(ready(Ok(None)))
    }
    fn load_metadata<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        Box::pin(ready(Ok(None)))
    }
    fn delete<'a>(&'a self, _: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(ready(Ok(Vec::new())))
    }
}

/// An agent that is called as a tool.
fn scout() -> Arc<dyn Tool> {
    let model: upp::ModelReference = script([Reply::text("seen")]);
    let options =
        AgentOptions::new(model).with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(8)));
    let schema = object(r#"{"type":"object"}"#).unwrap();
    let prompt = |_: &_| Ok("what is there?".to_owned());
    Arc::new(SubagentTool::new(
        agent(options).unwrap(),
        "scout",
        "Looks",
        schema,
        prompt,
    ))
}

/// One run as JSON lines: its log, its events, and behind each step its state.
fn recorded(
    seed: u64,
    strategy: Arc<dyn ExecutionStrategy>,
    replies: Vec<Reply>,
) -> (Vec<String>, AgentState) {
    let store = Arc::new(Keeping::default());
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let logging = logging(LoggingOptions::new(move |_, line| {
        lines.lock().unwrap().push(line.to_owned())
    }));
    let options = options(&script(replies))
        .with_tools([echo("echo"), scout()])
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(seed)))
        .with_execution(strategy)
        .with_middleware([logging])
        .with_checkpoints(store.clone());
    let agent = agent(options).unwrap();
    let mut stream = agent.stream("look around", &agent.initial_state());
    let events: Vec<AgentStreamEvent> = block_on(async {
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event);
        }
        events
    });
    let result = block_on(stream.result()).unwrap();
    let (mut states, mut log) = (
        store.0.lock().unwrap().clone().into_iter(),
        log.lock().unwrap().clone().into_iter(),
    );
    let logged = |line: String| format!(r#"{{"log":{}}}"#, to_string(&line));
    let mut lines: Vec<String> = log.next().map(logged).into_iter().collect();
    for event in events {
        lines.push(to_string(&event));
        if matches!(&event, AgentStreamEvent::Uap(event) if event.event_type == UapEventType::StepEnd)
        {
            lines.push(format!(
                r#"{{"state":{}}}"#,
                states.next().unwrap().to_json()
            ));
        }
    }
    assert!(states.next().is_none());
    lines.extend(log.map(logged));
    (lines, result.state)
}

fn runs(recording: &Recording, floor: usize) -> Report {
    let expectations = Expectations::new().with_floor(floor);
    run_kit().run(&expectations, |_| Ok(Box::new(recording.clone())))
}

/// Runs of all strategies, and the branches of what they came to.
fn ours() -> String {
    let calls = Reply::text("two at once")
        .calling("c1", "echo", object(r#"{"a":1}"#).unwrap())
        .calling("c2", "scout", object("{}").unwrap());
    let (mut lines, state) = recorded(
        1,
        tool_loop(LoopOptions::default()).unwrap(),
        vec![calls, Reply::text("done")],
    );
    let mut ids = IdSource::seeded(4);
    let mut tree = ThreadTree::new(&mut ids, state);
    let drawn = |tree: &ThreadTree| format!(r#"{{"tree":{}}}"#, tree.to_json());
    lines.push(drawn(&tree));
    let one =
        |text: &str, id: &str| Reply::text(text).calling(id, "echo", object(r#"{"b":2}"#).unwrap());
    let (more, state) = recorded(
        2,
        react(ReactOptions::default()).unwrap(),
        vec![
            Reply::text("I should look"),
            one("looking", "c1"),
            Reply::text("I have looked"),
            Reply::text("nothing there"),
        ],
    );
    lines.extend(more);
    let root = tree.root().id;
    let branch = tree.branch(&mut ids, root, Some("again")).unwrap();
    tree.checkout(branch).unwrap();
    tree.set_state(state);
    lines.push(drawn(&tree));
    let steps = r#"{"steps":[{"id":"one","description":"look"},{"id":"two","description":"say","dependsOn":["one"]}]}"#;
    let (more, _) = recorded(
        3,
        plan(PlanOptions::default()).unwrap(),
        vec![
            Reply::text(steps),
            one("looking", "c1"),
            Reply::text("seen"),
            Reply::text("said"),
        ],
    );
    lines.extend(more);
    lines.join("\n") + "\n"
}

#[test]
fn the_kits_hold() {
    let kit = file_kit();
    kit.prove().unwrap_or_else(|errors| panic!("{errors:#?}"));
    run_kit()
        .prove()
        .unwrap_or_else(|errors| panic!("{errors:#?}"));
    // Every vector is in a case, and every case has some.
    for vector in vectors() {
        assert!(
            kit.cases()
                .iter()
                .any(|case| case.clause() == vector.clause),
            "{}",
            vector.name
        );
        let named = vectors().iter().filter(|other| other.name == vector.name);
        assert_eq!(named.count(), 1, "{}", vector.name);
    }
}

#[test]
fn our_agents_pass_with_every_case_judged() {
    let text = ours();
    if let Some(file) = std::env::var_os("UAP_RUN_VECTOR") {
        std::fs::write(file, &text).unwrap();
    }
    let report = runs(
        &Recording::read_lines(&text).unwrap(),
        run_kit().cases().len(),
    );
    assert!(report.is_conformant(), "{report}");
    let levels = levels([&report]);
    assert!(
        levels.iter().all(|level| level.is_conformant()),
        "{levels:?}"
    );
    assert_eq!(levels[0].level, Level::Core);
    assert!(
        levels[3]
            .to_string()
            .starts_with("Middleware (required): conforms, 1 passed")
    );
}

/// Pointers of what our validators find.
fn found(vector: &FileVector) -> Vec<String> {
    let (text, limits) = (vector.text.as_bytes(), Limits::default());
    let report = match vector.kind {
        FileKind::State => match AgentState::from_json(text, &limits) {
            Ok(_) => return Vec::new(),
            Err(StateError::Version { .. }) => return vec!["/version".to_owned()],
            Err(StateError::Invalid(DecodeError::Invalid(report))) => Some(report),
            Err(_) => None,
        },
        _ => match ThreadTree::from_json(text, &limits) {
            Ok(_) => return Vec::new(),
            Err(DecodeError::Invalid(report)) => Some(report),
            Err(_) => None,
        },
    };
    match report {
        Some(report) => report
            .iter()
            .map(|found| found.pointer.to_string())
            .collect(),
        None => vec![String::new()],
    }
}

// spec: UAP-12-6, UAP-7-2
#[test]
fn vectors_are_judged_as_they_say() {
    for vector in vectors() {
        assert_eq!(found(vector), vector.must, "{}", vector.name);
    }
}

#[test]
fn what_reads_everything_or_nothing_does_not_conform() {
    for says in [true, false] {
        let report = file_kit().run(&Expectations::new(), |_| {
            Ok(Box::new(move |_: &FileVector| Some(Validity::of(says))))
        });
        assert!(report.failed() > 3, "{report}");
        let failed = levels([&report])
            .iter()
            .filter(|level| level.failed > 0)
            .count();
        assert!(failed >= 2, "{report}");
    }
    let report = runs(&Recording::new(), 1);
    assert_eq!((report.judged(), report.is_conformant()), (0, false));
}

#[test]
fn lines_that_are_no_recording_are_refused() {
    let why = |text: &str| Recording::read_lines(text).unwrap_err().to_string();
    assert!(why("\n{").starts_with("line 2: "), "{}", why("\n{"));
    assert!(matches!(
        Recording::read_lines("{\"what\":1}"),
        Err(RecordingError::Unknown { line: 1 })
    ));
    let traced = r#"{"at":9,"end":{"ok":true}}"#;
    assert!(Recording::read_lines(traced).unwrap().lines().is_empty());
    let traced = r#"{"at":5,"event":{"source":"uap","uap":{"type":"step_end","step":1,"agentId":"a","data":{}}}}"#;
    let report = runs(&Recording::read_lines(traced).unwrap(), 1);
    assert!(
        report
            .to_string()
            .contains("line 1: an event of step 1 in step 0"),
        "{report}"
    );
}

/// An event of an agent, as a line.
fn told(kind: &str, step: u64, data: &str) -> Vec<u8> {
    let agent = "00000000-0000-4000-8000-00000000000a";
    let uap = format!(r#"{{"type":"{kind}","step":{step},"agentId":"{agent}","data":{data}}}"#);
    format!(r#"{{"source":"uap","uap":{uap}}}"#).into_bytes()
}

// spec: UAP-8-5
#[test]
fn a_run_that_failed_leaves_nothing_for_the_next_to_answer_for() {
    let ids = &mut IdSource::seeded(5);
    let sub = |more: &str| {
        let id = "00000000-0000-4000-8000-00000000000b";
        format!(r#"{{"subagentId":"{id}","subagentType":"scout","parentToolCallId":"c1"{more}}}"#)
    };
    let calls = r#"{"toolCalls":[{"toolCallId":"c1","toolName":"scout","arguments":{}}]}"#;
    // The first run breaks off behind its sub-agent; the second begins from where the first began.
    let failed = Recording::new()
        .event(&told("step_start", 1, "{}"))
        .event(&told("action", 1, calls))
        .event(&told("subagent_start", 1, &sub("")))
        .event(&told("subagent_end", 1, &sub(r#","success":true"#)));
    let state = AgentState::initial(ids).with_step(ids, 1).to_json();
    let goes_on = |step: u64| {
        failed
            .clone()
            .event(&told("step_start", step, "{}"))
            .event(&told("step_end", step, "{}"))
            .state(state.as_bytes())
    };
    let report = runs(&goes_on(1), 1).to_string();
    assert!(!report.contains("no trace of an agent"), "{report}");
    let report = runs(&goes_on(2), 1).to_string();
    assert!(report.contains("no trace of an agent"), "{report}");
}

// spec: UAP-5-7
#[test]
fn a_new_plan_may_take_up_a_step_that_failed() {
    let ids = &mut IdSource::seeded(6);
    let step = |id: &str, status| PlanStep::new(id.into(), "look".into(), Vec::new(), status);
    let (completed, failed, pending) = (
        PlanStepStatus::Completed,
        PlanStepStatus::Failed,
        PlanStepStatus::Pending,
    );
    let mut judged = |before: [PlanStepStatus; 2], after: [PlanStepStatus; 2]| {
        let mut recording = Recording::new();
        for (n, [one, two]) in (2..).zip([before, after]) {
            let state = AgentState::initial(ids)
                .with_step(ids, n)
                .with_plan(ids, vec![step("one", one), step("two", two)]);
            recording = recording.state(state.to_json().as_bytes());
        }
        let report = runs(&recording, 1).to_string();
        report.contains("goes back")
    };
    assert!(!judged(
        [completed.clone(), failed],
        [completed.clone(), pending.clone()]
    ));
    assert!(judged(
        [completed.clone(), pending.clone()],
        [pending.clone(), pending]
    ));
}

// spec: UAP-12-6
#[test]
fn a_state_as_large_as_stores_keep_is_no_breach() {
    let ids = &mut IdSource::seeded(7);
    let state = AgentState::initial(ids).with_step(ids, 1).with_metadata(
        ids,
        "long",
        upp::json_text(&"x".repeat(5 << 20)),
    );
    let line = format!(r#"{{"state":{}}}"#, state.to_json());
    let report = runs(&Recording::read_lines(&line).unwrap(), 1);
    assert!(report.is_conformant(), "{report}");
}

// spec: UAP-9-3
#[test]
fn a_log_is_judged_by_what_its_level_and_its_errors_let_it_say() {
    let judged = |lines: &[&str]| {
        let all = lines.iter();
        let recording = all.fold(Recording::new(), |recording, line| recording.log(line));
        runs(&recording, 1).is_conformant()
    };
    let (began, ended) = (
        "[UAP:INFO] Execution started agent=a",
        "[UAP:INFO] Execution completed agent=a tokens=3",
    );
    let failed = "[UAP:ERROR] Execution failed agent=a error=x";
    for good in [
        // At level error nothing else is said.
        &[failed, failed][..],
        // What is said in a message is none of its lines.
        &[
            began,
            "[UAP:DEBUG] Input: what does Execution failed mean?",
            ended,
        ],
        &[
            began,
            "[UAP:ERROR] Execution failed error=no Execution started",
        ],
        // A layer outside of it failed behind it.
        &[began, ended, failed],
    ] {
        assert!(judged(good), "{good:?}");
    }
    for bad in [
        &[began][..],
        &[began, began, ended],
        &[ended],
        &[began, ended, failed, failed],
        &[began, "[UAP:INFO] Execution failed agent=a"],
        &[began, "[UAP:INFO] Execution completed agent=a"],
        &["Execution started"],
    ] {
        assert!(!judged(bad), "{bad:?}");
    }
}
