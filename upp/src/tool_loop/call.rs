//! Calls over futures: polling the stream drives the tool loop.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use ubos_common::driver::{DriveError, drive};
use ubos_common::id::IdSource;
use ubos_common::time::Now;
use ubos_common::trace_context::TraceContext;

use super::world::{CallClock, Shared, World};
use super::{LlmInput, ToolLoop};
use crate::cancel::CancelToken;
use crate::error::{ErrorCode, UppError};
use crate::message::Messages;
use crate::options::LlmInstance;
use crate::stream::StreamEvent;
use crate::tool::Extensions;
use crate::turn::Turn;

/// The environment of one call: ids, clock, cancellation, extensions for its tools, and its place in a trace.
pub struct LlmCall {
    pub(super) ids: IdSource,
    pub(super) clock: CallClock,
    pub(super) cancel: CancelToken,
    pub(super) extensions: Extensions,
    pub(super) trace: Option<TraceContext>,
}

impl LlmCall {
    /// A call that takes the ids of new messages from `ids` and the time from `clock`.
    pub fn new(ids: IdSource, clock: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        Self {
            ids,
            clock: CallClock(Arc::new(clock)),
            cancel: CancelToken::default(),
            extensions: Extensions::default(),
            trace: None,
        }
    }

    /// Sets the token that cancels the call.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets the extensions that are passed to the tools.
    #[must_use]
    pub fn with_extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Sets the place in a distributed trace that its requests are sent and its tools are called from
    /// ([`LlmRequest::trace`](crate::LlmRequest::trace), [`ToolContext::trace`](crate::ToolContext::trace)): none by default.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }
}

impl fmt::Debug for LlmCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmCall")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

impl LlmInstance {
    /// Sends the history and the inputs to the model, runs the tools that it calls, and repeats until it calls none.
    ///
    /// The turn holds the new inputs and everything that follows them, but not the history. Nothing runs before the
    /// future is polled; dropping it cancels the call.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use upp::ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
    /// use upp::{FnTool, List, LlmCall, LlmOptions, Reply, ScriptedModel, json_text, llm, object};
    ///
    /// let model = ScriptedModel::new([
    ///     Reply::default().calling("call-1", "weather", object(r#"{"city":"Paris"}"#)?),
    ///     Reply::text("Take an umbrella."),
    /// ]);
    /// let schema = object(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#)?;
    /// let weather = FnTool::new("weather", "The weather of a city", schema, |_, _| async { Ok(json_text("rain")) });
    /// let options = LlmOptions::new(Arc::new(model)).with_tool(weather);
    ///
    /// let call = LlmCall::new(IdSource::seeded(1), || Now::new(Mono::ZERO, Timestamp::EPOCH));
    /// let turn = futures::executor::block_on(llm(options)?.generate(&List::default(), ["What shall I wear?"], call))?;
    /// assert_eq!(turn.response.text(), "Take an umbrella.");
    /// assert_eq!((turn.cycles, turn.tool_executions.len(), turn.messages.len()), (2, 1, 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The model's error; `INVALID_REQUEST` where the user's content has a type that the model does not accept, or
    /// where the model calls tools after the last permitted round; `CANCELLED`. After the first response an error
    /// carries the turn so far ([`UppError::partial_turn`]).
    ///
    /// Spec: UPP-1.3 tool loop
    pub async fn generate<I: Into<LlmInput>>(
        &self,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        call: LlmCall,
    ) -> Result<Turn, UppError> {
        StreamResult::new(self, history, inputs, call, false)
            .turn()
            .await
    }

    /// As [`LlmInstance::generate`], with the events of the call as they occur.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` where the model does not support streaming.
    ///
    /// Spec: UPP-1.3 streaming
    pub fn stream<I: Into<LlmInput>>(
        &self,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        call: LlmCall,
    ) -> Result<StreamResult, UppError> {
        let model = self.options().model();
        if !model.capabilities().streaming {
            let text = format!("{} does not support streaming", model.model_id());
            let code = ErrorCode::InvalidRequest;
            return Err(UppError::new(code, model.provider(), text));
        }
        Ok(StreamResult::new(self, history, inputs, call, true))
    }
}

