//! Tools of a real MCP server, in this very process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool as Declared,
};
use rmcp::service::{RequestContext, RoleClient, RoleServer, RunningService};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::json;
use tokio::sync::Notify;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::trace_context::TraceContext;
use upp::transport::mcp;
use upp::{
    CancelToken, List, LlmCall, LlmOptions, Reply, ScriptedModel, Tool, ToolContext, llm, object,
};

#[derive(Clone, Default)]
struct Server {
    begun: Arc<Notify>,
    cancelled: Arc<Notify>,
    /// Tools after the five that it has names for.
    more: usize,
    /// What stood beside each call.
    metas: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let second = page.and_then(|page| page.cursor).is_some();
        let names: &[&'static str] = if second {
            &["slow", "failing", "refusing"]
        } else {
            &["echo", "data"]
        };
        let schema = json!({"type": "object"});
        let declare = |name: &&'static str| {
            Declared::new(*name, "of a test", schema.as_object().unwrap().clone())
        };
        let more = std::iter::repeat_n(&"more", if second { self.more } else { 0 });
        let all = names.iter().chain(more);
        let mut list = ListToolsResult::with_all_items(all.map(declare).collect());
        list.next_cursor = (!second).then(|| "second".to_owned());
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = |text: String| vec![ContentBlock::text(text)];
        let arguments = json!(request.arguments).to_string();
        self.metas.lock().unwrap().push(json!(context.meta));
        Ok(match &*request.name {
            "echo" => CallToolResult::success(text(arguments)),
            "data" => {
                let mut data = CallToolResult::structured(json!({"n": 3}));
                let mut meta = MetaObject::new();
                meta.0.insert("traceparent".into(), json!(PARENT));
                data.meta = Some(meta);
                data
            }
            "failing" => CallToolResult::error(text("no luck".into())),
            "slow" => {
                self.begun.notify_one();
                context.ct.cancelled().await;
                self.cancelled.notify_one();
                CallToolResult::success(vec![])
            }
            _ => return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, "not so", None)),
        }
        .into())
    }
}

async fn connect(server: Server) -> RunningService<RoleClient, ()> {
    let (near, far) = tokio::io::duplex(4096);
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    tokio::spawn(async move {
        let _ = server.serve(far).await.unwrap().waiting().await;
    });
    ().serve(near).await.unwrap()
}

