//! Middleware: the way in, the way out, errors, and what comes with the crate.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use uap_agent::HookFuture;
use uap_agent::middleware::{Budget, LogLevel, LoggingOptions, Price, logging, retry};
use uap_agent::{
    AgentError, CheckpointStore, GenerateResult, MemoryCheckpoints, Middleware, MiddlewareContext,
    PlanOptions, Runtime, agent, plan,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{ErrorCode, LinearBackoff, Message, Reply, Stamp, UppError, json_text};

use crate::support::{Noting, calling, options, script};

type Notes = Arc<Mutex<Vec<String>>>;

/// Notes what it is asked, and does what it is told to do.
#[derive(Clone, Default)]
struct Layer {
    name: &'static str,
    notes: Notes,
    fails_before: bool,
    fails_after: bool,
    panics: bool,
    recovers: Option<GenerateResult>,
    adds: Option<&'static str>,
}

impl Layer {
    fn note(&self, what: &str, context: &MiddlewareContext) {
        let seen = context.metadata.len();
        let text = format!("{} {what} {seen}", self.name);
        self.notes.lock().unwrap().push(text);
    }

    fn fault(&self, what: &str) -> UppError {
        UppError::new(ErrorCode::ProviderError, self.name, what)
    }
}

impl Middleware for Layer {
    fn name(&self) -> &str {
        self.name
    }

    fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        self.note("before", context);
        context
            .metadata
            .insert(self.name.to_owned(), json_text("was here"));
        if let Some(text) = self.adds {
            let stamp = Stamp::new(&mut context.ids, context.now.wall);
            let message = Message::user(stamp, text);
            context.state = context.state.with_message(&mut context.ids, message);
        }
        assert!(!self.panics, "the layer breaks");
        Box::pin(ready(match self.fails_before {
            true => Err(self.fault("before")),
            false => Ok(()),
        }))
    }

    fn after<'a>(
        &'a self,
        context: &'a mut MiddlewareContext,
        mut result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        self.note("after", context);
        result.state =
            result
                .state
                .with_metadata(&mut context.ids, self.name, json_text(&marks(&result)));
        Box::pin(ready(match self.fails_after {
            true => Err(self.fault("after")),
            false => Ok(result),
        }))
    }

    fn on_error<'a>(
        &'a self,
        context: &'a mut MiddlewareContext,
        error: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        self.note(&format!("caught {}", error.error.provider), context);
        Box::pin(ready(Ok(self.recovers.clone())))
    }
}

/// The layers that have marked a result so far.
fn marks(result: &GenerateResult) -> String {
    let marks = ["a", "b", "c"]
        .into_iter()
        .filter(|name| result.state.metadata().value(name).is_some());
    marks.collect()
}

fn layers(notes: &Notes) -> [Layer; 3] {
    ["a", "b", "c"].map(|name| Layer {
        name,
        notes: Arc::clone(notes),
        ..Layer::default()
    })
}

fn stack<const N: usize>(layers: [Layer; N]) -> [Arc<dyn Middleware>; N] {
    layers.map(|layer| Arc::new(layer) as Arc<dyn Middleware>)
}

fn taken(notes: &Notes) -> Vec<String> {
    std::mem::take(&mut notes.lock().unwrap())
}

