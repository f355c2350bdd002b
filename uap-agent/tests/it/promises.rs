//! What the specification promises of every run, seen from outside.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::executor::block_on;
use uap_agent::HookFuture as AgentHook;
use uap_agent::strategy::{Command, ExecutionContext, Inference, Outcome, StrategyRun};
use uap_agent::{
    AgentState, AgentStrategy, CheckpointStore, EventData, ExecutionStrategy, GenerateResult,
    LoopOptions, MemoryCheckpoints, PlanOptions, PlanStepStatus, ReactOptions, ThreadTree, agent,
    plan, react, tool_loop,
};
use ubos_common::id::{IdSource, parse_hyphenated};
use ubos_common::json::{RawBuf, RawObject, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    HookFuture, LlmCall, LlmInput, LlmMiddleware, LlmOptions, Message, ModelReference, Permit,
    Reply, Stamp, Tool, ToolCall, ToolExecution, ToolUseStrategy, llm, object,
};

use crate::support::{calling, echo, options, script};

const PLAN: &str = r#"{"steps":[{"id":"one","description":"first","dependsOn":[]},{"description":"second","dependsOn":["one"]}]}"#;

fn strategies() -> [Arc<dyn ExecutionStrategy>; 3] {
    [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ]
}

/// Replies with which the strategy of this name runs one tool and ends.
fn replies(strategy: &str) -> Vec<Reply> {
    let act = [calling("act", "c1", r#"{"a":1}"#), Reply::text("done")];
    let [call, done] = act;
    match strategy {
        "loop" => vec![call, done],
        "react" => vec![Reply::text("think"), call, Reply::text("think"), done],
        _ => vec![Reply::text(PLAN), call, Reply::text("first done"), done],
    }
}

fn is_uuid_v4(text: &str) -> bool {
    parse_hyphenated(text).is_ok_and(|uuid| uuid.get_version_num() == 4)
}

// spec: UAP-3-1
#[test]
fn every_id_that_is_made_is_a_uuid_of_version_4() {
    let store = Arc::new(MemoryCheckpoints::default());
    let make = || {
        let options = options(&script(replies("plan")))
            .with_execution(plan(PlanOptions::default()).unwrap())
            .with_checkpoints(store.clone());
        agent(options).unwrap()
    };
    let agent = make();
    let start = agent.initial_state();
    let result = block_on(agent.generate("go", &start)).unwrap();
    let session = agent.session_id().unwrap();
    let kept = block_on(store.load_metadata(session)).unwrap().unwrap();
    let steps: Vec<_> = result.state.plan().unwrap().iter().collect();
    // The model's own id stays, the one that it left out is made.
    assert_eq!(&*steps[0].id, "one");
    for id in [
        agent.id(),
        session,
        &steps[1].id,
        &start.id().to_string(),
        &result.state.id().to_string(),
        &kept.checkpoint_id.to_string(),
    ] {
        assert!(is_uuid_v4(id), "{id}");
    }
    assert_ne!(start.id(), result.state.id());
    assert!(
        result
            .state
            .messages()
            .iter()
            .all(|message| is_uuid_v4(message.id()))
    );
    let mut ids = IdSource::seeded(3);
    let tree = ThreadTree::new(&mut ids, result.state);
    assert!(is_uuid_v4(&tree.root().id.to_string()));
    let named = options(&script([]))
        .with_session_id("any name at all")
        .with_checkpoints(store.clone());
    assert_eq!(
        uap_agent::agent(named).unwrap().session_id(),
        Some("any name at all")
    );
}

/// Notes what it is given, and puts the input into the state by itself where it is told to.
struct Own {
    appends: bool,
    seen: Arc<Mutex<Vec<(usize, u64, String)>>>,
}

impl ExecutionStrategy for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        let (appends, seen) = (self.appends, Arc::clone(&self.seen));
        Box::new(Self { appends, seen })
    }
}

