//! The loop of model and tools: rounds, limits, events, aborts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::task::LocalSpawnExt;
use futures::{FutureExt, StreamExt};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::tool_loop::{Input, Output, RoundOutput, ToolLoop, ToolRound};
use upp::{
    CancelToken, ContentBlock, ErrorCode, Extensions, FnTool, HookFuture, List, LlmCall,
    LlmCapabilities, LlmInput, LlmInstance, LlmOptions, Message, Reply, ScriptedModel, Source,
    StreamEvent, StreamEventType, Tool, ToolCall, ToolContext, ToolUseStrategy, Turn, UppError,
    json_text, llm, object,
};

fn call() -> LlmCall {
    LlmCall::new(IdSource::seeded(7), || {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    })
}

fn empty() -> RawObject {
    object("{}").unwrap()
}

/// Answers at once with its name.
fn quick(name: &'static str) -> Arc<dyn Tool> {
    let run = move |_, _| async move { Ok(json_text(name)) };
    Arc::new(FnTool::new(name, "d", empty(), run))
}

fn instance(
    replies: impl IntoIterator<Item = Reply>,
    tools: Vec<Arc<dyn Tool>>,
    strategy: Option<Arc<dyn ToolUseStrategy>>,
) -> (LlmInstance, Arc<ScriptedModel>) {
    let model = Arc::new(ScriptedModel::new(replies.into_iter().collect::<Vec<_>>()));
    let mut options = LlmOptions::new(model.clone()).with_tools(tools);
    if let Some(strategy) = strategy {
        options = options.with_tool_strategy(strategy);
    }
    (llm(options).unwrap(), model)
}

fn calling(n: u64) -> Reply {
    Reply::text(format!("round {n}"))
        .calling(format!("a{n}"), "first", empty())
        .calling(format!("b{n}"), "second", empty())
        .in_pieces_of(4)
}

fn drain(instance: &LlmInstance) -> (Vec<StreamEvent>, Result<Turn, UppError>) {
    block_on(async {
        let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
        let mut events = Vec::new();
        while let Some(item) = stream.next().await {
            events.extend(item.ok());
        }
        (events, stream.turn().await)
    })
}

// spec: UPP-7, UPP-13
#[test]
fn a_drained_stream_comes_to_the_turn_of_generate() {
    let replies = || [calling(1), calling(2), Reply::text("done").costing(9, 1)];
    let tools = || vec![quick("first"), quick("second")];
    let (one, model) = instance(replies(), tools(), None);
    let whole = block_on(one.generate(&List::default(), ["hi"], call())).unwrap();
    let (other, _) = instance(replies(), tools(), None);
    let (events, streamed) = drain(&other);
    assert_eq!(streamed.unwrap(), whole);
    assert_eq!(
        (whole.cycles, whole.messages.len(), whole.usage.total_tokens),
        (3, 6, 26)
    );
    let ids: Vec<_> = whole
        .tool_executions
        .iter()
        .map(|e| e.tool_call_id.to_string())
        .collect();
    assert_eq!(ids, ["a1", "b1", "a2", "b2"]);
    assert_eq!(whole.response.text(), "done");
    // Each question holds all that came before it, and no more.
    let lengths: Vec<_> = model.requests().iter().map(|r| r.messages.len()).collect();
    assert_eq!(lengths, [1, 3, 5]);

    let types: Vec<_> = events.iter().map(|e| e.event_type.to_string()).collect();
    let round = [
        "message_start",
        "content_block_start",
        "text_delta",
        "text_delta",
        "content_block_stop",
        "tool_call_delta",
        "tool_call_delta",
        "message_stop",
        "tool_execution_start",
        "tool_execution_start",
        "tool_execution_end",
        "tool_execution_end",
    ];
    assert_eq!(types[..24], [round, round].concat());
    let alike = [
        "message_start",
        "content_block_start",
        "text_delta",
        "content_block_stop",
        "message_stop",
    ];
    assert_eq!(types[24..], alike);
}

