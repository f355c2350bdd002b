//! The model interface: requests, responses, capabilities and middleware.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use ubos_common::json::RawObject;
use ubos_common::trace_context::TraceContext;

use crate::error::UppError;
use crate::message::{Messages, Stamp};
use crate::response::LlmResponse;
use crate::stream::{StreamEvent, events_of};
use crate::tool::Tool;

/// One request to a model.
#[derive(Clone)]
#[non_exhaustive]
pub struct LlmRequest {
    /// The conversation so far.
    pub messages: Messages,
    /// The id and the time of the response's message.
    pub stamp: Stamp,
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// The vendor's parameters, sent unaltered.
    pub params: Option<Arc<RawObject>>,
    /// The declared tools.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// Whether the model may call them.
    pub tool_choice: ToolChoice,
    /// The JSON Schema of the response.
    pub structure: Option<Arc<RawObject>>,
    /// The place in a distributed trace that it is sent from, which adapters over HTTP put into headers. The vendor sees it.
    pub trace: Option<TraceContext>,
    /// The span of the request, which adapters add to.
    #[cfg(feature = "tracing")]
    pub(crate) span: tracing::Span,
}

impl LlmRequest {
    /// A request without system prompt, parameters, tools or structure.
    #[must_use]
    pub fn new(messages: Messages, stamp: Stamp) -> Self {
        Self {
            messages,
            stamp,
            system: None,
            params: None,
            tools: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            structure: None,
            trace: None,
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        }
    }
}

/// Whether the model may call the tools of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls none. The tools stay declared: vendors refuse a conversation with calls and without tools, and a prompt
    /// cache holds the declarations.
    None,
}

impl LlmRequest {
    /// Whether the model may call a tool.
    #[must_use]
    pub fn offers_tools(&self) -> bool {
        !self.tools.is_empty() && self.tool_choice == ToolChoice::Auto
    }

    /// Whether tools are declared that the model may not call.
    #[must_use]
    pub fn forbids_calls(&self) -> bool {
        !self.tools.is_empty() && self.tool_choice == ToolChoice::None
    }
}

impl core::fmt::Debug for LlmRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LlmRequest")
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .field("structure", &self.structure.is_some())
            .finish_non_exhaustive()
    }
}

/// The capabilities of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LlmCapabilities {
    /// Streamed responses.
    pub streaming: bool,
    /// Tool calls.
    pub tools: bool,
    /// Responses that follow a JSON Schema.
    pub structured_output: bool,
    /// Images in user messages.
    pub image_input: bool,
    /// Documents in user messages.
    pub document_input: bool,
    /// Videos in user messages.
    pub video_input: bool,
    /// Audio in user messages.
    pub audio_input: bool,
}

impl LlmCapabilities {
    /// Streaming, tools and structured output; user messages may hold text only.
    #[must_use]
    pub const fn text() -> Self {
        Self {
            streaming: true,
            tools: true,
            structured_output: true,
            image_input: false,
            document_input: false,
            video_input: false,
            audio_input: false,
        }
    }
}

/// One item of a streamed response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// A part of the response.
    Event(StreamEvent),
    /// The whole response: the last item of the stream.
    Done(Box<LlmResponse>),
}

/// A streamed response: events, and then either [`ModelEvent::Done`] or an error. Dropping it cancels the request.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, UppError>>;

/// A model of a provider. It answers one request with one response; the tool loop runs outside of it.
///
/// Spec: UPP-1.3 provider interface
pub trait LlmModel: Send + Sync {
    /// The name of the provider.
    fn provider(&self) -> &str;

    /// The provider's name for the model.
    fn model_id(&self) -> &str;

    /// What the model supports.
    fn capabilities(&self) -> LlmCapabilities;

    /// Sends a request and returns the whole response. Dropping the future cancels the request.
    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>>;

    /// Sends a request and returns its response as a stream. The default calls [`LlmModel::complete`] and turns the
    /// response into events.
    fn stream(&self, request: LlmRequest) -> ModelStream {
        Box::pin(WholeStream::new(self.complete(request), usize::MAX))
    }
}

/// A shared model.
pub type ModelReference = Arc<dyn LlmModel>;

/// Streams a response that is received in one piece.
pub(crate) struct WholeStream {
    response: Option<BoxFuture<'static, Result<LlmResponse, UppError>>>,
    chars: usize,
    ready: VecDeque<ModelEvent>,
}

impl WholeStream {
    pub(crate) fn new(
        response: BoxFuture<'static, Result<LlmResponse, UppError>>,
        chars: usize,
    ) -> Self {
        Self {
            response: Some(response),
            chars,
            ready: VecDeque::new(),
        }
    }
}

impl Stream for WholeStream {
    type Item = Result<ModelEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(response) = self.response.as_mut() {
            let Poll::Ready(response) = response.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            self.response = None;
            match response {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(response) => {
                    let events = events_of(&response, self.chars);
                    self.ready.extend(events.into_iter().map(ModelEvent::Event));
                    self.ready.push_back(ModelEvent::Done(Box::new(response)));
                }
            }
        }
        Poll::Ready(self.ready.pop_front().map(Ok))
    }
}

/// Middleware around a model: it returns the model that is called instead.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use upp::{LlmMiddleware, LlmModel, ModelReference};
/// # use upp::{LlmCapabilities, LlmRequest, LlmResponse, UppError};
///
/// /// Counts requests.
/// #[derive(Default)]
/// struct Count(Arc<AtomicU32>);
///
/// impl LlmMiddleware for Count {
///     fn wrap(&self, model: ModelReference) -> ModelReference {
///         Arc::new(Counted { model, count: Arc::clone(&self.0) })
///     }
/// }
///
/// struct Counted { model: ModelReference, count: Arc<AtomicU32> }
///
/// impl LlmModel for Counted {
///     fn complete(&self, request: LlmRequest) -> futures::future::BoxFuture<'static, Result<LlmResponse, UppError>> {
///         self.count.fetch_add(1, Ordering::Relaxed);
///         self.model.complete(request)
///     }
/// #   fn provider(&self) -> &str { self.model.provider() }
/// #   fn model_id(&self) -> &str { self.model.model_id() }
/// #   fn capabilities(&self) -> LlmCapabilities { self.model.capabilities() }
/// }
/// ```
///
/// Spec: UPP-1.3 middleware
pub trait LlmMiddleware: Send + Sync {
    /// The model that is called instead of `model`.
    fn wrap(&self, model: ModelReference) -> ModelReference;
}
