//! One call of an agent's tool as one request to the server.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde::Deserialize;
use tokio::sync::mpsc;
use ubos_common::json::RawObject;
use ubos_common::trace_context::TraceContext;

use super::lines::{RawArguments, shortened};
use super::server::{Answered, Listener};
use crate::error::{ErrorCode, ErrorObject};
use crate::message::Channel;
use crate::role::agent::Chunk;
use crate::transport::tokio::{ToolContext, ToolError};

/// Reports of progress that wait for the core.
const REPORTS: usize = 64;

/// A tool of the server.
pub(super) struct Target {
    pub(super) peer: Peer<RoleClient>,
    pub(super) listener: Listener,
    pub(super) name: String,
}

impl Target {
    pub(super) async fn call(
        self: Arc<Self>,
        context: ToolContext,
        input: RawObject,
    ) -> Result<RawObject, ToolError> {
        let mut request = CallToolRequest::new(CallToolRequestParams::new(self.name.clone()));
        request.extensions.insert(RawArguments(input));
        let mut options = PeerRequestOptions::no_options();
        let trace = self.listener.trace_of.of(context.incoming());
        options.meta = trace.as_ref().map(meta_of);
        let calls = &self.listener.calls;
        let (reports, heard) = mpsc::channel(REPORTS);
        let mut handle = {
            // No report and no answer is looked up before its call is known.
            let mut calls = calls.lock().await;
            let request = ClientRequest::CallToolRequest(request);
            let sent = self.peer.send_cancellable_request(request, options).await;
            let handle = sent.map_err(failed)?;
            calls.reports.insert(handle.progress_token.clone(), reports);
            calls.results.insert(handle.id.clone(), Answered::No);
            handle
        };
        let passing = pass_on(&context, heard);
        tokio::pin!(passing);
        let answer = tokio::select! {
            answer = &mut handle.rx => Some(answer),
            () = context.cancelled() => None,
            () = &mut passing => None,
        };
        let answered = {
            let mut calls = calls.lock().await;
            calls.reports.remove(&handle.progress_token);
            calls.results.remove(&handle.id)
        };
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
            Ok(ServerResult::CallToolResult(_)) => output_of(answered.unwrap_or_default()),
            Ok(ServerResult::CreateTaskResult(_)) => {
                let why = "the MCP server answers with a task, which is not carried";
                Err(ToolError::failed(why))
            }
            Ok(_) => Err(ToolError::failed(
                "the MCP server asks back, which no core can answer",
            )),
            Err(error) => Err(failed(error)),
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

/// Passes reports on until no more can come.
async fn pass_on(context: &ToolContext, mut heard: mpsc::Receiver<String>) {
    while let Some(text) = heard.recv().await {
        // A report that is too long, or comes after the end, is not missed.
        let _ = context.send(Chunk::text(Channel::Status, text)).await;
    }
}

/// The output is the result as the server wrote it.
fn output_of(answered: Answered) -> Result<RawObject, ToolError> {
    #[derive(Deserialize)]
    struct Marks {
        #[serde(default, rename = "isError")]
        is_error: Option<bool>,
        #[serde(default)]
        content: Vec<Block>,
    }
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let unfit = || ToolError::failed("the result is no object within the limits");
    let text = match answered {
        Answered::Text(text) => Some(text),
        Answered::No => None,
        Answered::TooLong => {
            let why = "the result of the MCP server is longer than a frame";
            let error = ErrorObject::of(ErrorCode::ToolOutputTooLarge, why);
            return Err(error.noticed_by("agent.mcp").into());
        }
    };
    let output = text.and_then(RawObject::new).ok_or_else(unfit)?;
    let marks: Marks = output.deserialize().map_err(|_| unfit())?;
    if marks.is_error != Some(true) {
        return Ok(output);
    }
    let texts: Vec<String> = marks
        .content
        .into_iter()
        .filter_map(|block| block.text)
        .collect();
    Err(ToolError::failed(cut(&texts.join("\n"), "the tool failed")))
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
    shortened(text)
}
