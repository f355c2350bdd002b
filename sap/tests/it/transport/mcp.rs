//! MCP, over a duplex in memory.

#[cfg(all(unix, feature = "http"))]
mod over_http;
mod server;
mod tools;
mod waits;

use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use rmcp::service::{RoleClient, RoleServer, RunningService};
use sap::processor::Config;
use sap::transport::mcp::{Bounded, McpClient, Server};
use sap::transport::{Message, SendError};
use sap::validate::Options;
use sap::{ErrorCode, Task};
use serde_json::{Value, json};
use ubos_common::trace_context::TraceContext;

use super::suite::{self, Harness, until};
use super::world::{Seen, ask, typed};
use crate::samples::with;

struct OverMcp {
    client: McpClient,
    asking: RunningService<RoleClient, ()>,
    _answering: RunningService<RoleServer, Server>,
}

impl OverMcp {
    async fn on(server: Server) -> Self {
        let (here, there) = tokio::io::duplex(1 << 21);
        let input = |stream| {
            let (read, write) = tokio::io::split(stream);
            (Bounded::new(read), write)
        };
        let serving = server.serve(input(there));
        let (answering, asking) = futures::future::join(serving, ().serve(here)).await;
        let asking = asking.unwrap();
        let client = McpClient::new(asking.peer().clone());
        Self {
            client,
            asking,
            _answering: answering.unwrap(),
        }
    }

    async fn call(&self, tool: &str, arguments: JsonObject) -> CallToolResult {
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        self.asking.call_tool(call).await.unwrap()
    }
}

fn message(answer: &CallToolResult) -> Message {
    let text = &answer.content[0].as_text().unwrap().text;
    Message::decode(text.as_bytes(), &Options::default()).unwrap()
}

impl Harness for OverMcp {
    const TALKS: bool = false;

    async fn start(seen: &Seen, config: Config) -> Self {
        Self::on(Server::from(seen.service_of(config))).await
    }

    async fn send(&self, task: &Task) -> (Vec<Message>, Result<Option<Message>, SendError>) {
        let mut told = Vec::new();
        let answer = self
            .client
            .send(task, &mut |message| told.push(message.clone()))
            .await;
        (told, answer)
    }

    fn trace(&mut self, trace: TraceContext) -> bool {
        self.client = self.client.clone().with_trace(trace);
        true
    }

    async fn status(&self, task: &Task) -> Option<Message> {
        Some(self.client.status(task).await.unwrap())
    }

    async fn cancel(&self, task: &Task) -> Option<Message> {
        Some(self.client.cancel(task).await.unwrap())
    }

    async fn follow(
        &self,
        task: &Task,
        told: &mut (dyn FnMut(&Message) + Send),
    ) -> Option<Message> {
        self.client.follow(task, told).await.unwrap()
    }

    async fn raw(&self, bytes: &str) -> Message {
        let task: Value = serde_json::from_str(bytes).unwrap();
        let tool = task["target"]["capability"].as_str().unwrap();
        message(&self.call(tool, task.as_object().unwrap().clone()).await)
    }
}

// spec: SAP-1-1, SAP-4.1-16, SAP-4.1-17, SAP-4.3-1, SAP-4.3-2, SAP-4.3-3, SAP-5-1, SAP-5-2, SAP-5-9, SAP-5-10
#[tokio::test]
async fn the_suite_holds() {
    suite::run::<OverMcp>().await;
}