// spec: UAP-9-1
#[test]
fn layers_are_passed_inwards_in_order_and_outwards_in_reverse() {
    let notes = Notes::default();
    let hooks = Arc::new(Noting::default());
    let mut stacked = layers(&notes);
    stacked[1].adds = Some("from b");
    let model = script([Reply::text("one"), Reply::text("two")]);
    let options = options(&model)
        .with_strategy(hooks.clone())
        .with_middleware(stack(stacked));
    let agent = agent(options).unwrap();
    let wanted = [
        "a before 0",
        "b before 1",
        "c before 2",
        "c after 3",
        "b after 3",
        "a after 3",
    ];
    let before = agent.initial_state();
    let kept = before.clone();
    let result = block_on(agent.generate("go", &before)).unwrap();
    assert_eq!(taken(&notes), wanted);
    assert_eq!(before, kept);
    // What `b` put into the state stands before the input, and the strategy has seen both.
    let said: Vec<String> = model.requests()[0]
        .messages
        .iter()
        .map(Message::text)
        .collect();
    assert_eq!(said, ["from b", "go"]);
    // Each layer saw what those inside of it made of the result.
    let mark = |name: &str| {
        result
            .state
            .metadata()
            .value(name)
            .unwrap()
            .as_str()
            .to_owned()
    };
    assert_eq!(
        [mark("c"), mark("b"), mark("a")],
        [r#""""#, r#""c""#, r#""bc""#]
    );
    assert_eq!(hooks.take().last().unwrap(), "complete");

    // A stream passes them alike, and a second request begins with metadata of its own.
    let events: Vec<_> = block_on(agent.stream("go", &before).collect());
    assert!(!events.is_empty());
    assert_eq!(taken(&notes), wanted);
}

// spec: UAP-4-4, UAP-4-5
#[test]
fn asking_and_querying_pass_the_layers_and_keep_what_they_did() {
    let notes = Notes::default();
    let [mut layer, ..] = layers(&notes);
    layer.adds = Some("note");
    let store = Arc::new(MemoryCheckpoints::default());
    let model = script([Reply::text("1"), Reply::text("2"), Reply::text("3")]);
    let options = options(&model)
        .with_checkpoints(store.clone())
        .with_session_id("talk")
        .with_middleware(stack([layer]));
    let agent = agent(options).unwrap();
    let first = block_on(agent.ask("one", &agent.initial_state())).unwrap();
    let second = block_on(agent.ask("two", &first.state)).unwrap();
    let texts = |state: &uap_agent::AgentState| -> Vec<String> {
        state.messages().iter().map(Message::text).collect()
    };
    assert_eq!(
        texts(&second.state),
        ["note", "one", "1", "note", "two", "2"]
    );
    taken(&notes);
    let turn = block_on(agent.query("three")).unwrap();
    assert_eq!((turn.response.text(), turn.messages.len()), ("3".into(), 1));
    assert_eq!(taken(&notes), ["a before 0", "a after 1"]);
    // The query saw nothing of the talk, and was kept beside it.
    assert_eq!(model.requests()[2].messages.len(), 2);
    assert_eq!(block_on(store.list()).unwrap().len(), 2);
    let talk = block_on(store.load("talk")).unwrap().unwrap();
    assert_eq!(texts(&talk).len(), 6);
}

/// A window that a layer leaves open is what the caller gets back.
// spec: UAP-4-4
#[test]
fn a_history_that_a_layer_replaced_stays_replaced() {
    struct Window;
    impl Middleware for Window {
        fn name(&self) -> &str {
            "window"
        }
        fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
            let last = context.state.messages().last().cloned();
            context.state = context
                .state
                .with_context(&mut context.ids, last.into_iter().collect::<Vec<_>>());
            Box::pin(ready(Ok(())))
        }
    }
    let model = script((0..3).map(|n| Reply::text(n.to_string())));
    let agent =
        agent(options(&model).with_middleware([Arc::new(Window) as Arc<dyn Middleware>])).unwrap();
    let mut state = agent.initial_state();
    for _ in 0..3 {
        state = block_on(agent.ask("more", &state)).unwrap().state;
    }
    let texts: Vec<String> = state.messages().iter().map(Message::text).collect();
    assert_eq!(texts, ["1", "more", "2"]);
}

