//! Journals: what is recorded is not done again, and what is not is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use uap_agent::HookFuture;
use uap_agent::journal::{Journal, JournalError, MemoryJournal, Recording};
use uap_agent::middleware::retry;
use uap_agent::strategy::{Command, Inference, Outcome, StrategyRun};
use uap_agent::{
    AgentOptions, AgentStreamEvent, EventData, ExecutionContext, ExecutionStrategy, GenerateResult,
    LoopOptions, MemoryCheckpoints, Middleware, MiddlewareContext, PlanOptions, ReactOptions,
    Runtime, SubagentTool, agent, plan, react, tool_loop,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::{RawObject, to_string};
use ubos_common::time::{Mono, Now};
use ubos_conformance::uap::check_resume;
use upp::{
    ErrorCode, FnTool, LinearBackoff, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, Message,
    ModelEvent, ModelStream, Reply, ScriptedModel, StreamEvent, StreamEventType, Tool, UppError,
    object,
};

use crate::support::{Noting, Still, calling, echo, options, script};

#[cfg(feature = "log")]
mod bounds;
mod budgets;
mod golden;
#[cfg(feature = "log")]
mod kill;
pub(crate) mod lease;
mod nested;
pub(crate) mod people;
mod recorder;
mod refused;

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
    if !request.offers_tools() {
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

pub(crate) fn strategies() -> [Arc<dyn ExecutionStrategy>; 3] {
    [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ]
}

pub(crate) fn asking(execution: &Arc<dyn ExecutionStrategy>) -> AgentOptions {
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
            let mut run = recorded.record(journal.clone(), "go", &state);
            let mut events = Vec::new();
            while let Some(event) = run.next().await {
                events.push(event);
            }
            (events, run.result().await.unwrap())
        });
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        assert!(recording.has_ended() && recording.outstanding().is_empty());
        assert_eq!(recording.agent_id(), recorded.id());

        // Another agent, whose model, tools and hooks must not be asked for anything.
        let hooks = Arc::new(Noting::default());
        let model = script([]);
        let mut silent = asking(&execution).with_strategy(hooks.clone());
        silent = silent.map_llm(|llm| llm.with_model(model.clone()));
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

/// Two questions, with a message and reasoning of its own between them.
struct Custom;

struct CustomRun(u8);

impl ExecutionStrategy for Custom {
    fn name(&self) -> &str {
        "custom"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(CustomRun(0))
    }
}

impl StrategyRun for CustomRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        self.0 += 1;
        match (self.0, outcome) {
            (1, _) => Command::Append(vec![context.input.clone()]),
            (2, _) => Command::StartStep(EventData::phase("custom")),
            (3, _) => Command::Reason("because".into()),
            (4, _) => Command::Infer(Inference::action().with_prompt("first")),
            (5, Outcome::Failed(error)) => Command::Fail(error),
            (5, _) => Command::EndStep(EventData::phase("custom")),
            (6, _) => Command::StartStep(EventData::phase("custom")),
            (7, _) => Command::Infer(Inference::action()),
            (8, _) => Command::EndStep(EventData::phase("custom")),
            _ => Command::Finish,
        }
    }
}

/// Keeps two messages of the history, notes in the metadata, and says so in the state that it gives back.
struct Windowing;

impl Middleware for Windowing {
    fn name(&self) -> &str {
        "windowing"
    }
    fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        let last: Vec<_> = context.state.messages().iter_from(1).cloned().collect();
        context.state = context.state.with_context(&mut context.ids, last);
        context
            .metadata
            .insert("kept".into(), upp::json_text("yes"));
        Box::pin(async { Ok(()) })
    }
    fn after<'a>(
        &'a self,
        context: &'a mut MiddlewareContext,
        mut result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        let kept = context.metadata.get("kept").cloned().unwrap();
        result.state = result.state.with_metadata(&mut context.ids, "kept", kept);
        Box::pin(async { Ok(result) })
    }
}

fn everything(execution: &Arc<dyn ExecutionStrategy>) -> AgentOptions {
    asking(execution)
        .with_strategy(Arc::new(Noting::default()))
        .with_middleware([Arc::new(Windowing) as Arc<dyn Middleware>])
        .with_checkpoints(Arc::new(MemoryCheckpoints::default()))
        .with_session_id("s")
}

// spec: UAP-12-5
#[test]
fn a_run_that_is_cut_anywhere_resumes_to_the_same_end() {
    let custom: Arc<dyn ExecutionStrategy> = Arc::new(Custom);
    for execution in strategies().iter().chain([&custom]) {
        let checked = block_on(check_resume(|| everything(execution), "go"));
        let checked = checked.unwrap_or_else(|fault| panic!("{}: {fault}", execution.name()));
        // Each entry is a cut, and each write two.
        assert!(
            checked.entries > 30 && checked.interruptions > 2 * checked.entries,
            "{checked:?}"
        );
        assert!(checked.repeated_tools > 6, "{checked:?}");
    }
}