// spec: SAP-10-3, SAP-11-2
#[tokio::test]
async fn calls_of_one_connection_have_a_bound_and_are_refused_above_it() {
    let seen = Seen::default();
    let server = Server::from(seen.service_of(Config::default())).with_max_calls(2);
    let other = OverMcp::on(server.clone()).await;
    let mcp = OverMcp::on(server).await;
    let echo = |id| {
        let task = ask(id, "test.echo");
        task.as_object().unwrap().clone()
    };
    // A place is given back.
    for id in 1..=3 {
        let answer = mcp.call("test.echo", echo(id)).await;
        assert_eq!(answer.is_error, Some(false));
    }
    let hanging = [4, 5].map(|id| {
        let task = ask(id, "test.hang");
        mcp.call("test.hang", task.as_object().unwrap().clone())
    });
    let refused = async {
        until(|| seen.entries() >= 3 * 3 + 2 * 2).await;
        let of_task = mcp.call("test.echo", echo(6)).await;
        let of_status = mcp.call("sap_status", echo(4)).await;
        // Another connection has places of its own.
        let elsewhere = other.call("test.echo", echo(7)).await;
        assert_eq!(elsewhere.is_error, Some(false));
        [of_task, of_status]
    };
    // Whoever wants room has to be heard.
    let cancelled = async {
        let refused = refused.await;
        let about = ask(4, "test.hang");
        let about = json!({"issuer": about["issuer"]["agentId"], "taskId": about["taskId"]});
        let about = about.as_object().unwrap().clone();
        let cancel = mcp.call("sap_cancel", about).await;
        assert_eq!(cancel.is_error, Some(false), "{:?}", message(&cancel));
        refused
    };
    let hanging = futures::future::join_all(hanging);
    let refused = tokio::select! {
        refused = cancelled => refused,
        _ = hanging => panic!("they hang"),
    };
    for answer in refused {
        let Message::Nack(nack) = message(&answer) else {
            panic!("it was taken");
        };
        assert_eq!(
            (answer.is_error, nack.code),
            (Some(true), ErrorCode::RateLimit)
        );
    }
    // Nothing was begun of what was refused.
    let task = typed(&ask(6, "test.echo").to_string());
    let status = other.client.status(&task).await.unwrap();
    assert!(matches!(status, Message::Nack(nack) if nack.code == ErrorCode::NotFound));
}

// spec: SAP-10-3
#[tokio::test]
async fn a_capability_is_a_tool_and_a_nack_is_a_tool_error() {
    let seen = Seen::default();
    let mcp = OverMcp::start(&seen, Config::default().with_max_running(1)).await;
    let tools = mcp.asking.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert!(
        names.contains(&"test.echo") && !names.contains(&"test.denied") && names.len() == 12,
        "{names:?}"
    );
    let object = |task: &Value| task.as_object().unwrap().clone();
    let echo = ask(1, "test.echo");
    let text = object(&json!({"task": echo.to_string()}));
    for arguments in [object(&echo), text] {
        let answer = mcp.call("test.echo", arguments).await;
        assert_eq!(answer.is_error, Some(false));
        let Message::Result(result) = message(&answer) else {
            panic!("a result")
        };
        assert_eq!(result.task_id.to_string(), echo["taskId"].as_str().unwrap());
        assert_eq!(
            result.correlation_id.to_string(),
            echo["correlationId"].as_str().unwrap()
        );
    }
    let long = with(
        ask(2, "test.echo"),
        "/payload/long",
        Some(json!("x".repeat(1 << 20))),
    );
    let cases = [
        ("test.steps", object(&echo), ErrorCode::InvalidTask),
        ("test.echo", object(&long), ErrorCode::InvalidTask),
        (
            "test.echo",
            object(&json!({"task": "{"})),
            ErrorCode::InvalidTask,
        ),
        ("test.echo", JsonObject::new(), ErrorCode::InvalidTask),
        (
            "test.none",
            object(&ask(3, "test.none")),
            ErrorCode::Forbidden,
        ),
    ];
    for (tool, arguments, code) in cases {
        let answer = mcp.call(tool, arguments).await;
        let Message::Nack(nack) = message(&answer) else {
            panic!("turned away")
        };
        assert_eq!((answer.is_error, nack.code), (Some(true), code));
    }
    assert_eq!(
        (seen.calls(), seen.written(3)),
        (1, vec!["nack".to_owned(); 5])
    );
    // One that gives up its call cancels its task; while that runs there is no room for another.
    let hang = typed(&ask(4, "test.hang").to_string());
    let mut ignored = |_: &Message| {};
    {
        let mut hanging = std::pin::pin!(mcp.client.send(&hang, &mut ignored));
        let full = async {
            until(|| seen.entries() == 10).await;
            mcp.raw(&ask(5, "test.echo").to_string()).await
        };
        tokio::select! {
            _ = &mut hanging => panic!("it hangs"),
            full = full => {
                let Message::Nack(nack) = full else { panic!("turned away") };
                assert_eq!(nack.code, ErrorCode::RateLimit);
            }
        }
    }
    until(|| seen.written(8) == ["task", "RUNNING", "nack", "CANCELLED"]).await;
}

