//! Repair of calls and outputs, and tools made of Rust types.

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use uap_agent::{AgentStreamEvent, ReactOptions, RepairPolicy, agent, react};
use uap_agent::{CallVerdict, RepairOptions, repair};
use upp::{ErrorCode, Message, Reply, StreamEventType, Tool, ToolCall, ToolSet, object};

use crate::support::{calling, echo, options, script};

// spec: UAP-16-2
#[test]
fn a_name_is_mended_where_one_tool_alone_can_be_meant() {
    let misspelt = || {
        [
            Reply::default().calling("c1", "Dirty Echo", object(r#"{"a":1}"#).unwrap()),
            Reply::text("ok"),
        ]
    };
    let tools = || [echo("dirty_echo"), echo("other")];
    let first = |options: uap_agent::AgentOptions| {
        let agent = agent(options).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
        let said = result
            .state
            .messages()
            .get(1)
            .unwrap()
            .as_assistant()
            .unwrap()
            .calls()[0]
            .tool_name
            .clone();
        let ran = result.turn.tool_executions.iter().next().unwrap().clone();
        (said.to_string(), ran.tool_name.to_string(), ran.is_error)
    };
    // Nothing is mended unless it is asked for.
    let plain = options(&script(misspelt())).with_tools(tools());
    assert_eq!(
        first(plain),
        ("Dirty Echo".into(), "Dirty Echo".into(), true)
    );
    let mended = options(&script(misspelt()))
        .with_tools(tools())
        .with_repair(repair(RepairOptions::default()));
    assert_eq!(
        first(mended),
        ("Dirty Echo".into(), "dirty_echo".into(), false)
    );
    let off = RepairOptions::default().with_tool_names(false);
    let kept = options(&script(misspelt()))
        .with_tools(tools())
        .with_repair(repair(off));
    assert_eq!(first(kept).1, "Dirty Echo");
    let both = options(&script(misspelt()))
        .with_tools([echo("dirty_echo"), echo("dirty-echo")])
        .with_repair(repair(RepairOptions::default()));
    assert_eq!(first(both).1, "Dirty Echo");
}

/// Has no answer to any call.
struct Lost;

impl RepairPolicy for Lost {
    fn call(&self, _: &ToolCall, _: &ToolSet) -> CallVerdict {
        panic!("no answer")
    }
}

// spec: UAP-16-2
#[test]
fn a_response_whose_calls_cannot_be_repaired_is_in_the_turn_of_the_error() {
    let options = options(&script([calling("x", "c1", "{}")])).with_repair(Arc::new(Lost));
    let agent = agent(options).unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    assert_eq!(error.turn.unwrap().response.text(), "x");
}

/// Answers every call of `echo` itself.
struct Answers;

impl RepairPolicy for Answers {
    fn call(&self, call: &ToolCall, _: &ToolSet) -> CallVerdict {
        match &*call.tool_name {
            "echo" => CallVerdict::Answer("not that way".into()),
            _ => CallVerdict::Run,
        }
    }
}

// spec: UAP-16-2, UAP-8-4
#[test]
fn a_call_that_the_policy_answers_unlocks_its_dependents() {
    let mut metadata = upp::Metadata::default();
    metadata.set("uap", object(r#"{"dependsOn":["echo"]}"#).unwrap());
    let late = upp::FnTool::new("late", "", object("{}").unwrap(), |_, _| async {
        Ok(upp::json_text("ran"))
    })
    .with_metadata(metadata);
    let replies = [
        calling("x", "c1", r#"{"panic":1}"#)
            .calling("c2", "late", object("{}").unwrap())
            .calling("c3", "echo", object("{}").unwrap()),
        Reply::text("ok"),
    ];
    let options = options(&script(replies))
        .with_tools([echo("echo"), Arc::new(late) as Arc<dyn Tool>])
        .with_repair(Arc::new(Answers));
    let agent = agent(options).unwrap();
    let state = agent.initial_state();
    let mut run = agent.stream("go", &state);
    let mut order = Vec::new();
    while let Some(event) = block_on(run.next()) {
        if let AgentStreamEvent::Upp(event) = event
            && matches!(
                event.event_type,
                StreamEventType::ToolExecutionStart | StreamEventType::ToolExecutionEnd
            )
        {
            order.push(format!(
                "{} {}",
                event.delta.tool_call_id.unwrap(),
                event.event_type
            ));
        }
    }
    let result = block_on(run.result()).unwrap();
    let results: Vec<String> = result
        .turn
        .tool_executions
        .iter()
        .map(|e| e.result.as_str().to_owned())
        .collect();
    assert_eq!(
        results,
        [r#""not that way""#, r#""ran""#, r#""not that way""#]
    );
    assert_eq!(order.len(), 6);
    assert!(
        order.iter().position(|o| o == "c3 tool_execution_end")
            < order.iter().position(|o| o == "c2 tool_execution_start")
    );
}

fn structured(
    replies: Vec<Reply>,
    attempts: u32,
) -> (Result<Option<String>, ErrorCode>, Vec<String>) {
    let model = script(replies);
    let mut options = options(&model).with_repair(repair(
        RepairOptions::default().with_output_attempts(attempts),
    ));
    options = options.map_llm(|llm| {
        llm.with_structure(Arc::new(
            object(r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#)
                .unwrap(),
        ))
    });
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state()));
    let history = match &result {
        Ok(result) => result.state.messages().clone(),
        Err(error) => error.turn.as_ref().unwrap().messages.clone(),
    };
    let data = result
        .map(|r| r.turn.data.map(|d| d.as_str().to_owned()))
        .map_err(|e| e.error.code);
    (data, history.iter().map(Message::text).collect())
}

// spec: UAP-16-2
#[test]
fn output_that_cannot_be_used_is_asked_for_again() {
    let (data, history) = structured(
        vec![Reply::text("no idea"), Reply::text("here: {\"n\":1} done")],
        2,
    );
    assert_eq!(data, Ok(Some(r#"{"n":1}"#.into())));
    assert_eq!((history.len(), history[1].as_str()), (4, "no idea"));
    assert!(history[2].contains("no JSON object"), "{}", history[2]);
    // As often as allowed, and no more.
    let (data, history) = structured(
        vec![Reply::text("a"), Reply::text("b"), Reply::text("c")],
        1,
    );
    assert_eq!(data, Err(ErrorCode::InvalidResponse));
    assert_eq!(history.last().unwrap(), "b");
    // Calls on the way are no output.
    let (data, _) = structured(vec![calling("x", "c1", "{}"), Reply::text(r#"{"n":2}"#)], 0);
    assert_eq!(data, Ok(Some(r#"{"n":2}"#.into())));
}

// spec: UAP-16-2
#[test]
fn repair_works_within_the_step_of_any_strategy() {
    let model = script([
        Reply::text("think"),
        Reply::text("no"),
        Reply::text(r#"{"n":1}"#),
    ]);
    let mut options = options(&model)
        .with_execution(react(ReactOptions::default()).unwrap())
        .with_repair(repair(RepairOptions::default()));
    options = options
        .map_llm(|llm| llm.with_structure(Arc::new(object(r#"{"type":"object"}"#).unwrap())));
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!((result.state.step(), result.turn.cycles), (1, 3));
    assert_eq!(result.turn.data.unwrap().as_str(), r#"{"n":1}"#);
    let asked = &model.requests()[2];
    let mark = asked
        .messages
        .last()
        .unwrap()
        .metadata()
        .unwrap()
        .get("uap")
        .unwrap()
        .as_str()
        .to_owned();
    assert!(mark.contains("repair") && mark.contains("true"), "{mark}");
}

// spec: UAP-16-2
#[test]
fn attempts_count_for_one_output_and_not_for_the_run() {
    let text = r#"{"steps":[{"id":"1","description":"x","dependsOn":[]},{"id":"2","description":"y","dependsOn":["1"]}]}"#;
    let good = || Reply::text(r#"{"n":1}"#);
    let replies = [
        Reply::text(text),
        Reply::text("no"),
        good(),
        Reply::text("no"),
        good(),
    ];
    let mut options = options(&script(replies))
        .with_execution(uap_agent::plan(uap_agent::PlanOptions::default()).unwrap())
        .with_repair(repair(RepairOptions::default().with_output_attempts(1)));
    options = options
        .map_llm(|llm| llm.with_structure(Arc::new(object(r#"{"type":"object"}"#).unwrap())));
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(
        (turn.cycles, turn.data.unwrap().as_str()),
        (5, r#"{"n":1}"#)
    );
}

#[cfg(feature = "schema")]
mod with_schemas {
    use super::*;

    // spec: UAP-16-2
    #[test]
    fn a_call_that_breaks_its_schema_is_answered_with_the_place() {
        let schema =
            r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
        let tool = upp::FnTool::new("weather", "", object(schema).unwrap(), |_, _| async {
            Ok(upp::json_text("rain"))
        });
        let ask = |id: &str, arguments: &str| {
            Reply::default().calling(id, "weather", object(arguments).unwrap())
        };
        let replies = [
            ask("c1", r#"{"city":7}"#),
            ask("c2", "{}"),
            ask("c3", r#"{"city":"Ulm"}"#),
            Reply::text("ok"),
        ];
        let options = options(&script(replies))
            .with_tools([Arc::new(tool) as Arc<dyn Tool>])
            .with_repair(repair(RepairOptions::default()));
        let turn = block_on(agent(options).unwrap().query("go")).unwrap();
        let results: Vec<_> = turn
            .tool_executions
            .iter()
            .map(|e| (e.is_error, e.result.as_str().to_owned()))
            .collect();
        assert!(
            results[0].0 && results[0].1.contains("/city breaks `type`"),
            "{results:?}"
        );
        assert!(
            results[1].0 && results[1].1.contains("the whole breaks `required`"),
            "{results:?}"
        );
        assert_eq!(results[2], (false, r#""rain""#.to_owned()));
        let (data, history) = structured(
            vec![Reply::text(r#"{"n":"1"}"#), Reply::text(r#"{"n":1}"#)],
            1,
        );
        assert_eq!(data, Ok(Some(r#"{"n":1}"#.into())));
        assert!(history[2].contains("/n breaks `type`"), "{}", history[2]);
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    /// The first number.
    a: i64,
    b: i64,
}

// spec: UAP-16-3
#[test]
fn a_tool_is_made_of_a_rust_type() {
    let tool = upp::FnTool::typed(
        "add",
        "Adds",
        |sum: Sum, _| async move { Ok(sum.a + sum.b) },
    )
    .unwrap();
    assert!(tool.parameters().as_str().contains("The first number."));
    let replies = [
        Reply::default().calling("c1", "add", object(r#"{"a":1,"b":2}"#).unwrap()),
        Reply::text("3"),
    ];
    let options = options(&script(replies)).with_tools([Arc::new(tool) as Arc<dyn Tool>]);
    let turn = block_on(agent(options).unwrap().query("1+2?")).unwrap();
    assert_eq!(
        turn.tool_executions.iter().next().unwrap().result.as_str(),
        "3"
    );
}

// spec: UAP-16-2
#[test]
fn malformed_arguments_are_answered_and_never_replaced() {
    let mut sum = upp::Accumulator::new("p");
    let call = upp::StreamEvent::tool_call(0, Some("c".into()), Some("ADD".into()), "{\"a\":");
    sum.add(&call).unwrap();
    let stamp = upp::Stamp::with_id("m", ubos_common::time::Timestamp::EPOCH);
    let (message, _) = sum.finish(stamp).unwrap();
    let tool = upp::FnTool::new("add", "Adds", object("{}").unwrap(), |_, _| async {
        Ok(upp::json_text("three"))
    });
    let tools: [Arc<dyn Tool>; 1] = [Arc::new(tool)];
    let policy = repair(RepairOptions::default().with_tool_names(true));
    let verdict = policy.call(&message.calls()[0], &ToolSet::new(tools, None));
    assert!(
        matches!(&verdict, CallVerdict::Answer(text) if text.contains("not a JSON object")),
        "{verdict:?}"
    );
}