// spec: UAP-9-2
#[test]
fn an_error_passes_the_layers_that_were_entered_outwards() {
    let good = agent(options(&script([Reply::text("good")]))).unwrap();
    let good = block_on(good.generate("go", &good.initial_state())).unwrap();
    let run = |change: &dyn Fn(&mut [Layer; 3]), replies: Vec<Reply>| {
        let notes = Notes::default();
        let mut stacked = layers(&notes);
        change(&mut stacked);
        let model = script(replies);
        let agent = agent(options(&model).with_middleware(stack(stacked))).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state()));
        let tail: Vec<String> = taken(&notes)
            .into_iter()
            .filter(|note| !note.contains("before"))
            .collect();
        let came_to = result
            .map(|result| marks(&result))
            .map_err(|error| error.error.provider.to_string());
        (came_to, tail.join(", "))
    };
    let hello = || vec![Reply::text("hello")];
    let text = |(came_to, tail): (Result<String, String>, &str)| (came_to, tail.to_owned());
    // A `before`: those that were not entered are not asked.
    assert_eq!(
        run(&|l| l[1].fails_before = true, hello()),
        text((Err("b".into()), "b caught b 2, a caught b 2"))
    );
    // The run itself.
    assert_eq!(
        run(&|_| {}, vec![]),
        text((
            Err("scripted".into()),
            "c caught scripted 3, b caught scripted 3, a caught scripted 3"
        ))
    );
    // An `after`: all were entered.
    assert_eq!(
        run(&|l| l[1].fails_after = true, hello()),
        text((
            Err("b".into()),
            "c after 3, b after 3, c caught b 3, b caught b 3, a caught b 3"
        ))
    );
    // The first that recovers ends it, and no `after` runs.
    let recovered = run(&|l| l[1].recovers = Some(good.clone()), vec![]);
    assert_eq!(
        recovered,
        text((
            Ok(String::new()),
            "c caught scripted 3, b caught scripted 3"
        ))
    );
    // A panic is an error as well.
    let (came_to, tail) = run(&|l| l[2].panics = true, hello());
    assert_eq!(
        (came_to, tail.as_str()),
        (
            Err("uap".into()),
            "c caught uap 2, b caught uap 2, a caught uap 2"
        )
    );
}

// spec: UAP-10-1, UAP-10-2
#[test]
fn the_error_hook_runs_before_the_layers() {
    let good = agent(options(&script([Reply::text("good")]))).unwrap();
    let good = block_on(good.generate("go", &good.initial_state())).unwrap();
    for recovers in [false, true] {
        let notes = Notes::default();
        let hooks = Arc::new(Noting {
            recovers_with: recovers.then(|| good.clone()),
            ..Noting::default()
        });
        let make = || {
            let options = options(&script([]))
                .with_strategy(hooks.clone())
                .with_middleware(stack(layers(&notes)));
            agent(options).unwrap()
        };
        let generates = make();
        let result = block_on(generates.generate("go", &generates.initial_state()));
        assert_eq!(result.is_ok(), recovers);
        let wanted = match recovers {
            true => ["c after 3", "b after 3", "a after 3"],
            false => [
                "c caught scripted 3",
                "b caught scripted 3",
                "a caught scripted 3",
            ],
        };
        assert_eq!(taken(&notes)[3..], wanted);
        assert_eq!(
            hooks.take(),
            ["start 1 messages 1", "error INVALID_REQUEST"]
        );
        // A stream does the same.
        let streams = make();
        let streamed = block_on(streams.stream("go", &streams.initial_state()).result());
        assert_eq!(streamed.is_ok(), recovers);
        assert_eq!(taken(&notes)[3..], wanted);
        assert_eq!(
            hooks.take(),
            ["start 1 messages 1", "error INVALID_REQUEST"]
        );
    }
}

/// The error hook is of the strategy's run: what fails in a layer is the layers' matter.
// spec: UAP-10-2
#[test]
fn the_error_hook_is_not_told_of_layers_that_fail() {
    for in_after in [false, true] {
        let hooks = Arc::new(Noting::default());
        let layer = Layer {
            fails_before: !in_after,
            fails_after: in_after,
            ..Layer::default()
        };
        let options = options(&script([Reply::text("x")]))
            .with_strategy(hooks.clone())
            .with_middleware(stack([layer]));
        assert!(block_on(agent(options).unwrap().query("go")).is_err());
        assert!(!hooks.take().iter().any(|note| note.starts_with("error")));
    }
}