// spec: SAP-10-3
#[tokio::test]
async fn a_task_of_exactly_the_limit_is_taken() {
    let mcp = OverMcp::start(&Seen::default(), Config::default()).await;
    let task = |n: usize| {
        with(
            ask(1, "test.echo"),
            "/payload/long",
            Some(json!("x".repeat(n))),
        )
    };
    let room = (1 << 20) - task(0).to_string().len();
    for (n, is_taken) in [(room, true), (room + 1, false)] {
        let arguments = task(n).as_object().unwrap().clone();
        let answer = message(&mcp.call("test.echo", arguments).await);
        assert_eq!(matches!(answer, Message::Result(_)), is_taken, "{n}");
    }
}

/// A client that keeps the progress that it is told.
#[derive(Clone, Default)]
struct Watching(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl rmcp::ClientHandler for Watching {
    async fn on_progress(
        &self,
        progress: rmcp::model::ProgressNotificationParam,
        _: rmcp::service::NotificationContext<RoleClient>,
    ) {
        let message = progress.message.unwrap_or_default();
        self.0.lock().unwrap().push(message);
    }
}

// spec: SAP-10-3
#[tokio::test]
async fn a_call_shows_progress_and_says_how_it_ended() {
    let (here, there) = tokio::io::duplex(1 << 21);
    let server = Server::from(Seen::default().service_of(Config::default()));
    let watching = Watching::default();
    let asking = watching.clone().serve(here);
    let (answering, asking) = futures::future::join(server.serve(there), asking).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let call = async |number, tool: &str| {
        let task = ask(number, tool).as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(task);
        asking.call_tool(call).await.unwrap()
    };
    for (number, tool, is_error, status) in [
        (1, "test.steps", false, "SUCCEEDED"),
        (2, "test.fail", true, "FAILED"),
        (3, "test.denied", true, "NACK"),
    ] {
        let answer = call(number, tool).await;
        assert_eq!(answer.is_error, Some(is_error), "{tool}");
        let structured = answer.structured_content.clone().unwrap();
        assert_eq!(structured["status"], status);
        let text = &answer.content[0].as_text().unwrap().text;
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured);
    }
    until(|| !watching.0.lock().unwrap().is_empty()).await;
    let told = watching.0.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    let partial: Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!(
        (&partial["status"], &partial["output"]),
        (&json!("PARTIAL"), &json!(2))
    );
}

