//! Runs among developers' code that panics, spins, aborts at the wrong moment or works on threads of its own.

#![expect(
    clippy::disallowed_methods,
    reason = "tools of developers start threads, and so do these"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use uap_agent::HookFuture;
use uap_agent::middleware::retry;
use uap_agent::strategy::{Command, Inference, Outcome, StrategyRun};
use uap_agent::{
    Agent, AgentError, AgentOptions, AgentState, AgentStrategy, EventData, ExecutionContext,
    ExecutionStrategy, GenerateResult, MemoryCheckpoints, Middleware, MiddlewareContext,
    PlanOptions, PlanSteps, RepairPolicy, RunScope, SubagentTool, agent, plan,
};
use uap_agent::{CallVerdict, OutputVerdict};
use uap_agent::{SubagentData, SubagentEvent};
use ubos_common::json::{Limits, RawObject, to_string};
use ubos_common::time::{Mono, Now};
use upp::{
    ErrorCode, FnTool, LlmResponse, Metadata, Reply, Tool, ToolCall, ToolContext, ToolError,
    ToolSet, ToolUseStrategy, UppError, json_text, object,
};

use crate::support::{Noting, calling, echo, options, script, wait_until};

/// Ends the run while it is told of its error, as a hook or as a layer.
#[derive(Default)]
struct Aborting(Mutex<Option<upp::CancelToken>>);

impl Aborting {
    fn abort(&self) -> HookFuture<'_, Option<GenerateResult>> {
        self.0.lock().unwrap().take().unwrap().cancel();
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl AgentStrategy for Aborting {
    fn on_error<'a>(&'a self, _: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        self.abort()
    }
}

impl Middleware for Aborting {
    fn name(&self) -> &str {
        "aborting"
    }
    fn on_error<'a>(
        &'a self,
        _: &'a mut MiddlewareContext,
        _: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        self.abort()
    }
}

// spec: UAP-11-1
#[test]
fn an_abort_beside_the_answer_of_an_error_hook_keeps_the_error() {
    for (is_layer, is_recorded) in [(false, false), (true, false), (false, true), (true, true)] {
        let aborting = Arc::new(Aborting::default());
        let options = options(&script([Reply::error(ErrorCode::QuotaExceeded, "no more")]));
        let options = if is_layer {
            options.with_middleware([aborting.clone() as Arc<dyn Middleware>])
        } else {
            options.with_strategy(aborting.clone())
        };
        let agent = agent(options).unwrap();
        let state = agent.initial_state();
        let run = match is_recorded {
            #[cfg(feature = "canon")]
            true => {
                let journal = Arc::new(uap_agent::journal::MemoryJournal::default());
                agent.record(journal, "go", &state)
            }
            _ => agent.stream("go", &state),
        };
        *aborting.0.lock().unwrap() = Some(run.abort_handle());
        let error = block_on(run.result()).unwrap_err();
        assert_eq!(error.error.code, ErrorCode::QuotaExceeded);
    }
}

const TOLD: usize = 200;

