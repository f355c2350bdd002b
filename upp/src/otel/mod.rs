//! Spans by OpenTelemetry's conventions for generative AI: `chat` around a request to a model, `execute_tool` around a tool.
//!
//! A span begins where an effect is performed, so that a replayed effect has none. A request has one span whatever its
//! retries.

mod content;
pub mod names;
mod params;

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::error::UppError;
use crate::model::{
    LlmCapabilities, LlmModel, LlmRequest, ModelEvent, ModelReference, ModelStream,
};
use crate::response::LlmResponse;
use crate::tool::{Tool, ToolCall, ToolExecution};
use names as n;

/// A model whose requests have spans.
pub(crate) struct TracedModel {
    pub(crate) model: ModelReference,
    pub(crate) shows_content: bool,
}

impl TracedModel {
    fn chat(&self, request: &LlmRequest, streams: bool) -> Chat {
        let model = self.model.model_id();
        let span = info_span!(
            "chat",
            { n::SPAN_NAME } = format!("chat {model}"),
            { n::SPAN_KIND } = "client",
            { n::OPERATION } = "chat",
            { n::PROVIDER } = n::provider(self.model.provider()),
            { n::REQUEST_MODEL } = model,
            { n::REQUEST_STREAM } = streams,
            { n::OUTPUT_TYPE } = request.structure.as_ref().map(|_| "json"),
            { n::REQUEST_CHOICES } = Empty,
            { n::REQUEST_SEED } = Empty,
            { n::REQUEST_TOP_K } = Empty,
            { n::REQUEST_TOP_P } = Empty,
            { n::REQUEST_MAX_TOKENS } = Empty,
            { n::REQUEST_TEMPERATURE } = Empty,
            { n::REQUEST_FREQUENCY } = Empty,
            { n::REQUEST_PRESENCE } = Empty,
            { n::REQUEST_STOPS } = Empty,
            { n::SERVER_ADDRESS } = Empty,
            { n::SERVER_PORT } = Empty,
            { n::RESPONSE_ID } = Empty,
            { n::RESPONSE_MODEL } = Empty,
            { n::RESPONSE_FINISH } = Empty,
            { n::RESPONSE_FIRST_CHUNK } = Empty,
            { n::USAGE_INPUT } = Empty,
            { n::USAGE_OUTPUT } = Empty,
            { n::USAGE_REASONING } = Empty,
            { n::USAGE_CACHE_READ } = Empty,
            { n::USAGE_CACHE_WRITE } = Empty,
            { n::SYSTEM } = Empty,
            { n::INPUT } = Empty,
            { n::OUTPUT } = Empty,
            { n::TOOL_DEFINITIONS } = Empty,
            { n::STATUS } = Empty,
            { n::ERROR_TYPE } = Empty,
        );
        if !span.is_disabled() {
            if let Some(params) = &request.params {
                params::record(&span, params);
            }
            if self.shows_content {
                content::record_request(&span, request);
            }
        }
        Chat {
            span,
            provider: self.model.provider().into(),
            shows_content: self.shows_content,
        }
    }
}

impl LlmModel for TracedModel {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn model_id(&self) -> &str {
        self.model.model_id()
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.model.capabilities()
    }

    fn complete(
        &self,
        mut request: LlmRequest,
    ) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let chat = self.chat(&request, false);
        request.span = chat.span.clone();
        let span = chat.span.clone();
        let response = span.in_scope(|| self.model.complete(request));
        let traced = async move {
            let response = response.await;
            chat.end(response.as_ref());
            response
        };
        Box::pin(traced.instrument(span))
    }

    fn stream(&self, mut request: LlmRequest) -> ModelStream {
        let chat = self.chat(&request, true);
        request.span = chat.span.clone();
        let stream = chat.span.in_scope(|| self.model.stream(request));
        Box::pin(TracedStream { stream, chat })
    }
}

/// The span of one request.
struct Chat {
    span: Span,
    provider: Box<str>,
    shows_content: bool,
}

impl Chat {
    fn end(&self, response: Result<&LlmResponse, &UppError>) {
        let response = match response {
            Ok(response) => response,
            Err(error) => return failed(&self.span, error.code.as_str()),
        };
        let usage = &response.usage;
        for (name, count) in [
            (n::USAGE_INPUT, usage.input_tokens),
            (n::USAGE_OUTPUT, usage.output_tokens),
            (n::USAGE_CACHE_READ, usage.cache_read_tokens),
            (n::USAGE_CACHE_WRITE, usage.cache_write_tokens),
        ] {
            self.span.record(name, count);
        }
        if let Some(count) = usage.reasoning_tokens() {
            self.span.record(n::USAGE_REASONING, count);
        }
        self.span.record(n::RESPONSE_FINISH, &*response.stop_reason);
        let metadata = response.message.metadata.as_ref();
        let kept = metadata.and_then(|all| all.get(&self.provider));
        if let Some(kept) = kept {
            params::record_response(&self.span, kept);
        }
        if self.shows_content {
            content::record_response(&self.span, response);
        }
    }
}

struct TracedStream {
    stream: ModelStream,
    chat: Chat,
}

impl Stream for TracedStream {
    type Item = Result<ModelEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let polled = this
            .chat
            .span
            .in_scope(|| this.stream.as_mut().poll_next(cx));
        match &polled {
            Poll::Ready(Some(Ok(ModelEvent::Done(response)))) => this.chat.end(Ok(response)),
            Poll::Ready(Some(Err(error))) => this.chat.end(Err(error)),
            _ => {}
        }
        polled
    }
}

/// Sets where a request goes.
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
pub(crate) fn record_server(span: &Span, host: &str, port: Option<u16>) {
    span.record(n::SERVER_ADDRESS, host);
    if let Some(port) = port {
        span.record(n::SERVER_PORT, port);
    }
}

/// Sets when the first part of a response came.
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
pub(crate) fn record_first_chunk(span: &Span, after: core::time::Duration) {
    span.record(n::RESPONSE_FIRST_CHUNK, after.as_secs_f64());
}

/// Runs a tool in its span.
pub(crate) async fn execute_tool(
    tool: Option<&Arc<dyn Tool>>,
    call: &ToolCall,
    shows_content: bool,
    run: impl Future<Output = ToolExecution>,
) -> ToolExecution {
    let name = &*call.tool_name;
    let span = info_span!(
        "execute_tool",
        { n::SPAN_NAME } = format!("execute_tool {name}"),
        { n::SPAN_KIND } = "internal",
        { n::OPERATION } = "execute_tool",
        { n::TOOL_NAME } = name,
        { n::TOOL_TYPE } = "function",
        { n::TOOL_CALL } = &*call.tool_call_id,
        { n::TOOL_DESCRIPTION } = tool.map(|tool| tool.description()),
        { n::TOOL_ARGUMENTS } = Empty,
        { n::TOOL_RESULT } = Empty,
        { n::STATUS } = Empty,
        { n::ERROR_TYPE } = Empty,
    );
    let execution = run.instrument(span.clone()).await;
    if execution.is_error {
        failed(&span, "tool_error");
    }
    if shows_content {
        span.record(n::TOOL_ARGUMENTS, execution.arguments.as_str());
        span.record(n::TOOL_RESULT, execution.result.as_str());
    }
    execution
}

fn failed(span: &Span, kind: &str) {
    span.record(n::STATUS, "ERROR");
    span.record(n::ERROR_TYPE, kind);
}