/// The events of a call, and then its turn. Dropping it cancels the call: the model's request and the tools.
///
/// ```
/// use std::sync::Arc;
/// use futures::StreamExt;
/// use upp::ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
/// use upp::{List, LlmCall, LlmOptions, Reply, ScriptedModel, llm};
///
/// # futures::executor::block_on(async {
/// let model = ScriptedModel::new([Reply::text("hello")]);
/// let call = LlmCall::new(IdSource::seeded(1), || Now::new(Mono::ZERO, Timestamp::EPOCH));
/// let mut stream = llm(LlmOptions::new(Arc::new(model)))?.stream(&List::default(), ["hi"], call)?;
/// while let Some(event) = stream.next().await {
///     println!("{}", event?.event_type);
/// }
/// assert_eq!(stream.turn().await?.response.text(), "hello");
/// # Ok::<(), upp::UppError>(())
/// # }).unwrap();
/// ```
///
/// Spec: UPP-1.3 streaming
#[must_use = "nothing runs before the stream is polled"]
pub struct StreamResult {
    driver: Option<BoxFuture<'static, Result<(), DriveError>>>,
    shared: Arc<Shared>,
    result: Option<Result<Turn, UppError>>,
    /// Items since the caller last had to wait.
    in_a_row: u32,
}

/// Items after which the runtime's other tasks get their turn, although the next item is ready.
const YIELD_AFTER: u32 = 64;

impl StreamResult {
    fn new<I: Into<LlmInput>>(
        instance: &LlmInstance,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        call: LlmCall,
        streams: bool,
    ) -> Self {
        let LlmCall {
            ids,
            clock,
            cancel,
            extensions,
            trace,
        } = call;
        let mut machine = ToolLoop::new(clock.read(), instance, history, inputs, ids);
        let shared = Arc::new(Shared::new(cancel));
        let mut world = World::new(instance, Arc::clone(&shared), clock.clone(), streams);
        (world.extensions, world.trace) = (extensions, trace);
        Self {
            driver: Some(Box::pin(async move {
                drive(&mut machine, &mut world, &clock).await
            })),
            shared,
            result: None,
            in_a_row: 0,
        }
    }

    /// Cancels the call: its result is `CANCELLED`, and events that were not taken are dropped.
    pub fn abort(&self) {
        self.shared.cancel.cancel();
    }

    /// Drives the call to its end and returns its turn. Events that were not taken are dropped.
    ///
    /// # Errors
    ///
    /// The error of the call; one that the stream has returned is returned again.
    pub async fn turn(mut self) -> Result<Turn, UppError> {
        while poll_fn(|cx| Pin::new(&mut self).poll_next(cx))
            .await
            .is_some()
        {}
        #[expect(
            clippy::expect_used,
            reason = "the stream ends with the machine, whose last output is the result"
        )]
        self.result
            .take()
            .expect("a stream that has ended has a result")
    }

    /// The last item: the error where the call failed, else the end of the stream.
    fn end(&mut self) -> Option<Result<StreamEvent, UppError>> {
        let result = self.shared.take_result()?;
        self.shared.tools_cancel.cancel();
        let error = result.as_ref().err().cloned();
        self.result = Some(result);
        error.map(Err)
    }
}

impl Stream for StreamResult {
    type Item = Result<StreamEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.in_a_row >= YIELD_AFTER {
            this.in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.in_a_row += 1;
        // An abort is handled before events that were queued: the machine drops them.
        let aborts = this.driver.is_some() && this.shared.cancel.is_cancelled();
        if !aborts && let Some(event) = this.shared.pop_event() {
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(driver) = &mut this.driver
            && driver.as_mut().poll(cx).is_ready()
        {
            this.driver = None;
        }
        match this.shared.pop_event() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if this.driver.is_none() => Poll::Ready(this.end()),
            None => {
                this.in_a_row = 0;
                Poll::Pending
            }
        }
    }
}

// impl: UPP-6
impl Drop for StreamResult {
    fn drop(&mut self) {
        self.shared.tools_cancel.cancel();
    }
}

impl fmt::Debug for StreamResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamResult")
            .field("ended", &self.driver.is_none())
            .finish_non_exhaustive()
    }
}