// spec: UAP-9-2, UAP-11-1
#[test]
fn an_abort_passes_the_layers_too() {
    let notes = Notes::default();
    let agent = agent(
        options(&script([Reply::default().after(core::future::pending)]))
            .with_middleware(stack(layers(&notes))),
    )
    .unwrap();
    let run = agent.stream("go", &agent.initial_state());
    let handle = run.abort_handle();
    let mut result = Box::pin(run.result());
    assert!(result.as_mut().now_or_never().is_none());
    handle.cancel();
    let error = block_on(result).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Cancelled);
    assert_eq!(
        taken(&notes)[3..],
        ["c caught uap 3", "b caught uap 3", "a caught uap 3"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However many layers there are and wherever it fails: as many are left as were entered, in reverse.
    // spec: UAP-9-1, UAP-9-2
    #[test]
    fn every_layer_that_is_entered_is_left_once(count in 0..8_usize, fails_at in prop::option::of(0..8_usize), in_after: bool) {
        let notes = Notes::default();
        let stacked: Vec<Arc<dyn Middleware>> = (0..count).map(|n| {
            let fails = fails_at == Some(n);
            let name: &'static str = ["0", "1", "2", "3", "4", "5", "6", "7"][n];
            let layer = Layer { name, notes: Arc::clone(&notes), fails_before: fails && !in_after, fails_after: fails && in_after, ..Layer::default() };
            Arc::new(layer) as Arc<dyn Middleware>
        }).collect();
        let agent = agent(options(&script([Reply::text("x")])).with_middleware(stacked)).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state()));
        let seen = taken(&notes);
        let named = |what: &str| -> Vec<usize> {
            seen.iter().filter(|note| note.contains(what)).map(|note| note[..1].parse().unwrap()).collect()
        };
        let failing = fails_at.filter(|n| *n < count);
        prop_assert_eq!(result.is_ok(), failing.is_none());
        let entered = match failing { Some(n) if !in_after => n + 1, _ => count };
        prop_assert_eq!(named("before"), (0..entered).collect::<Vec<_>>());
        let left = match failing { None => 0, Some(n) if in_after => n, Some(_) => count };
        prop_assert_eq!(named("after"), (left..count).rev().collect::<Vec<_>>());
        let caught = if failing.is_some() { entered } else { 0 };
        prop_assert_eq!(named("caught"), (0..caught).rev().collect::<Vec<_>>());
    }
}

/// A clock that goes on by some milliseconds each time it is read.
struct Ticking(Mutex<u64>);

