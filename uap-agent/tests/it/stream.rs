//! Streams: their events, their end, and ending them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use uap_agent::{
    AgentStreamEvent, EventData, ExecutionStrategy, LoopOptions, PlanOptions, ReactOptions, agent,
    plan, react, tool_loop,
};
use ubos_common::json::{RawObject, to_string};
use upp::{ErrorCode, FnTool, Reply, ScriptedModel, Tool, object};

use crate::support::{Noting, calling, echo, options, script};

fn name(event: &AgentStreamEvent) -> String {
    match event {
        AgentStreamEvent::Uap(event) => format!("uap {} {}", event.event_type, event.step),
        AgentStreamEvent::Upp(event) => event.event_type.to_string(),
        _ => panic!(),
    }
}

// spec: UAP-11-3
#[test]
fn events_come_in_the_stated_order() {
    let replies = [
        Reply::text("think"),
        calling("act", "c1", r#"{"a":1}"#),
        Reply::text("think"),
        Reply::text("done"),
    ];
    let agent =
        agent(options(&script(replies)).with_execution(react(ReactOptions::default()).unwrap()))
            .unwrap();
    let events: Vec<_> = block_on(agent.stream("go", &agent.initial_state()).collect());
    let said = [
        "message_start",
        "content_block_start",
        "text_delta",
        "content_block_stop",
    ];
    let mut wanted = vec!["uap step_start 1"];
    wanted.extend(said);
    wanted.extend(["message_stop", "uap reasoning 1"]);
    wanted.extend(said);
    wanted.extend([
        "tool_call_delta",
        "message_stop",
        "uap action 1",
        "tool_execution_start",
        "tool_execution_end",
    ]);
    wanted.extend(["uap observation 1", "uap step_end 1", "uap step_start 2"]);
    wanted.extend(said);
    wanted.extend(["message_stop", "uap reasoning 2"]);
    wanted.extend(said);
    wanted.extend(["message_stop", "uap step_end 2"]);
    assert_eq!(events.iter().map(name).collect::<Vec<_>>(), wanted);
    let json: Vec<String> = events.iter().map(to_string).collect();
    let id = agent.id();
    assert_eq!(
        json[0],
        format!(
            r#"{{"source":"uap","uap":{{"type":"step_start","step":1,"agentId":"{id}","data":{{"phase":"reasoning"}}}}}}"#
        )
    );
    assert_eq!(
        json[1],
        r#"{"source":"upp","upp":{"type":"message_start","index":0,"delta":{}}}"#
    );
    assert!(
        json[13].contains(
            r#""data":{"toolCalls":[{"toolCallId":"c1","toolName":"echo","arguments":{"a":1}}]}"#
        ),
        "{}",
        json[13]
    );
}

// spec: UAP-11-3
#[test]
fn iterations_of_the_loop_count_from_one() {
    let calls = (0..2).map(|n| calling("act", &format!("c{n}"), "{}"));
    let agent = agent(options(&script(calls.chain([Reply::text("done")])))).unwrap();
    let events: Vec<_> = block_on(agent.stream("go", &agent.initial_state()).collect());
    let iteration = |event: &AgentStreamEvent| match event {
        AgentStreamEvent::Uap(event) => match event.data {
            EventData::Iteration(n) => Some((event.event_type.to_string(), event.step, n)),
            _ => None,
        },
        _ => None,
    };
    let wanted = (1..=3).flat_map(|n| ["step_start", "step_end"].map(|name| (name.into(), n, n)));
    let told: Vec<_> = events.iter().filter_map(iteration).collect();
    assert_eq!(told, wanted.collect::<Vec<_>>());
}

#[test]
fn a_stream_comes_to_the_same_state_as_generating() {
    let strategies: [Arc<dyn ExecutionStrategy>; 3] = [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ];
    for strategy in strategies {
        let run = |streams: bool| {
            let plan = r#"{"steps":[{"id":"s","description":"x"}]}"#;
            let replies = [
                Reply::text(plan),
                calling("act", "c1", "{}"),
                Reply::text("a"),
                Reply::text("b"),
            ];
            let agent =
                agent(options(&script(replies)).with_execution(Arc::clone(&strategy))).unwrap();
            let state = agent.initial_state();
            block_on(async {
                let mut stream = agent.stream("go", &state);
                if streams {
                    while stream.next().await.is_some() {}
                }
                stream.result().await.unwrap()
            })
        };
        assert_eq!(run(true), run(false));
    }
}

// spec: UAP-11-1
#[test]
fn an_abort_ends_the_model_and_the_tools() {
    for (replies, events) in [
        (vec![Reply::default().after(core::future::pending)], 1),
        (vec![calling("x", "c1", r#"{"hang":1}"#)], 9),
    ] {
        let hooks = Arc::new(Noting::default());
        let agent = agent(options(&script(replies)).with_strategy(hooks.clone())).unwrap();
        let mut stream = agent.stream("go", &agent.initial_state());
        for _ in 0..events {
            block_on(stream.next()).unwrap();
        }
        assert!(stream.next().now_or_never().is_none());
        stream.abort_handle().cancel();
        let error = block_on(stream.result()).unwrap_err();
        assert_eq!(
            (&error.error.code, error.state.messages().len()),
            (&ErrorCode::Cancelled, 1)
        );
        assert_eq!(hooks.take().last().unwrap(), "error CANCELLED");
    }
    let busy = Arc::new(ScriptedModel::with(|_| Some(calling("more", "c", "{}"))));
    let agent = agent(options(&busy)).unwrap();
    let before = agent.stream("go", &agent.initial_state());
    before.abort();
    assert_eq!(
        block_on(before.result()).unwrap_err().error.code,
        ErrorCode::Cancelled
    );
    assert!(busy.requests().is_empty());
}

// spec: UAP-11-1
#[test]
fn dropping_a_stream_ends_its_tools() {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Arc::clone(&dropped);
    let token = Arc::new(std::sync::Mutex::new(None));
    let kept = Arc::clone(&token);
    let tool = FnTool::new(
        "echo",
        "",
        RawObject::empty(),
        move |_, context: upp::ToolContext| {
            let guard = OnDrop(Arc::clone(&guard));
            *kept.lock().unwrap() = Some(context.cancel);
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        },
    );
    let options =
        options(&script([calling("x", "c1", "{}")])).with_tools([Arc::new(tool) as Arc<dyn Tool>]);
    let agent = agent(options).unwrap();
    let mut stream = agent.stream("go", &agent.initial_state());
    while stream.next().now_or_never().is_some() {}
    assert!(!dropped.load(Ordering::Relaxed));
    drop(stream);
    assert!(dropped.load(Ordering::Relaxed));
    assert!(token.lock().unwrap().as_ref().unwrap().is_cancelled());
}

// spec: UAP-8-4
#[test]
fn parallel_calls_have_their_results_in_call_order() {
    let reply = Reply::text("x")
        .calling("slow", "slow", RawObject::empty())
        .calling("p", "echo", object(r#"{"panic":1}"#).unwrap())
        .calling("f", "echo", object(r#"{"fail":1}"#).unwrap())
        .calling("n", "none", RawObject::empty())
        .calling("fast", "fast", RawObject::empty());
    let gate = upp::CancelToken::default();
    let opened = gate.clone();
    let slow = FnTool::new("slow", "", RawObject::empty(), move |_, _| {
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Ok(upp::json_text("slow"))
        }
    });
    // Only where both run at once does this one let the other go on.
    let fast = FnTool::new("fast", "", RawObject::empty(), move |_, _| {
        opened.cancel();
        async { Ok(upp::json_text("fast")) }
    });
    let tools = [
        Arc::new(slow) as Arc<dyn Tool>,
        Arc::new(fast),
        echo("echo"),
    ];
    let agent = agent(options(&script([reply, Reply::text("done")])).with_tools(tools)).unwrap();
    let turn = block_on(agent.query("go")).unwrap();
    let results: Vec<_> = turn
        .tool_executions
        .iter()
        .map(|e| (&*e.tool_call_id, e.result.as_str(), e.is_error))
        .collect();
    assert_eq!(
        results,
        [
            ("slow", "\"slow\"", false),
            ("p", "\"the tool panicked\"", true),
            ("f", "\"it failed\"", true),
            ("n", "\"tool none not found\"", true),
            ("fast", "\"fast\"", false),
        ]
    );
}

#[test]
fn a_slow_reader_holds_the_run_back() {
    let model = Arc::new(ScriptedModel::with(|_| Some(calling("more", "c", "{}"))));
    let agent = agent(options(&model)).unwrap();
    let mut stream = agent.stream("go", &agent.initial_state());
    block_on(stream.next()).unwrap();
    assert!(model.requests().len() < 20);
    for _ in 0..1_000 {
        block_on(stream.next()).unwrap();
    }
    assert!(model.requests().len() > 80);
}

#[test]
fn a_run_that_is_always_ready_leaves_the_executor_its_turn() {
    let mut left = 3_000;
    let model = Arc::new(ScriptedModel::with(move |_| {
        left -= 1;
        (left > 0).then(|| calling("again", "c", r#"{"a":1}"#))
    }));
    let agent = agent(options(&model)).unwrap();
    let state = agent.initial_state();
    let mut cx = std::task::Context::from_waker(futures::task::noop_waker_ref());
    let mut whole = Box::pin(agent.generate("go", &state));
    assert!(Future::poll(whole.as_mut(), &mut cx).is_pending());
    let mut reading = agent.stream("go", &state);
    let ready = std::iter::from_fn(|| reading.next().now_or_never());
    assert_eq!(ready.count(), 64);
}
