//! What a provider adapter implements, and what an agent or a tool loop asks of it.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use ubos_common::json::{RawBuf, RawObject};

use crate::error::{ErrorCode, UppError};
use crate::message::{AssistantMessage, Messages, Stamp};
use crate::stream::{StreamEvent, events_of};
use crate::tool::{Tool, ToolSet};
use crate::turn::CycleUsage;

/// One request for one answer: what the loop above has made of options and history.
#[derive(Clone)]
#[non_exhaustive]
pub struct LlmRequest {
    /// The conversation, as it stood when the request was made.
    pub messages: Messages,
    /// What the answer is marked with.
    pub stamp: Stamp,
    /// What the model is told about itself.
    pub system: Option<Arc<str>>,
    /// Handed to the vendor unaltered.
    pub params: Option<Arc<RawObject>>,
    /// What the model may call.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// The JSON Schema of the answer.
    pub structure: Option<Arc<RawObject>>,
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

/// One answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LlmResponse {
    /// What the model says.
    pub message: Arc<AssistantMessage>,
    /// What it cost.
    pub usage: CycleUsage,
    /// Why the model stopped, in the vendor's word.
    pub stop_reason: Box<str>,
    /// Structured output, where it was asked for.
    pub data: Option<RawBuf>,
}

impl LlmResponse {
    /// An answer without structured output.
    pub fn new(
        message: impl Into<Arc<AssistantMessage>>,
        usage: CycleUsage,
        stop_reason: impl Into<Box<str>>,
    ) -> Self {
        Self {
            message: message.into(),
            usage,
            stop_reason: stop_reason.into(),
            data: None,
        }
    }
}

/// What a model can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LlmCapabilities {
    /// Events while it answers.
    pub streaming: bool,
    /// Tool calls.
    pub tools: bool,
    /// Answers after a schema.
    pub structured_output: bool,
    /// Images from the user.
    pub image_input: bool,
    /// Documents from the user.
    pub document_input: bool,
    /// Films from the user.
    pub video_input: bool,
    /// Sounds from the user.
    pub audio_input: bool,
}

impl LlmCapabilities {
    /// Streams, tools and structure, and text alone from the user.
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

/// One piece of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// More of it.
    Event(StreamEvent),
    /// All of it; the last item of a stream.
    Done(Box<LlmResponse>),
}

/// A streamed answer: events, then [`ModelEvent::Done`] or an error, and no more. Dropping it ends the request.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, UppError>>;

/// A model of a provider: one request, one answer. The tool loop is not its business.
///
/// Spec: UPP-1.3 provider interface
pub trait LlmModel: Send + Sync {
    /// The provider's name.
    fn provider(&self) -> &str;

    /// The model's name at the provider.
    fn model_id(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> LlmCapabilities;

    /// Asks for an answer in one piece. Dropping the future ends the request.
    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>>;

    /// Asks for an answer in pieces. The default asks for it in one piece and says it in events then.
    fn stream(&self, request: LlmRequest) -> ModelStream {
        Box::pin(Replay::new(self.complete(request), usize::MAX))
    }
}

/// A model that options name. A clone is the same model.
pub type ModelReference = Arc<dyn LlmModel>;

/// Says a complete answer in events.
pub(crate) struct Replay {
    answer: Option<BoxFuture<'static, Result<LlmResponse, UppError>>>,
    chars: usize,
    ready: VecDeque<ModelEvent>,
}

impl Replay {
    pub(crate) fn new(
        answer: BoxFuture<'static, Result<LlmResponse, UppError>>,
        chars: usize,
    ) -> Self {
        Self {
            answer: Some(answer),
            chars,
            ready: VecDeque::new(),
        }
    }
}

impl Stream for Replay {
    type Item = Result<ModelEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(answer) = self.answer.as_mut() {
            let Poll::Ready(answer) = answer.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            self.answer = None;
            match answer {
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

/// Stands between callers and a model: it gives the model that is asked in its place.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use upp::{LlmMiddleware, LlmModel, ModelReference};
/// # use upp::{LlmCapabilities, LlmRequest, LlmResponse, UppError};
///
/// /// Counts questions.
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
    /// The model that is asked in place of this one.
    fn wrap(&self, model: ModelReference) -> ModelReference;
}

/// What every call of one model is given.
///
/// Spec: UPP-1.3 options
#[derive(Clone)]
#[non_exhaustive]
pub struct LlmOptions {
    /// The model; the one required option.
    pub model: ModelReference,
    /// Handed to the vendor unaltered.
    pub params: Option<Arc<RawObject>>,
    /// What the model is told about itself.
    pub system: Option<Arc<str>>,
    /// What the model may call, and the hooks around it.
    pub tools: ToolSet,
    /// The JSON Schema of the answer.
    pub structure: Option<Arc<RawObject>>,
    /// What stands between this instance and the model, outermost first.
    pub middleware: Vec<Arc<dyn LlmMiddleware>>,
}

impl LlmOptions {
    /// A model and nothing else.
    pub fn new(model: ModelReference) -> Self {
        Self {
            model,
            params: None,
            system: None,
            tools: ToolSet::default(),
            structure: None,
            middleware: Vec::new(),
        }
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

/// Options that fit their model: what requests are made from.
#[derive(Clone, Debug)]
pub struct LlmInstance(LlmOptions);

/// Puts the middleware around the model, and checks the options against what it can do.
///
/// # Errors
///
/// [`ErrorCode::InvalidRequest`] where tools or structure are asked of a model that has neither.
///
/// Spec: UPP-1.3 options
pub fn llm(mut options: LlmOptions) -> Result<LlmInstance, UppError> {
    for layer in options.middleware.drain(..).rev() {
        options.model = layer.wrap(options.model);
    }
    let can = options.model.capabilities();
    let refuse = |what: &str| {
        let model = options.model.as_ref();
        let text = format!("{} has no {what}", model.model_id());
        Err(UppError::new(
            ErrorCode::InvalidRequest,
            model.provider(),
            text,
        ))
    };
    if options.structure.is_some() && !can.structured_output {
        return refuse("structured output");
    }
    if !options.tools.tools.is_empty() && !can.tools {
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

    /// A request with everything that the options say.
    #[must_use]
    pub fn request(&self, messages: Messages, stamp: Stamp) -> LlmRequest {
        LlmRequest {
            messages,
            stamp,
            system: self.0.system.clone(),
            params: self.0.params.clone(),
            tools: Arc::clone(&self.0.tools.tools),
            structure: self.0.structure.clone(),
        }
    }
}
