//! Trace events hold ids, counts and steps, and no payload.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Dispatch, Event, Metadata, Subscriber};
use uap_agent::journal::{MemoryJournal, Recording};
use uap_agent::{MemoryCheckpoints, PlanOptions, SubagentTool, agent, plan};
use ubos_common::testing::Traces;
use upp::{ErrorCode, Reply, Tool, object};

use crate::support::{calling, echo, options, script};

#[test]
fn no_payload_is_in_a_trace_event() {
    let traces = Traces::of("");
    let model = script([
        calling("canary reply", "c1", r#"{"canary":"arguments"}"#),
        Reply::error(ErrorCode::ProviderError, "canary error"),
    ]);
    let options = options(&model)
        .with_system("canary system")
        .with_tools([echo("echo")]);
    let agent = agent(options).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = agent.record(journal, "canary input", &agent.initial_state());
    block_on(run.result()).unwrap_err();
    let text = traces.text();
    for message in [
        "run started",
        "engine takes an input",
        "journal write",
        "journal written",
        "run ended",
    ] {
        assert!(text.contains(message), "{message} in {text}");
    }
    assert!(!text.contains("canary"), "{text}");
}

/// The names of spans with their places: two spaces for each span around them.
fn spans(traces: &Traces) -> Vec<String> {
    let text = traces.text();
    let names = text.lines().filter(|line| line.contains("otel.name="));
    names.map(str::to_owned).collect()
}

// spec: UAP-11-3
#[test]
fn a_run_its_plan_and_its_tools_have_spans_and_a_replay_has_none() {
    let traces = Traces::of("");
    let planned = r#"{"steps":[{"id":"a","description":"x","dependsOn":[]}]}"#;
    let model = script([
        Reply::text(planned),
        calling("", "c1", "{}"),
        Reply::text("done"),
    ]);
    let options = options(&model)
        .with_name("planner")
        .with_session_id("talk")
        .with_execution(plan(PlanOptions::default()).unwrap());
    let agent = agent(options).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = agent.record(journal.clone(), "go", &agent.initial_state());
    block_on(run.result()).unwrap();
    let text = traces.text();
    let seen = spans(&traces);
    for (name, times) in [
        ("invoke_agent planner", 1),
        ("plan planner", 1),
        ("chat scripted", 3),
        ("execute_tool echo", 1),
    ] {
        let count = seen.iter().filter(|line| line.contains(name)).count();
        assert_eq!(count, times, "{name} in {seen:#?}");
    }
    // Three responses, and the run.
    for usage in ["gen_ai.usage.input_tokens=", "gen_ai.usage.output_tokens="] {
        assert_eq!(text.matches(usage).count(), 4, "{usage} in {text}");
    }
    for field in [
        r#"gen_ai.operation.name="invoke_agent""#,
        r#"gen_ai.operation.name="plan""#,
        r#"gen_ai.agent.name="planner""#,
        r#"gen_ai.conversation.id="talk""#,
    ] {
        assert!(text.contains(field), "{field} in {text}");
    }
    // What was recorded is not performed.
    let resumed = block_on(async { agent.resume(journal.clone()).await.unwrap().result().await });
    resumed.unwrap();
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    agent.replay(&recording).unwrap();
    assert_eq!(spans(&traces), seen);
}

#[test]
fn a_run_of_a_session_names_it_in_its_span() {
    let traces = Traces::of("");
    let agent = agent(options(&script([Reply::text("hi")]))).unwrap();
    let session = agent.session(Arc::new(MemoryCheckpoints::default()), "ann");
    block_on(session.ask("go")).unwrap();
    let text = traces.text();
    assert!(text.contains(r#"gen_ai.conversation.id="ann""#), "{text}");
}

#[test]
fn a_run_that_fails_says_so_in_its_span() {
    let traces = Traces::of("");
    let model = script([Reply::error(ErrorCode::RateLimited, "canary")]);
    let agent = agent(options(&model)).unwrap();
    block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    let text = traces.text();
    // The request, and the run.
    assert_eq!(
        text.matches(r#"error.type="RATE_LIMITED""#).count(),
        2,
        "{text}"
    );
    assert_eq!(text.matches(r#"otel.status_code="ERROR""#).count(), 2);
    assert!(text.contains(r#"otel.name="invoke_agent""#), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn a_plan_that_fails_says_so_in_its_span() {
    let traces = Traces::of("");
    let model = script([Reply::error(ErrorCode::RateLimited, "canary")]);
    let options = options(&model).with_execution(plan(PlanOptions::default()).unwrap());
    let agent = agent(options).unwrap();
    block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    let text = traces.text();
    // The request, the plan, and the run.
    let told = text.matches(r#"error.type="RATE_LIMITED""#).count();
    assert_eq!(told, 3, "{text}");
    assert_eq!(text.matches(r#"otel.status_code="ERROR""#).count(), 3);
}

/// Notes in which span each span is, by the names that OpenTelemetry shows.
#[derive(Clone, Default)]
struct Nesting {
    names: Arc<Mutex<Vec<String>>>,
    entered: Arc<Mutex<Vec<u64>>>,
    found: Arc<Mutex<Vec<(String, String)>>>,
}

impl Visit for Nesting {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            self.names.lock().unwrap().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Subscriber for Nesting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let before = self.names.lock().unwrap().len();
        span.record(&mut self.clone());
        let mut names = self.names.lock().unwrap();
        if names.len() == before {
            names.push("?".to_owned());
        }
        let outer = self.entered.lock().unwrap().last().copied();
        let of = |id: u64| names[usize::try_from(id).unwrap() - 1].clone();
        let pair = (names[before].clone(), outer.map_or_else(String::new, of));
        self.found.lock().unwrap().push(pair);
        Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.entered.lock().unwrap().push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let left = self.entered.lock().unwrap().pop();
        assert_eq!(left, Some(id.into_u64()), "spans that overlap");
    }
}

#[test]
fn spans_are_inside_each_other() {
    let nesting = Nesting::default();
    let (_second, _default) = (Dispatch::new(nesting.clone()), set_default(nesting.clone()));
    let child = script([Reply::text("found")]);
    let child = agent(options(&child).with_name("child")).unwrap();
    let schema = object(r#"{"type":"object"}"#).unwrap();
    let tool = SubagentTool::new(child, "echo", "Asks", schema, |_| Ok("look".into()));
    let planned = r#"{"steps":[{"id":"a","description":"x","dependsOn":[]}]}"#;
    let model = script([
        Reply::text(planned),
        calling("", "c1", "{}"),
        Reply::text("done"),
    ]);
    let options = options(&model)
        .with_name("lead")
        .with_tools([Arc::new(tool) as Arc<dyn Tool>])
        .with_execution(plan(PlanOptions::default()).unwrap());
    let lead = agent(options).unwrap();
    block_on(lead.generate("go", &lead.initial_state())).unwrap();
    let found = nesting.found.lock().unwrap().clone();
    let found: Vec<_> = found
        .iter()
        .map(|(one, other)| (&**one, &**other))
        .collect();
    let wanted = [
        ("invoke_agent lead", ""),
        ("plan lead", "invoke_agent lead"),
        ("chat scripted", "plan lead"),
        ("chat scripted", "invoke_agent lead"),
        ("execute_tool echo", "invoke_agent lead"),
        ("invoke_agent child", "execute_tool echo"),
        ("chat scripted", "invoke_agent child"),
        ("chat scripted", "invoke_agent lead"),
    ];
    assert_eq!(found, wanted);
}
