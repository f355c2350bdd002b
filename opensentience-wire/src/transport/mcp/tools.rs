//! What a server offers, as tools of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerCapabilities};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde::Deserialize;
use ubos_common::json::{RawBuf, RawObject};

use super::call::Target;
use super::lines::LINE_BYTES;
use super::server::{Answered, BridgeError, Calls, Listener, NotCarried};
use crate::limits::MAX_TOOLS;
use crate::message::{ToolSpec, is_tool_name};
use crate::transport::tokio::Tool;

/// A page of the list of tools.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tools: Vec<McpTool>,
    next_cursor: Option<String>,
}

/// A tool as its server declares it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpTool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: RawBuf,
    output_schema: Option<RawBuf>,
    annotations: Option<Annotations>,
    execution: Option<Execution>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "readOnlyHint")]
    reads_only: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    task_support: Option<String>,
}

impl McpTool {
    fn only_as_task(&self) -> bool {
        let support = self
            .execution
            .as_ref()
            .and_then(|execution| execution.task_support.as_deref());
        support == Some("required")
    }
}

/// Tools, and what is to be said about them.
pub(super) struct Offered {
    pub(super) tools: Vec<Tool>,
    pub(super) not_carried: Vec<NotCarried>,
}

pub(super) async fn offered(
    peer: &Peer<RoleClient>,
    listener: &Listener,
) -> Result<Offered, BridgeError> {
    let mut offered = Offered {
        tools: Vec::new(),
        not_carried: Vec::new(),
    };
    let mut names = BTreeSet::new();
    for tool in listed(peer, &listener.calls).await? {
        let from = tool.name.clone();
        let (spec, renamed) = match spec_of(&tool) {
            Ok(found) => found,
            Err(why) => {
                let tool = from;
                offered.not_carried.push(NotCarried::LeftOut { tool, why });
                continue;
            }
        };
        if !names.insert(spec.name.clone()) {
            let why = "its name is taken";
            let tool = from;
            offered.not_carried.push(NotCarried::LeftOut { tool, why });
            continue;
        }
        if renamed {
            let (from, to) = (from.clone(), spec.name.clone());
            offered.not_carried.push(NotCarried::Renamed { from, to });
        }
        let target = Arc::new(Target {
            peer: peer.clone(),
            listener: listener.clone(),
            name: from,
        });
        let run = move |context, input| Arc::clone(&target).call(context, input);
        offered.tools.push(Tool::new(spec, run));
    }
    Ok(offered)
}

/// Every page of the list, as far as a session takes so many tools.
async fn listed(peer: &Peer<RoleClient>, calls: &Calls) -> Result<Vec<McpTool>, BridgeError> {
    let most = MAX_TOOLS;
    let (mut tools, mut bytes) = (Vec::new(), 0);
    let mut cursor = None;
    // A page may be empty, but not each of them.
    for _ in 0..=most {
        let (page, length) = page(peer, calls, cursor).await?;
        bytes += length;
        if bytes > LINE_BYTES {
            return Err(BridgeError::TooLong(LINE_BYTES));
        }
        tools.extend(page.tools);
        if tools.len() > most {
            break;
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(BridgeError::TooMany(most))
}

/// One page of the list and its length, read from its text: the library would round numbers of schemas, and knows no tasks.
async fn page(
    peer: &Peer<RoleClient>,
    calls: &Calls,
    cursor: Option<String>,
) -> Result<(Page, usize), BridgeError> {
    let failed = |error| BridgeError::Tools(Box::new(error));
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ListToolsRequest::with_param(params);
    let handle = {
        let mut calls = calls.lock().await;
        let options = PeerRequestOptions::no_options();
        let request = ClientRequest::ListToolsRequest(request);
        let sent = peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(failed)?;
        calls.results.insert(handle.id.clone(), Answered::No);
        // One that was given up may still be answered, and nobody is left who would take that.
        if let Some(given_up) = calls.listing.replace(handle.id.clone()) {
            calls.results.remove(&given_up);
        }
        handle
    };
    let id = handle.id.clone();
    let answer = handle.await_response().await;
    let answered = calls.lock().await.results.remove(&id);
    answer.map_err(failed)?;
    let Some(Answered::Text(text)) = answered else {
        return Err(BridgeError::Unreadable(None));
    };
    let unreadable = |error| BridgeError::Unreadable(Some(error));
    let page = text.deserialize().map_err(unreadable)?;
    Ok((page, text.as_str().len()))
}

/// The declaration of a tool, and whether it has another name.
fn spec_of(tool: &McpTool) -> Result<(ToolSpec, bool), &'static str> {
    if tool.only_as_task() {
        return Err("it runs only as a task");
    }
    let renamed = !is_tool_name(&tool.name);
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let name: String = tool.name.chars().map(allowed).collect();
    if name.is_empty() {
        return Err("it has no name");
    }
    let about = tool.description.as_deref().or(tool.title.as_deref());
    let schema = RawObject::new(tool.input_schema.clone()).ok_or("its schema is no object")?;
    let mut spec = ToolSpec::local(&name, about.unwrap_or_default(), schema);
    // The schema is that of one member of what a call gives.
    spec.output_schema = tool.output_schema.as_ref().and_then(|schema| {
        let whole = format!(
            r#"{{"type":"object","properties":{{"structuredContent":{}}},"required":["structuredContent"]}}"#,
            schema.as_str()
        );
        RawBuf::parse(&whole).ok().and_then(RawObject::new)
    });
    let reads = tool.annotations.as_ref().and_then(|a| a.reads_only);
    spec.side_effects = Some(reads != Some(true));
    Ok((spec, renamed))
}

/// The features of a server that an agent does not have.
pub(super) fn features(server: &ServerCapabilities) -> Vec<NotCarried> {
    let features = [
        (server.resources.is_some(), "resources"),
        (server.prompts.is_some(), "prompts"),
        (server.completions.is_some(), "completions"),
        (server.logging.is_some(), "log messages"),
        (server.extensions.is_some(), "extensions"),
        (server.experimental.is_some(), "experimental features"),
    ];
    let lost = features.into_iter().filter(|(there, _)| *there);
    lost.map(|(_, name)| NotCarried::Feature(name)).collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rmcp::model::{ErrorData, ListToolsResult};
    use rmcp::service::{RequestContext, RoleServer};
    use rmcp::{ServerHandler, ServiceExt as _};
    use tokio::time::{sleep, timeout};

    use super::super::lines::Lines;
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    /// A server that takes longer to list its tools than anybody waits.
    struct Slow;

    impl ServerHandler for Slow {
        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            sleep(2 * SOON).await;
            Ok(ListToolsResult::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_one_list_is_kept_that_came_too_late() {
        let (theirs, ours) = tokio::io::duplex(1 << 16);
        let listener = Listener::default();
        let calls = Arc::clone(&listener.calls);
        let lines = Lines::new(ours, Arc::clone(&calls));
        let (server, client) = tokio::join!(Slow.serve(theirs), listener.serve(lines));
        let (_server, client) = (server.unwrap(), client.unwrap());
        for _ in 0..3 {
            let late = timeout(SOON, listed(client.peer(), &calls)).await;
            assert!(late.is_err());
            sleep(2 * SOON).await;
            let results = &calls.lock().await.results;
            assert_eq!(results.len(), 1);
            assert!(matches!(results.values().next(), Some(Answered::Text(_))));
        }
        assert!(listed(client.peer(), &calls).await.is_ok());
        assert!(calls.lock().await.results.is_empty());
    }
}