// spec: UAP-12-5
#[test]
fn agents_that_are_called_as_tools_are_not_run_again() {
    let [looped, ..] = strategies();
    let options = || {
        let inner = agent(options(&script([Reply::text("found")]))).unwrap();
        let schema = object("{}").unwrap();
        let ask = SubagentTool::new(inner, "other", "", schema, |_| Ok("look".into()));
        let mut options =
            asking(&looped).with_tools([echo("echo"), Arc::new(ask) as Arc<dyn Tool>]);
        options = options.map_llm(|llm| {
            llm.with_model(Arc::new(ScriptedModel::with(|request| {
                match request.messages.len() {
                    1 => by_request(request),
                    n => Some(Reply::text(format!("{n} messages"))),
                }
            })))
        });
        options
    };
    block_on(check_resume(options, "go")).unwrap();
    let (_, _, result) = recorded(options());
    assert_eq!(result.state.subagent_traces().len(), 1);
}

// spec: UAP-12-5
#[test]
fn resumed_runs_end_as_the_recorded_ones() {
    let failing = |request: &LlmRequest| match request.messages.len() {
        0..4 => by_request(request),
        _ => Some(Reply::error(ErrorCode::RateLimited, "slow down")),
    };
    let result = block_on(recovered());
    for execution in strategies() {
        for recovers in [false, true] {
            let options = || {
                let mut options = everything(&execution);
                options =
                    options.map_llm(|llm| llm.with_model(Arc::new(ScriptedModel::with(failing))));
                let hooks = Noting {
                    recovers_with: recovers.then(|| result.clone()),
                    ..Noting::default()
                };
                options.with_strategy(Arc::new(hooks))
            };
            block_on(check_resume(options, "go")).unwrap();
        }
    }
}

/// A result of another run.
async fn recovered() -> GenerateResult {
    let other = agent(options(&script([Reply::text("instead")]))).unwrap();
    other.generate("x", &other.initial_state()).await.unwrap()
}

/// A clock that stands still and waits for nothing.
struct Hasty;