#[cfg(feature = "typed")]
#[tokio::test]
async fn the_tool_of_a_typed_handler_has_its_schemas() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Asked {
        #[expect(dead_code, reason = "only its schema matters")]
        topic: Topic,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Topic {
        #[expect(dead_code, reason = "only its schema matters")]
        name: String,
    }
    // One that holds itself refers to its own beginning, from a definition, too.
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Tree {
        branches: Vec<Self>,
        grafts: Vec<Graft>,
    }
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Graft {
        tree: Tree,
    }
    async fn answer(
        _: Asked,
        _: sap::processor::Context,
    ) -> Result<Tree, sap::processor::HandlerError> {
        Ok(Tree {
            branches: vec![],
            grafts: vec![],
        })
    }
    let processor = Seen::default().processor(Config::default());
    let processor = processor.handle_typed("desk.answer".parse().unwrap(), answer);
    let processor = processor.authorize(std::sync::Arc::new(sap::processor::AllowAll));
    let clock = std::sync::Arc::new(super::world::Real::default());
    let service = sap::transport::Service::new(std::sync::Arc::new(processor), clock);
    let (here, there) = tokio::io::duplex(1 << 21);
    let server = Server::from(service).serve(there);
    let (answering, asking) = futures::future::join(server, ().serve(here)).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let tools = asking.list_all_tools().await.unwrap();
    let tool = tools
        .iter()
        .find(|tool| tool.name == "desk.answer")
        .unwrap();
    let input = Value::Object((*tool.input_schema).clone());
    assert_eq!(input["type"], "object");
    let reference = &input["properties"]["payload"]["properties"]["topic"]["$ref"];
    let place = reference.as_str().unwrap().strip_prefix('#').unwrap();
    assert_eq!(input.pointer(place).unwrap()["required"], json!(["name"]));
    let output = tool.output_schema.as_ref().unwrap();
    let schema = Value::Object((**output).clone());
    let valid = jsonschema::validator_for(&schema).unwrap();
    let result = |output: Value| with(crate::samples::result(), "/output", Some(output));
    let tree = |branches: Value, grafts: Value| json!({"branches": branches, "grafts": grafts});
    let leaf = tree(json!([]), json!([]));
    for (good, branches, grafts) in [
        (true, json!([leaf]), json!([])),
        (false, json!([{"twigs": []}]), json!([])),
        (true, json!([]), json!([{"tree": leaf}])),
        (false, json!([]), json!([{"tree": {"twigs": []}}])),
    ] {
        let whole = result(tree(branches, grafts));
        assert_eq!(valid.is_valid(&whole), good, "{whole}");
    }
    // A part of a schema has no language of its own.
    for (whole, part) in [(&schema, "output"), (&input, "payload")] {
        assert_eq!(whole["properties"][part].get("$schema"), None);
    }
    assert!(valid.is_valid(&with(crate::samples::result(), "/output", None)));
    let ids = ask(1, "desk.answer");
    let ack =
        json!({"status": "ACK", "messageId": ids["taskId"], "correlationId": ids["correlationId"]});
    assert!(valid.is_valid(&ack) && !valid.is_valid(&json!({"status": "ACK"})));
    let valid = jsonschema::validator_for(&input).unwrap();
    let asks = |payload: Value| with(ask(1, "desk.answer"), "/payload", Some(payload));
    assert!(valid.is_valid(&asks(json!({"topic": {"name": "a"}}))));
    assert!(!valid.is_valid(&asks(json!({"topic": {}}))));
    let sound = asks(json!({"topic": {"name": "a"}}));
    assert!(!valid.is_valid(&with(sound, "/taskId", Some(json!(7)))));
    assert!(valid.is_valid(&json!({"task": "{}"})) && !valid.is_valid(&json!({})));
    assert!(!valid.is_valid(&json!({"task": {}})));
    let no_context = with(
        asks(json!({"topic": {"name": "a"}})),
        "/constitutionalContext/pressureLevel",
        None,
    );
    assert!(!valid.is_valid(&no_context));
    // Every message of the samples is one that some tool takes, or gives.
    let echo = tools.iter().find(|tool| tool.name == "test.echo").unwrap();
    let takes = Value::Object((*echo.input_schema).clone());
    assert!(
        jsonschema::validator_for(&takes)
            .unwrap()
            .is_valid(&crate::samples::task())
    );
}

#[cfg(feature = "sign")]
// spec: SAP-2-4, SAP-11-2
#[tokio::test]
async fn signatures_go_in_the_meta_of_a_call() {
    use super::world::{Signatures, signed_service};
    let seen = Seen::default();
    let Signatures {
        desk,
        keys,
        other_keys,
    } = Signatures::new();
    let (here, there) = tokio::io::duplex(1 << 21);
    let server = Server::from(signed_service(&seen));
    let (answering, asking) = futures::future::join(server.serve(there), ().serve(here)).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let client = McpClient::new(asking.peer().clone());
    let send = async |client: &McpClient, number| {
        let task = typed(&ask(number, "test.echo").to_string());
        client.send(&task, &mut |_| {}).await
    };
    let unsigned = send(&client, 1).await.unwrap();
    assert!(matches!(unsigned, Some(Message::Nack(_))), "{unsigned:?}");
    let client = client.with_signing_key(desk);
    let strict = client.clone().with_trusted_keys(keys);
    let answer = send(&strict, 2).await.unwrap();
    assert!(matches!(answer, Some(Message::Result(_))), "{answer:?}");
    let strict = client.with_trusted_keys(other_keys);
    let refused = send(&strict, 3).await;
    assert!(
        matches!(refused, Err(SendError::Unsigned(_))),
        "{refused:?}"
    );
}
