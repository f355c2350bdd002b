//! A real MCP server behind a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opensentience_wire::message::{Channel, SemVer, Status};
use opensentience_wire::role::core::{CallRequest, Config, Outcome};
use opensentience_wire::role::{CloseReason, agent};
use opensentience_wire::transport::mcp::{Bridge, BridgeError, NotCarried};
use opensentience_wire::transport::tokio::{AuditSink, CoreHandle, attach};
use opensentience_wire::{Grant, SessionToken};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, RunningService};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use crate::kit::{AGENT, object};

#[derive(Clone, Default)]
struct Server {
    more: Arc<AtomicBool>,
    cancelled: Arc<Notify>,
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
            _ => CallToolResult::structured(json!({"said": arguments.get("text")})),
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
    let (theirs, ours) = tokio::io::duplex(1 << 16);
    let (server, bridge) = tokio::join!(server.serve(theirs), Bridge::connect(ours));
    let bridge = bridge.unwrap();
    let not_carried = bridge.not_carried().to_vec();
    let (core_end, agent_end) = tokio::io::duplex(1 << 16);
    let token = || SessionToken::from_random([7; 32]);
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let agent = tokio::spawn(async move { bridge.serve(agent_end, config).await.unwrap() });
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let ids = IdSource::seeded(1);
    let audit = AuditSink::default();
    let mut core = attach(core_end, clock, Config::default(), ids, grant, audit)
        .await
        .unwrap();
    core.tools_changed().await;
    World {
        server: server.unwrap(),
        core,
        agent,
        not_carried,
    }
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
        assert_eq!(told, ["1 of 3: step", "2 of 3: step", "3 of 3: step"]);
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