/// Tells a lot from a thread of its own.
fn tell(scope: RunScope, told: Arc<AtomicUsize>) -> JoinHandle<()> {
    spawn(move || {
        for n in 0..TOLD {
            let start = SubagentEvent::Start {
                prompt: "p".into(),
                timestamp: 0,
            };
            block_on(scope.emit(SubagentData::new(n.to_string(), "t", "c1", start)));
            told.fetch_add(1, Ordering::Relaxed);
        }
    })
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Has a thread tell for it, and waits for it or for ever.
fn threaded(threads: Threads, told: Arc<AtomicUsize>, ends: bool) -> Arc<dyn Tool> {
    let run = move |_, context: ToolContext| {
        let scope = context.extensions.get::<RunScope>().unwrap().clone();
        let teller = tell(scope, Arc::clone(&told));
        let (over, wait) = oneshot::channel::<()>();
        let thread = spawn(move || {
            teller.join().unwrap();
            drop(over);
        });
        threads.lock().unwrap().push(thread);
        async move {
            let _ = wait.await;
            if !ends {
                std::future::pending::<()>().await;
            }
            Ok::<_, ToolError>(json_text("done"))
        }
    };
    Arc::new(FnTool::new("echo", "", RawObject::empty(), run))
}

// spec: UAP-8-3
#[test]
fn what_another_thread_tells_wakes_the_reader() {
    let (threads, told) = (Threads::default(), Arc::default());
    let tool = threaded(threads, Arc::clone(&told), true);
    let options = options(&script([calling("x", "c1", "{}"), Reply::text("done")]));
    let agent = agent(options.with_tools([tool])).unwrap();
    let events: Vec<_> = block_on(agent.stream("go", &agent.initial_state()).collect());
    let starts = events
        .iter()
        .filter(|event| to_string(*event).contains("subagent_start"));
    assert_eq!((starts.count(), told.load(Ordering::Relaxed)), (TOLD, TOLD));
}

// spec: UAP-11-1
#[test]
fn who_tells_is_not_held_by_a_reader_that_is_gone() {
    let (threads, told) = (Threads::default(), Arc::default());
    let tool = threaded(Arc::clone(&threads), Arc::clone(&told), false);
    let options = options(&script([calling("x", "c1", "{}")]));
    let agent = agent(options.with_tools([tool])).unwrap();
    let mut run = agent.stream("go", &agent.initial_state());
    wait_until("a tool tells", || {
        let _ = run.next().now_or_never();
        told.load(Ordering::Relaxed) >= 50
    });
    drop(run);
    for thread in std::mem::take(&mut *threads.lock().unwrap()) {
        wait_until("who tells is let go", || thread.is_finished());
        thread.join().unwrap();
    }
    assert_eq!(told.load(Ordering::Relaxed), TOLD);
}

/// A tool of this name that gives nothing, with what its metadata say.
fn ordered(name: &str, uap: &str) -> Arc<dyn Tool> {
    let mut metadata = Metadata::default();
    metadata.set("uap", object(uap).unwrap());
    let run = |_, _| async { Ok(json_text("")) };
    Arc::new(FnTool::new(name, "", RawObject::empty(), run).with_metadata(metadata))
}

// spec: UAP-8-2, UAP-8-4
#[test]
fn ten_thousand_calls_of_one_answer_are_put_in_order() {
    const CALLS: usize = 10_000;
    for tools in [
        // Half of them alone, the others behind them.
        [
            ("a", r#"{"sequential":true}"#),
            ("b", r#"{"dependsOn":["a"]}"#),
        ],
        // All of them in a cycle.
        [
            ("a", r#"{"dependsOn":["b"]}"#),
            ("b", r#"{"dependsOn":["a"]}"#),
        ],
    ] {
        let mut reply = Reply::default();
        for n in 0..CALLS {
            let name = if n % 2 == 0 { "b" } else { "a" };
            reply = reply.calling(n.to_string(), name, RawObject::empty());
        }
        let tools = tools.map(|(name, uap)| ordered(name, uap));
        let options = options(&script([reply, Reply::text("done")])).with_tools(tools);
        let turn = block_on(agent(options).unwrap().query("go")).unwrap();
        let ids = turn
            .tool_executions
            .iter()
            .map(|e| e.tool_call_id.to_string());
        assert!(ids.eq((0..CALLS).map(|n| n.to_string())));
    }
}

/// Goes on and on without asking anybody anything.
struct Spinning(fn(&Outcome) -> Command);

impl ExecutionStrategy for Spinning {
    fn name(&self) -> &str {
        "spinning"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(Self(self.0))
    }
}

impl StrategyRun for Spinning {
    fn next(&mut self, outcome: Outcome, _: &mut ExecutionContext<'_>) -> Command {
        (self.0)(&outcome)
    }
}

// spec: UAP-11-1, UAP-5-5
#[test]
fn a_strategy_without_effects_yields_and_can_be_aborted() {
    let planning = Spinning(|_| Command::Plan(PlanSteps::default()));
    let stepping = Spinning(|outcome| match outcome {
        Outcome::StepStarted => Command::EndStep(EventData::phase("end")),
        _ => Command::StartStep(EventData::phase("start")),
    });
    for (spinning, polls) in [(planning, 20), (stepping, 1_000)] {
        let options = options(&script([])).with_execution(Arc::new(spinning));
        let agent = agent(options).unwrap();
        let mut run = agent.stream("go", &agent.initial_state());
        for _ in 0..polls {
            let _ = run.next().now_or_never();
        }
        run.abort();
        let error = block_on(run.result()).unwrap_err();
        assert_eq!(error.error.code, ErrorCode::Cancelled);
        // It goes no further ahead of its reader than any other run.
        assert!(error.state.step() < 2_000, "{}", error.state.step());
    }
}

/// Puts one message after the other into the state, more than without a pause, then asks.
struct Appending(u64);

impl ExecutionStrategy for Appending {
    fn name(&self) -> &str {
        "appending"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(Self(self.0))
    }
}

impl StrategyRun for Appending {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => Command::StartStep(EventData::phase("append")),
            Outcome::StepStarted | Outcome::Applied if self.0 > 0 => {
                self.0 -= 1;
                let stamp = upp::Stamp::new(context.ids, ubos_common::time::Timestamp::EPOCH);
                Command::Append(vec![upp::Message::user(stamp, "more")])
            }
            Outcome::StepStarted | Outcome::Applied => Command::Infer(Inference::action()),
            Outcome::Inferred { .. } => Command::EndStep(EventData::phase("append")),
            Outcome::Failed(error) => Command::Fail(error),
            _ => Command::Finish,
        }
    }
}

// spec: UAP-5-5
#[test]
fn a_strategy_with_much_to_keep_goes_on_after_its_pauses() {
    let agent =
        agent(options(&script([Reply::text("x")])).with_execution(Arc::new(Appending(600))));
    let turn = block_on(agent.unwrap().query("go")).unwrap();
    assert_eq!(turn.messages.len(), 601);
    ubos_conformance::uap::check_strategy(&Appending(600)).unwrap();
}

/// Panics in all that is asked of it.
struct Panicking;

impl ExecutionStrategy for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(Self)
    }
}

impl StrategyRun for Panicking {
    fn next(&mut self, outcome: Outcome, _: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => Command::StartStep(EventData::phase("one")),
            Outcome::StepStarted => Command::Infer(Inference::action()),
            _ => panic!("secret"),
        }
    }
}

