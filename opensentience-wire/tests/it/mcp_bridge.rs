//! A real MCP server behind a core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opensentience_wire::message::{Channel, SemVer, Status};
use opensentience_wire::role::core::{CallRequest, Config, Outcome};
use opensentience_wire::role::{CloseReason, agent};
use opensentience_wire::transport::mcp::{Bridge, BridgeError, NotCarried};
use opensentience_wire::transport::tokio::{AuditSink, CoreHandle, attach};
use opensentience_wire::{Grant, SessionToken};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    Implementation, ListToolsResult, MetaObject, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, RunningService};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::os::Clock;
use ubos_common::trace_context::TraceContext;

use crate::kit::{AGENT, object};

#[derive(Clone, Default)]
struct Server {
    more: Arc<AtomicBool>,
    cancelled: Arc<Notify>,
    /// What stood beside each call.
    metas: Arc<Mutex<Vec<serde_json::Value>>>,
}

fn tool(name: &'static str) -> Tool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    Tool::new(name, "of a test", schema.as_object().unwrap().clone())
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("server", "2.3.4"))
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let second = page.and_then(|page| page.cursor).is_some();
        let mut tools = vec![tool("echo"), tool("slow"), tool("steps")];
        let mut cursor = Some("second".to_owned());
        if second {
            tools = vec![
                tool("failing"),
                tool("refusing"),
                tool("ask me"),
                tool("ask/me"),
            ];
            tools[0] = tools[0]
                .clone()
                .annotate(ToolAnnotations::new().read_only(true));
            cursor = None;
            if self.more.load(Ordering::SeqCst) {
                tools.push(tool("late"));
            }
        }
        let mut list = ListToolsResult::with_all_items(tools);
        list.next_cursor = cursor;
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = |text: &str| vec![ContentBlock::text(text)];
        let arguments = request.arguments.unwrap_or_default();
        self.metas.lock().unwrap().push(json!(context.meta));
        let result = match request.name.as_ref() {
            "slow" => {
                context.ct.cancelled().await;
                self.cancelled.notify_one();
                CallToolResult::success(text("stopped"))
            }
            "steps" => {
                let token = context.meta.get_progress_token().unwrap();
                for step in 1..=3 {
                    let report = ProgressNotificationParam::new(token.clone(), f64::from(step));
                    let report = report.with_total(3.0).with_message("step");
                    context.peer.notify_progress(report).await.unwrap();
                }
                CallToolResult::success(text("done"))
            }
            "failing" => CallToolResult::error(text("no such city")),
            "refusing" => {
                return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, "no text", None));
            }
            _ => {
                let mut result = CallToolResult::structured(json!({"said": arguments.get("text")}));
                let meta = json!({"traceparent": PARENT, "progressToken": 7, "a.b/c": [1]});
                let mut object = MetaObject::new();
                object.0.extend(meta.as_object().unwrap().clone());
                result.meta = Some(object);
                result
            }
        };
        Ok(result.into())
    }
}

struct World {
    server: RunningService<RoleServer, Server>,
    core: CoreHandle,
    agent: JoinHandle<CloseReason>,
    not_carried: Vec<NotCarried>,
}

async fn world(server: Server) -> World {
    world_of(server, |bridge| bridge).await
}

async fn world_of(server: Server, set: impl FnOnce(Bridge) -> Bridge) -> World {
    let (theirs, ours) = tokio::io::duplex(1 << 16);
    let (server, bridge) = tokio::join!(server.serve(theirs), Bridge::connect(ours));
    let bridge = set(bridge.unwrap());
    let not_carried = bridge.not_carried().to_vec();
    let (core, agent) = behind(bridge).await;
    World {
        server: server.unwrap(),
        core,
        agent,
        not_carried,
    }
}

/// A core, and the bridge as its agent.
async fn behind(bridge: Bridge) -> (CoreHandle, JoinHandle<CloseReason>) {
    let (core_end, agent_end) = tokio::io::duplex(1 << 16);
    let token = || SessionToken::from_random([7; 32]);
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let agent = tokio::spawn(async move { bridge.serve(agent_end, config).await.unwrap() });
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let ids = IdSource::seeded(1);
    let audit = AuditSink::default();
    // However busy the machine is: no test is about these spans.
    let patient = Config::default()
        .with_heartbeat_interval(Duration::from_secs(600))
        .with_room_timeout(Duration::from_secs(3_600));
    let mut core = attach(core_end, clock, patient, ids, grant, audit)
        .await
        .unwrap();
    core.tools_changed().await;
    (core, agent)
}

