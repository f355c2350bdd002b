//! One call of an agent's tool as one request to the server.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock,
    ProgressNotificationParam, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use tokio::sync::mpsc;
use ubos_common::json::RawObject;

use super::server::Progress;
use crate::error::{ErrorCode, ErrorObject};
use crate::message::Channel;
use crate::role::agent::Chunk;
use crate::transport::tokio::{ToolContext, ToolError};

/// Reports of progress that wait for the core.
const REPORTS: usize = 64;

/// Characters of a server's error that go on.
const ERROR_CHARS: usize = 2_000;

/// A tool of the server.
pub(super) struct Target {
    pub(super) peer: Peer<RoleClient>,
    pub(super) progress: Progress,
    pub(super) name: String,
}

impl Target {
    pub(super) async fn call(
        self: Arc<Self>,
        context: ToolContext,
        input: RawObject,
    ) -> Result<RawObject, ToolError> {
        let unfit = |_| ToolError::invalid_input("the input cannot be carried as values");
        let arguments = input.deserialize().map_err(unfit)?;
        let params = CallToolRequestParams::new(self.name.clone()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let (reports, heard) = mpsc::channel(REPORTS);
        let mut handle = {
            // No report is looked up before its call is known.
            let mut calls = self.progress.lock().await;
            let options = PeerRequestOptions::no_options();
            let sent = self.peer.send_cancellable_request(request, options).await;
            let handle = sent.map_err(failed)?;
            calls.insert(handle.progress_token.clone(), reports);
            handle
        };
        let token = handle.progress_token.clone();
        let passing = pass_on(&context, heard);
        tokio::pin!(passing);
        let answer = tokio::select! {
            answer = &mut handle.rx => Some(answer),
            () = context.cancelled() => None,
            () = &mut passing => None,
        };
        self.progress.lock().await.remove(&token);
        let Some(answer) = answer else {
            // A server that is gone needs no cancel.
            let _ = handle.cancel(Some("the call was cancelled".into())).await;
            return Err(ToolError::canceled());
        };
        // What was reported before the answer goes out before it.
        tokio::select! {
            () = passing => {}
            () = context.cancelled() => {}
        }
        match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
            Ok(ServerResult::CallToolResult(result)) => output_of(result),
            Ok(_) => Err(ToolError::failed(
                "the MCP server asks back, which no core can answer",
            )),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Passes reports on until no more can come.
async fn pass_on(context: &ToolContext, mut heard: mpsc::Receiver<ProgressNotificationParam>) {
    while let Some(report) = heard.recv().await {
        let mut text = match report.total {
            Some(total) => format!("{} of {total}", report.progress),
            None => report.progress.to_string(),
        };
        if let Some(message) = &report.message {
            text.push_str(": ");
            text.push_str(message);
        }
        // A report that is too long, or comes after the end, is not missed.
        let _ = context.send(Chunk::text(Channel::Status, text)).await;
    }
}

fn output_of(result: CallToolResult) -> Result<RawObject, ToolError> {
    if result.is_error == Some(true) {
        let texts = result.content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        return Err(ToolError::failed(cut(&text, "the tool failed")));
    }
    let output = RawObject::from_serialize(&result).ok().flatten();
    output.ok_or_else(|| ToolError::failed("the result cannot be written as an object"))
}

fn failed(error: ServiceError) -> ToolError {
    const INVALID_PARAMS: i32 = -32602;
    let error = match error {
        ServiceError::McpError(error) => {
            let code = match error.code.0 {
                INVALID_PARAMS => ErrorCode::ToolInvalidInput,
                _ => ErrorCode::ToolFailed,
            };
            ErrorObject::of(code, cut(&error.message, "the MCP server refused the call"))
        }
        ServiceError::Cancelled { .. } => return ToolError::canceled(),
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            ErrorObject::of(ErrorCode::ToolFailed, "the MCP server has ended")
        }
        other => ErrorObject::of(ErrorCode::ToolFailed, cut(&other.to_string(), "it failed")),
    };
    error.noticed_by("agent.mcp").into()
}

/// A text of a bounded length that says something.
fn cut(text: &str, otherwise: &str) -> String {
    if text.trim().is_empty() {
        return otherwise.to_owned();
    }
    text.chars().take(ERROR_CHARS).collect()
}