impl Middleware for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }
    fn goes_on(&self, _: Now) -> bool {
        panic!("secret")
    }
}

impl RepairPolicy for Panicking {
    fn call(&self, _: &ToolCall, _: &ToolSet) -> CallVerdict {
        panic!("secret")
    }
    fn output(&self, _: &LlmResponse, _: &RawObject, _: u32) -> OutputVerdict {
        panic!("secret")
    }
}

impl ToolUseStrategy for Panicking {
    fn max_iterations(&self) -> Option<u64> {
        Some(1)
    }
    fn on_max_iterations(&self, _: u64) -> upp::HookFuture<'_, ()> {
        panic!("secret")
    }
}

/// Waits before no request and panics where one goes well.
struct PanickingRetry;

impl upp::RetryStrategy for PanickingRetry {
    fn before_request(&self, _: Mono) -> Duration {
        Duration::ZERO
    }
    fn on_retry(&self, _: upp::Failure<'_>) -> Option<Duration> {
        None
    }
    fn reset(&self) {
        panic!("secret")
    }
}

/// The error of a run whose hooks have been told of it.
fn failed(options: AgentOptions) -> UppError {
    let hooks = Arc::new(Noting::default());
    let agent = agent(options.with_strategy(hooks.clone())).unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    let told = hooks.take().pop().unwrap();
    assert_eq!(told, format!("error {}", error.error.code));
    assert!(!error.to_string().contains("secret"));
    error.error
}