impl StrategyRun for Own {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => {
                let state = context.state;
                self.seen.lock().unwrap().push((
                    state.messages().len(),
                    state.step(),
                    context.input.text(),
                ));
                match self.appends {
                    true => {
                        let stamp = Stamp::new(context.ids, Timestamp::EPOCH);
                        Command::Append(vec![
                            context.input.clone(),
                            Message::user(stamp, "and more"),
                        ])
                    }
                    false => Command::StartStep(EventData::phase("own")),
                }
            }
            Outcome::Applied => Command::StartStep(EventData::phase("own")),
            Outcome::StepStarted => Command::Infer(Inference::action()),
            Outcome::Inferred { .. } => Command::EndStep(EventData::phase("own")),
            Outcome::Failed(error) => Command::Fail(error),
            _ => Command::Finish,
        }
    }
}

// spec: UAP-4-2, UAP-4-4
#[test]
fn the_input_joins_the_state_once() {
    for appends in [false, true] {
        let seen = Arc::default();
        let own = Own {
            appends,
            seen: Arc::clone(&seen),
        };
        let model = script((0..4).map(|n| Reply::text(n.to_string())));
        let agent = agent(options(&model).with_execution(Arc::new(own))).unwrap();
        let mut ids = IdSource::seeded(9);
        let start = agent.initial_state().with_step(&mut ids, 7);
        let first = block_on(agent.ask("one", &start)).unwrap();
        let second = block_on(agent.ask("two", &first.state)).unwrap();
        let each = if appends { 3 } else { 2 };
        assert_eq!(second.state.messages().len(), 2 * each);
        let given = seen.lock().unwrap().clone();
        assert_eq!(
            given,
            [(0, 7, "one".to_owned()), (each, 1, "two".to_owned())]
        );
        let inputs = second.state.messages().iter().filter(|m| m.text() == "two");
        assert_eq!(inputs.count(), 1);
        // The input is no part of the turn; what the strategy added is.
        assert_eq!(second.turn.messages.len(), each - 1);
        // A message keeps its id, and two runs from one state are independent.
        let message = Message::user(Stamp::with_id("mine", Timestamp::EPOCH), "three");
        let third = block_on(agent.generate(message, &first.state)).unwrap();
        let fourth = block_on(agent.generate("four", &first.state)).unwrap();
        assert_eq!(third.state.messages().get(each).unwrap().id(), "mine");
        assert_eq!(fourth.state.messages().len(), 2 * each);
        assert!(!fourth.state.messages().iter().any(|m| m.text() == "three"));
    }
}

