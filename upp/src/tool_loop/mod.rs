//! Model, tools, model again, until the model has said its last word.

mod result;

use core::fmt;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::Now;

pub use result::StreamResult;

use crate::cancel::CancelToken;
use crate::content::{ContentBlock, MediaKind};
use crate::error::{ErrorCode, UppError};
use crate::list::List;
use crate::message::{Message, Messages, Stamp, ToolResultMessage};
use crate::model::{LlmCapabilities, LlmInstance, LlmRequest, LlmResponse};
use crate::tool::{Extensions, ToolCall, ToolExecution};
use crate::turn::{TokenUsage, Turn};

/// Rounds of tool calls where the tool strategy does not say how many.
pub const MAX_ITERATIONS: u64 = 10;

/// One new input of a call: a text, a block or a whole message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LlmInput {
    /// Becomes a user's message of one block.
    Block(ContentBlock),
    /// Goes in as it is.
    Message(Message),
}

impl From<&str> for LlmInput {
    fn from(text: &str) -> Self {
        Self::Block(text.into())
    }
}

impl From<String> for LlmInput {
    fn from(text: String) -> Self {
        Self::Block(text.into())
    }
}

impl From<ContentBlock> for LlmInput {
    fn from(block: ContentBlock) -> Self {
        Self::Block(block)
    }
}

impl From<Message> for LlmInput {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

/// What one call needs of the world: ids, clocks, and what ends it.
#[non_exhaustive]
pub struct LlmCall {
    /// Where the ids of new messages come from.
    pub ids: IdSource,
    /// Both clocks.
    pub clock: Arc<dyn Fn() -> Now + Send + Sync>,
    /// Ends the call; shared with whom the caller likes.
    pub cancel: CancelToken,
    /// Handed down to the tools.
    pub extensions: Extensions,
}

impl LlmCall {
    /// A call that nobody else can end.
    pub fn new(ids: IdSource, clock: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        Self {
            ids,
            clock: Arc::new(clock),
            cancel: CancelToken::new(),
            extensions: Extensions::default(),
        }
    }

    /// Sets what ends the call.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets what tools are handed down.
    #[must_use]
    pub fn with_extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
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
    /// Asks the model, runs the tools that it calls, and asks again until it calls none.
    ///
    /// The turn holds the new inputs and all that came of them, never the history. Nothing runs before the future is
    /// polled; dropping it ends everything.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
    /// use upp::{FnTool, List, LlmCall, LlmOptions, Reply, ScriptedModel, Tool, ToolSet, json_text, llm, object};
    ///
    /// let model = ScriptedModel::new([
    ///     Reply::silent().calling("call-1", "weather", object(r#"{"city":"Paris"}"#)?),
    ///     Reply::text("Take an umbrella."),
    /// ]);
    /// let schema = object(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#)?;
    /// let weather = FnTool::new("weather", "The weather of a city", schema, |_, _| async { Ok(json_text("rain")) });
    /// let mut options = LlmOptions::new(Arc::new(model));
    /// options.tools = ToolSet::new(vec![Arc::new(weather) as Arc<dyn Tool>], None);
    ///
    /// let call = LlmCall::new(IdSource::seeded(1), || Now::new(Mono::ZERO, Timestamp::EPOCH));
    /// let turn = futures::executor::block_on(llm(options)?.generate(&List::new(), ["What shall I wear?"], call))?;
    /// assert_eq!(turn.response.text(), "Take an umbrella.");
    /// assert_eq!((turn.cycles, turn.tool_executions.len(), turn.messages.len()), (2, 1, 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the model fails with; `INVALID_REQUEST` where a user's block is of a kind that the model does not take, or
    /// where the model wants more rounds of tools than allowed; `CANCELLED`. Errors of a call that has come so far
    /// carry what it has come to ([`UppError::partial_turn`]).
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

