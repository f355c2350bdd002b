//! The model interface: requests, responses, capabilities, options and middleware.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use ubos_common::json::RawObject;

use crate::error::{ErrorCode, UppError};
use crate::message::{Messages, Stamp};
use crate::response::LlmResponse;
use crate::stream::{StreamEvent, events_of};
use crate::tool::{Tool, ToolSet, ToolUseStrategy};

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
    /// The tools that the model may call.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// The JSON Schema of the response.
    pub structure: Option<Arc<RawObject>>,
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
            structure: None,
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        }
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

/// The options of a model: what every request to it has in common.
///
/// | option | default |
/// |---|---|
/// | `params` | none |
/// | `system` | none |
/// | `tools` | none |
/// | `structure` | none: the response is free text |
/// | `middleware` | none |
/// | content in spans | no |
///
/// Spec: UPP-1.3 options
#[derive(Clone)]
pub struct LlmOptions {
    model: ModelReference,
    params: Option<Arc<RawObject>>,
    system: Option<Arc<str>>,
    tools: ToolSet,
    structure: Option<Arc<RawObject>>,
    middleware: Vec<Arc<dyn LlmMiddleware>>,
    /// Whether requests have spans already.
    #[cfg(feature = "tracing")]
    is_traced: bool,
}

impl LlmOptions {
    /// A model, and the default for every other option.
    pub fn new(model: ModelReference) -> Self {
        Self {
            model,
            params: None,
            system: None,
            tools: ToolSet::default(),
            structure: None,
            middleware: Vec::new(),
            #[cfg(feature = "tracing")]
            is_traced: false,
        }
    }

    /// Sets the model.
    #[must_use]
    pub fn with_model(mut self, model: ModelReference) -> Self {
        self.model = model;
        #[cfg(feature = "tracing")]
        {
            self.is_traced = false;
        }
        self
    }

    /// Sets the vendor's parameters. They are sent unaltered.
    #[must_use]
    pub fn with_params(mut self, params: impl Into<Arc<RawObject>>) -> Self {
        self.params = Some(params.into());
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Sets the tools that the model may call.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.tools = tools.into_iter().collect();
        self
    }

    /// Adds a tool that the model may call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use upp::{FnTool, LlmOptions, ScriptedModel, json_text, object};
    /// let now = FnTool::new("now", "The time", object("{}")?, |_, _| async { Ok(json_text("noon")) });
    /// let options = LlmOptions::new(Arc::new(ScriptedModel::new([]))).with_tool(now);
    /// # let _ = options;
    /// # Ok::<(), upp::ToolError>(())
    /// ```
    #[must_use]
    pub fn with_tool(mut self, tool: impl Tool + 'static) -> Self {
        let tools = self.tools.tools.iter().cloned();
        self.tools.tools = tools.chain([Arc::new(tool) as Arc<dyn Tool>]).collect();
        self
    }

    /// Sets the hooks around tool calls.
    #[must_use]
    pub fn with_tool_strategy(mut self, strategy: Arc<dyn ToolUseStrategy>) -> Self {
        self.tools.strategy = Some(strategy);
        self
    }

    /// Sets the JSON Schema of the response.
    #[must_use]
    pub fn with_structure(mut self, schema: impl Into<Arc<RawObject>>) -> Self {
        self.structure = Some(schema.into());
        self
    }

    /// Puts the content of messages, calls and results into spans, where it is never by default. It may hold secrets, and data
    /// of people.
    #[must_use]
    pub const fn with_content_in_spans(mut self) -> Self {
        self.tools.shows_content = true;
        self
    }

    /// Adds middleware around the model and the middleware that is already set, outermost first.
    #[must_use]
    pub fn with_middleware(
        mut self,
        middleware: impl IntoIterator<Item = Arc<dyn LlmMiddleware>>,
    ) -> Self {
        self.middleware.splice(0..0, middleware);
        self
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &ModelReference {
        &self.model
    }

    /// The vendor's parameters.
    #[must_use]
    pub const fn params(&self) -> Option<&Arc<RawObject>> {
        self.params.as_ref()
    }

    /// The system prompt.
    #[must_use]
    pub const fn system(&self) -> Option<&Arc<str>> {
        self.system.as_ref()
    }

    /// The tools, and the hooks around their calls.
    #[must_use]
    pub const fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// The JSON Schema of the response.
    #[must_use]
    pub const fn structure(&self) -> Option<&Arc<RawObject>> {
        self.structure.as_ref()
    }
}

impl core::fmt::Debug for LlmOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LlmOptions")
            .field("provider", &self.model.provider())
            .field("model", &self.model.model_id())
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// Options that were checked against the capabilities of their model.
#[derive(Clone, Debug)]
pub struct LlmInstance(LlmOptions);

/// Wraps the model in the middleware, and checks the options against its capabilities.
///
/// # Errors
///
/// [`ErrorCode::InvalidRequest`] where the options use tools or structured output and the model does not support them.
///
/// Spec: UPP-1.3 options
pub fn llm(mut options: LlmOptions) -> Result<LlmInstance, UppError> {
    for layer in options.middleware.drain(..).rev() {
        options.model = layer.wrap(options.model);
    }
    #[cfg(feature = "tracing")]
    if !core::mem::replace(&mut options.is_traced, true) {
        options.model = Arc::new(crate::otel::TracedModel {
            model: options.model,
            shows_content: options.tools.shows_content,
        });
    }
    let capabilities = options.model.capabilities();
    let refuse = |what: &str| {
        let model = options.model.as_ref();
        let text = format!("{} does not support {what}", model.model_id());
        Err(UppError::new(
            ErrorCode::InvalidRequest,
            model.provider(),
            text,
        ))
    };
    if options.structure.is_some() && !capabilities.structured_output {
        return refuse("structured output");
    }
    if !options.tools.tools.is_empty() && !capabilities.tools {
        return refuse("tools");
    }
    Ok(LlmInstance(options))
}

impl LlmInstance {
    /// The options.
    #[must_use]
    pub const fn options(&self) -> &LlmOptions {
        &self.0
    }

    /// A request with these options.
    #[must_use]
    pub fn request(&self, messages: Messages, stamp: Stamp) -> LlmRequest {
        LlmRequest {
            messages,
            stamp,
            system: self.0.system.clone(),
            params: self.0.params.clone(),
            tools: Arc::clone(&self.0.tools.tools),
            structure: self.0.structure.clone(),
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        }
    }
}