impl Sleep for Ticking {
    fn now(&self) -> Now {
        let mut at = self.0.lock().unwrap();
        *at += 5;
        Now::new(Mono::from_millis(*at), Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn logged(
    change: impl FnOnce(LoggingOptions) -> LoggingOptions,
    replies: Vec<Reply>,
) -> Vec<String> {
    let notes = Notes::default();
    let kept = Arc::clone(&notes);
    let base = LoggingOptions::new(move |level, line| {
        assert!(line.starts_with(&format!("[UAP:{level}] ")), "{line}");
        kept.lock().unwrap().push(line.to_owned());
    });
    let options = options(&script(replies))
        .with_runtime(Runtime::new(
            Arc::new(Ticking(Mutex::new(0))),
            IdSource::seeded(7),
        ))
        .with_middleware([logging(change(base))]);
    let agent = agent(options).unwrap();
    let id = agent.id().to_owned();
    let _ = block_on(agent.generate("a secret\nquestion", &agent.initial_state()));
    taken(&notes)
        .into_iter()
        .map(|line| line.replace(&id, "ID"))
        .collect()
}

// spec: UAP-9-3
#[test]
fn logging_says_what_it_is_asked_to_say() {
    let hello = || vec![Reply::text("a secret answer")];
    let lines = logged(|options| options, hello());
    assert_eq!(lines[0], "[UAP:INFO] Execution started agent=ID");
    let (head, tail) = lines[1].split_once(" duration=").unwrap();
    assert_eq!(head, "[UAP:INFO] Execution completed agent=ID");
    assert!(tail.ends_with("ms tokens=8"), "{tail}");
    assert!(tail.split_once("ms").unwrap().0.parse::<u64>().unwrap() > 0);
    assert_eq!(lines.len(), 2);
    // Content is in no line, unless both are asked for.
    for level in [LogLevel::Debug, LogLevel::Info] {
        for include in [false, true] {
            let lines = logged(
                |o| o.with_level(level).with_include_messages(include),
                hello(),
            );
            let tells = include && level == LogLevel::Debug;
            assert_eq!(lines.iter().any(|line| line.contains("secret")), tells);
            assert_eq!(lines[0].contains("messages=0"), include);
        }
    }
    let all = |options: LoggingOptions| {
        options
            .with_level(LogLevel::Debug)
            .with_include_messages(true)
    };
    let lines = logged(all, vec![Reply::text("ä".repeat(500))]);
    assert_eq!(lines[1], "[UAP:DEBUG] Input: a secret question");
    assert_eq!(
        lines[3],
        format!("[UAP:DEBUG] Response: {}", "ä".repeat(200))
    );
    // Levels and timing.
    assert!(logged(|o| o.with_level(LogLevel::Error), hello()).is_empty());
    let lines = logged(|o| o.with_include_timing(false), hello());
    assert_eq!(lines[1], "[UAP:INFO] Execution completed agent=ID tokens=8");
    let failing = vec![Reply::error(ErrorCode::RateLimited, "slow\ndown")];
    let lines = logged(|o| o.with_level(LogLevel::Error), failing);
    let (head, tail) = lines[0].split_once(" after ").unwrap();
    assert_eq!(
        head,
        "[UAP:ERROR] Execution failed agent=ID error=RATE_LIMITED (scripted): slow down"
    );
    assert!(tail.ends_with("ms"));
    #[cfg(feature = "os")]
    {
        let defaults = LoggingOptions::default();
        assert_eq!(
            format!("{defaults:?}"),
            "LoggingOptions { level: Info, include_messages: false, include_timing: true, .. }"
        );
        assert_eq!(logging(defaults).name(), "logging");
    }
}

fn spending(
    budget: &Budget,
    replies: Vec<Reply>,
) -> (Result<GenerateResult, Box<AgentError>>, usize) {
    let model = script(replies);
    let options =
        options(&model).with_middleware([Arc::new(budget.clone()) as Arc<dyn Middleware>]);
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state()));
    (result, model.requests().len())
}

// spec: UAP-16-1
#[test]
fn a_budget_ends_runs_well_and_is_shared_by_its_clones_alone() {
    let replies = || {
        vec![
            calling("a", "c1", "{}"),
            calling("b", "c2", "{}"),
            Reply::text("c"),
        ]
    };
    let free = Budget::default();
    assert_eq!(spending(&free, replies()).1, 3);
    assert_eq!((free.tokens(), free.cost()), (24, 0));
    assert_eq!(free.name(), "budget");
    // Two answers of 8 tokens are over 10; the second step still ends as steps do.
    let tokens = Budget::default().with_max_tokens(10);
    let (result, asked) = spending(&tokens, replies());
    let result = result.unwrap();
    assert_eq!(
        (asked, result.state.step(), result.state.messages().len()),
        (2, 2, 5)
    );
    // What is spent stays spent: the next run has no answer to end well with.
    let (refused, asked) = spending(&tokens, replies());
    assert_eq!(
        (refused.unwrap_err().error.code, asked),
        (ErrorCode::QuotaExceeded, 0)
    );
    // 5 tokens in for 3 dollars a million and 3 out for 15: 60 millionths of a dollar an answer.
    let price = Price {
        input: 3_000_000,
        output: 15_000_000,
        ..Price::default()
    };
    let money = Budget::default().with_max_cost(61, price);
    assert_eq!((spending(&money, replies()).1, money.cost()), (2, 120));
    let time = Budget::default().with_max_time(Duration::ZERO);
    assert_eq!(spending(&time, replies()).1, 0);
    // Time counts from the first question on.
    let at = |seconds: u64| Now::new(Mono::from_millis(seconds * 1000), Timestamp::EPOCH);
    let time = Budget::default().with_max_time(Duration::from_secs(5));
    assert_eq!(
        [7, 11, 12].map(|seconds| time.goes_on(at(seconds))),
        [true, true, false]
    );
    let metered = time.model(script([]));
    assert_eq!(metered.provider(), "scripted");
    let shown = format!("{tokens:?}");
    assert!(shown.contains("tokens: 16"), "{shown}");
}

// spec: UAP-16-1
#[test]
fn a_budget_ends_a_step_that_asks_on_and_on() {
    // The one step of this plan calls tools for ever.
    let plan_text = r#"{"steps":[{"id":"1","description":"all","dependsOn":[]}]}"#;
    let model = Arc::new(upp::ScriptedModel::with({
        let mut asked = 0;
        move |_| {
            asked += 1;
            Some(if asked == 1 {
                Reply::text(plan_text)
            } else {
                calling("again", "c", "{}")
            })
        }
    }));
    let budget: Arc<dyn Middleware> = Arc::new(Budget::default().with_max_tokens(30));
    let hooks = Arc::new(Noting::default());
    let strategy = plan(PlanOptions::default()).unwrap();
    let options = options(&model)
        .with_execution(strategy)
        .with_strategy(hooks.clone())
        .with_middleware([budget]);
    let agent = agent(options).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!((result.turn.cycles, result.state.step()), (4, 2));
    let tail = hooks.take();
    assert_eq!(
        tail[tail.len() - 2..],
        ["end 2 messages 10".to_owned(), "complete".to_owned()]
    );
}

/// A clock whose sleeps are noted, and over at once.
#[derive(Default)]
struct Slept(Mutex<Vec<u64>>);

impl Sleep for Slept {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }
    fn sleep_until(&self, deadline: Mono) -> futures::future::BoxFuture<'static, ()> {
        self.0.lock().unwrap().push(deadline.as_nanos() / 1_000_000);
        Box::pin(ready(()))
    }
}