impl World {
    async fn call(&self, tool: &str) -> Outcome {
        let input = object(&json!({"text": "hi"}));
        let request = CallRequest::new(format!("{AGENT}/{tool}"), input);
        self.core.call(request).await.unwrap().result().await
    }
}

#[tokio::test]
async fn the_agent_offers_the_tools_of_its_server() {
    let world = world(Server::default()).await;
    let tools = world.core.tools();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        ["ask_me", "echo", "failing", "refusing", "slow", "steps"]
    );
    let effects: Vec<_> = tools.iter().filter_map(|tool| tool.side_effects).collect();
    assert_eq!(effects, [true, true, false, true, true, true]);
    let told: Vec<_> = world.not_carried.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "prompts of the MCP server are not carried",
            "the MCP tool \"ask me\" is offered as ask_me",
            "the MCP tool \"ask/me\" is left out: its name is taken",
        ]
    );
}

#[tokio::test]
async fn results_and_errors_come_back_as_what_they_are() {
    let world = world(Server::default()).await;
    let outcome = world.call("echo").await;
    let output: serde_json::Value = outcome.into_result().unwrap().deserialize().unwrap();
    assert_eq!(output["structuredContent"], json!({"said": "hi"}));
    // A name that was changed reaches the tool that had it.
    assert_eq!(world.call("ask_me").await.status, Status::Succeeded);
    for (tool, code, message) in [
        ("failing", "tool.failed", "no such city"),
        ("refusing", "tool.invalid_input", "no text"),
    ] {
        let error = world.call(tool).await.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            (code, message)
        );
    }
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A call of `echo` from a place, and what stood beside it at the server, without the library's own.
async fn beside(world: &World, server: &Server, correlation_id: Option<&str>) -> serde_json::Value {
    let mut request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({"text": "hi"})));
    request.correlation_id = correlation_id.map(str::to_owned);
    beside_call(world, server, request).await
}

async fn beside_call(world: &World, server: &Server, request: CallRequest) -> serde_json::Value {
    let outcome = world.core.call(request).await.unwrap().result().await;
    assert_eq!(outcome.status, Status::Succeeded);
    let mut meta = server.metas.lock().unwrap().pop().unwrap();
    let members = meta.as_object_mut().unwrap();
    assert!(members.contains_key("progressToken"), "{members:?}");
    members.retain(|name, _| name.starts_with("trace"));
    meta
}

// spec: OSW-3-2
#[tokio::test]
async fn a_correlation_id_that_is_a_place_in_a_trace_goes_to_the_server() {
    let server = Server::default();
    let world = world(server.clone()).await;
    let place = TraceContext::read(PARENT, ["a=1"]).unwrap();
    let below = place.child([1; 8]).unwrap();
    let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
    for (request, wanted) in [
        (request.clone().with_trace(&place), PARENT.to_owned()),
        // The last place counts.
        (
            request.with_trace(&place).with_trace(&below),
            below.traceparent(),
        ),
    ] {
        let meta = beside_call(&world, &server, request).await;
        // The protocol has no place for the state.
        assert_eq!(meta, json!({"traceparent": wanted}));
    }
    let wrong = PARENT.to_uppercase();
    let zero = PARENT.replace("b7ad6b7169203331", &"0".repeat(16));
    for other in [None, Some("mission:1"), Some(""), Some(&wrong), Some(&zero)] {
        assert_eq!(beside(&world, &server, other).await, json!({}), "{other:?}");
    }
}

#[tokio::test]
async fn the_place_of_a_call_is_found_by_its_ids() {
    let server = Server::default();
    let place = TraceContext::read(PARENT, ["a=1", "b=2"]).unwrap();
    let world = world_of(server.clone(), move |bridge| {
        let bridge = bridge.with_trace_of(|_| panic!("another takes its place"));
        bridge.with_trace_of(move |call| match call.ids.correlation_id.as_deref() {
            Some("mission:1") => Some(place.clone()),
            _ => None,
        })
    })
    .await;
    let found = json!({"traceparent": PARENT, "tracestate": "a=1,b=2"});
    assert_eq!(beside(&world, &server, Some("mission:1")).await, found);
    // Twice in one session.
    assert_eq!(beside(&world, &server, Some("mission:1")).await, found);
    for other in [None, Some("mission:2"), Some(PARENT)] {
        assert_eq!(beside(&world, &server, other).await, json!({}), "{other:?}");
    }
}