async fn run(tool: &Arc<dyn Tool>, cancel: CancelToken) -> Result<String, String> {
    let context = ToolContext::new("c", cancel);
    let result = tool.run(&object(r#"{"a":1}"#).unwrap(), &context).await;
    result
        .map(|raw| raw.as_str().to_owned())
        .map_err(|error| error.0.into())
}

#[tokio::test]
async fn every_page_of_tools_is_listed() {
    let client = connect(Server::default()).await;
    let tools = mcp::tools(&client).await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(names, ["echo", "data", "slow", "failing", "refusing"]);
    assert_eq!(
        (tools[0].description(), tools[0].parameters().as_str()),
        ("of a test", r#"{"type":"object"}"#)
    );
    let result = |n: usize| run(&tools[n], CancelToken::default());
    assert_eq!(result(0).await.unwrap(), r#""{\"a\":1}""#);
    assert_eq!(result(1).await.unwrap(), r#"{"n":3}"#);
    assert_eq!(result(3).await.unwrap_err(), "no luck");
    assert_eq!(result(4).await.unwrap_err(), "not so");
    client.cancel().await.unwrap();
    assert_eq!(result(0).await.unwrap_err(), "the MCP server has ended");
}

#[tokio::test]
async fn a_server_has_1024_tools() {
    for (more, is_ok) in [(1_019, true), (1_020, false)] {
        let server = Server {
            more,
            ..Server::default()
        };
        let client = connect(server).await;
        let tools = mcp::tools(&client).await;
        assert_eq!(tools.is_ok_and(|tools| tools.len() == 1_024), is_ok);
    }
}

// spec: UPP-6
#[tokio::test]
async fn the_server_is_told_when_a_call_is_cancelled_or_dropped() {
    let server = Server::default();
    let client = connect(server.clone()).await;
    let tools = mcp::tools(&client).await.unwrap();
    for by_token in [true, false] {
        let cancel = CancelToken::default();
        let mut call = Box::pin(run(&tools[2], cancel.clone()));
        tokio::select! {
            _ = &mut call => panic!("it does not end"),
            () = server.begun.notified() => {}
        }
        if by_token {
            cancel.cancel();
            assert_eq!(call.await.unwrap_err(), "the call was cancelled");
        } else {
            assert!((&mut call).now_or_never().is_none());
            drop(call);
        }
        let told = tokio::time::timeout(Duration::from_secs(30), server.cancelled.notified());
        told.await.unwrap();
    }
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What stood beside the last call, without the library's own.
fn beside(server: &Server) -> serde_json::Value {
    let mut meta = server.metas.lock().unwrap().pop().unwrap();
    let members = meta.as_object_mut().unwrap();
    assert!(members.contains_key("progressToken"), "{members:?}");
    members.retain(|name, _| name.starts_with("trace"));
    meta
}

#[tokio::test]
async fn the_place_of_a_call_in_a_trace_goes_to_the_server() {
    let server = Server::default();
    let client = connect(server.clone()).await;
    let tools = mcp::tools(&client).await.unwrap();
    let mut context = ToolContext::new("c", CancelToken::default());
    for (state, wanted) in [
        (
            Some("a=1"),
            json!({"traceparent": PARENT, "tracestate": "a=1"}),
        ),
        (None, json!({"traceparent": PARENT})),
    ] {
        context.trace = TraceContext::read(PARENT, state);
        for _ in 0..2 {
            let result = tools[1].run(&object("{}").unwrap(), &context).await;
            // What stands beside the result is not for the model.
            assert_eq!(result.unwrap().as_str(), r#"{"n":3}"#);
            assert_eq!(beside(&server), wanted);
        }
    }
    context.trace = TraceContext::read(&PARENT.to_uppercase(), []);
    assert!(tools[1].run(&object("{}").unwrap(), &context).await.is_ok());
    assert_eq!(beside(&server), json!({}));
}

#[tokio::test]
async fn requests_and_tools_of_a_call_have_its_place_in_a_trace() {
    let server = Server::default();
    let client = connect(server.clone()).await;
    let place = TraceContext::read(PARENT, ["a=1"]).unwrap();
    let other = place.child([1; 8]).unwrap();
    for (call_from, wanted) in [
        (vec![place.clone()], Some(place.clone())),
        // The last place counts.
        (vec![other, place.clone()], Some(place)),
        (vec![], None),
    ] {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let told = Arc::clone(&seen);
        let model = ScriptedModel::with(move |request| {
            told.lock().unwrap().push(request.trace.clone());
            Some(match request.messages.len() {
                1 => Reply::default().calling("c", "data", object("{}").unwrap()),
                _ => Reply::text("three"),
            })
        });
        let tools = mcp::tools(&client).await.unwrap();
        let options = LlmOptions::new(Arc::new(model)).with_tools(tools);
        let now = || Now::new(Mono::ZERO, Timestamp::EPOCH);
        let call = LlmCall::new(IdSource::seeded(1), now);
        let call = call_from.into_iter().fold(call, LlmCall::with_trace);
        let turn = llm(options).unwrap();
        let turn = turn.generate(&List::default(), ["how many?"], call).await;
        assert_eq!(turn.unwrap().response.text(), "three");
        assert_eq!(*seen.lock().unwrap(), [wanted.clone(), wanted.clone()]);
        let wanted = match wanted {
            Some(_) => json!({"traceparent": PARENT, "tracestate": "a=1"}),
            None => json!({}),
        };
        assert_eq!(beside(&server), wanted);
    }
}

// spec: UPP-10, UAP-16-3
#[tokio::test]
async fn a_model_calls_the_tools_of_a_server() {
    let client = connect(Server::default()).await;
    let model = ScriptedModel::new([
        Reply::default().calling("c", "data", object("{}").unwrap()),
        Reply::text("three"),
    ]);
    let options = LlmOptions::new(Arc::new(model));
    let options = options.with_tools(mcp::tools(&client).await.unwrap());
    let call = LlmCall::new(IdSource::seeded(1), || {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    });
    let turn = llm(options)
        .unwrap()
        .generate(&List::default(), ["count"], call)
        .await
        .unwrap();
    assert_eq!(
        turn.tool_executions.get(0).unwrap().result.as_str(),
        r#"{"n":3}"#
    );
}
