//! A model with scripted replies, so that agents run and are tested without a network.

use core::fmt;
use core::future::Future;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::json::{RawBuf, RawObject};

use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
use crate::message::AssistantMessage;
use crate::model::{LlmCapabilities, LlmModel, LlmRequest, ModelStream, WholeStream};
use crate::response::LlmResponse;
use crate::tool::ToolCall;
use crate::turn::CycleUsage;

/// The number of requests that a scripted model records.
const REMEMBERED: usize = 4_096;

/// One reply of a [`ScriptedModel`].
///
/// ```
/// use upp::{Reply, object};
///
/// let reply = Reply::text("let me see").calling("call-1", "look", object(r#"{"at":"/"}"#)?);
/// # Ok::<(), upp::ToolError>(())
/// ```
#[derive(Clone)]
pub struct Reply {
    blocks: Vec<ContentBlock>,
    calls: Vec<ToolCall>,
    data: Option<RawBuf>,
    error: Option<UppError>,
    wait: Option<Arc<Wait>>,
    chars: usize,
    tokens: (u64, u64),
}

impl Reply {
    /// A reply with a text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self {
            blocks: vec![ContentBlock::text(text)],
            ..Self::default()
        }
    }

    /// A reply that is an error.
    pub fn error(code: ErrorCode, message: impl Into<Box<str>>) -> Self {
        Self {
            error: Some(UppError::new(code, PROVIDER, message)),
            ..Self::default()
        }
    }

    /// Adds a tool call.
    #[must_use]
    pub fn calling(
        mut self,
        id: impl Into<Arc<str>>,
        tool: impl Into<Arc<str>>,
        arguments: RawObject,
    ) -> Self {
        self.calls
            .push(ToolCall::new(id.into(), tool.into(), arguments));
        self
    }

    /// Adds structured output.
    #[must_use]
    pub fn with_data(mut self, data: RawBuf) -> Self {
        self.data = Some(data);
        self
    }

    /// Delays the reply until a future is ready, such as a runtime's sleep. A reply after `core::future::pending` never
    /// arrives, for tests of cancellation and timeouts.
    #[must_use]
    pub fn after<F>(mut self, wait: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.wait = Some(Arc::new(move || Box::pin(wait())));
        self
    }

    /// Streams the text in parts of this many characters.
    #[must_use]
    pub const fn in_pieces_of(mut self, chars: usize) -> Self {
        self.chars = chars;
        self
    }

    /// Sets the token counts; 5 input and 3 output tokens by default.
    #[must_use]
    pub const fn costing(mut self, input: u64, output: u64) -> Self {
        self.tokens = (input, output);
        self
    }

    fn answer(self, request: LlmRequest) -> Result<LlmResponse, UppError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let calls = (!self.calls.is_empty()).then_some(self.calls);
        let stop = if calls.is_some() {
            "tool_calls"
        } else {
            "stop"
        };
        let message = AssistantMessage::new(request.stamp, self.blocks, calls);
        let usage = CycleUsage::new(self.tokens.0, self.tokens.1, 0, 0);
        let mut response = LlmResponse::new(message, usage, stop);
        response.data = self.data;
        Ok(response)
    }
}

/// A reply without text, such as one that only calls tools.
impl Default for Reply {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            calls: Vec::new(),
            data: None,
            error: None,
            wait: None,
            chars: usize::MAX,
            tokens: (5, 3),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("blocks", &self.blocks)
            .field("calls", &self.calls)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

const PROVIDER: &str = "scripted";

type Script = dyn FnMut(&LlmRequest) -> Option<Reply> + Send;
type Wait = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// A model with scripted replies, one [`Reply`] for each request.
///
/// ```
/// use ubos_common::{id::IdSource, time::Timestamp};
/// use upp::{LlmModel, LlmRequest, List, Message, Reply, ScriptedModel, Stamp};
///
/// let model = ScriptedModel::new([Reply::text("hello")]);
/// let mut ids = IdSource::seeded(1);
/// let question = Message::user(Stamp::new(&mut ids, Timestamp::EPOCH), "hi");
/// let request = LlmRequest::new(List::from(vec![question]), Stamp::new(&mut ids, Timestamp::EPOCH));
/// let answer = futures::executor::block_on(model.complete(request))?;
/// assert_eq!(answer.message.text(), "hello");
/// assert_eq!(model.requests().len(), 1);
/// # Ok::<(), upp::UppError>(())
/// ```
pub struct ScriptedModel {
    script: Mutex<Box<Script>>,
    seen: Mutex<Vec<LlmRequest>>,
    capabilities: LlmCapabilities,
}

impl ScriptedModel {
    /// A model with these replies, in order. A further request is an error.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        Self::with(move |_| replies.pop_front())
    }

    /// A model whose replies a function makes. `None` is an error.
    pub fn with(script: impl FnMut(&LlmRequest) -> Option<Reply> + Send + 'static) -> Self {
        Self {
            script: Mutex::new(Box::new(script)),
            seen: Mutex::new(Vec::new()),
            capabilities: LlmCapabilities::text(),
        }
    }

    /// Sets what it says it can do; [`LlmCapabilities::text`] by default.
    #[must_use]
    pub const fn with_capabilities(mut self, capabilities: LlmCapabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The requests so far, at most the first 4,096.
    #[must_use]
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The next answer, and the pieces that it streams in.
    // impl: UPP-11
    fn next(
        &self,
        request: LlmRequest,
    ) -> (BoxFuture<'static, Result<LlmResponse, UppError>>, usize) {
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.len() < REMEMBERED {
                seen.push(request.clone());
            }
        }
        let script = self.script.lock();
        let reply = script.unwrap_or_else(PoisonError::into_inner)(&request);
        let reply = reply.unwrap_or_else(|| {
            Reply::error(
                ErrorCode::InvalidRequest,
                "the script has no reply for this request",
            )
        });
        let chars = reply.chars;
        let wait = reply.wait.as_ref().map(|wait| wait());
        let answer = Box::pin(async move {
            if let Some(wait) = wait {
                wait.await;
            }
            reply.answer(request)
        });
        (answer, chars)
    }
}

impl LlmModel for ScriptedModel {
    fn provider(&self) -> &str {
        PROVIDER
    }

    fn model_id(&self) -> &str {
        "scripted"
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.capabilities
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        self.next(request).0
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        let (answer, chars) = self.next(request);
        Box::pin(WholeStream::new(answer, chars))
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").finish_non_exhaustive()
    }
}