#[tokio::test]
async fn what_a_server_says_beside_a_result_is_in_the_output() {
    let world = world(Server::default()).await;
    let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
    let place = TraceContext::read(PARENT, []).unwrap();
    let request = request.with_trace(&place.child([1; 8]).unwrap());
    let outcome = world.core.call(request).await.unwrap().result().await;
    let output: serde_json::Value = outcome.into_result().unwrap().deserialize().unwrap();
    let meta = json!({"traceparent": PARENT, "progressToken": 7, "a.b/c": [1]});
    assert_eq!(output["_meta"], meta);
    // It belongs to no other call.
    assert_eq!(world.call("ask_me").await.status, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn progress_comes_before_the_result() {
    let world = world(Server::default()).await;
    for _ in 0..500 {
        let request = CallRequest::new(format!("{AGENT}/steps"), object(&json!({})));
        let mut call = world.core.call(request).await.unwrap();
        let mut told = Vec::new();
        while let Some(chunk) = call.next_chunk().await {
            assert_eq!(chunk.channel, Channel::Status);
            told.push(chunk.data.text.unwrap());
        }
        // As the server writes them.
        assert_eq!(
            told,
            ["1.0 of 3.0: step", "2.0 of 3.0: step", "3.0 of 3.0: step"]
        );
        assert_eq!(call.result().await.status, Status::Succeeded);
    }
}

#[tokio::test]
async fn a_cancelled_call_is_a_cancelled_request() {
    let server = Server::default();
    let cancelled = Arc::clone(&server.cancelled);
    let world = world(server).await;
    let request = CallRequest::new(format!("{AGENT}/slow"), object(&json!({})));
    let call = world.core.call(request.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    call.cancel();
    assert_eq!(call.result().await.status, Status::Canceled);
    cancelled.notified().await;
    // One that is late is cancelled too.
    let late = request.with_timeout(Duration::from_millis(20));
    let outcome = world.core.call(late).await.unwrap().result().await;
    assert_eq!(outcome.error.unwrap().code.as_str(), "tool.timeout");
    cancelled.notified().await;
}

#[tokio::test]
async fn tools_follow_the_server_and_the_agent_ends_with_it() {
    let server = Server::default();
    let more = Arc::clone(&server.more);
    let mut world = world(server).await;
    more.store(true, Ordering::SeqCst);
    world
        .server
        .peer()
        .notify_tool_list_changed()
        .await
        .unwrap();
    world.core.tools_changed().await;
    assert_eq!(world.core.tools().len(), 7);
    assert_eq!(world.call("late").await.status, Status::Succeeded);
    world.server.cancel().await.unwrap();
    assert_eq!(world.agent.await.unwrap(), CloseReason::Shutdown);
}

// spec: OSW-5-1
#[cfg(unix)]
#[tokio::test]
async fn a_server_learns_nothing_of_the_launch() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let mut server = tokio::process::Command::new("/bin/sh");
    server.args(["-c", "env > \"$SEEN\""]);
    server.env("SEEN", seen.path());
    server.env("OPENSENTIENCE_SESSION_TOKEN", "secret");
    let error = Bridge::launch(server).await.unwrap_err();
    assert!(matches!(error, BridgeError::Initialize(_)), "{error:?}");
    let env = std::fs::read_to_string(seen.path()).unwrap();
    assert!(env.contains("SEEN="));
    assert!(!env.contains("OPENSENTIENCE_"), "{env}");
    let error = Bridge::launch(tokio::process::Command::new("/nowhere/server")).await;
    assert!(matches!(error, Err(BridgeError::Spawn(_))));
}

/// What a server that is written by hand is asked.
struct Asked {
    method: String,
    id: serde_json::Value,
    line: String,
}

#[derive(serde::Deserialize)]
struct Head {
    id: Option<serde_json::Value>,
    method: String,
}

impl Asked {
    /// The text of the arguments.
    fn arguments(&self) -> &str {
        let (_, behind) = self.line.split_once("\"arguments\":").unwrap();
        behind.trim_end().strip_suffix("}}").unwrap()
    }

    fn answer(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }
}

/// The bridge to a server that answers its requests about tools by a function, with as many lines as that gives, and the end on
/// which it may say more.
async fn by_hand(
    answer: impl Fn(&Asked) -> Vec<String> + Send + 'static,
) -> (Bridge, Arc<tokio::sync::Mutex<WriteHalf<DuplexStream>>>) {
    let (theirs, ours) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    let writing = Arc::clone(&writer);
    tokio::spawn(async move {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Head {
                id: Some(id),
                method,
            } = serde_json::from_str(&line).unwrap()
            else {
                continue;
            };
            let asked = Asked { method, id, line };
            let lines = match asked.method.as_str() {
                "initialize" => vec![asked.answer(
                    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},
                    "serverInfo":{"name":"by hand","version":"1.0.0"}}"#.replace('\n', "").as_str(),
                )],
                "tools/list" | "tools/call" => answer(&asked),
                _ => vec![format!(
                    r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"no"}}}}"#,
                    asked.id
                )],
            };
            for line in lines {
                let mut writer = writing.lock().await;
                writer
                    .write_all(format!("{line}\n").as_bytes())
                    .await
                    .unwrap();
            }
        }
    });
    (Bridge::connect(ours).await.unwrap(), writer)
}