/// Ends when its partner has been told to run.
fn meeting(name: &'static str, begun: &Arc<AtomicU64>, wait_for: u64) -> Arc<dyn Tool> {
    let begun = Arc::clone(begun);
    let run = move |_, _| {
        let begun = Arc::clone(&begun);
        begun.fetch_add(1, Ordering::SeqCst);
        async move {
            std::future::poll_fn(move |cx| {
                if begun.load(Ordering::SeqCst) >= wait_for {
                    begun.fetch_add(1, Ordering::SeqCst);
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            Ok(json_text(name))
        }
    };
    Arc::new(FnTool::new(name, "d", empty(), run))
}

// spec: UPP-4, UPP-7
#[test]
fn calls_of_a_round_run_together() {
    let begun = Arc::new(AtomicU64::new(0));
    // The first ends only after the second has ended, and the second only after the first has begun.
    let tools = vec![meeting("first", &begun, 3), meeting("second", &begun, 2)];
    let (instance, _) = instance([calling(1), Reply::text("done")], tools, None);
    let (events, turn) = drain(&instance);
    let turn = turn.unwrap();
    let ends: Vec<_> = events
        .iter()
        .filter(|e| e.event_type.as_str() == "tool_execution_end")
        .map(|e| (e.index, e.delta.tool_name.as_deref().unwrap()))
        .collect();
    assert_eq!(ends, [(1, "second"), (0, "first")]);
    let results: Vec<_> = turn
        .tool_executions
        .iter()
        .map(|e| e.result.as_str().to_owned())
        .collect();
    assert_eq!(results, [r#""first""#, r#""second""#]);
}

#[derive(Default)]
struct Limited {
    told: Mutex<Vec<u64>>,
    max: Option<u64>,
}

impl ToolUseStrategy for Limited {
    fn max_iterations(&self) -> Option<u64> {
        self.max
    }
    fn on_max_iterations(&self, rounds: u64) -> HookFuture<'_, ()> {
        self.told.lock().unwrap().push(rounds);
        Box::pin(async { panic!("a hook that panics changes nothing") })
    }
}

// spec: UPP-13
#[test]
fn one_round_too_many_fails_with_what_it_has_come_to() {
    for (max, rounds) in [(None, 10), (Some(1), 1), (Some(0), 0)] {
        let strategy = Arc::new(Limited {
            max,
            ..Limited::default()
        });
        let tools = vec![quick("first"), quick("second")];
        let (instance, model) = instance((1..=20).map(calling), tools, Some(strategy.clone()));
        let error = block_on(instance.generate(&List::default(), ["hi"], call())).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        let partial = error.partial_turn.unwrap();
        assert_eq!(
            (partial.cycles, partial.tool_executions.len()),
            (rounds + 1, 2 * usize::try_from(rounds).unwrap())
        );
        assert_eq!(*strategy.told.lock().unwrap(), [rounds]);
        assert_eq!(model.requests().len() as u64, rounds + 1);
    }
    // Exactly as many rounds as are allowed go well.
    let replies = (1..=10).map(calling).chain([Reply::text("done")]);
    let (instance, _) = instance(replies, vec![quick("first"), quick("second")], None);
    assert_eq!(drain(&instance).1.unwrap().cycles, 11);
}

// spec: UPP-13
#[test]
fn calls_without_tools_or_beside_structured_output_end_the_loop() {
    let (bare, _) = instance([calling(1)], vec![], None);
    let turn = block_on(bare.generate(&List::default(), ["hi"], call())).unwrap();
    assert!(turn.response.has_tool_calls() && turn.tool_executions.is_empty());
    let data = RawBuf::parse("{\"n\":1}").unwrap();
    let (with, _) = instance(
        [calling(1).with_data(data.clone())],
        vec![quick("first")],
        None,
    );
    let turn = block_on(with.generate(&List::default(), ["hi"], call())).unwrap();
    assert_eq!((turn.data, turn.tool_executions.len()), (Some(data), 0));
}

#[test]
fn a_turn_holds_each_input_as_a_message_and_no_history() {
    let (instance, model) = instance([Reply::text("ok")], vec![], None);
    let history: List<Message> = vec![Message::user(crate::stamp(1), "before")].into();
    let inputs: Vec<LlmInput> = vec![
        "a".into(),
        ContentBlock::text("b").into(),
        Message::user(crate::stamp(2), "c").into(),
    ];
    let turn = block_on(instance.generate(&history, inputs, call())).unwrap();
    assert_eq!((turn.messages.len(), history.len()), (4, 1));
    assert_eq!(model.requests()[0].messages.len(), 4);
    assert_eq!(turn.messages.get(2).unwrap().id(), "m-2");
}

// spec: UPP-5
#[test]
fn what_the_model_does_not_take_is_refused_before_it_is_asked() {
    let (refusing, model) = instance([Reply::text("ok")], vec![], None);
    let image = ContentBlock::image(Source::Url("https://x".into()), "image/png");
    let error = block_on(refusing.generate(&List::default(), [image], call())).unwrap_err();
    assert_eq!(
        (error.code, &*error.provider, model.requests().len()),
        (ErrorCode::InvalidRequest, "scripted", 0)
    );
    let mut can = LlmCapabilities::text();
    can.streaming = false;
    let still = ScriptedModel::new([Reply::text("ok")]).with_capabilities(can);
    let still = llm(LlmOptions::new(Arc::new(still))).unwrap();
    assert_eq!(
        still
            .stream(&List::default(), ["hi"], call())
            .unwrap_err()
            .code,
        ErrorCode::InvalidRequest
    );
    assert!(block_on(still.generate(&List::default(), ["hi"], call())).is_ok());
}

/// Hands its context out, and never ends.
fn endless(seen: &Arc<Mutex<Vec<ToolContext>>>) -> Arc<dyn Tool> {
    let seen = Arc::clone(seen);
    let run = move |_, context: ToolContext| {
        seen.lock().unwrap().push(context);
        std::future::pending()
    };
    Arc::new(FnTool::new("first", "d", empty(), run))
}

// spec: UPP-6
#[test]
fn an_abort_reaches_running_tools_and_keeps_the_partial_turn() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let cancel = CancelToken::default();
    let mut extensions = Extensions::default();
    extensions.insert(42_u8);
    let call = call()
        .with_cancel(cancel.clone())
        .with_extensions(extensions);
    let (instance, model) = instance(
        [calling(1), Reply::text("no")],
        vec![endless(&seen), quick("second")],
        None,
    );
    let history = List::default();
    let mut turn = Box::pin(instance.generate(&history, ["hi"], call));
    assert!((&mut turn).now_or_never().is_none());
    let context = seen.lock().unwrap()[0].clone();
    assert_eq!(
        (
            context.extensions.get::<u8>(),
            context.cancel.is_cancelled()
        ),
        (Some(&42), false)
    );
    cancel.cancel();
    let error = block_on(turn).unwrap_err();
    assert_eq!(
        (error.code, error.partial_turn.unwrap().cycles),
        (ErrorCode::Cancelled, 1)
    );
    assert!(context.cancel.is_cancelled());
    assert_eq!(model.requests().len(), 1);
}

// spec: UPP-6
#[test]
fn an_abort_ends_a_question_and_a_stream_says_so_once() {
    let (instance, _) = instance(
        [Reply::default().after(core::future::pending)],
        vec![],
        None,
    );
    let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
    assert!(stream.next().now_or_never().is_none());
    stream.abort();
    let error = block_on(stream.next()).unwrap().unwrap_err();
    assert_eq!(
        (error.code, error.partial_turn),
        (ErrorCode::Cancelled, None)
    );
    assert!(block_on(stream.next()).is_none());
    assert_eq!(
        block_on(stream.turn()).unwrap_err().code,
        ErrorCode::Cancelled
    );
}

// spec: UPP-6
#[test]
fn a_call_that_is_aborted_before_it_begins_asks_no_model() {
    let cancel = CancelToken::default();
    cancel.cancel();
    let (instance, model) = instance([Reply::text("no")], vec![], None);
    let call = call().with_cancel(cancel);
    let error = block_on(instance.generate(&List::default(), ["hi"], call)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Cancelled);
    assert!(model.requests().is_empty());
}

// spec: UPP-6
#[test]
fn a_stream_that_has_ended_tells_its_tools_although_it_is_kept() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (instance, _) = instance([calling(1)], vec![endless(&seen)], None);
    let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
    while stream.next().now_or_never().is_some() {}
    stream.abort();
    assert!(block_on(stream.next()).unwrap().is_err());
    assert!(seen.lock().unwrap()[0].cancel.is_cancelled());
}

// spec: UPP-6
#[test]
fn dropping_a_stream_tells_its_tools_and_nobody_else() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let cancel = CancelToken::default();
    let (instance, _) = instance([calling(1)], vec![endless(&seen)], None);
    let mut stream = instance
        .stream(&List::default(), ["hi"], call().with_cancel(cancel.clone()))
        .unwrap();
    while stream.next().now_or_never().is_some() {}
    drop(stream);
    assert!(seen.lock().unwrap()[0].cancel.is_cancelled());
    assert!(!cancel.is_cancelled());
}

// spec: UPP-3, UPP-7
#[test]
fn a_failure_in_a_later_round_keeps_the_earlier_ones() {
    let replies = || {
        [
            calling(1),
            Reply::error(ErrorCode::RateLimited, "slow down"),
        ]
    };
    let tools = || vec![quick("first"), quick("second")];
    let (one, _) = instance(replies(), tools(), None);
    let whole = block_on(one.generate(&List::default(), ["hi"], call())).unwrap_err();
    let (other, _) = instance(replies(), tools(), None);
    let streamed = drain(&other).1.unwrap_err();
    assert_eq!(
        (whole.code, streamed.code),
        (ErrorCode::RateLimited, ErrorCode::RateLimited)
    );
    let partial = whole.partial_turn.unwrap();
    assert_eq!((partial.cycles, partial.messages.len()), (1, 3));
    assert_eq!(streamed.partial_turn.unwrap(), partial);
}

// spec: UPP-3, UPP-7
#[test]
fn a_failure_before_any_response_has_no_partial_turn() {
    let (instance, _) = instance([Reply::error(ErrorCode::RateLimited, "slow")], vec![], None);
    // The caller's own answer is not one of the model.
    let stamp = crate::stamp(1);
    let own = upp::AssistantMessage::new(stamp, vec!["mine".into()], None);
    let inputs = [Message::from(own)];
    let error = block_on(instance.generate(&List::default(), inputs, call())).unwrap_err();
    assert_eq!(error.partial_turn, None);
}

/// 3,000 rounds in which nothing is waited for.
fn always_ready() -> LlmInstance {
    struct Many;
    impl ToolUseStrategy for Many {
        fn max_iterations(&self) -> Option<u64> {
            Some(3_000)
        }
    }
    let model = ScriptedModel::with(|_| Some(calling(1)));
    let tools = [quick("first"), quick("second")];
    let options = LlmOptions::new(Arc::new(model)).with_tools(tools);
    llm(options.with_tool_strategy(Arc::new(Many))).unwrap()
}

#[test]
fn a_run_that_is_always_ready_leaves_the_executor_its_turn() {
    let instance = always_ready();
    let mut cx = std::task::Context::from_waker(futures::task::noop_waker_ref());
    let history = List::default();
    let mut whole = Box::pin(instance.generate(&history, ["hi"], call()));
    assert!(whole.as_mut().poll(&mut cx).is_pending());
    let stream = || instance.stream(&history, ["hi"], call()).unwrap();
    let mut turn = Box::pin(stream().turn());
    assert!(turn.as_mut().poll(&mut cx).is_pending());
    let mut reading = stream();
    let mut events = Box::pin(async move { while reading.next().await.is_some() {} });
    assert!(events.as_mut().poll(&mut cx).is_pending());
}

#[tokio::test]
async fn a_timeout_ends_a_run_that_is_always_ready() {
    let instance = always_ready();
    let history = List::default();
    let mut stream = instance.stream(&history, ["hi"], call()).unwrap();
    // An end of its own would come far later: each event takes a moment that no other task can use.
    let reading = async {
        while stream.next().await.is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    let timeout = std::time::Duration::from_millis(50);
    assert!(tokio::time::timeout(timeout, reading).await.is_err());
}

// spec: UPP-7
#[test]
fn calls_run_in_the_order_that_their_tools_state() {
    let tool = |name: &'static str, order: &str| {
        let mut metadata = upp::Metadata::default();
        metadata.set("uap", object(order).unwrap());
        let run = move |_, _| async move { Ok(json_text(name)) };
        let tool = FnTool::new(name, "d", empty(), run).with_metadata(metadata);
        Arc::new(tool) as Arc<dyn Tool>
    };
    let tools = vec![
        tool("write", r#"{"dependsOn":["read"]}"#),
        tool("read", "{}"),
        tool("alone", r#"{"sequential":true}"#),
    ];
    let reply = ["write", "read", "alone"]
        .into_iter()
        .fold(Reply::default(), |reply, name| {
            reply.calling(name, name, empty())
        });
    let (instance, model) = instance([reply, Reply::text("done")], tools, None);
    let (events, turn) = drain(&instance);
    let seen: Vec<_> = events
        .iter()
        .filter_map(|event| {
            let name = event.delta.tool_name.as_deref()?;
            Some((event.event_type.as_str(), name, event.index))
        })
        .filter(|(kind, ..)| kind.starts_with("tool_execution"))
        .collect();
    let (start, end) = ("tool_execution_start", "tool_execution_end");
    assert_eq!(
        seen,
        [
            (start, "alone", 2),
            (end, "alone", 2),
            (start, "read", 1),
            (end, "read", 1),
            (start, "write", 0),
            (end, "write", 0),
        ]
    );
    // Results are in the order of the calls.
    let turn = turn.unwrap();
    let executions = turn.tool_executions.iter();
    let names: Vec<_> = executions.map(|ran| &*ran.tool_name).collect();
    assert_eq!(names, ["write", "read", "alone"]);
    let requests = model.requests();
    let results = requests[1].messages.last().unwrap();
    assert_eq!(results.text(), "write\n\nread\n\nalone");
}

// spec: UPP-4, UPP-7
#[test]
fn no_event_follows_an_abort() {
    let forever = |name| {
        let run = |_, _| std::future::pending();
        Arc::new(FnTool::new(name, "d", empty(), run)) as Arc<dyn Tool>
    };
    let (instance, _) = instance(
        [calling(1)],
        vec![forever("first"), forever("second")],
        None,
    );
    let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
    block_on(async {
        while let Some(item) = stream.next().await {
            // The start of the other tool waits already.
            if item.unwrap().event_type == StreamEventType::ToolExecutionStart {
                break;
            }
        }
        stream.abort();
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::Cancelled);
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn tools_run_no_further_while_events_wait() {
    let yielding = |name| {
        let run = move |_, _| async move {
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                if std::mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            Ok(json_text(name))
        };
        Arc::new(FnTool::new(name, "d", empty(), run)) as Arc<dyn Tool>
    };
    let tools = vec![yielding("first"), yielding("second")];
    let (instance, model) = instance([calling(1), Reply::text("done")], tools, None);
    let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
    block_on(async {
        let mut starts = 0;
        while starts < 2 {
            let event = stream.next().await.unwrap().unwrap();
            starts += u64::from(event.event_type == StreamEventType::ToolExecutionStart);
        }
        assert_eq!(model.requests().len(), 1);
        stream.abort();
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(error.partial_turn.unwrap().tool_executions.is_empty());
    });
}

struct Clumsy;

impl ToolUseStrategy for Clumsy {
    fn max_iterations(&self) -> Option<u64> {
        Some(1)
    }
    fn on_max_iterations(&self, _: u64) -> HookFuture<'_, ()> {
        panic!("no hook")
    }
    fn on_error<'a>(
        &'a self,
        _: &'a dyn Tool,
        _: &'a RawObject,
        _: &'a upp::ToolError,
    ) -> HookFuture<'a, ()> {
        panic!("no hook")
    }
}

// spec: UPP-4
#[test]
fn a_panic_of_a_hook_of_tools_leaves_the_error() {
    let run = |_, _| async { Err("torn".into()) };
    let torn = Arc::new(FnTool::new("first", "d", empty(), run));
    let replies = [
        Reply::text("x").calling("a", "first", empty()),
        Reply::text("done"),
    ];
    let clumsy = || Some(Arc::new(Clumsy) as Arc<dyn ToolUseStrategy>);
    let (twice, _) = instance([calling(1), calling(2)], vec![quick("first")], clumsy());
    let error = block_on(twice.generate(&List::default(), ["hi"], call())).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    let (instance, _) = instance(replies, vec![torn], clumsy());
    let turn = block_on(instance.generate(&List::default(), ["hi"], call())).unwrap();
    let execution = turn.tool_executions.get(0).unwrap();
    assert!(execution.is_error && execution.result.as_str().contains("torn"));
    assert_eq!(turn.response.text(), "done");
}

// spec: UPP-7
#[test]
fn a_stream_that_lets_others_go_first_wakes_itself() {
    let (instance, _) = instance(
        [Reply::text("x".repeat(1_000)).in_pieces_of(1)],
        vec![],
        None,
    );
    // Nothing else wakes the executor.
    let (events, turn) = drain(&instance);
    assert!(events.len() > 1_000);
    assert_eq!(turn.unwrap().response.text().len(), 1_000);
}

#[test]
fn an_abort_cancels_the_request_that_runs() {
    let (instance, _) = instance([], vec![], None);
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let ids = IdSource::seeded(1);
    let mut machine = ToolLoop::new(now, &instance, &List::default(), ["hi"], ids);
    let Some(Output::Infer(asked, _)) = machine.poll_output() else {
        panic!("{machine:?}")
    };
    machine.handle_input(now, Input::Abort).unwrap();
    let Some(Output::Cancel(id)) = machine.poll_output() else {
        panic!("{machine:?}")
    };
    assert_eq!(id, asked);
}

#[test]
fn a_stream_with_many_events_at_once_wakes_itself() {
    let mut reply = Reply::default();
    for n in 0..100 {
        reply = reply.calling(format!("c{n}"), "first", empty());
    }
    let (instance, _) = instance([reply], vec![endless(&Arc::default())], None);
    let starts = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = std::rc::Rc::clone(&starts);
    let mut stream = instance.stream(&List::default(), ["hi"], call()).unwrap();
    let mut pool = futures::executor::LocalPool::new();
    let read = async move {
        while let Some(Ok(event)) = stream.next().await {
            let is_start = event.event_type == StreamEventType::ToolExecutionStart;
            seen.set(seen.get() + u32::from(is_start));
        }
    };
    pool.spawner().spawn_local(read).unwrap();
    pool.run_until_stalled();
    assert_eq!(starts.get(), 100);
}

#[test]
fn a_call_that_is_answered_is_not_run() {
    let (instance, _) = instance([], vec![quick("first")], None);
    let calls = vec![ToolCall::new("c".into(), "first".into(), empty())];
    let answers = [(0, "not now".into())].into();
    let mut round = ToolRound::new(calls, answers, instance.options().tools());
    let out = round.start(Now::new(Mono::ZERO, Timestamp::EPOCH), &mut 0);
    let is_event = |output: &RoundOutput| matches!(output, RoundOutput::Event(_));
    assert!(out.len() == 2 && out.iter().all(is_event), "{out:?}");
    assert!(round.is_complete());
    let executions = round.into_executions();
    let told = (executions[0].is_error, executions[0].result.as_str());
    assert_eq!(told, (true, r#""not now""#));
}

/// Says one letter after the other without end, and counts them.
struct Talking(Arc<AtomicU64>);

impl upp::LlmModel for Talking {
    fn provider(&self) -> &str {
        "talking"
    }
    fn model_id(&self) -> &str {
        "t"
    }
    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities::text()
    }
    fn complete(
        &self,
        _: upp::LlmRequest,
    ) -> BoxFuture<'static, Result<upp::LlmResponse, UppError>> {
        unreachable!()
    }
    fn stream(&self, _: upp::LlmRequest) -> upp::ModelStream {
        let said = Arc::clone(&self.0);
        futures::stream::poll_fn(move |_| {
            said.fetch_add(1, Ordering::SeqCst);
            let mut event = StreamEvent::bare(StreamEventType::TextDelta, 0);
            event.delta.text = Some("x".into());
            Poll::Ready(Some(Ok(upp::ModelEvent::Event(event))))
        })
        .boxed()
    }
}

// spec: UPP-7
#[test]
fn a_reader_that_takes_its_time_holds_the_model_back() {
    let said = Arc::new(AtomicU64::new(0));
    let instance = llm(LlmOptions::new(Arc::new(Talking(Arc::clone(&said))))).unwrap();
    let mut stream = instance.stream(&List::default(), ["go"], call()).unwrap();
    for read in 1..=300 {
        block_on(stream.next()).unwrap().unwrap();
        let ahead = said.load(Ordering::SeqCst).saturating_sub(read);
        assert!(ahead <= 1, "{ahead} before {read}");
    }
}