/// Fails in the middle of its answer.
struct CutOff(Arc<upp::ScriptedModel>);

impl upp::LlmModel for CutOff {
    fn provider(&self) -> &str {
        "cut"
    }
    fn model_id(&self) -> &str {
        "off"
    }
    fn capabilities(&self) -> upp::LlmCapabilities {
        upp::LlmCapabilities::text()
    }
    fn complete(
        &self,
        request: upp::LlmRequest,
    ) -> futures::future::BoxFuture<'static, Result<upp::LlmResponse, UppError>> {
        self.0.complete(request)
    }
    fn stream(&self, request: upp::LlmRequest) -> upp::ModelStream {
        let cut = UppError::new(ErrorCode::NetworkError, "cut", "off");
        self.0
            .stream(request)
            .take(1)
            .chain(futures::stream::iter([Err(cut)]))
            .boxed()
    }
}

#[test]
fn failures_that_pass_are_waited_out_as_the_strategy_says() {
    let failing = |n| (0..n).map(|_| Reply::error(ErrorCode::NetworkError, "away"));
    for (failures, works) in [(0, true), (3, true), (4, false)] {
        let model =
            script(failing(failures).chain([calling("x", "c1", "{}"), Reply::text("there")]));
        let clock = Arc::new(Slept::default());
        let layer = retry(Arc::new(LinearBackoff::default()));
        assert_eq!(layer.name(), "retry");
        let options = options(&model)
            .with_runtime(Runtime::new(clock.clone(), IdSource::seeded(1)))
            .with_middleware([layer]);
        let agent = agent(options).unwrap();
        let result = block_on(agent.generate("go", &agent.initial_state()));
        assert_eq!(result.is_ok(), works);
        // The first of four attempts is no retry; what has failed is no cycle of the run.
        assert_eq!(model.requests().len(), if works { failures + 2 } else { 4 });
        assert_eq!(
            *clock.0.lock().unwrap(),
            [1000, 2000, 3000][..failures.min(3)]
        );
        if let Ok(result) = result {
            assert_eq!((result.turn.cycles, result.state.step()), (2, 2));
        }
    }
    // An answer that was begun is not begun again.
    let model = script([Reply::text("hello"), Reply::text("again")]);
    let mut options = options(&model).with_middleware([retry(Arc::new(LinearBackoff::default()))]);
    options = options.map_llm(|llm| llm.with_model(Arc::new(CutOff(model.clone()))));
    let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
    assert_eq!(
        (error.error.code, model.requests().len()),
        (ErrorCode::NetworkError, 1)
    );
}

