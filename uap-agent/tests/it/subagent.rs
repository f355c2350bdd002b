//! Agents that are called as tools: what the parent hears, keeps and ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use uap_agent::{
    Agent, AgentState, AgentStreamEvent, CheckpointStore, EventData, MemoryCheckpoints,
    PlanOptions, ReactOptions, RunScope, Runtime, SubagentExecutionTrace, SubagentTool,
    UapEventType, agent, plan, react,
};
use uap_agent::{SubagentData, SubagentEvent};
use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawObject, to_string};
use upp::{ErrorCode, FnTool, Message, Reply, Tool, json_text, object};

use crate::support::{Noting, calling, options, script};
use crate::trace::Ticking;

fn child(replies: impl IntoIterator<Item = Reply>) -> Agent {
    agent(options(&script(replies))).unwrap()
}

fn explorer(child: Agent) -> SubagentTool {
    let schema = object(r#"{"type":"object"}"#).unwrap();
    SubagentTool::new(child, "explore", "Looks", schema, |arguments| {
        Ok(format!("look at {}", arguments.as_str()))
    })
    .with_subagent_type("explorer")
}

fn lead(tool: SubagentTool, replies: Vec<Reply>) -> Agent {
    agent(options(&script(replies)).with_tools([Arc::new(tool) as Arc<dyn Tool>])).unwrap()
}

fn exploring(id: &str) -> Reply {
    Reply::default().calling(id, "explore", object(r#"{"at":1}"#).unwrap())
}

fn subagent_events(events: &[AgentStreamEvent]) -> Vec<Value> {
    let json = events.iter().map(to_string);
    json.map(|text| serde_json::from_str::<Value>(&text).unwrap())
        .filter(|event| {
            event["uap"]["type"]
                .as_str()
                .is_some_and(|t| t.starts_with("subagent"))
        })
        .collect()
}

fn is_uuid_v4(text: &str) -> bool {
    uuid_of(text).is_some_and(|uuid| uuid.get_version_num() == 4)
}

fn uuid_of(text: &str) -> Option<ubos_common::id::Uuid> {
    ubos_common::id::parse_hyphenated(text).ok()
}

/// What the child does is heard while it works: its tool goes on only when the reader of the parent has seen that it began.
// spec: UAP-8-3
#[test]
fn a_child_is_heard_while_its_tool_waits() {
    let (seen, wait) = futures::channel::oneshot::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    let tool = FnTool::new(
        "wait",
        "Waits",
        object(r#"{"type":"object"}"#).unwrap(),
        move |_, _| {
            let wait = wait.lock().unwrap().take().unwrap();
            async move {
                wait.await.unwrap();
                Ok(json_text("seen"))
            }
        },
    );
    let replies = [
        Reply::default().calling("k1", "wait", object("{}").unwrap()),
        Reply::text("found it"),
    ];
    let kid = agent(options(&script(replies)).with_tool(tool)).unwrap();
    let lead = lead(explorer(kid), vec![exploring("c1"), Reply::text("thanks")]);
    let state = lead.initial_state();
    let mut stream = std::pin::pin!(lead.stream("go", &state));
    let (mut seen, mut events) = (Some(seen), Vec::new());
    loop {
        match stream.next().now_or_never() {
            Some(Some(event)) => events.push(event),
            Some(None) => break,
            None => {
                let told = subagent_events(&events);
                let began = |event: &Value| {
                    event["uap"]["data"]["innerEvent"]
                        .to_string()
                        .contains("tool_execution_start")
                };
                assert!(
                    told.iter().any(began),
                    "nothing is heard while the tool waits"
                );
                seen.take().expect("the tool waits once").send(()).unwrap();
            }
        }
    }
    assert!(seen.is_none());
    assert_eq!(
        subagent_events(&events).last().unwrap()["uap"]["type"],
        "subagent_end"
    );
}

// spec: UAP-8-3, UAP-3-1
#[test]
fn a_child_is_heard_between_the_events_of_its_parent() {
    let replies = [calling("look", "k1", r#"{"a":1}"#), Reply::text("found it")];
    let runtime = Runtime::new(Arc::new(Ticking::default()), IdSource::seeded(8));
    let kid = agent(options(&script(replies)).with_runtime(runtime)).unwrap();
    let kid_id = kid.id().to_owned();
    let lead = lead(explorer(kid), vec![exploring("c1"), Reply::text("thanks")]);
    let events: Vec<_> = block_on(lead.stream("go", &lead.initial_state()).collect());
    let told = subagent_events(&events);
    let data = |n: usize| &told[n]["uap"]["data"];
    let last = told.len() - 1;
    assert_eq!(told[0]["uap"]["type"], "subagent_start");
    assert_eq!(data(0)["prompt"], r#"look at {"at":1}"#);
    assert_eq!(data(0)["subagentType"], "explorer");
    assert_eq!(told[last]["uap"]["type"], "subagent_end");
    assert_eq!(
        (&data(last)["success"], &data(last)["result"]),
        (&true.into(), &"found it".into())
    );
    assert_eq!(data(0)["timestamp"], 1_700_000_000_000_i64);
    assert!(data(last)["timestamp"].as_i64() > data(0)["timestamp"].as_i64());
    assert_eq!(data(last)["usage"]["totalTokens"], 16);
    let ran = &data(last)["toolExecutions"][0];
    assert_eq!(
        (&ran["toolName"], &ran["toolCallId"], &ran["result"]),
        (&"echo".into(), &"k1".into(), &r#"{"a":1}"#.into())
    );
    let ids: BTreeSet<&str> = told
        .iter()
        .map(|e| e["uap"]["data"]["subagentId"].as_str().unwrap())
        .collect();
    assert!(ids.len() == 1 && ids.iter().all(|id| is_uuid_v4(id)));
    for (n, event) in told.iter().enumerate() {
        assert_eq!(event["uap"]["data"]["parentToolCallId"], "c1");
        assert_eq!(
            (&event["uap"]["agentId"], &event["uap"]["step"]),
            (&lead.id().into(), &1.into())
        );
        let inner = &event["uap"]["data"]["innerEvent"];
        assert_eq!(inner.is_null(), n == 0 || n == last);
        if inner["source"] == "uap" {
            assert_eq!(inner["uap"]["agentId"], kid_id.as_str());
        }
    }
    // All of the child's events, between the start and the end of the call that runs it.
    let name = |event: &AgentStreamEvent| match event {
        AgentStreamEvent::Uap(event) => event.event_type.to_string(),
        AgentStreamEvent::Upp(event) => event.event_type.to_string(),
        _ => panic!(),
    };
    let names: Vec<String> = events.iter().map(name).collect();
    let at = |wanted: &str| names.iter().position(|name| name == wanted).unwrap();
    assert!(at("tool_execution_start") < at("subagent_start"));
    assert!(at("subagent_end") < at("tool_execution_end"));
    let steps = told
        .iter()
        .filter(|e| e["uap"]["data"]["innerEvent"]["uap"]["type"] == "step_end");
    assert_eq!(steps.count(), 2);
}

// spec: UAP-8-3
#[test]
fn a_child_without_events_reports_its_start_and_end() {
    let quiet = explorer(child([Reply::text("x")])).with_events(false);
    let lead_of_quiet = lead(quiet, vec![exploring("c1"), Reply::text("y")]);
    let events: Vec<_> = block_on(
        lead_of_quiet
            .stream("go", &lead_of_quiet.initial_state())
            .collect(),
    );
    assert_eq!(subagent_events(&events).len(), 2);

    let broken = explorer(child([Reply::error(ErrorCode::RateLimited, "not now")]));
    let parent = lead(broken, vec![exploring("c1"), Reply::text("then not")]);
    let state = parent.initial_state();
    let mut run = parent.stream("go", &state);
    let mut events = Vec::new();
    while let Some(event) = block_on(run.next()) {
        events.push(event);
    }
    let result = block_on(run.result()).unwrap();
    let end = &subagent_events(&events).pop().unwrap()["uap"]["data"];
    assert_eq!(
        (&end["success"], end["result"].is_null()),
        (&false.into(), true)
    );
    assert!(end["error"].as_str().unwrap().contains("not now"), "{end}");
    let execution = result.turn.tool_executions.iter().next().unwrap();
    assert!(execution.is_error && execution.result.as_str().contains("not now"));
    let trace = result.state.subagent_traces().iter().next().unwrap();
    assert!(!trace.success && trace.error.as_deref().unwrap().contains("not now"));
    // Arguments of which no prompt can be made.
    let schema = object("{}").unwrap();
    let picky = SubagentTool::new(
        child([]),
        "explore",
        "",
        schema,
        |_| Err("no prompt".into()),
    );
    let parent = lead(picky, vec![exploring("c1"), Reply::text("z")]);
    let result = block_on(parent.generate("go", &parent.initial_state())).unwrap();
    assert!(result.state.subagent_traces().is_empty());
    assert_eq!(
        result
            .turn
            .tool_executions
            .iter()
            .next()
            .unwrap()
            .result
            .as_str(),
        r#""no prompt""#
    );
}

// spec: UAP-8-5
#[test]
fn traces_are_in_the_state_before_the_step_ends() {
    struct SeesTraces(AtomicBool);
    impl uap_agent::AgentStrategy for SeesTraces {
        fn on_step_end<'a>(
            &'a self,
            step: u64,
            result: &'a uap_agent::GenerateResult,
        ) -> uap_agent::HookFuture<'a, ()> {
            if step == 1 {
                self.0
                    .store(result.state.subagent_traces().len() == 2, Ordering::Relaxed);
            }
            Box::pin(std::future::ready(Ok(())))
        }
    }
    // A child of a child: its trace is the child's alone.
    let grandchild = explorer(child([Reply::text("deep")]));
    let kid = lead(
        grandchild,
        vec![exploring("k1"), Reply::text("found"), Reply::text("again")],
    );
    let hooks = Arc::new(SeesTraces(AtomicBool::new(false)));
    let store = Arc::new(MemoryCheckpoints::default());
    let replies = [
        exploring("c1").calling("c2", "explore", object("{}").unwrap()),
        Reply::text("thanks"),
    ];
    let options = options(&script(replies))
        .with_tools([Arc::new(explorer(kid)) as Arc<dyn Tool>])
        .with_strategy(hooks.clone())
        .with_checkpoints(store.clone())
        .with_session_id("s");
    let lead = agent(options).unwrap();
    let result = block_on(lead.generate("go", &lead.initial_state())).unwrap();
    assert!(hooks.0.load(Ordering::Relaxed));
    let traces: Vec<_> = result.state.subagent_traces().iter().collect();
    assert_eq!(traces.len(), 2);
    let calls: BTreeSet<&str> = traces
        .iter()
        .map(|trace| &*trace.parent_tool_call_id)
        .collect();
    assert_eq!(calls, BTreeSet::from(["c1", "c2"]));
    assert_ne!(traces[0].subagent_id, traces[1].subagent_id);
    let saved = block_on(store.load("s")).unwrap().unwrap();
    assert_eq!(saved, result.state);
    assert_eq!(
        AgentState::from_json(saved.to_json().as_bytes(), &Default::default()).unwrap(),
        result.state
    );
}

// spec: UAP-8-5
#[test]
fn what_stops_the_parent_does_not_stop_the_child() {
    let kid = child([
        calling("a", "k1", "{}"),
        calling("b", "k2", "{}"),
        Reply::text("all of it"),
    ]);
    let hooks = Arc::new(Noting {
        stop_at: Some(1),
        ..Noting::default()
    });
    let options = options(&script([exploring("c1"), Reply::text("never")]))
        .with_tools([Arc::new(explorer(kid)) as Arc<dyn Tool>])
        .with_strategy(hooks);
    let lead = agent(options).unwrap();
    let result = block_on(lead.generate("go", &lead.initial_state())).unwrap();
    assert_eq!(result.state.step(), 1);
    let trace = result.state.subagent_traces().iter().next().unwrap();
    assert_eq!(trace.result.as_deref(), Some("all of it"));
}

// spec: UAP-11-1
#[test]
fn ending_the_parent_ends_the_child_and_its_tools() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let began = Arc::new(AtomicBool::new(false));
    let (seen, starts) = (Arc::clone(&ended), Arc::clone(&began));
    let hang = FnTool::new("hang", "", RawObject::empty(), move |_, context| {
        let told = Told(Arc::clone(&seen));
        starts.store(true, Ordering::Relaxed);
        async move {
            let _told = told;
            context.cancel.cancelled().await;
            std::future::pending().await
        }
    });
    let kid_options = options(&script([Reply::default().calling(
        "k1",
        "hang",
        RawObject::empty(),
    )]))
    .with_tools([Arc::new(hang) as Arc<dyn Tool>]);
    let lead = lead(explorer(agent(kid_options).unwrap()), vec![exploring("c1")]);
    let run = lead.stream("go", &lead.initial_state());
    let handle = run.abort_handle();
    let mut result = Box::pin(run.result());
    assert!(result.as_mut().now_or_never().is_none());
    assert!(began.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed));
    handle.cancel();
    let error = block_on(result).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Cancelled);
    assert!(ended.load(Ordering::Relaxed));
}

/// A tool of the developer's own may tell and leave what it likes, and a tool outside of an agent has no scope.
// spec: UAP-8-3
#[test]
fn a_tool_of_the_developers_own_uses_the_scope() {
    let tool = FnTool::new("explore", "", RawObject::empty(), |_, context| async move {
        let scope = context.extensions.get::<RunScope>().ok_or("no scope")?;
        let seen = format!("{} {}", scope.agent_id(), scope.call().step);
        Ok(json_text(&seen))
    });
    let tool: Arc<dyn Tool> = Arc::new(tool);
    let parent = agent(
        options(&script([exploring("c1"), Reply::text("ok")])).with_tools([Arc::clone(&tool)]),
    )
    .unwrap();
    let result = block_on(parent.generate("go", &parent.initial_state())).unwrap();
    let told = &result.state.messages().get(2).unwrap().text();
    assert_eq!(told, &format!("{} 1", parent.id()));
    let context = upp::ToolContext::new("c1", upp::CancelToken::default());
    assert!(block_on(tool.run(&RawObject::empty(), &context)).is_err());
    // The plain way of the specification runs, and leaves no trace.
    let kid = Arc::new(child([Reply::text("plain")]));
    let plain = FnTool::new("explore", "", RawObject::empty(), move |_, _| {
        let kid = Arc::clone(&kid);
        async move {
            let turn = kid.query("q").await.map_err(|error| error.to_string())?;
            Ok(json_text(&turn.response.text()))
        }
    });
    let parent = agent(
        options(&script([exploring("c1"), Reply::text("ok")]))
            .with_tools([Arc::new(plain) as Arc<dyn Tool>]),
    )
    .unwrap();
    let result = block_on(parent.generate("go", &parent.initial_state())).unwrap();
    assert!(result.state.subagent_traces().is_empty());
    assert!(
        matches!(result.state.messages().get(2), Some(Message::ToolResult(m)) if m.results[0].text() == "plain")
    );
}

/// Tells and leaves as much as it can.
fn chatty(told: Arc<AtomicUsize>) -> FnTool {
    FnTool::new("explore", "", RawObject::empty(), move |_, context| {
        let told = Arc::clone(&told);
        async move {
            let scope = context.extensions.get::<RunScope>().ok_or("no scope")?;
            for n in 0..2 * 1000 {
                let id = n.to_string();
                let trace = SubagentExecutionTrace::new(
                    id.as_str().into(),
                    "t".into(),
                    "c1".into(),
                    "p".into(),
                    0,
                    0,
                    true,
                );
                scope.add_trace(trace.clone());
                scope
                    .emit(SubagentData::new(
                        id.as_str(),
                        "t",
                        "c1",
                        SubagentEvent::End(Box::new((&trace).into())),
                    ))
                    .await;
                told.fetch_add(1, Ordering::Relaxed);
            }
            Ok(json_text("done"))
        }
    })
}

#[test]
fn events_of_a_call_wait_for_their_reader() {
    let told = Arc::new(AtomicUsize::new(0));
    let tool: Arc<dyn Tool> = Arc::new(chatty(Arc::clone(&told)));
    let parent =
        agent(options(&script([exploring("c1"), Reply::text("ok")])).with_tools([tool])).unwrap();
    let mut run = parent.stream("go", &parent.initial_state());
    while told.load(Ordering::Relaxed) == 0 {
        block_on(run.next()).unwrap();
    }
    // Nobody has read more than the first of them.
    assert!(told.load(Ordering::Relaxed) < 100, "{told:?}");
    let result = block_on(run.result()).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 2 * 1000);
    assert_eq!(result.state.subagent_traces().len(), 1000);
}

#[test]
fn what_a_subagent_tells_can_be_matched() {
    let lead = lead(
        explorer(child([Reply::text("x")])),
        vec![exploring("c1"), Reply::text("y")],
    );
    let events: Vec<_> = block_on(lead.stream("go", &lead.initial_state()).collect());
    let told: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            AgentStreamEvent::Uap(event) => match (&event.event_type, &event.data) {
                (UapEventType::SubagentStart, EventData::Subagent(data))
                    if matches!(data.event, SubagentEvent::Start { .. }) =>
                {
                    Some("start")
                }
                (UapEventType::SubagentEnd, EventData::Subagent(data))
                    if matches!(data.event, SubagentEvent::End(_)) =>
                {
                    Some("end")
                }
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(told, ["start", "end"]);
}

// spec: UAP-11-3, UAP-8-3
#[test]
fn events_are_read_back_as_they_were() {
    let mut seen = BTreeSet::new();
    let plan = plan(PlanOptions::default()).unwrap();
    let react = react(ReactOptions::default()).unwrap();
    let planned = r#"{"steps":[{"id":"a","description":"x","dependsOn":[]}]}"#;
    let runs = [
        vec![exploring("c1"), Reply::text("y")],
        vec![
            Reply::text("because"),
            exploring("c1"),
            Reply::text("so"),
            Reply::text("z"),
        ],
        vec![Reply::text(planned), exploring("c1"), Reply::text("done")],
    ];
    let strategies = [None, Some(react), Some(plan)];
    for (replies, strategy) in runs.into_iter().zip(strategies) {
        let tool: Arc<dyn Tool> = Arc::new(explorer(child([Reply::text("found")])));
        let mut options = options(&script(replies))
            .with_tools([tool])
            .with_plan_events(true);
        if let Some(strategy) = strategy {
            options = options.with_execution(strategy);
        }
        let lead = agent(options).unwrap();
        let events: Vec<_> = block_on(lead.stream("go", &lead.initial_state()).collect());
        for event in events {
            let line = to_string(&event);
            let read = AgentStreamEvent::from_json(line.as_bytes(), &Limits::default()).unwrap();
            assert_eq!(read, event);
            assert_eq!(to_string(&read), line);
            if let AgentStreamEvent::Uap(event) = event {
                assert!(!matches!(event.data, EventData::Custom(_)), "{line}");
                seen.insert(event.event_type.to_string());
            }
        }
    }
    assert_eq!(seen.len(), 11, "{seen:?}");
}

// spec: UAP-11-3
#[test]
fn what_is_not_known_of_an_event_is_not_lost() {
    let uap = |event_type: &str, data: &str| {
        format!(
            r#"{{"source":"uap","uap":{{"type":"{event_type}","step":1,"agentId":"a","data":{data}}}}}"#
        )
    };
    let inner = uap("reasoning", r#"{"reasoning":"r"}"#);
    for (event_type, data) in [
        ("of_tomorrow", r#"{"x":[1]}"#),
        ("step_start", r#"{"iteration":1,"new":true}"#),
        ("step_start", r#"{"iteration":1,"phase":"p"}"#),
        ("reasoning", r#"{"reasoning":5}"#),
        ("subagent_event", r#"{"subagentId":"s"}"#),
        (
            "subagent_end",
            r#"{"subagentId":"s","subagentType":"t","parentToolCallId":"c","success":true,"timestamp":1,"new":2}"#,
        ),
        (
            "subagent_event",
            &format!(
                r#"{{"subagentId":"s","subagentType":"t","parentToolCallId":"c","innerEvent":{inner},"new":1}}"#
            ),
        ),
    ] {
        let line = uap(event_type, data);
        let read = AgentStreamEvent::from_json(line.as_bytes(), &Limits::default()).unwrap();
        let AgentStreamEvent::Uap(event) = &read else {
            panic!("{line}")
        };
        let is_whole = matches!(&event.data, EventData::Custom(raw) if raw.as_str() == data);
        assert!(is_whole || event_type == "subagent_end", "{event:?}");
        assert_eq!(to_string(&read), line);
    }
    // In another form it is the same.
    let spaced = uap("step_end", r#"{ "phase" : "p" }"#);
    let read = AgentStreamEvent::from_json(spaced.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(to_string(&read), uap("step_end", r#"{"phase":"p"}"#));
    let lost = uap("save_failed", r#"{"error":"full"}"#);
    let read = AgentStreamEvent::from_json(lost.as_bytes(), &Limits::default()).unwrap();
    assert!(
        format!("{read:?}").contains("SaveFailed(\"full\")"),
        "{read:?}"
    );
    for bad in [
        "{}",
        r#"{"source":"uap"}"#,
        r#"{"source":"both"}"#,
        &inner.replace("\"source\":\"uap\"", "\"source\":\"upp\""),
        &uap("reasoning", "5"),
        &uap(
            "subagent_event",
            r#"{"subagentId":"s","subagentType":"t","parentToolCallId":"c","innerEvent":{"source":"x"}}"#,
        ),
    ] {
        let read = AgentStreamEvent::from_json(bad.as_bytes(), &Limits::default());
        let why = read.unwrap_err().to_string();
        assert!(
            why.contains("/source") || why.contains("/data"),
            "{bad}: {why}"
        );
    }
    // However deep it is, it ends at the limit.
    let deep = (0..20_000).fold(inner, |inner, _| {
        let data = format!(
            r#"{{"subagentId":"s","subagentType":"t","parentToolCallId":"c","innerEvent":{inner}}}"#
        );
        if inner.len() > 100_000 {
            inner
        } else {
            uap("subagent_event", &data)
        }
    });
    assert!(AgentStreamEvent::from_json(deep.as_bytes(), &Limits::default()).is_err());
}

#[cfg(feature = "schemars")]
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Search {
    /// What to look for.
    query: String,
    #[serde(default)]
    deep: bool,
}

// spec: UAP-8-1
#[cfg(feature = "schemars")]
#[test]
fn a_type_gives_a_subagent_its_schema_and_its_arguments() {
    let typed =
        |found: &str| {
            let reply = Reply::text(found.to_owned());
            let tool = SubagentTool::typed(child([reply]), "explore", "Looks", |search: Search| {
                match search.query.as_str() {
                    "" => Err("an empty query".into()),
                    query => Ok(format!("{query} {}", search.deep)),
                }
            });
            tool.unwrap()
        };
    let schema: Value = typed("x").parameters().deserialize().unwrap();
    assert_eq!(
        schema["properties"]["query"]["description"],
        "What to look for."
    );
    assert_eq!(schema["required"], serde_json::json!(["query"]));
    for (arguments, wanted) in [
        (r#"{"query":"main"}"#, Ok("main false")),
        (r#"{"query":"main","deep":true}"#, Ok("main true")),
        (r#"{"deep":true}"#, Err("arguments that do not fit")),
        (r#"{"query":""}"#, Err("an empty query")),
    ] {
        let call = Reply::default().calling("c1", "explore", object(arguments).unwrap());
        let lead = lead(typed("found"), vec![call, Reply::text("y")]);
        let result = block_on(lead.generate("go", &lead.initial_state())).unwrap();
        let execution = result.turn.tool_executions.get(0).unwrap().clone();
        match wanted {
            Ok(prompt) => {
                let trace = result.state.subagent_traces().get(0).unwrap();
                assert_eq!(&*trace.prompt, prompt);
            }
            Err(why) => {
                let told = upp::ToolResult::from(&execution).text().to_string();
                assert!(execution.is_error && told.contains(why), "{told}");
            }
        }
    }
    assert!(SubagentTool::typed(child([]), "t", "d", |_: Vec<u8>| Ok(String::new())).is_err());
}

#[test]
fn the_metadata_of_a_sub_agent_are_those_of_its_tool() {
    let schema = object(r#"{"type":"object"}"#).unwrap();
    let child = agent(options(&script([]))).unwrap();
    let tool = SubagentTool::new(child, "ask", "Asks", schema, |_| Ok(String::new()));
    assert_eq!((tool.description(), tool.metadata()), ("Asks", None));
    let mut metadata = upp::Metadata::default();
    metadata.set("vendor", object(r#"{"owner":"ann"}"#).unwrap());
    let tool = tool.with_metadata(metadata.clone());
    assert_eq!(tool.metadata(), Some(&metadata));
}
