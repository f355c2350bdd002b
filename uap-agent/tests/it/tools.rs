//! Which tools an agent, and an engine without one, may have.

use std::sync::Arc;

use uap_agent::engine::{Engine, EngineConfig, Output, RunStart};
use uap_agent::{AgentOptions, AgentState, LoopOptions, SubagentTool, agent, tool_loop};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use upp::{ErrorCode, LlmOptions, Message, ModelReference, Stamp, Tool, UppError, object};

use crate::support::{Still, echo, options, script};

const TWICE: &str = "two tools are named \"echo\", and a call could be of either";

fn refused(options: AgentOptions) -> UppError {
    agent(options).map(drop).unwrap_err()
}

#[test]
fn an_agent_has_no_two_tools_of_one_name_however_they_are_given() {
    let given = || options(&script([]));
    let subagent = || {
        let schema = object("{}").unwrap();
        let inner = agent(given()).unwrap();
        SubagentTool::new(inner, "echo", "Asks", schema, |_| Ok(String::new()))
    };
    for options in [
        given().with_tools([echo("echo"), echo("other"), echo("echo")]),
        given().with_tool(subagent()),
        given().map_llm(|llm| llm.with_tools([echo("echo"), echo("echo")])),
    ] {
        let error = refused(options);
        assert_eq!(
            (&error.code, &*error.message),
            (&ErrorCode::InvalidRequest, TWICE)
        );
    }
    assert!(agent(given().with_tools([echo("echo"), echo("other")])).is_ok());
    let why = refused(given().with_tools([echo("no such name")]));
    assert!(why.message.contains("\"no such name\""), "{why}");
    let wrong = upp::FnTool::new(
        "wrong",
        "d",
        object(r#"{"type":"array"}"#).unwrap(),
        |_, _| async { Ok(upp::json_text("")) },
    );
    let why = refused(given().with_tools([Arc::new(wrong) as Arc<dyn Tool>]));
    assert!(why.message.contains("\"wrong\" is none"), "{why}");
}

#[test]
fn a_run_of_an_engine_with_tools_that_an_agent_refuses_fails_as_the_agent_does() {
    let model: ModelReference = script([]);
    let options = LlmOptions::new(model).with_tools([echo("echo"), echo("echo")]);
    let llm = upp::llm(options).unwrap();
    let (now, ids) = (Still.now(), &mut IdSource::seeded(2));
    let input = Message::user(Stamp::new(ids, now.wall), "go");
    let start = RunStart::new("agent", AgentState::initial(ids), input);
    let config = EngineConfig::new(llm, tool_loop(LoopOptions::default()).unwrap());
    let mut engine = Engine::new(now, config, IdSource::seeded(3), start);
    let end = loop {
        match engine.poll_output() {
            Some(Output::Finished(end)) => break end,
            Some(Output::Event(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(&*end.unwrap_err().error.message, TWICE);
}
