//! Tools of MCP servers, for any model.
//!
//! | MCP | here |
//! |---|---|
//! | a tool, its description, its input schema | a [`Tool`] of the same name |
//! | arguments | the arguments, unchecked |
//! | `traceparent` and `tracestate` in `_meta` of the call | [`ToolContext::trace`] |
//! | structured content | the result |
//! | content that is text alone | the result, a text |
//! | other content | the result, the array of blocks |
//! | a result marked as an error, a refusal | an error result |
//! | `_meta` of a result | nothing: it is not for a model |
//! | the call is cancelled, or its future dropped | the request is cancelled |
//!
//! The caller connects with `rmcp`, over any transport, and keeps the connection. After its end, calls give error results.

use core::fmt;

use futures_core::future::BoxFuture;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock,
    PaginatedRequestParams, RequestMetaObject, ServerResult, Tool as Declared,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use std::sync::Arc;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::trace_context::TraceContext;

use crate::tool::{Tool, ToolContext, ToolError, json_text};

/// Tools of one server.
const MAX_TOOLS: usize = 1_024;
/// Characters of a server's error that go on.
const ERROR_CHARS: usize = 2_000;

/// The error of listing a server's tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server could not list its tools.
    #[error("the MCP server does not list its tools")]
    List(#[source] Box<ServiceError>),
    /// The server has more than 1,024 tools, or as many pages of them.
    #[error("the MCP server has more than {MAX_TOOLS} tools")]
    TooMany,
    /// A tool's schema cannot be carried.
    #[error("the schema of the MCP tool {0:?} is not a JSON object within the limits")]
    Schema(String),
}

/// The tools of a server, in its order.
///
/// # Errors
///
/// See [`McpError`].
pub async fn tools(peer: &Peer<RoleClient>) -> Result<Vec<Arc<dyn Tool>>, McpError> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let mut cursor = None;
    // A page may be empty, but not each of them.
    for _ in 0..=MAX_TOOLS {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(page)).await;
        let page = page.map_err(|error| McpError::List(Box::new(error)))?;
        if tools.len().saturating_add(page.tools.len()) > MAX_TOOLS {
            break;
        }
        for declared in &page.tools {
            tools.push(Arc::new(McpTool::new(peer.clone(), declared)?));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(McpError::TooMany)
}

/// A tool of a server.
struct McpTool {
    peer: Peer<RoleClient>,
    name: String,
    description: String,
    parameters: RawObject,
}

impl McpTool {
    fn new(peer: Peer<RoleClient>, declared: &Declared) -> Result<Self, McpError> {
        let schema = RawObject::from_serialize(&declared.input_schema);
        let schema = schema.ok().flatten();
        let about = declared
            .description
            .as_deref()
            .or(declared.title.as_deref());
        Ok(Self {
            peer,
            name: declared.name.to_string(),
            description: about.unwrap_or_default().to_owned(),
            parameters: schema.ok_or_else(|| McpError::Schema(declared.name.to_string()))?,
        })
    }

    async fn call(
        &self,
        arguments: &RawObject,
        context: &ToolContext,
    ) -> Result<RawBuf, ToolError> {
        let arguments = arguments
            .deserialize()
            .map_err(|_| ToolError::from("the arguments cannot be sent as JSON values"))?;
        let params = CallToolRequestParams::new(self.name.clone()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        options.meta = context.trace.as_ref().map(meta_of);
        let sent = self.peer.send_cancellable_request(request, options).await;
        let mut running = Running(Some(sent.map_err(|error| failed(&error))?));
        let answer = tokio::select! {
            answer = running.answer() => answer,
            () = context.cancel.cancelled() => return Err("the call was cancelled".into()),
        };
        running.0 = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => result_of(&result),
            Ok(_) => Err("the MCP server asked for input, which a tool cannot give".into()),
            Err(error) => Err(failed(&error)),
        }
    }
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &RawObject {
        &self.parameters
    }

    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>> {
        Box::pin(self.call(arguments, context))
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpTool({})", self.name)
    }
}

/// A request whose answer is awaited; the server is told when nobody awaits it any more.
struct Running(Option<RequestHandle<RoleClient>>);

impl Running {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        match &mut self.0 {
            Some(handle) => (&mut handle.rx)
                .await
                .unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else {
            return;
        };
        // The connection runs on tokio; where that has ended there is nobody to tell.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = handle.cancel(Some("the call was cancelled".into())).await;
            });
        }
    }
}

/// The members of `_meta` that name a place in a trace; the library adds its own.
fn meta_of(trace: &TraceContext) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    let members = trace.to_carry();
    meta.0
        .0
        .extend(members.map(|(name, value)| (name.to_owned(), value.into())));
    meta
}

fn result_of(result: &CallToolResult) -> Result<RawBuf, ToolError> {
    let texts: Vec<&str> = result
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    if result.is_error == Some(true) {
        return Err(cut(&texts.join("\n"), "the tool failed").into());
    }
    let written = match &result.structured_content {
        Some(value) => RawBuf::from_serialize(value),
        None if texts.len() == result.content.len() => return Ok(json_text(&texts.join("\n"))),
        None => RawBuf::from_serialize(&result.content),
    };
    written.map_err(|_| "the result cannot be written as JSON".into())
}

fn failed(error: &ServiceError) -> ToolError {
    let text = match error {
        ServiceError::McpError(error) => cut(&error.message, "the MCP server refused the call"),
        ServiceError::Cancelled { .. } => "the call was cancelled".into(),
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            "the MCP server has ended".into()
        }
        _ => "the MCP server did not answer the call".into(),
    };
    text.into()
}

/// A text of a bounded length that says something.
fn cut(text: &str, otherwise: &str) -> String {
    if text.trim().is_empty() {
        return otherwise.to_owned();
    }
    text.chars().take(ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_somebody_else_cancelled_says_so() {
        let error = failed(&ServiceError::Cancelled { reason: None });
        assert_eq!(&*error.0, "the call was cancelled");
    }
}
