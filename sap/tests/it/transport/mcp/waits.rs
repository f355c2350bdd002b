//! How long a client waits, and a server for a client that does not read.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResponse, ErrorData};
use rmcp::service::RequestContext;
use sap::processor::{AllowAll, Context, Outcome, Processor, Progress};
use sap::transport::Service;
use sap::{Producer, ProducerKind, Task};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use ubos_common::json::RawObject;

use super::super::world::{ByHand, text};
use super::*;

/// A server whose tools never answer.
struct Silent;

impl rmcp::ServerHandler for Silent {
    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        std::future::pending().await
    }
}

// spec: SAP-5-8, SAP-10-3
#[tokio::test]
async fn a_client_gives_a_silent_server_up() {
    let (here, there) = tokio::io::duplex(1 << 16);
    let (answering, asking) = futures::future::join(Silent.serve(there), ().serve(here)).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let clock = ByHand::new();
    let client = McpClient::new(asking.peer().clone())
        .with_clock(Arc::new(clock.clone()))
        .with_default_time(Duration::from_secs(10));
    let hasty = client.clone().with_patience(Duration::from_secs(50));
    let deadline = |second: u64| {
        let deadline = format!("2025-09-28T10:15:{second}Z");
        let deadline = Some(json!({"deadline": deadline}));
        with(ask(1, "test.echo"), "/telemetry", deadline).to_string()
    };
    let (none, over) = (ask(1, "test.echo").to_string(), deadline(24));
    for (client, task, asks, wanted) in [
        (&client, &none, "status", 300),
        (&client, &none, "cancel", 300),
        (&hasty, &none, "status", 50),
        (&hasty, &none, "cancel", 50),
        // What waits for an end waits for as long as the task has time, and then for as long as the client has patience.
        (&client, &none, "send", 10 + 300),
        (&client, &none, "follow", 10 + 300),
        (&hasty, &none, "send", 10 + 50),
        // Its time is over by then.
        (&client, &over, "send", 300),
        (&hasty, &over, "follow", 50),
    ] {
        let (task, begun): (Task, _) = (typed(task), clock.gone());
        let mut ignored = |_: &Message| {};
        let asking = async {
            match asks {
                "send" => client.send(&task, &mut ignored).await,
                "status" => client.status(&task).await.map(Some),
                "cancel" => client.cancel(&task).await.map(Some),
                _ => client.follow(&task, &mut ignored).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asking => answer,
            _ = clock.run() => panic!("never"),
        };
        assert!(
            matches!(answer, Err(SendError::NoAnswer { .. })),
            "{answer:?}"
        );
        assert_eq!((clock.gone() - begun).as_secs(), wanted, "{asks}");
    }
}

/// The lines of a connection, which the test writes and reads itself.
struct Lines(BufReader<DuplexStream>);

impl Lines {
    async fn write(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.0.get_mut().write_all(line.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

// spec: SAP-5-8, SAP-10-3
#[tokio::test]
async fn a_client_that_does_not_read_keeps_no_task_from_its_end() {
    let (seen, clock) = (Seen::default(), ByHand::new());
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let (all, log) = (Arc::new(AllowAll), seen.log.clone());
    let processor = Processor::new(producer, all, log, Config::default())
        .unwrap()
        .handle("test.talk".parse().unwrap(), |mut cx: Context| async move {
            for _ in 0..200 {
                cx.report(Progress::partial(text("1"), vec![RawObject::empty()]))
                    .await;
            }
            std::future::pending::<()>().await;
            Ok(Outcome::new(text("1")))
        });
    let service = Service::new(Arc::new(processor), Arc::new(clock.clone()));
    // Room for a few of the notifications.
    let (here, there) = tokio::io::duplex(8 << 10);
    let server = Server::from(service).serve(there);
    let mut lines = Lines(BufReader::new(here));
    let begin = async {
        let info = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        lines.write(begin).await;
        lines.read().await;
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        lines.write(begun).await;
    };
    let (server, ()) = futures::future::join(server, begin).await;
    let _server = server.unwrap();
    let time = json!({"budget": {"seconds": 50}});
    let task = with(ask(1, "test.talk"), "/telemetry", Some(time));
    let meta = json!({"progressToken": 7});
    let params = json!({"name": "test.talk", "arguments": task, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    lines.write(call).await;
    until(|| seen.entries() >= 64).await;
    clock.go_on(Duration::from_secs(100));
    // The task, RUNNING, and what it said on the way, of which nobody takes much.
    until(|| seen.written(0).last().is_some_and(|last| last == "FAILED")).await;
    // Neither is the call kept: after 30 s the client is told of nothing more but its end.
    clock.go_on(Duration::from_secs(30));
    let mut told = 0;
    let answer = loop {
        let said = lines.read().await;
        match said["method"].as_str() {
            Some("notifications/progress") => told += 1,
            _ => break said,
        }
        if told == 1 {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(
        answer["result"]["structuredContent"]["status"], "FAILED",
        "{answer}"
    );
    assert!((2..64).contains(&told), "{told}");
}