// spec: UAP-10-2
#[test]
fn what_the_developers_code_panics_with_is_the_error_of_the_run() {
    let calls = || {
        options(&script([
            calling("x", "c1", "{}"),
            calling("y", "c2", "{}"),
        ]))
    };
    let strategy = calls().with_execution(Arc::new(Panicking));
    assert_eq!(failed(strategy).code, ErrorCode::ProviderError);
    let layer = calls().with_middleware([Arc::new(Panicking) as Arc<dyn Middleware>]);
    assert_eq!(failed(layer).code, ErrorCode::ProviderError);
    let policy = calls().with_repair(Arc::new(Panicking));
    assert_eq!(failed(policy).code, ErrorCode::ProviderError);
    let mut output = options(&script([Reply::text("x")])).with_repair(Arc::new(Panicking));
    output =
        output.map_llm(|llm| llm.with_structure(Arc::new(object(r#"{"type":"object"}"#).unwrap())));
    assert_eq!(failed(output).code, ErrorCode::ProviderError);
}

// spec: UAP-5-2
#[test]
fn a_panic_of_who_is_told_does_not_change_what_he_is_told_of() {
    let mut rounds = options(&script([
        calling("x", "c1", "{}"),
        calling("y", "c2", "{}"),
    ]));
    rounds = rounds
        .with_tools([echo("echo")])
        .map_llm(|llm| llm.with_tool_strategy(Arc::new(Panicking)));
    assert_eq!(failed(rounds).code, ErrorCode::InvalidRequest);
    let told =
        options(&script([Reply::text("well")])).with_middleware([retry(Arc::new(PanickingRetry))]);
    let turn = block_on(agent(told).unwrap().query("go")).unwrap();
    assert_eq!(turn.response.text(), "well");
}

/// Notes when it is passed.
#[derive(Default)]
struct When(Mutex<Vec<Mono>>);

impl Middleware for When {
    fn name(&self) -> &str {
        "when"
    }
    fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        self.0.lock().unwrap().push(context.now.mono);
        Box::pin(std::future::ready(Ok(())))
    }
}

// spec: UAP-16-1
#[test]
fn agents_with_a_shared_budget_have_one_clock() {
    let when = Arc::new(When::default());
    let agents = [0, 20].map(|wait| {
        std::thread::sleep(Duration::from_millis(wait));
        let layer = when.clone() as Arc<dyn Middleware>;
        let model: upp::ModelReference = script([Reply::text("x")]);
        agent(AgentOptions::new(model).with_middleware([layer])).unwrap()
    });
    for agent in agents {
        block_on(agent.query("go")).unwrap();
    }
    let when = when.0.lock().unwrap();
    assert!(when[0] <= when[1], "{when:?}");
}

// spec: UAP-5-4
#[test]
fn a_long_plan_that_is_written_backwards_is_checked() {
    const STEPS: usize = 10_000;
    let steps: Vec<String> = (0..STEPS)
        .map(|n| match n + 1 {
            STEPS => format!(r#"{{"id":"{n}","description":"d","dependsOn":[]}}"#),
            next => format!(r#"{{"id":"{n}","description":"d","dependsOn":["{next}"]}}"#),
        })
        .collect();
    let text = format!(r#"{{"steps":[{}]}}"#, steps.join(","));
    let hooks = Noting {
        stop_at: Some(1),
        ..Noting::default()
    };
    let options = options(&script([Reply::text(text)]))
        .with_execution(plan(PlanOptions::default()).unwrap())
        .with_strategy(Arc::new(hooks));
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!(result.state.plan().unwrap().len(), STEPS);
}

// spec: UAP-5-4
#[test]
fn a_cut_plan_keeps_the_dependencies_of_its_steps() {
    let step = |id: &str, needs: &str| {
        format!(r#"{{"id":"{id}","description":"d","dependsOn":[{needs}]}}"#)
    };
    let steps = [step("a", ""), step("b", r#""a""#), step("a", "")].join(",");
    let options = options(&script([
        Reply::text(format!(r#"{{"steps":[{steps}]}}"#)),
        Reply::text("a"),
        Reply::text("b"),
    ]))
    .with_execution(plan(PlanOptions::default().with_max_plan_steps(2)).unwrap());
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    let second = result.state.plan().unwrap().get(1).unwrap();
    assert_eq!(*second.depends_on, ["a".into()]);
}

// spec: UAP-4-2, UAP-12-6
#[test]
fn an_input_that_the_history_holds_is_refused() {
    let agent = agent(options(&script([Reply::text("one"), Reply::text("two")]))).unwrap();
    let stamp = upp::Stamp::with_id("mine", ubos_common::time::Timestamp::EPOCH);
    let input = upp::Message::user(stamp, "go");
    let first = block_on(agent.ask(input.clone(), &agent.initial_state())).unwrap();
    let error = block_on(agent.ask(input, &first.state)).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::InvalidRequest);
    assert_eq!(error.state, first.state);
    let second = block_on(agent.ask("go", &error.state)).unwrap();
    let json = second.state.to_json();
    let read = AgentState::from_json(json.as_bytes(), &Limits::default());
    assert_eq!(read.unwrap(), second.state);
}

/// Pending once, then ready: every hook, layer and tool is a moment at which an abort may come.
struct Once(bool);

impl Future for Once {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

fn after_a_turn<'a, T: Send + 'a>(value: T) -> HookFuture<'a, T> {
    Box::pin(async {
        Once(false).await;
        Ok(value)
    })
}

struct Turns;

impl AgentStrategy for Turns {
    fn stop_condition<'a>(&'a self, _: &'a AgentState) -> HookFuture<'a, bool> {
        after_a_turn(false)
    }
    fn on_act<'a>(&'a self, _: u64, _: &'a [ToolCall]) -> HookFuture<'a, ()> {
        after_a_turn(())
    }
    fn on_complete<'a>(&'a self, _: &'a GenerateResult) -> HookFuture<'a, ()> {
        after_a_turn(())
    }
    fn on_error<'a>(&'a self, _: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        after_a_turn(None)
    }
}

impl Middleware for Turns {
    fn name(&self) -> &str {
        "turns"
    }
    fn before<'a>(&'a self, _: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        after_a_turn(())
    }
    fn after<'a>(
        &'a self,
        _: &'a mut MiddlewareContext,
        result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        after_a_turn(result)
    }
    fn on_error<'a>(
        &'a self,
        _: &'a mut MiddlewareContext,
        _: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        after_a_turn(None)
    }
}

/// An agent with a child, both of whose tools, hooks and layers take their turns.
fn taking_turns(fails: bool) -> Agent {
    let slow = || {
        let run = |_, _| async {
            Once(false).await;
            Ok(json_text("done"))
        };
        Arc::new(FnTool::new("echo", "", RawObject::empty(), run)) as Arc<dyn Tool>
    };
    let last = |text| match fails {
        true => Reply::error(ErrorCode::QuotaExceeded, "no more"),
        false => Reply::text(text).in_pieces_of(1),
    };
    let layer = || [Arc::new(Turns) as Arc<dyn Middleware>];
    let child = options(&script([calling("x", "c1", "{}"), last("child")]))
        .with_tools([slow()])
        .with_middleware(layer())
        .with_strategy(Arc::new(Turns));
    let schema = object(r#"{"type":"object"}"#).unwrap();
    let child = SubagentTool::new(agent(child).unwrap(), "child", "", schema, |_| {
        Ok("go".to_owned())
    });
    let both = calling("x", "c1", "{}").calling("c2", "child", RawObject::empty());
    let options = options(&script([both, last("parent")]))
        .with_tools([slow(), Arc::new(child)])
        .with_middleware(layer())
        .with_strategy(Arc::new(Turns))
        .with_checkpoints(Arc::new(MemoryCheckpoints::default()));
    agent(options).unwrap()
}

// spec: UAP-11-1
#[test]
fn an_abort_at_any_moment_ends_the_run() {
    for (fails, is_recorded) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut aborted = 0;
        for moment in 0.. {
            let agent = taking_turns(fails);
            let state = agent.initial_state();
            let mut run = match is_recorded {
                #[cfg(feature = "canon")]
                true => {
                    let journal = Arc::new(uap_agent::journal::MemoryJournal::default());
                    agent.record(journal, "go", &state)
                }
                _ => agent.stream("go", &state),
            };
            let is_over = (0..moment).any(|_| run.next().now_or_never() == Some(None));
            run.abort();
            // Everything is ready after its turn: a run that is not over by now never is.
            let ends = (0..1_000).any(|_| run.next().now_or_never() == Some(None));
            assert!(ends, "at {moment}");
            match run.result().now_or_never().unwrap() {
                Err(error) if error.error.code == ErrorCode::Cancelled => aborted += 1,
                Err(error) => assert_eq!(error.error.code, ErrorCode::QuotaExceeded),
                Ok(_) => assert!(is_over && !fails),
            }
            if is_over {
                break;
            }
        }
        assert!(aborted > 30, "{aborted}");
    }
}
