//! Runs: what they ask the model, what they bring, how they end.

mod moves;
mod plans;

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use uap_agent::HookAnswer;
use uap_agent::engine::{Engine, EngineConfig, Input, Output, RunStart};
use uap_agent::strategy::{Command, ExecutionContext, Inference, Outcome, StrategyRun};
use uap_agent::{
    AgentOptions, AgentState, AgentStreamEvent, CheckpointMetadata, CheckpointStore, EventData,
    ExecutionStrategy, LoopOptions, MemoryCheckpointConfig, MemoryCheckpoints, PlanOptions,
    ReactOptions, agent, plan, react, tool_loop,
};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{ErrorCode, Message, Reply, ScriptedModel, ToolUseStrategy, object};

use crate::support::{Noting, calling, options, script};

fn roles(request: &upp::LlmRequest) -> Vec<String> {
    request
        .messages
        .iter()
        .map(|m| format!("{}:{}", m.message_type(), m.text()))
        .collect()
}

// spec: UAP-4-1, UAP-5-1
#[test]
fn the_default_loop_asks_until_no_tool_is_called() {
    let model = script([
        calling("first", "c1", r#"{"a":1}"#),
        calling("second", "c2", r#"{"a":2}"#),
        Reply::text("done"),
    ]);
    let agent = agent(options(&model)).unwrap();
    let before = agent.initial_state();
    let kept = before.clone();
    let result = block_on(agent.generate("go", &before)).unwrap();
    assert_eq!(before, kept);
    assert_eq!(result.turn.response.text(), "done");
    assert_eq!(
        (
            result.turn.cycles,
            result.turn.messages.len(),
            result.turn.tool_executions.len()
        ),
        (3, 5, 2)
    );
    assert_eq!(
        (
            result.turn.usage.input_tokens,
            result.turn.usage.total_tokens
        ),
        (15, 24)
    );
    assert_eq!((result.state.step(), result.state.messages().len()), (3, 6));
    assert_eq!(
        result.state.metadata().value("agentId").unwrap().as_str(),
        format!("\"{}\"", agent.id())
    );
    let requests = model.requests();
    assert_eq!(roles(&requests[0]), ["user:go"]);
    assert_eq!(
        roles(&requests[2]),
        [
            "user:go",
            "assistant:first",
            r#"tool_result:{"a":1}"#,
            "assistant:second",
            r#"tool_result:{"a":2}"#
        ]
    );
    assert_eq!(requests[0].tools.len(), 1);
}

// spec: UAP-4-6
#[test]
fn two_asks_hold_four_messages_and_the_agent_keeps_none() {
    let model = script((0..4).map(|n| Reply::text(format!("answer {n}"))));
    let agent = agent(options(&model)).unwrap();
    let start = agent.initial_state();
    let first = block_on(agent.ask("one", &start)).unwrap();
    let second = block_on(agent.ask("two", &first.state)).unwrap();
    assert_eq!(second.state.messages().len(), 4);
    assert_eq!(second.state.step(), 1);
    let other = block_on(agent.ask("other", &start)).unwrap();
    assert_eq!(other.state.messages().len(), 2);
    let given = other.state.messages().get(0).unwrap().clone();
    let result = block_on(agent.generate(given.clone(), &start)).unwrap();
    assert_eq!(result.state.messages().get(0).unwrap(), &given);
    assert_eq!(roles(&model.requests()[2]), ["user:other"]);
}

// spec: UAP-5-2, UAP-5-3
#[test]
fn a_limit_of_steps_ends_the_run_well_with_its_tools_run() {
    let limited = [
        tool_loop(LoopOptions::default().with_max_iterations(3)).unwrap(),
        react(ReactOptions::default().with_max_steps(3)).unwrap(),
    ];
    for (limited, requests) in limited.into_iter().zip([3, 6]) {
        let model = Arc::new(ScriptedModel::with(|request| {
            Some(match request.offers_tools() {
                true => calling("more", "c", "{}"),
                false => Reply::text("think"),
            })
        }));
        let agent = agent(options(&model).with_execution(limited)).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
        assert_eq!((model.requests().len(), result.state.step()), (requests, 3));
        assert!(matches!(
            result.state.messages().last(),
            Some(Message::ToolResult(_))
        ));
    }
    assert!(tool_loop(LoopOptions::default().with_max_iterations(0)).is_err());
}

/// Allows so many rounds.
struct Rounds(u64);

impl ToolUseStrategy for Rounds {
    fn max_iterations(&self) -> Option<u64> {
        Some(self.0)
    }
}

// spec: UAP-5-2
#[test]
fn a_limit_of_tool_rounds_fails_the_run_and_keeps_what_there_is() {
    let model = Arc::new(ScriptedModel::with(|_| Some(calling("more", "c", "{}"))));
    let mut options = options(&model);
    options = options.map_llm(|llm| llm.with_tool_strategy(Arc::new(Rounds(2))));
    let agent = agent(options).unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    assert_eq!(
        (&error.error.code, model.requests().len()),
        (&ErrorCode::InvalidRequest, 3)
    );
    assert_eq!(
        (
            error.state.messages().len(),
            error.turn.unwrap().messages.len()
        ),
        (5, 5)
    );
}

// spec: UAP-2-1
#[test]
fn ten_thousand_rounds_have_no_limit_in_their_way() {
    for strategy in [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
    ] {
        let mut rounds = 0;
        let model = Arc::new(ScriptedModel::with(move |request| {
            let acts = request.offers_tools();
            rounds += u64::from(acts);
            Some(if acts && rounds <= 10_000 {
                calling("", "c", "{}")
            } else {
                Reply::text("done")
            })
        }));
        let agent = agent(options(&model).with_execution(strategy)).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
        assert_eq!(
            (result.state.step(), result.turn.tool_executions.len()),
            (10_001, 10_000)
        );
    }
}

// spec: UAP-5-3, UAP-5-8
#[test]
fn react_reasons_without_calls_before_every_action() {
    let model = script([
        Reply::text("I need the sum"),
        calling("using echo", "c1", r#"{"a":2}"#),
        Reply::text("I have it"),
        Reply::text("It is 2"),
    ]);
    let strategy = react(ReactOptions::default().with_reasoning_prompt("Think!")).unwrap();
    let agent = agent(options(&model).with_execution(strategy)).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    let requests = model.requests();
    assert_eq!(roles(&requests[0]), ["user:go", "user:Think!"]);
    assert_eq!(
        requests
            .iter()
            .map(|r| usize::from(r.offers_tools()))
            .collect::<Vec<_>>(),
        [0, 1, 0, 1]
    );
    let reasoning: Vec<&str> = result.state.reasoning().iter().map(|r| &**r).collect();
    assert_eq!(reasoning, ["I need the sum", "I have it"]);
    assert_eq!(
        (
            result.state.step(),
            result.turn.cycles,
            result.turn.usage.total_tokens
        ),
        (2, 4, 32)
    );
    // What the model read in its last question is what the state holds before its answer.
    let state: Vec<String> = result.state.messages().iter().map(to_string).collect();
    let read: Vec<String> = requests[3].messages.iter().map(to_string).collect();
    assert_eq!(state[..state.len() - 1], read[..]);
    assert!(state[1].contains(r#""uap":{"phase":"reasoning","step":1,"synthetic":true}"#));
    assert!(!state[0].contains("synthetic"));
}

const STEPS: &str = r#"Sure: {"steps":[{"id":"b","description":"report","dependsOn":["a"]},{"id":"a","description":"add","tool":"echo"}]}"#;

fn pairs<const N: usize>(list: [(&str, &str); N]) -> Vec<(String, String)> {
    list.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[test]
fn limits_of_zero_are_refused() {
    let refused = |made: Result<_, upp::UppError>| made.map(drop).unwrap_err().message.to_string();
    assert_eq!(
        refused(plan(PlanOptions::default().with_max_plan_steps(0))),
        "maxPlanSteps is 0, but a run needs at least 1"
    );
    assert_eq!(
        refused(react(ReactOptions::default().with_max_steps(0))),
        "maxSteps is 0, but a run needs at least 1"
    );
    assert_eq!(
        refused(tool_loop(LoopOptions::default().with_max_iterations(0))),
        "maxIterations is 0, but a run needs at least 1"
    );
}

// spec: UAP-2-3
#[test]
fn every_strategy_takes_the_same_options() {
    let strategies: [Arc<dyn ExecutionStrategy>; 3] = [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ];
    for strategy in strategies {
        let model = Arc::new(ScriptedModel::with(|_| {
            Some(Reply::text(r#"{"steps":[{"description":"x"}]}"#))
        }));
        let agent = agent(options(&model).with_execution(strategy)).unwrap();
        assert!(block_on(agent.query("go")).unwrap().cycles >= 1);
    }
}

// spec: UAP-10-1
#[test]
fn hooks_come_in_order_and_a_stop_condition_ends_the_run() {
    let replies = || {
        [
            calling("a", "c1", "{}"),
            calling("b", "c2", "{}"),
            Reply::text("c"),
        ]
    };
    let hooks = Arc::new(Noting::default());
    let all = agent(options(&script(replies())).with_strategy(hooks.clone())).unwrap();
    block_on(all.query("go")).unwrap();
    assert_eq!(
        hooks.take(),
        [
            "start 1 messages 1",
            "act 1 1",
            "observe 1 1",
            "end 1 messages 3",
            "stop? 1",
            "start 2 messages 3",
            "act 2 1",
            "observe 2 1",
            "end 2 messages 5",
            "stop? 2",
            "start 3 messages 5",
            "end 3 messages 6",
            "stop? 3",
            "complete",
        ]
    );
    let hooks = Arc::new(Noting {
        stop_at: Some(2),
        ..Noting::default()
    });
    let model = script(replies());
    let stopped = agent(options(&model).with_strategy(hooks.clone())).unwrap();
    assert_eq!(block_on(stopped.query("go")).unwrap().cycles, 2);
    assert_eq!(hooks.take().last().unwrap(), "complete");
    let hooks = Arc::new(Noting {
        fails_at: Some("observe"),
        ..Noting::default()
    });
    let failing = agent(options(&script(replies())).with_strategy(hooks.clone())).unwrap();
    let error = block_on(failing.generate("go", &failing.initial_state())).unwrap_err();
    assert_eq!(
        (&*error.error.provider, error.state.messages().len()),
        ("hook", 3)
    );
    assert_eq!(hooks.take().last().unwrap(), "error PROVIDER_ERROR");
}

#[test]
fn an_error_hook_may_recover() {
    let good = agent(options(&script([Reply::text("good")]))).unwrap();
    let result = block_on(good.generate("go", &good.initial_state())).unwrap();
    let hooks = Arc::new(Noting {
        recovers_with: Some(result.clone()),
        ..Noting::default()
    });
    let broken = agent(options(&script([])).with_strategy(hooks)).unwrap();
    assert_eq!(
        block_on(broken.generate("go", &broken.initial_state())).unwrap(),
        result
    );
}

// spec: UAP-12-2
#[test]
fn each_step_is_saved_and_a_failing_store_is_told_of() {
    for strategy in [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ] {
        let store = Arc::new(MemoryCheckpoints::default());
        let model = Arc::new(ScriptedModel::with(|_| {
            Some(Reply::text(r#"{"steps":[{"description":"x"}]}"#))
        }));
        let options = options(&model)
            .with_execution(strategy)
            .with_checkpoints(store.clone());
        let saving = agent(options).unwrap();
        let session = saving.session_id().unwrap().to_owned();
        let result = block_on(saving.generate("go", &saving.initial_state())).unwrap();
        let saved = block_on(store.load(&session)).unwrap().unwrap();
        assert_eq!(saved, result.state);
        assert_eq!(
            saved.metadata().value("sessionId").unwrap().as_str(),
            format!("\"{session}\"")
        );
        assert_eq!(
            block_on(store.load_metadata(&session))
                .unwrap()
                .unwrap()
                .step,
            result.state.step()
        );
        block_on(saving.query("aside")).unwrap();
        assert_eq!(block_on(store.list()).unwrap().len(), 2);
        assert_eq!(block_on(store.load(&session)).unwrap().unwrap(), saved);
        block_on(store.delete(&session)).unwrap();
        assert_eq!(block_on(store.load(&session)).unwrap(), None);
    }
    let one = MemoryCheckpointConfig::default().with_sessions(1);
    let store = MemoryCheckpoints::new(one).unwrap();
    let ids = &mut IdSource::seeded(3);
    let other =
        CheckpointMetadata::new("other".into(), ids.uuid(), Timestamp::EPOCH, 0, "a".into());
    block_on(store.save(other, AgentState::initial(ids))).unwrap();
    let told = Arc::new(std::sync::Mutex::new(0));
    let count = Arc::clone(&told);
    let full = options(&script([Reply::text("done")]))
        .with_session_id("mine")
        .with_checkpoints(Arc::new(store))
        .with_on_save_failed(move |_| *count.lock().unwrap() += 1);
    let full = agent(full).unwrap();
    let mut run = full.stream("go", &full.initial_state());
    let mut failures = Vec::new();
    while let Some(event) = block_on(run.next()) {
        if let AgentStreamEvent::Uap(event) = event
            && let EventData::SaveFailed(why) = &event.data
        {
            failures.push(format!("{} {why}", event.event_type));
        }
    }
    assert!(block_on(run.result()).is_ok());
    assert_eq!(
        failures,
        ["save_failed the store has 1 sessions and takes no more"]
    );
    assert_eq!(
        (*told.lock().unwrap(), full.session_id()),
        (1, Some("mine"))
    );
}

#[test]
fn what_the_options_say_reaches_the_model() {
    let model = script([Reply::text("{}").with_data(RawBuf::parse(r#"{"x":1}"#).unwrap())]);
    let mut options = options(&model).with_system("be brief");
    options =
        options.map_llm(|llm| llm.with_params(Arc::new(object(r#"{"temperature":0.2}"#).unwrap())));
    options = options
        .map_llm(|llm| llm.with_structure(Arc::new(object(r#"{"type":"object"}"#).unwrap())));
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(turn.data.unwrap().as_str(), r#"{"x":1}"#);
    let request = &model.requests()[0];
    assert_eq!(request.system.as_deref(), Some("be brief"));
    assert_eq!(
        request.params.as_ref().unwrap().as_str(),
        r#"{"temperature":0.2}"#
    );
    assert!(request.structure.is_some());
}

/// Says the same twice, then ends: a strategy from outside the crate.
struct Twice;

impl ExecutionStrategy for Twice {
    fn name(&self) -> &str {
        "twice"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(TwiceRun)
    }
}

struct TwiceRun;

impl StrategyRun for TwiceRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => Command::StartStep(EventData::phase("twice")),
            Outcome::StepStarted => Command::Infer(Inference::action()),
            Outcome::Inferred { .. } => Command::EndStep(EventData::phase("twice")),
            Outcome::StepEnded if context.step < 2 => Command::StartStep(EventData::phase("twice")),
            Outcome::Failed(error) => Command::Fail(error),
            _ => Command::Finish,
        }
    }
}

// spec: UAP-5-5, UAP-2-3
#[test]
fn a_custom_strategy_has_streams_hooks_checkpoints_and_abort() {
    let store = Arc::new(MemoryCheckpoints::default());
    let hooks = Arc::new(Noting::default());
    let model = Arc::new(ScriptedModel::with(|_| Some(calling("x", "c", "{}"))));
    let options = options(&model)
        .with_execution(Arc::new(Twice))
        .with_checkpoints(store.clone())
        .with_session_id("s")
        .with_strategy(hooks.clone());
    let agent = agent(options).unwrap();
    let mut stream = agent.stream("go", &agent.initial_state());
    let mut events = 0;
    while block_on(stream.next()).is_some() {
        events += 1;
    }
    assert_eq!(events, 24);
    let result = block_on(stream.result()).unwrap();
    assert_eq!(block_on(store.load("s")).unwrap().unwrap(), result.state);
    assert_eq!(
        hooks
            .take()
            .iter()
            .filter(|hook| hook.starts_with("observe"))
            .count(),
        2
    );
    let aborted = agent.stream("go", &agent.initial_state());
    aborted.abort();
    assert_eq!(
        block_on(aborted.result()).unwrap_err().error.code,
        ErrorCode::Cancelled
    );
}

#[test]
fn what_the_model_cannot_do_is_said_when_the_agent_is_made() {
    let mut none = upp::LlmCapabilities::text();
    none.tools = false;
    let model = Arc::new(ScriptedModel::new([]).with_capabilities(none));
    assert_eq!(
        agent(options(&model)).unwrap_err().code,
        ErrorCode::InvalidRequest
    );
}

// spec: UAP-1-1
#[test]
fn no_type_of_upp_is_handed_on_or_wrapped() {
    fn read(folder: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, text);
            } else {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut text = String::new();
    read(
        std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")),
        &mut text,
    );
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("pub "))
    {
        assert!(!line.contains("use upp"), "{line}");
        assert!(
            !(line.starts_with("pub type") && line.contains("upp::")),
            "{line}"
        );
        let wraps = [
            "Message",
            "Turn",
            "Thread",
            "Tool",
            "TokenUsage",
            "LlmInstance",
            "UppError",
            "StreamEvent",
        ];
        let is_wrapper = wraps
            .iter()
            .any(|name| line.contains("struct") && line.contains(&format!("({name})")));
        assert!(!is_wrapper, "{line}");
    }
}

#[test]
fn the_engine_cancels_its_effects_and_is_closed_after_its_end() {
    let model: upp::ModelReference = script([]);
    let llm = upp::llm(upp::LlmOptions::new(model)).unwrap();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let ids = &mut IdSource::seeded(2);
    let state = AgentState::initial(ids);
    let input = Message::user(upp::Stamp::new(ids, now.wall), "go");
    let start = RunStart::new("agent", state, input);
    let config = EngineConfig::new(llm, tool_loop(LoopOptions::default()).unwrap());
    let mut engine = Engine::new(now, config, IdSource::seeded(3), start);
    assert!(matches!(engine.poll_output(), Some(Output::Event(_))));
    let Some(Output::Infer(asked, _)) = engine.poll_output() else {
        panic!()
    };
    assert!(engine.poll_output().is_none());
    // An answer that nobody waits for is void.
    engine
        .handle_input(now, Input::Hook(asked, Ok(HookAnswer::Stop(true))))
        .unwrap();
    assert!(engine.poll_output().is_none());
    engine.handle_input(now, Input::Abort).unwrap();
    assert!(matches!(engine.poll_output(), Some(Output::Cancel(id)) if id == asked));
    assert!(matches!(
        engine.poll_output(),
        Some(Output::Finished(Err(_)))
    ));
    assert!(engine.is_closed() && engine.handle_input(now, Input::Abort).is_err());
}

/// A model whose vendor pauses every message with the text "…".
struct Pausing(Arc<ScriptedModel>);

impl upp::LlmModel for Pausing {
    fn provider(&self) -> &str {
        self.0.provider()
    }
    fn model_id(&self) -> &str {
        self.0.model_id()
    }
    fn capabilities(&self) -> upp::LlmCapabilities {
        self.0.capabilities()
    }
    fn complete(
        &self,
        request: upp::LlmRequest,
    ) -> futures::future::BoxFuture<'static, Result<upp::LlmResponse, upp::UppError>> {
        let response = self.0.complete(request);
        Box::pin(async {
            let mut response = response.await?;
            if response.message.text() == "…" {
                response.stop_reason = "pause_turn".into();
            }
            Ok(response)
        })
    }
}

// spec: UAP-5-1
#[test]
fn a_paused_message_goes_on() {
    let run = |replies: &[&str], options: fn(AgentOptions) -> AgentOptions| {
        let model = script(replies.iter().map(|text| Reply::text(*text)));
        let pausing: upp::ModelReference = Arc::new(Pausing(Arc::clone(&model)));
        let agent = agent(options(
            self::options(&model).map_llm(|llm| llm.with_model(pausing)),
        ))
        .unwrap();
        (
            block_on(agent.generate("go", &agent.initial_state())),
            model.requests(),
        )
    };
    let (result, requests) = run(&["…", "…", "done"], |options| options);
    let result = result.unwrap();
    assert_eq!(result.turn.response.text(), "done");
    assert_eq!((result.turn.cycles, result.state.step()), (3, 1));
    assert_eq!(
        roles(&requests[2]),
        ["user:go", "assistant:…", "assistant:…"]
    );
    // A request of the strategy's goes on, too, and without its prompt.
    let (result, requests) = run(&["…", "thought", "…", "done"], |options| {
        options
            .with_execution(react(ReactOptions::default().with_reasoning_prompt("think")).unwrap())
    });
    assert_eq!(result.unwrap().turn.response.text(), "done");
    assert_eq!(
        roles(&requests[1]),
        ["user:go", "user:think", "assistant:…"]
    );
    assert!(roles(&requests[3]).last().unwrap().ends_with("assistant:…"));
    // A pause counts as a round of the tool strategy's limit; behind it the message stays paused.
    struct Once;
    impl ToolUseStrategy for Once {
        fn max_iterations(&self) -> Option<u64> {
            Some(1)
        }
    }
    let (result, requests) = run(&["…", "…", "never"], |options| {
        options.map_llm(|llm| llm.with_tool_strategy(Arc::new(Once)))
    });
    assert_eq!(
        (
            result.unwrap().turn.response.text().as_str(),
            requests.len()
        ),
        ("…", 2)
    );
}

#[test]
fn errors_of_agents_are_returned_with_a_question_mark() {
    fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let model = script([Reply::error(ErrorCode::Timeout, "too slow")]);
        let agent = agent(options(&model))?;
        block_on(agent.generate("go", &agent.initial_state()))?;
        Ok(())
    }
    assert!(run().unwrap_err().to_string().contains("too slow"));
}

// spec: UAP-5-5
#[test]
fn data_are_those_of_an_answer_and_not_of_a_thought() {
    let thought = RawBuf::parse(r#"{"x":0}"#).unwrap();
    let model = script([Reply::text("hm").with_data(thought), Reply::text("done")]);
    let options = options(&model).with_execution(react(ReactOptions::default()).unwrap());
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!((turn.response.text().as_str(), turn.data), ("done", None));
    // Nor are they there where no answer comes after the thought.
    let thought = Reply::text("hm").with_data(RawBuf::parse(r#"{"x":0}"#).unwrap());
    let model = script([thought, Reply::error(ErrorCode::ProviderError, "no")]);
    let options = self::options(&model).with_execution(react(ReactOptions::default()).unwrap());
    let agent = agent(options).unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    assert_eq!(error.turn.unwrap().data, None);
}