/// Notes when it is asked, told and put around the model.
struct Counting(Notes);

impl upp::RetryStrategy for Counting {
    fn on_retry(&self, failure: upp::Failure<'_>) -> Option<Duration> {
        self.0
            .lock()
            .unwrap()
            .push(format!("failed {}", failure.attempt));
        Some(Duration::ZERO)
    }
    fn reset(&self) {
        self.0.lock().unwrap().push("went well".into());
    }
}

impl Middleware for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn model(&self, model: upp::ModelReference) -> upp::ModelReference {
        self.0.lock().unwrap().push("around".into());
        model
    }
    fn retries(&self) -> Option<Arc<dyn upp::RetryStrategy>> {
        Some(Arc::new(Self(self.0.clone())))
    }
}

impl upp::LlmMiddleware for Counting {
    fn wrap(&self, model: upp::ModelReference) -> upp::ModelReference {
        self.0.lock().unwrap().push("next to it".into());
        model
    }
}

// spec: UAP-4-3
#[test]
fn the_models_own_middleware_is_innermost() {
    let notes = Notes::default();
    let away = || Reply::error(ErrorCode::NetworkError, "away");
    let model = script([
        away(),
        away(),
        calling("x", "c1", "{}"),
        away(),
        Reply::text("there"),
    ]);
    let mut options =
        options(&model).with_middleware([Arc::new(Counting(notes.clone())) as Arc<dyn Middleware>]);
    options = options.map_llm(|llm| {
        llm.with_middleware([Arc::new(Counting(notes.clone())) as Arc<dyn upp::LlmMiddleware>])
    });
    block_on(agent(options).unwrap().query("go")).unwrap();
    let wanted = [
        "next to it",
        "around",
        "failed 1",
        "failed 2",
        "went well",
        "failed 1",
        "went well",
    ];
    assert_eq!(taken(&notes), wanted);
}

// spec: UAP-11-1
#[test]
fn an_abort_ends_the_wait_before_the_next_attempt() {
    let model = script([
        Reply::error(ErrorCode::NetworkError, "away"),
        Reply::text("never"),
    ]);
    // The clock of these options stands still: a sleep never ends.
    let agent = agent(options(&model).with_middleware([retry(Arc::new(LinearBackoff::default()))]))
        .unwrap();
    let run = agent.stream("go", &agent.initial_state());
    let handle = run.abort_handle();
    let mut result = Box::pin(run.result());
    assert!(result.as_mut().now_or_never().is_none());
    handle.cancel();
    assert_eq!(
        block_on(result).unwrap_err().error.code,
        ErrorCode::Cancelled
    );
    assert_eq!(model.requests().len(), 1);
}
