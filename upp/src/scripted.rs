//! A model that says what it was told to say: agents run and are tested with no network.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::json::{RawBuf, RawObject};

use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
use crate::message::AssistantMessage;
use crate::model::{LlmCapabilities, LlmModel, LlmRequest, LlmResponse, ModelStream, WholeStream};
use crate::tool::ToolCall;
use crate::turn::CycleUsage;

/// Requests that a scripted model remembers; later ones are answered and forgotten.
const REMEMBERED: usize = 4_096;

/// One answer of a [`ScriptedModel`].
///
/// ```
/// use upp::{Reply, object};
///
/// let reply = Reply::text("let me see").calling("call-1", "look", object(r#"{"at":"/"}"#)?);
/// # Ok::<(), upp::ToolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reply {
    blocks: Vec<ContentBlock>,
    calls: Vec<ToolCall>,
    data: Option<RawBuf>,
    error: Option<UppError>,
    delay: Option<Duration>,
    hangs: bool,
    chars: usize,
    tokens: (u64, u64),
}

impl Reply {
    /// A text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        let mut reply = Self::silent();
        reply.blocks.push(ContentBlock::text(text));
        reply
    }

    /// No text at all: begin here for calls alone.
    #[must_use]
    pub const fn silent() -> Self {
        Self {
            blocks: Vec::new(),
            calls: Vec::new(),
            data: None,
            error: None,
            delay: None,
            hangs: false,
            chars: usize::MAX,
            tokens: (5, 3),
        }
    }

    /// An error in place of an answer.
    pub fn error(code: ErrorCode, message: impl Into<Box<str>>) -> Self {
        let mut reply = Self::silent();
        reply.error = Some(UppError::new(code, PROVIDER, message));
        reply
    }

    /// No answer ever: for tests of what ends a run.
    #[must_use]
    pub const fn hang() -> Self {
        let mut reply = Self::silent();
        reply.hangs = true;
        reply
    }

    /// Adds a call of a tool.
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

    /// Answers only after a while, by the timer of [`ScriptedModel::with_timer`]; at once without one.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Streams its text in pieces of so many characters.
    #[must_use]
    pub const fn in_pieces_of(mut self, chars: usize) -> Self {
        self.chars = chars;
        self
    }

    /// What it says it cost; 5 tokens in and 3 out by default.
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

const PROVIDER: &str = "scripted";

type Script = dyn FnMut(&LlmRequest) -> Option<Reply> + Send;
type Timer = dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync;

/// A model that says what it was told to say, one [`Reply`] a request.
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
    timer: Option<Arc<Timer>>,
    capabilities: LlmCapabilities,
}

impl ScriptedModel {
    /// Says these, one after the other; then every request is an error.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        Self::with(move |_| replies.pop_front())
    }

    /// Says what a function makes of each request; nothing is an error.
    pub fn with(script: impl FnMut(&LlmRequest) -> Option<Reply> + Send + 'static) -> Self {
        Self {
            script: Mutex::new(Box::new(script)),
            seen: Mutex::new(Vec::new()),
            timer: None,
            capabilities: LlmCapabilities::text(),
        }
    }

    /// Sets what delays wait for.
    #[must_use]
    pub fn with_timer(
        mut self,
        timer: impl Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        self.timer = Some(Arc::new(timer));
        self
    }

    /// Sets what it says it can do; [`LlmCapabilities::text`] by default.
    #[must_use]
    pub const fn with_capabilities(mut self, capabilities: LlmCapabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The requests so far, the first 4,096 of them.
    #[must_use]
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The next answer, and the pieces that it streams in.
    fn next(
        &self,
        request: LlmRequest,
    ) -> (BoxFuture<'static, Result<LlmResponse, UppError>>, usize) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < REMEMBERED {
            seen.push(request.clone());
        }
        drop(seen);
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = script(&request).unwrap_or_else(|| {
            Reply::error(
                ErrorCode::InvalidRequest,
                "the script has no reply for this request",
            )
        });
        drop(script);
        let chars = reply.chars;
        let wait = reply
            .delay
            .zip(self.timer.as_ref())
            .map(|(delay, timer)| timer(delay));
        let answer = Box::pin(async move {
            if let Some(wait) = wait {
                wait.await;
            }
            if reply.hangs {
                core::future::pending::<()>().await;
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