impl Sleep for Hasty {
    fn now(&self) -> Now {
        Still.now()
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Fails, after a piece of an answer where it says so.
struct Failing(bool);

impl LlmModel for Failing {
    fn provider(&self) -> &str {
        "failing"
    }
    fn model_id(&self) -> &str {
        "failing"
    }
    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities::text()
    }
    fn complete(&self, _: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        Box::pin(async {
            Err(UppError::new(
                ErrorCode::RateLimited,
                "failing",
                "slow down",
            ))
        })
    }
    fn stream(&self, request: LlmRequest) -> ModelStream {
        let start = StreamEvent::bare(StreamEventType::MessageStart, 0);
        let piece = self.0.then_some(Ok(ModelEvent::Event(start)));
        let failure = self
            .complete(request)
            .map(|result| Err(result.unwrap_err()));
        Box::pin(futures::stream::iter(piece).chain(futures::stream::once(failure)))
    }
}

// spec: UAP-12-5
#[test]
fn repeated_attempts_are_counted_on_after_a_resume() {
    let [looped, ..] = strategies();
    let entries = |heard: bool| {
        let options = || {
            let mut options = asking(&looped)
                .with_middleware([retry(Arc::new(LinearBackoff::default()))])
                .with_runtime(Runtime::new(Arc::new(Hasty), IdSource::seeded(7)));
            options = options.map_llm(|llm| llm.with_model(Arc::new(Failing(heard))));
            options
        };
        block_on(check_resume(options, "go")).unwrap().entries
    };
    // Where nothing was heard it is asked four times, with waits between; else once.
    assert!(entries(false) > entries(true) + 12);
}

// spec: UAP-12-5
#[test]
fn a_store_accepts_the_saves_of_a_resumed_run() {
    let [looped, ..] = strategies();
    let store = Arc::new(MemoryCheckpoints::default());
    let options = || {
        asking(&looped)
            .with_checkpoints(store.clone())
            .with_session_id("s")
    };
    block_on(check_resume(options, "go")).unwrap();
}

// spec: UAP-12-5
#[test]
fn a_harness_that_watches_finds_what_is_wrong() {
    let [looped, ..] = strategies();
    // A strategy's prompt that is another at each run.
    struct Moody(std::sync::atomic::AtomicU64);
    impl ExecutionStrategy for Moody {
        fn name(&self) -> &str {
            "moody"
        }
        fn begin(&self) -> Box<dyn StrategyRun> {
            let mood = self.0.fetch_add(1, Ordering::Relaxed);
            Box::new(MoodyRun(mood))
        }
    }
    struct MoodyRun(u64);
    impl StrategyRun for MoodyRun {
        fn next(&mut self, outcome: Outcome, _: &mut ExecutionContext<'_>) -> Command {
            match outcome {
                Outcome::Started => Command::StartStep(EventData::phase("x")),
                Outcome::StepStarted => {
                    Command::Infer(Inference::action().with_prompt(format!("mood {}", self.0)))
                }
                Outcome::Inferred { .. } => Command::EndStep(EventData::phase("x")),
                _ => Command::Finish,
            }
        }
    }
    let moody: Arc<dyn ExecutionStrategy> = Arc::new(Moody(0.into()));
    let fault = block_on(check_resume(|| asking(&moody), "go")).unwrap_err();
    assert!(fault.to_string().contains("the result differs"), "{fault}");

    // A model that answers by how often it is asked.
    let counting = || {
        let mut n = 0;
        let mut options = asking(&looped);
        options = options.map_llm(|llm| {
            llm.with_model(Arc::new(ScriptedModel::with(move |_| {
                n += 1;
                Some(if n < 3 {
                    calling("x", &format!("c{n}"), "{}")
                } else {
                    Reply::text("done")
                })
            })))
        });
        options
    };
    assert!(block_on(check_resume(counting, "go")).is_err());
}

fn recorded(options: AgentOptions) -> (uap_agent::Agent, Arc<MemoryJournal>, GenerateResult) {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let state = agent.initial_state();
    let result = block_on(agent.record(journal.clone(), "go", &state).result()).unwrap();
    (agent, journal, result)
}

/// The journal's first entries.
fn cut(journal: &MemoryJournal, entries: usize) -> Arc<MemoryJournal> {
    let kept = Arc::new(MemoryJournal::default());
    let mut all = block_on(journal.read()).unwrap();
    all.truncate(entries);
    block_on(kept.append(0, all)).unwrap();
    kept
}

// spec: UAP-12-5
#[test]
fn a_journal_costs_what_the_run_adds_and_not_what_it_adds_up_to() {
    let [looped, ..] = strategies();
    let bytes = |rounds: usize| -> usize {
        let mut options = asking(&looped).with_strategy(Arc::new(Noting::default()));
        options = options.map_llm(|llm| {
            llm.with_model(Arc::new(ScriptedModel::with(move |request| {
                let round = request.messages.len() / 2;
                let more = calling("more", &format!("c{round}"), "{}");
                Some(if round < rounds {
                    more
                } else {
                    Reply::text("done")
                })
            })))
        });
        let (_, journal, _) = recorded(options);
        block_on(journal.read())
            .unwrap()
            .iter()
            .map(|entry| entry.as_str().len())
            .sum()
    };
    let (short, long) = (bytes(100), bytes(400));
    assert!(long < short * 9 / 2, "{short} and {long} bytes");
}

/// What a journal counts.
fn size(entries: &[RawObject]) -> usize {
    entries.iter().map(|entry| entry.as_str().len() + 32).sum()
}

// spec: UAP-12-5
#[test]
fn a_journal_that_fails_ends_the_run() {
    let [looped, ..] = strategies();
    let (_, whole, _) = recorded(asking(&looped));
    let bytes = size(&block_on(whole.read()).unwrap());
    for most in [1, bytes / 2, bytes - 10] {
        let journal = Arc::new(MemoryJournal::with_max_bytes(most).unwrap());
        let model = Arc::new(ScriptedModel::with(by_request));
        let mut options = asking(&looped);
        options = options.map_llm(|llm| llm.with_model(model.clone()));
        let small = agent(options).unwrap();
        let state = small.initial_state();
        let ended = block_on(small.record(journal.clone(), "go", &state).result());
        if most == bytes - 10 {
            // Only the end was not written: the result holds, and so does the journal.
            assert!(ended.is_ok());
        } else {
            let error = ended.unwrap_err();
            let cause = error.error.cause.as_ref().unwrap();
            let full = JournalError::Full {
                limit: most,
                unit: "bytes",
            };
            assert_eq!(cause.downcast_ref::<JournalError>(), Some(&full));
            assert_eq!(model.requests().is_empty(), most == 1);
        }
    }
    // A journal is good for one run.
    let (used, journal, _) = recorded(asking(&looped));
    let again = block_on(
        used.record(journal.clone(), "go", &used.initial_state())
            .result(),
    );
    let error = again.unwrap_err().error.to_string();
    assert!(error.contains("another run writes to it"), "{error}");
    let empty = Arc::new(MemoryJournal::default());
    assert_eq!(
        block_on(used.resume(empty)).unwrap_err(),
        JournalError::Empty
    );
}

// spec: UAP-12-5
#[test]
fn an_abort_is_recorded_like_an_answer() {
    let [looped, ..] = strategies();
    let journal = Arc::new(MemoryJournal::default());
    let mut options = asking(&looped);
    options = options.map_llm(|llm| {
        llm.with_model(Arc::new(ScriptedModel::with(|request| {
            match request.messages.len() {
                0..3 => by_request(request),
                _ => Some(Reply::default().after(core::future::pending)),
            }
        })))
    });
    let agent = agent(options).unwrap();
    let state = agent.initial_state();
    let ended = block_on(async {
        let mut run = agent.record(journal.clone(), "go", &state);
        while run.next().now_or_never().is_some() {}
        run.abort();
        run.result().await.unwrap_err()
    });
    assert_eq!(ended.error.code, ErrorCode::Cancelled);
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    assert!(recording.has_ended() && recording.outstanding().is_empty());
    let replayed = agent
        .replay(&recording)
        .unwrap()
        .result
        .unwrap()
        .unwrap_err();
    assert_eq!(replayed.state.to_json(), ended.state.to_json());
    assert_eq!(to_string(&replayed.error), to_string(&ended.error));
    // Killed behind the abort, the run is not taken up again but ended.
    let entries = block_on(journal.read()).unwrap();
    let abort = entries
        .iter()
        .position(|e| e.as_str().contains(r#""abort":true"#))
        .unwrap();
    for count in abort + 1..=entries.len() {
        let kept = cut(&journal, count);
        let resumed = block_on(async { agent.resume(kept.clone()).await.unwrap().result().await });
        assert_eq!(resumed.unwrap_err().state.to_json(), ended.state.to_json());
        assert_eq!(block_on(kept.read()).unwrap(), entries);
    }
}

// spec: UAP-12-5
#[test]
fn of_two_who_resume_one_run_at_once_one_does_nothing() {
    let [looped, ..] = strategies();
    let (_, whole, result) = recorded(asking(&looped));
    let entries = block_on(whole.read()).unwrap();
    let call = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""kind":"tool""#))
        .unwrap();
    // Killed while its tools ran.
    for count in [call, call + 1, call + 3] {
        let kept = cut(&whole, count);
        let ran = Arc::new(AtomicUsize::new(0));
        let counting = |name: &str| -> Arc<dyn Tool> {
            let ran = Arc::clone(&ran);
            let schema = object(r#"{"type":"object"}"#).unwrap();
            let run = move |arguments: RawObject, _| {
                ran.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok(arguments.into()))
            };
            Arc::new(FnTool::new(name, "Echoes", schema, run))
        };
        let (one, mut options) = (agent(asking(&looped)).unwrap(), asking(&looped));
        options = options.with_tools([counting("echo"), counting("other")]);
        let other = agent(options).unwrap();
        let (first, second) = block_on(async {
            let first = one.resume(kept.clone()).await.unwrap();
            let second = other.resume(kept.clone()).await.unwrap();
            (first.result().await, second.result().await)
        });
        assert_eq!(first.unwrap(), result);
        let error = second.unwrap_err().error.to_string();
        assert!(
            error.contains("epoch 2 is over") || error.contains("another run writes to it"),
            "{error}"
        );
        assert_eq!(ran.load(Ordering::Relaxed), 0, "cut at {count}");
    }
}

// spec: UAP-12-5
#[test]
fn an_abort_whose_end_cannot_be_written_is_an_abort() {
    let [looped, ..] = strategies();
    let aborted = |most: usize| {
        let journal = Arc::new(MemoryJournal::with_max_bytes(most).unwrap());
        let mut options = asking(&looped);
        options = options.map_llm(|llm| {
            llm.with_model(Arc::new(ScriptedModel::with(|_| {
                Some(Reply::default().after(core::future::pending))
            })))
        });
        let agent = agent(options).unwrap();
        let state = agent.initial_state();
        let error = block_on(async {
            let mut run = agent.record(journal.clone(), "go", &state);
            while run.next().now_or_never().is_some() {}
            run.abort();
            run.result().await.unwrap_err()
        });
        (error.error.code, block_on(journal.read()).unwrap())
    };
    let (_, whole) = aborted(256 << 20);
    let (end, before) = whole.split_last().unwrap();
    assert!(end.as_str().contains(r#""end":"#));
    let (code, kept) = aborted(size(before));
    assert_eq!((code, kept.len()), (ErrorCode::Cancelled, before.len()));
}
