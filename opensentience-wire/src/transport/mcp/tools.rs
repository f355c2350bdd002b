//! What a server offers, as tools of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{PaginatedRequestParams, ServerCapabilities, Tool as McpTool};
use rmcp::service::{Peer, RoleClient, RunningService};
use serde_json::json;
use ubos_common::json::RawObject;

use super::call::Target;
use super::server::{BridgeError, Listener, NotCarried, Progress};
use crate::limits::MAX_TOOLS;
use crate::message::{ToolSpec, is_tool_name};
use crate::transport::tokio::Tool;

/// Tools, and what is to be said about them.
pub(super) struct Offered {
    pub(super) tools: Vec<Tool>,
    pub(super) not_carried: Vec<NotCarried>,
}

pub(super) async fn offered(
    service: &RunningService<RoleClient, Listener>,
) -> Result<Offered, BridgeError> {
    offered_by(service.peer(), &service.service().progress).await
}

pub(super) async fn offered_by(
    peer: &Peer<RoleClient>,
    progress: &Progress,
) -> Result<Offered, BridgeError> {
    let mut offered = Offered {
        tools: Vec::new(),
        not_carried: Vec::new(),
    };
    let mut names = BTreeSet::new();
    for tool in listed(peer).await? {
        let from = tool.name.to_string();
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
            progress: Arc::clone(progress),
            name: from,
        });
        let run = move |context, input| Arc::clone(&target).call(context, input);
        offered.tools.push(Tool::new(spec, run));
    }
    Ok(offered)
}

/// Every page of the list, as far as a session takes so many tools.
async fn listed(peer: &Peer<RoleClient>) -> Result<Vec<McpTool>, BridgeError> {
    let most = MAX_TOOLS;
    let mut tools = Vec::new();
    let mut cursor = None;
    // A page may be empty, but not each of them.
    for _ in 0..=most {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(page)).await;
        let page = page.map_err(|err| BridgeError::Tools(Box::new(err)))?;
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

/// The declaration of a tool, and whether it has another name.
fn spec_of(tool: &McpTool) -> Result<(ToolSpec, bool), &'static str> {
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
    let unfit = "its schema is no object that can be carried";
    let schema = RawObject::from_serialize(&tool.input_schema);
    let schema = schema.ok().flatten().ok_or(unfit)?;
    let about = tool.description.as_deref().or(tool.title.as_deref());
    let mut spec = ToolSpec::local(&name, about.unwrap_or_default(), schema);
    // The schema is that of one member of what a call gives.
    spec.output_schema = tool.output_schema.as_ref().and_then(|schema| {
        let whole = json!({
            "type": "object",
            "properties": {"structuredContent": schema},
            "required": ["structuredContent"],
        });
        RawObject::from_serialize(&whole).ok().flatten()
    });
    let reads = tool.annotations.as_ref().and_then(|a| a.read_only_hint);
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