    /// The same, in events as they come.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` where the model has no streams.
    ///
    /// Spec: UPP-1.3 streaming
    pub fn stream<I: Into<LlmInput>>(
        &self,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        call: LlmCall,
    ) -> Result<StreamResult, UppError> {
        let model = self.options().model.as_ref();
        if !model.capabilities().streaming {
            let text = format!("{} has no streams", model.model_id());
            let code = ErrorCode::InvalidRequest;
            return Err(UppError::new(code, model.provider(), text));
        }
        Ok(StreamResult::new(self, history, inputs, call, true))
    }
}

/// What a call wants next.
enum Next {
    Infer(LlmRequest),
    Run(Vec<ToolCall>),
    /// The rounds are used up.
    Exhausted(u64),
    Finished(Box<Turn>),
}

/// A call on its way: what it has come to, and what follows from an answer. It does nothing itself.
struct ToolLoop {
    instance: LlmInstance,
    ids: IdSource,
    /// History and all that came of it.
    conversation: Messages,
    /// The new messages alone.
    messages: Messages,
    executions: List<ToolExecution>,
    usage: TokenUsage,
    cycles: u64,
    rounds: u64,
    data: Option<RawBuf>,
}

impl ToolLoop {
    fn new<I: Into<LlmInput>>(
        instance: &LlmInstance,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        mut ids: IdSource,
        now: Now,
    ) -> Self {
        let inputs = inputs.into_iter().map(|input| match input.into() {
            LlmInput::Block(block) => Message::user(Stamp::new(&mut ids, now.wall), block),
            LlmInput::Message(message) => message,
        });
        let messages: Messages = inputs.collect::<Vec<_>>().into();
        let mut conversation = history.clone();
        conversation.extend(messages.iter().cloned());
        Self {
            instance: instance.clone(),
            ids,
            conversation,
            messages,
            executions: List::new(),
            usage: TokenUsage::zero(),
            cycles: 0,
            rounds: 0,
            data: None,
        }
    }

    /// The first question.
    fn start(&mut self, now: Now) -> Result<Next, UppError> {
        let can = self.instance.options().model.capabilities();
        let untaken = self.conversation.iter().find_map(|message| match message {
            Message::User(user) => user.content.iter().find(|block| !takes(can, block)),
            _ => None,
        });
        match untaken {
            Some(block) => Err(self.refuse(&format!("the model takes no {}", block.type_name()))),
            None => Ok(self.infer(now)),
        }
    }

    fn infer(&mut self, now: Now) -> Next {
        let stamp = Stamp::new(&mut self.ids, now.wall);
        Next::Infer(self.instance.request(self.conversation.clone(), stamp))
    }

    fn answered(&mut self, now: Now, response: LlmResponse) -> Result<Next, UppError> {
        self.cycles += 1;
        self.usage.add_cycle(response.usage);
        let has_data = response.data.is_some();
        self.data = response.data.or_else(|| self.data.take());
        let mut message = response.message;
        // The time of an answer is when it is complete.
        Arc::make_mut(&mut message).timestamp = Stamp::with_id("", now.wall).timestamp;
        let calls = message.calls().to_vec();
        self.append(Message::Assistant(message));
        // Structured output that comes as a call is an answer. Without tools there is nothing to run.
        let tools = &self.instance.options().tools;
        if calls.is_empty() || has_data || tools.tools.is_empty() {
            return self.turn().map(|turn| Next::Finished(Box::new(turn)));
        }
        let strategy = tools.strategy.as_ref();
        let max = strategy.and_then(|strategy| strategy.max_iterations());
        let max = max.unwrap_or(MAX_ITERATIONS);
        if self.rounds >= max {
            return Ok(Next::Exhausted(max));
        }
        self.rounds += 1;
        Ok(Next::Run(calls))
    }

    /// All calls of a round have run; in call order.
    fn ran(&mut self, now: Now, executions: Vec<ToolExecution>) -> Next {
        let results = executions.iter().map(ToolExecution::to_result).collect();
        let stamp = Stamp::new(&mut self.ids, now.wall);
        self.append(ToolResultMessage::new(stamp, results).into());
        self.executions.extend(executions);
        self.infer(now)
    }

    fn append(&mut self, message: Message) {
        self.conversation.push(message.clone());
        self.messages.push(message);
    }

    fn turn(&self) -> Result<Turn, UppError> {
        let (messages, executions) = (self.messages.clone(), self.executions.clone());
        let turn = Turn::new(messages, executions, self.usage.clone(), self.cycles);
        let mut turn = turn.map_err(|error| UppError::wrap(self.provider(), error))?;
        turn.data.clone_from(&self.data);
        Ok(turn)
    }

    /// An error with what the call has come to, where there is an answer already.
    fn failed(&self, mut error: UppError) -> UppError {
        if self.cycles > 0 && error.partial_turn.is_none() {
            error.partial_turn = self.turn().ok().map(Arc::new);
        }
        error
    }

    fn refuse(&self, what: &str) -> UppError {
        UppError::new(ErrorCode::InvalidRequest, self.provider(), what)
    }

    fn provider(&self) -> &str {
        self.instance.options().model.provider()
    }
}

const fn takes(can: LlmCapabilities, block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Image { .. } => can.image_input,
        ContentBlock::Document { .. } => can.document_input,
        ContentBlock::Media { kind, .. } => match kind {
            MediaKind::Audio => can.audio_input,
            MediaKind::Video => can.video_input,
            _ => true,
        },
        ContentBlock::Text(_) | ContentBlock::Reasoning(_) => true,
    }
}