/// Says who it is when the model is asked through it.
struct Wraps(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl LlmMiddleware for Wraps {
    fn wrap(&self, model: ModelReference) -> ModelReference {
        self.1.lock().unwrap().push(self.0);
        model
    }
}

// spec: UAP-4-3
#[test]
fn options_reach_the_calls_they_are_meant_for() {
    let wrapped: Arc<Mutex<Vec<&str>>> = Arc::default();
    for strategy in strategies() {
        let name = strategy.name().to_owned();
        let planned = |n: usize| name == "plan" && n == 0;
        let data = |n: usize| RawBuf::parse(if planned(n) { PLAN } else { "{}" }).unwrap();
        let said = replies(&name).into_iter().enumerate();
        let model = script(said.map(|(n, reply)| match n {
            1 if name == "plan" => Reply::text("first done").with_data(data(n)),
            n => reply.with_data(data(n)),
        }));
        let mut options = options(&model)
            .with_system("be brief")
            .with_execution(strategy);
        options = options.map_llm(|llm| {
            llm.with_params(Arc::new(object(r#"{"temperature":0.2,"x":[1]}"#).unwrap()))
        });
        options = options
            .map_llm(|llm| llm.with_structure(Arc::new(object(r#"{"title":"user's"}"#).unwrap())));
        options = options.map_llm(|llm| {
            llm.with_middleware([
                Arc::new(Wraps("outer", wrapped.clone())) as Arc<dyn LlmMiddleware>,
                Arc::new(Wraps("inner", wrapped.clone())),
            ])
        });
        let turn = block_on(agent(options).unwrap().query("go")).unwrap();
        for (n, request) in model.requests().iter().enumerate() {
            assert_eq!(request.system.as_deref(), Some("be brief"));
            assert_eq!(
                request.params.as_ref().unwrap().as_str(),
                r#"{"temperature":0.2,"x":[1]}"#
            );
            let aside = match name.as_str() {
                "react" => n % 2 == 0,
                "plan" => n == 0,
                _ => false,
            };
            let theirs = request
                .structure
                .as_ref()
                .is_some_and(|s| s.as_str().contains("user's"));
            assert_eq!(
                (!request.offers_tools(), theirs),
                (aside, !aside),
                "{name} {n}"
            );
        }
        // What the planner was given as data is not the run's.
        assert_eq!(turn.data.unwrap().as_str(), "{}");
    }
    assert_eq!(wrapped.lock().unwrap()[..2], ["inner", "outer"]);
}

// spec: UAP-5-2
#[test]
fn the_loop_strategy_gives_the_turn_of_the_tool_loop_of_upp() {
    let scripts: [fn() -> Vec<Reply>; 4] = [
        || vec![Reply::text("at once")],
        || {
            vec![
                calling("a", "c1", r#"{"a":1}"#),
                calling("b", "c2", r#"{"fail":1}"#),
                Reply::text("c"),
            ]
        },
        || {
            vec![
                calling("a", "c1", "{}")
                    .calling("c2", "unknown", RawObject::empty())
                    .calling("c3", "echo", object(r#"{"panic":1}"#).unwrap()),
                Reply::text("c"),
            ]
        },
        || vec![calling("a", "c1", "{}").with_data(RawBuf::parse(r#"{"x":1}"#).unwrap())],
    ];
    for replies in scripts {
        let agent = agent(options(&script(replies()))).unwrap();
        let ours = block_on(agent.generate("go", &agent.initial_state())).unwrap();
        let mut theirs = LlmOptions::new(script(replies()));
        theirs = theirs.with_tools([echo("echo")]);
        let call = LlmCall::new(IdSource::seeded(1), || {
            Now::new(Mono::ZERO, Timestamp::EPOCH)
        });
        let history = ours
            .state
            .messages()
            .iter()
            .take(1)
            .cloned()
            .collect::<Vec<_>>();
        let theirs = block_on(llm(theirs).unwrap().generate(
            &history.into(),
            Vec::<LlmInput>::new(),
            call,
        ))
        .unwrap();
        let plain = |turn: &upp::Turn| {
            let said: Vec<(String, String)> = turn
                .messages
                .iter()
                .map(|m| (m.message_type().to_string(), m.text()))
                .collect();
            let ran: Vec<String> = turn.tool_executions.iter().map(to_string).collect();
            (
                said,
                ran,
                turn.usage.clone(),
                turn.cycles,
                turn.data.clone(),
                turn.response.text(),
            )
        };
        assert_eq!(plain(&ours.turn), plain(&theirs));
        // What the state gains is the input and the turn.
        assert_eq!(ours.state.messages().len(), 1 + ours.turn.messages.len());
    }
}

// spec: UAP-5-3
#[test]
fn calls_where_none_were_offered_are_answered_and_do_not_run() {
    let replies = [
        calling("think", "c1", r#"{"panic":1}"#),
        Reply::text("done"),
    ];
    let model = script(replies);
    let options = options(&model).with_execution(react(ReactOptions::default()).unwrap());
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert!(result.turn.tool_executions.is_empty());
    // What the model is asked next is a history that vendors take.
    let asked: Vec<_> = model.requests()[1]
        .messages
        .iter()
        .map(|m| (m.message_type().to_string(), m.text()))
        .collect();
    assert_eq!(
        asked[3],
        ("tool_result".into(), "no tool can be called here".into())
    );
    assert_eq!(asked.len(), 5);
    assert_eq!(
        result.state.reasoning().iter().next().map(|text| &**text),
        Some("think")
    );
}

/// Keeps every state that a step ends with.
#[derive(Default)]
struct States(Mutex<Vec<AgentState>>);

impl AgentStrategy for States {
    fn on_step_start<'a>(&'a self, _: u64, state: &'a AgentState) -> AgentHook<'a, ()> {
        self.0.lock().unwrap().push(state.clone());
        Box::pin(std::future::ready(Ok(())))
    }
    fn on_step_end<'a>(&'a self, _: u64, result: &'a GenerateResult) -> AgentHook<'a, ()> {
        self.0.lock().unwrap().push(result.state.clone());
        Box::pin(std::future::ready(Ok(())))
    }
}

// spec: UAP-5-6, UAP-2-2
#[test]
fn marks_of_a_plan_show_in_each_state_and_in_no_earlier_one() {
    use PlanStepStatus::{Completed as C, InProgress as I, Pending as P};
    let text = r#"{"steps":[{"id":"last","description":"x","dependsOn":["a","b"]},{"id":"a","description":"x","dependsOn":[]},{"id":"b","description":"x","dependsOn":[]}]}"#;
    // The tool of the first step fails, which the model may mend: the step does not fail.
    let model = script([
        Reply::text(text),
        calling("a", "c1", r#"{"fail":1}"#),
        Reply::text("a done"),
        Reply::text("b done"),
        Reply::text("all done"),
    ]);
    let states = Arc::new(States::default());
    let options = options(&model)
        .with_execution(plan(PlanOptions::default()).unwrap())
        .with_strategy(states.clone());
    let result = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(result.response.text(), "all done");
    let marks = |state: &AgentState| {
        state.plan().map(|plan| {
            plan.iter()
                .map(|step| step.status.clone())
                .collect::<Vec<_>>()
        })
    };
    // Looked at after the run: what a state shows has not changed since.
    let seen: Vec<_> = states.0.lock().unwrap().iter().map(marks).collect();
    let wanted = [
        None,
        Some(vec![P, P, P]),
        Some(vec![P, I, P]),
        Some(vec![P, C, P]),
        Some(vec![P, C, I]),
        Some(vec![P, C, C]),
        Some(vec![I, C, C]),
        Some(vec![C, C, C]),
    ];
    assert_eq!(seen, wanted);
}

type Notes = Arc<Mutex<Vec<&'static str>>>;

struct ToolHooks(Notes);

impl ToolUseStrategy for ToolHooks {
    fn on_tool_call<'a>(&'a self, _: &'a dyn Tool, _: &'a RawObject) -> HookFuture<'a, ()> {
        self.0.lock().unwrap().push("tool call");
        Box::pin(std::future::ready(Ok(())))
    }
    fn on_before_call<'a>(&'a self, _: &'a dyn Tool, _: &'a RawObject) -> HookFuture<'a, Permit> {
        self.0.lock().unwrap().push("before call");
        Box::pin(std::future::ready(Ok(Permit::ProceedWith(
            object(r#"{"a":2}"#).unwrap(),
        ))))
    }
    fn on_after_call<'a>(
        &'a self,
        _: &'a dyn Tool,
        _: &'a RawObject,
        _: &'a RawBuf,
    ) -> HookFuture<'a, Option<RawBuf>> {
        self.0.lock().unwrap().push("after call");
        Box::pin(std::future::ready(Ok(None)))
    }
    fn max_iterations(&self) -> Option<u64> {
        Some(1)
    }
    fn on_max_iterations(&self, _: u64) -> HookFuture<'_, ()> {
        self.0.lock().unwrap().push("most");
        Box::pin(std::future::ready(Ok(())))
    }
}

struct StepHooks(Notes);

impl AgentStrategy for StepHooks {
    fn on_act<'a>(&'a self, _: u64, _: &'a [ToolCall]) -> AgentHook<'a, ()> {
        self.0.lock().unwrap().push("act");
        Box::pin(std::future::ready(Ok(())))
    }
    fn on_observe<'a>(&'a self, _: u64, _: &'a [ToolExecution]) -> AgentHook<'a, ()> {
        self.0.lock().unwrap().push("observe");
        Box::pin(std::future::ready(Ok(())))
    }
}

// spec: UAP-10-3
#[test]
fn tool_hooks_fire_between_act_and_observe_in_every_strategy() {
    for strategy in strategies() {
        let notes = Notes::default();
        let model = script(replies(strategy.name()));
        let mut options = options(&model)
            .with_execution(strategy)
            .with_strategy(Arc::new(StepHooks(notes.clone())));
        options = options.map_llm(|llm| llm.with_tool_strategy(Arc::new(ToolHooks(notes.clone()))));
        let turn = block_on(agent(options).unwrap().query("go")).unwrap();
        assert_eq!(
            *notes.lock().unwrap(),
            ["act", "tool call", "before call", "after call", "observe"]
        );
        assert_eq!(
            turn.tool_executions
                .iter()
                .next()
                .unwrap()
                .arguments
                .as_str(),
            r#"{"a":2}"#
        );
    }
}

// spec: UAP-10-3
#[test]
fn the_tools_are_told_that_no_more_rounds_are_to_come() {
    let notes = Notes::default();
    let model = script([calling("x", "c1", "{}"), calling("x", "c2", "{}")]);
    let options = options(&model)
        .with_tools([echo("echo")])
        .map_llm(|llm| llm.with_tool_strategy(Arc::new(ToolHooks(notes.clone()))));
    assert!(block_on(agent(options).unwrap().query("go")).is_err());
    let told = notes.lock().unwrap();
    assert_eq!(told.iter().filter(|told| **told == "most").count(), 1);
}

fn told(plan_events: bool) -> Vec<String> {
    let options = options(&script(replies("plan")))
        .with_execution(plan(PlanOptions::default()).unwrap())
        .with_plan_events(plan_events);
    let agent = agent(options).unwrap();
    let events: Vec<_> = block_on(agent.stream("go", &agent.initial_state()).collect());
    let json = events
        .iter()
        .map(|event| serde_json::from_str::<serde_json::Value>(&to_string(event)).unwrap());
    json.filter(|event| event["source"] == "uap")
        .map(|event| {
            assert!(
                event.as_object().unwrap().len() == 2
                    && event["uap"].as_object().unwrap().len() == 4
            );
            let about = &event["uap"]["data"]["planStep"]["status"];
            format!(
                "{} {}",
                event["uap"]["type"].as_str().unwrap(),
                about.as_str().unwrap_or("-")
            )
        })
        .collect()
}

// spec: UAP-11-3
#[test]
fn plans_have_events_of_their_own_where_they_are_enabled() {
    let closed = told(false);
    let wanted = [
        "step_start -",
        "step_end -",
        "step_start in_progress",
        "action -",
        "observation -",
        "step_end completed",
        "step_start in_progress",
        "step_end completed",
    ];
    assert_eq!(closed, wanted);
    let open = told(true);
    assert_eq!(open[1], "plan_created -");
    assert_eq!(
        open[3..5],
        ["step_start in_progress", "plan_step_start in_progress"]
    );
    assert_eq!(
        open[7..9],
        ["plan_step_end completed", "step_end completed"]
    );
    let rest: Vec<_> = open
        .into_iter()
        .filter(|event| !event.starts_with("plan"))
        .collect();
    assert_eq!(rest, closed);
}

// spec: UAP-13-1
#[test]
fn every_type_of_the_specification_is_public() {
    use uap_agent::*;
    fn types<T: ?Sized>() {}
    types::<(
        Agent,
        AgentOptions,
        GenerateResult,
        AgentState,
        AgentStateJson,
    )>();
    types::<(
        ExecutionResult,
        LoopOptions,
        ReactOptions,
        PlanOptions,
        PlanStep,
    )>();
    types::<(
        AgentStreamResult,
        AgentStreamEvent,
        UapEventType,
        MiddlewareContext,
    )>();
    types::<(
        CheckpointMetadata,
        ThreadTree,
        ThreadNode,
        SubagentExecutionTrace,
        ToolExecutionTrace,
    )>();
    types::<(dyn ExecutionStrategy,)>();
    types::<dyn Middleware>();
    types::<dyn AgentStrategy>();
    types::<dyn CheckpointStore>();
    types::<ExecutionContext<'static>>();
    // Agents and runs go between threads.
    fn goes<T: Send>() {}
    goes::<(Agent, AgentStreamResult, AgentState, GenerateResult)>();
}
