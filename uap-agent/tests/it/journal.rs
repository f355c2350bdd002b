//! Journals: what is recorded is not done again, and what is not is.

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use uap_agent::journal::{
    Difference, Journal, JournalError, MemoryJournal, Recording, check_resume,
};
use uap_agent::{
    AgentOptions, AgentStreamEvent, ExecutionStrategy, LoopOptions, MemoryCheckpoints, PlanOptions,
    ReactOptions, Runtime, agent, plan, react, tool_loop,
};
use ubos_common::id::IdSource;
use ubos_common::json::to_string;
use upp::{ErrorCode, LlmRequest, Message, Reply, ScriptedModel, object};

use crate::support::{Noting, Still, calling, echo, options, script};

/// Answers by what it is asked: a plan to who asks for one, calls of two tools to what has no results yet, words to the
/// rest.
fn by_request(request: &LlmRequest) -> Option<Reply> {
    let last = request.messages.last()?;
    let steps = request
        .messages
        .iter()
        .filter(|m| matches!(m, Message::ToolResult(_)))
        .count();
    let text = last.text();
    if text.starts_with("Make a plan") {
        return Some(Reply::text(
            r#"{"steps":[{"id":"a","description":"x"},{"id":"b","description":"y","dependsOn":["a"]}]}"#,
        ));
    }
    if request.tools.is_empty() {
        return Some(Reply::text(format!("thinking of {steps}")));
    }
    if matches!(last, Message::ToolResult(_)) && steps.is_multiple_of(2) || steps >= 4 {
        return Some(Reply::text(format!("done after {steps}")));
    }
    let arguments = |n: u32| object(&format!(r#"{{"n":{n},"of":{steps}}}"#)).unwrap();
    let reply = Reply::text(format!("round {steps}"))
        .calling(format!("c{steps}-1"), "echo", arguments(1))
        .calling(format!("c{steps}-2"), "other", arguments(2))
        .calling(
            format!("c{steps}-3"),
            "echo",
            object(r#"{"fail":1}"#).unwrap(),
        );
    Some(reply.costing(100, steps as u64))
}

fn strategies() -> [Arc<dyn ExecutionStrategy>; 3] {
    [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ]
}

fn asking(execution: &Arc<dyn ExecutionStrategy>) -> AgentOptions {
    AgentOptions::new(Arc::new(ScriptedModel::with(by_request)))
        .with_tools([echo("echo"), echo("other")])
        .with_execution(Arc::clone(execution))
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(7)))
}

// spec: UAP-12-5
#[test]
fn a_recorded_run_is_the_run_and_replays_as_it_was() {
    for execution in strategies() {
        let journal = Arc::new(MemoryJournal::default());
        let recorded =
            agent(asking(&execution).with_strategy(Arc::new(Noting::default()))).unwrap();
        let state = recorded.initial_state();
        let (events, result) = block_on(async {
            let mut run = recorded.record(journal.clone()).stream("go", &state);
            let mut events = Vec::new();
            while let Some(event) = run.next().await {
                events.push(event);
            }
            (events, run.result().await.unwrap())
        });
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        assert!(recording.has_ended() && recording.outstanding().is_empty());

        // Another agent, whose model, tools and hooks must not be asked for anything.
        let hooks = Arc::new(Noting::default());
        let model = script([]);
        let mut silent = asking(&execution).with_strategy(hooks.clone());
        silent.llm.model = model.clone();
        let silent = agent(silent).unwrap();
        let replay = silent.replay(&recording).unwrap();
        let lines = |events: &[AgentStreamEvent]| events.iter().map(to_string).collect::<Vec<_>>();
        assert_eq!(lines(&replay.events), lines(&events));
        let replayed = replay.result.unwrap().unwrap();
        assert_eq!(replayed.state.to_json(), result.state.to_json());
        assert_eq!(to_string(&replayed.turn), to_string(&result.turn));
        assert_eq!(replay.states.first(), Some(&state));
        assert_eq!(replay.states.last(), Some(&result.state));
        let resumed =
            block_on(async { silent.resume(journal.clone()).await.unwrap().result().await });
        assert_eq!(resumed.unwrap(), result);
        assert!(model.requests().is_empty() && hooks.take().is_empty());
    }
}