async fn say_that_tools_changed(writer: &tokio::sync::Mutex<WriteHalf<DuplexStream>>) {
    let changed = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
    let mut writer = writer.lock().await;
    writer.write_all(changed.as_bytes()).await.unwrap();
}

const ECHO: &str = r#"{"name":"echo","inputSchema":{"type":"object","title":"1.10 and 1e400","default":{"n":1.10}}}"#;

#[tokio::test]
async fn numbers_cross_as_they_are() {
    let (bridge, _) = by_hand(|asked| match asked.method.as_str() {
        "tools/list" => vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))],
        _ => {
            let got = asked.arguments();
            let result =
                format!(r#"{{"content":[],"structuredContent":{{"got":{got}}},"later":1.50}}"#);
            vec![asked.answer(&result)]
        }
    })
    .await;
    let (core, _agent) = behind(bridge).await;
    let schema = core.tools()[0].input_schema.as_str().to_owned();
    assert!(schema.contains(r#""n":1.10"#), "{schema}");
    let numbers =
        r#"{"big":123456789012345678901234567890,"exact":1.10,"tiny":1e-400,"huge":1E+400}"#;
    let input = RawObject::new(RawBuf::parse(numbers).unwrap()).unwrap();
    let request = CallRequest::new(format!("{AGENT}/echo"), input);
    let outcome = core.call(request).await.unwrap().result().await;
    let output = outcome.into_result().unwrap();
    assert_eq!(
        output.as_str(),
        format!(r#"{{"content":[],"structuredContent":{{"got":{numbers}}},"later":1.50}}"#)
    );
}

#[tokio::test]
async fn tools_that_run_only_as_tasks_are_left_out() {
    let (bridge, _) = by_hand(|asked| {
        let with = |name: &str, support: &str| {
            format!(r#"{{"name":"{name}","inputSchema":{{}},"execution":{{"taskSupport":"{support}"}}}}"#)
        };
        let tools = [with("a", "required"), with("b", "optional"), with("c", "forbidden")];
        vec![asked.answer(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")))]
    })
    .await;
    let why = "it runs only as a task";
    let tool = "a".to_owned();
    assert_eq!(bridge.not_carried(), [NotCarried::LeftOut { tool, why }]);
    let (core, _agent) = behind(bridge).await;
    let names: Vec<_> = core.tools().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["b", "c"]);
}

#[tokio::test]
async fn a_server_is_asked_for_its_tools_when_they_change_alone() {
    let lists = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let (bridge, _writer) = by_hand(move |asked| match asked.method.as_str() {
        "tools/list" => {
            counted.fetch_add(1, Ordering::SeqCst);
            vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))]
        }
        _ => vec![asked.answer(r#"{"content":[]}"#)],
    })
    .await;
    let (core, _agent) = behind(bridge).await;
    for _ in 0..10 {
        let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
        let outcome = core.call(request).await.unwrap().result().await;
        assert!(outcome.into_result().is_ok());
    }
    assert_eq!(lists.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_list_that_never_comes_stops_no_later_one() {
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let (bridge, writer) = by_hand(move |asked| {
        let tools = match lists.fetch_add(1, Ordering::SeqCst) {
            0 => ECHO.to_owned(),
            1 => return Vec::new(),
            _ => format!("{ECHO},{}", ECHO.replace("echo", "late")),
        };
        vec![asked.answer(&format!(r#"{{"tools":[{tools}]}}"#))]
    })
    .await;
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let bridge = bridge
        .with_list_timeout(Duration::from_secs(1))
        .with_on_change(move |change| told.send(change).unwrap());
    let (mut core, _agent) = behind(bridge).await;
    let changing = async {
        loop {
            say_that_tools_changed(&writer).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let following = async {
        while core.tools().len() < 2 {
            assert!(core.tools_changed().await);
        }
    };
    tokio::select! {
        () = changing => {}
        () = following => {}
    }
    let change = changes.recv().await.unwrap();
    assert!(matches!(change, Err(BridgeError::Silent(_))), "{change:?}");
}

#[tokio::test]
async fn what_a_server_logs_is_passed_over_and_what_cannot_be_read_ends_its_call() {
    let (bridge, _) = by_hand(|asked| match asked.method.as_str() {
        "tools/list" => vec![
            "starting up".into(),
            r#"{"level":"info"}"#.into(),
            asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#)),
        ],
        _ if asked.line.contains("error") => vec![format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32603,"message":"no","data":1e400}}}}"#,
            asked.id
        )],
        _ => vec![asked.answer("7")],
    })
    .await;
    let (core, _agent) = behind(bridge).await;
    for input in [json!({}), json!({"an": "error"})] {
        let request = CallRequest::new(format!("{AGENT}/echo"), object(&input));
        let outcome = core.call(request).await.unwrap().result().await;
        assert_eq!(outcome.status, Status::Failed, "{outcome}");
    }
}

#[tokio::test]
async fn a_call_that_runs_when_the_server_ends_is_answered_before_the_agent_ends() {
    let asked_for = Arc::new(Notify::new());
    let called = Arc::clone(&asked_for);
    let (bridge, writer) = by_hand(move |asked| {
        if asked.method == "tools/list" {
            return vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))];
        }
        called.notify_one();
        Vec::new()
    })
    .await;
    let (core, agent) = behind(bridge).await;
    let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
    let call = core.call(request).await.unwrap();
    asked_for.notified().await;
    writer.lock().await.shutdown().await.unwrap();
    let error = call.result().await.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("tool.failed", "the MCP server has ended")
    );
    assert_eq!(agent.await.unwrap(), CloseReason::Shutdown);
}

#[tokio::test]
async fn a_result_that_fits_into_no_frame_ends_its_call_alone() {
    let (bridge, _) = by_hand(|asked| match asked.method.as_str() {
        "tools/list" => vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))],
        _ => {
            let mib = if asked.arguments() == "{}" { 0 } else { 5 };
            let text = "x".repeat(mib << 20);
            let content = json!([{"type": "text", "text": text}]);
            vec![asked.answer(&json!({"content": content}).to_string())]
        }
    })
    .await;
    let (core, _agent) = behind(bridge).await;
    for (input, wanted) in [
        (json!({"a": 1}), Err("tool.output_too_large")),
        (json!({}), Ok(())),
    ] {
        let request = CallRequest::new(format!("{AGENT}/echo"), object(&input));
        let outcome = core.call(request).await.unwrap().result().await;
        let ended = outcome.into_result().map(drop);
        let code = ended.map_err(|error| error.code.as_str().to_owned());
        assert_eq!(code, wanted.map_err(str::to_owned));
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_list_its_tools_is_told_as_such() {
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let (bridge, writer) = by_hand(move |asked| {
        if lists.fetch_add(1, Ordering::SeqCst) == 0 {
            return vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))];
        }
        let id = &asked.id;
        vec![format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"not now"}}}}"#
        )]
    })
    .await;
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let bridge = bridge.with_on_change(move |change| told.send(change).unwrap());
    let (core, _agent) = behind(bridge).await;
    say_that_tools_changed(&writer).await;
    match changes.recv().await.unwrap() {
        Err(BridgeError::Tools(error)) => assert!(error.to_string().contains("not now"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(core.tools().len(), 1, "those before stay");
}

#[tokio::test]
async fn a_list_of_tools_has_a_bound_of_bytes_over_its_pages() {
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let (bridge, writer) = by_hand(move |asked| {
        let place = lists.fetch_add(1, Ordering::SeqCst);
        if place == 0 {
            return vec![asked.answer(&format!(r#"{{"tools":[{ECHO}]}}"#))];
        }
        // The second list has an end: its pages are as long as may be.
        let cursor = (place < 17 + 16).then_some("more");
        let page = |long| json!({"tools": [], "nextCursor": cursor, "later": "x".repeat(long)});
        let length = page(0).to_string().len();
        vec![asked.answer(&page((1 << 20) - length).to_string())]
    })
    .await;
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let bridge = bridge.with_on_change(move |change| told.send(change).unwrap());
    let (core, _agent) = behind(bridge).await;
    say_that_tools_changed(&writer).await;
    let change = changes.recv().await.unwrap();
    assert!(
        matches!(change, Err(BridgeError::TooLong(bytes)) if bytes == 16 << 20),
        "{change:?}"
    );
    assert_eq!(core.tools().len(), 1, "those before stay");
    say_that_tools_changed(&writer).await;
    let change = changes.recv().await.unwrap();
    assert!(change.is_ok(), "{change:?}");
}

#[tokio::test]
async fn a_list_of_tools_has_a_bound_of_tools() {
    const MOST: usize = 1_024;
    let many = |count| {
        let named = (0..count).map(|n| ECHO.replace("echo", &format!("t{n}")));
        format!(r#"{{"tools":[{}]}}"#, named.collect::<Vec<_>>().join(","))
    };
    let lists = std::sync::atomic::AtomicUsize::new(0);
    let more = move || MOST + lists.fetch_add(1, Ordering::SeqCst);
    let (bridge, writer) = by_hand(move |asked| vec![asked.answer(&many(more()))]).await;
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let bridge = bridge.with_on_change(move |change| told.send(change).unwrap());
    let (core, _agent) = behind(bridge).await;
    say_that_tools_changed(&writer).await;
    let change = changes.recv().await.unwrap();
    assert!(
        matches!(change, Err(BridgeError::TooMany(MOST))),
        "{change:?}"
    );
    assert_eq!(core.tools().len(), MOST, "those before stay");
}

/// A bridge to a server that has said what it offers and reads nothing from then on: both halves of its end.
async fn unread() -> (
    Bridge,
    BufReader<ReadHalf<DuplexStream>>,
    WriteHalf<DuplexStream>,
) {
    let (theirs, ours) = tokio::io::duplex(1 << 12);
    let (reader, mut writer) = tokio::io::split(theirs);
    let mut lines = BufReader::new(reader).lines();
    let server = async {
        for answer in [
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1.0.0"}}"#.to_owned(),
            format!(r#"{{"tools":[{ECHO}]}}"#),
        ] {
            let id = loop {
                let line = lines.next_line().await.unwrap().unwrap();
                let Head { id, method } = serde_json::from_str(&line).unwrap();
                if method != "notifications/initialized" {
                    break id.unwrap();
                }
            };
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{answer}}}\n");
            writer.write_all(line.as_bytes()).await.unwrap();
        }
    };
    let (bridge, ()) = tokio::join!(Bridge::connect(ours), server);
    (bridge.unwrap(), lines.into_inner(), writer)
}

#[tokio::test]
async fn a_server_that_reads_nothing_is_sent_no_more_than_may_wait() {
    let (bridge, _reader, _writer) = unread().await;
    let (core, _agent) = behind(bridge).await;
    let core = Arc::new(core);
    let input = object(&json!({"text": "x".repeat(900_000)}));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let core = Arc::clone(&core);
        let request = CallRequest::new(format!("{AGENT}/echo"), input.clone());
        calls.spawn(async move { core.call(request).await.unwrap().result().await.status });
    }
    for _ in 0..20 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused, Status::Failed);
    }
    // Those that wait for the server stay there: about 16 MiB of them.
    let more = async {
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
    };
    let quiet = tokio::time::timeout(Duration::from_secs(5), more).await;
    assert!(quiet.is_err() && calls.len() > 10, "{} of 40", calls.len());
}

#[tokio::test]
async fn a_server_that_reads_nothing_and_says_its_last_ends_its_agent() {
    let (bridge, mut reader, mut writer) = unread().await;
    let (core, agent) = behind(bridge).await;
    let input = object(&json!({"text": "x".repeat(64 << 10)}));
    let call = core.call(CallRequest::new(format!("{AGENT}/echo"), input));
    let call = call.await.unwrap();
    // Much of the line is still to be written when its beginning is there.
    assert!(!reader.fill_buf().await.unwrap().is_empty());
    writer.shutdown().await.unwrap();
    let ended = async { (call.result().await.status, agent.await.unwrap()) };
    let ended = tokio::time::timeout(Duration::from_secs(120), ended).await;
    let (status, reason) = ended.expect("the agent ends with its server");
    assert_eq!(status, Status::Failed);
    assert_eq!(reason, CloseReason::Shutdown);
}
