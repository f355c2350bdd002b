//! Tools of an agent that are replaced while it serves.

use std::sync::Arc;

use opensentience_wire::CommandError;
use opensentience_wire::message::{SemVer, Status};
use opensentience_wire::transport::tokio::{Agent, Tool};
use serde_json::json;
use tokio::sync::Notify;

use super::{request, serve_in_memory};
use crate::kit::{object, spec};

/// A tool that says which one it is.
fn numbered(name: &str, number: u32) -> Tool {
    let answer = object(&json!({"tool": number}));
    Tool::new(spec(name), move |_, _| {
        core::future::ready(Ok(answer.clone()))
    })
}

// spec: OSW-4.2-4
#[tokio::test]
async fn replaced_tools_are_called_and_what_runs_goes_on() {
    let (begun, may_end) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (began, end) = (Arc::clone(&begun), Arc::clone(&may_end));
    let slow = Tool::new(spec("slow"), move |_, input| {
        let (began, end) = (Arc::clone(&began), Arc::clone(&end));
        async move {
            began.notify_one();
            end.notified().await;
            Ok(input)
        }
    });
    let agent = Agent::new("1.0.0".parse::<SemVer>().unwrap())
        .tool(spec("same"), async |_, _| Ok(object(&json!({"tool": 1}))));
    let control = agent.control();
    let (mut core, _served) = serve_in_memory(agent).await;
    assert!(core.tools_changed().await);
    control
        .replace_tools(vec![numbered("same", 2), slow])
        .await
        .unwrap();
    assert!(core.tools_changed().await);
    let call = core.call(request("same", json!({}))).await.unwrap();
    let output = call.result().await.into_result().unwrap();
    assert_eq!(output.as_str(), r#"{"tool":2}"#);

    let running = core.call(request("slow", json!({}))).await.unwrap();
    begun.notified().await;
    control
        .replace_tools(vec![numbered("other", 3)])
        .await
        .unwrap();
    assert!(core.tools_changed().await);
    let names: Vec<_> = core.tools().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["other"]);
    let gone = core.call(request("same", json!({}))).await.unwrap_err();
    assert!(matches!(gone, CommandError::ToolNotFound { .. }), "{gone}");
    may_end.notify_one();
    assert_eq!(running.result().await.status, Status::Succeeded);
}
