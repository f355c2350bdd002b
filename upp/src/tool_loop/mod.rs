//! The tool loop: infer, run the tools that the model calls, and infer again until it calls none.
//!
//! [`ToolLoop`] is a state machine without IO. Inference and tool calls are effects: it requests them as [`Output`]s
//! and takes their results as [`Input`]s. With the feature `driver`, [`LlmInstance::generate`] and
//! [`LlmInstance::stream`] drive it over futures; a program on another runtime drives it with its own loop.
//!
//! ```text
//!                      +----------- Model, Tool, HookDone -----------+
//!                      v                                             |
//! Inferring <-> RunningTools;  Inferring -> LimitReached   --> Infer | More | Tool | MaxIterations --> world
//!     |               |              |
//!     +---------------+--------------+--> Closed (Finished)
//! ```
//!
//! Spec: UPP-1.3 tool loop

#[cfg(feature = "driver")]
mod call;
mod order;
mod round;
#[cfg(feature = "driver")]
mod world;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};

#[cfg(feature = "driver")]
pub use call::{LlmCall, StreamResult};
pub use round::{RoundOutput, ToolRound};

use crate::content::{ContentBlock, MediaKind};
use crate::error::{ErrorCode, UppError};
use crate::list::List;
use crate::message::{Message, Messages, Stamp, ToolResultMessage};
use crate::model::{LlmCapabilities, LlmRequest, ModelEvent};
use crate::options::LlmInstance;
use crate::response::LlmResponse;
use crate::stream::StreamEvent;
use crate::tool::{ToolCall, ToolExecution, ToolResult};
use crate::trace::{debug, trace};
use crate::turn::{Stop, TokenUsage, Turn};

/// Rounds of tool calls, unless the tool strategy sets another limit.
const MAX_ITERATIONS: u64 = 10;

/// Queued outputs from which on the machine accepts no input.
const OUTBOX: usize = 1024;

/// Identifies one effect of a tool loop.
pub type EffectId = u64;

/// An input of a call: a text, a content block or a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LlmInput {
    /// Becomes a user message with this one block.
    Block(ContentBlock),
    /// Is used unchanged.
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

/// What a [`ToolLoop`] requests, and what it reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// Send a request to the model. The result is the first [`ModelEvent`] of its response.
    Infer(EffectId, LlmRequest),
    /// Read the next [`ModelEvent`] of a response.
    More(EffectId),
    /// Run a tool. The tools of one round run concurrently.
    Tool(EffectId, ToolCall),
    /// Call [`on_max_iterations`](crate::ToolUseStrategy::on_max_iterations) with this number of rounds.
    MaxIterations(EffectId, u64),
    /// Drop an effect; its result is no longer needed.
    Cancel(EffectId),
    /// A stream event.
    Event(StreamEvent),
    /// The result of the call. It is the last output.
    Finished(Result<Box<Turn>, UppError>),
}

/// The result of an effect, or an abort.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// The next event of a response; `None` where the stream ended before [`ModelEvent::Done`].
    Model(EffectId, Option<Result<ModelEvent, UppError>>),
    /// A tool has run.
    Tool(EffectId, ToolExecution),
    /// The hook has returned.
    HookDone(EffectId),
    /// The caller cancels the call. Its result is `CANCELLED`.
    Abort,
}

#[cfg(feature = "tracing")]
impl Input {
    /// The kind of the input, for trace events.
    const fn name(&self) -> &'static str {
        match self {
            Self::Model(..) => "model",
            Self::Tool(..) => "tool",
            Self::HookDone(_) => "hook",
            Self::Abort => "abort",
        }
    }
}

/// An input was given to a tool loop that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool loop has finished and takes no more input")]
#[non_exhaustive]
pub struct Closed;

/// One call of a model with tools, as a state machine.
///
/// ```
/// use std::sync::Arc;
/// use upp::tool_loop::{Input, Output, ToolLoop};
/// use upp::ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
/// use upp::{AssistantMessage, ContentBlock, CycleUsage, List, LlmOptions, LlmResponse, ModelEvent, ScriptedModel, llm};
///
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let instance = llm(LlmOptions::new(Arc::new(ScriptedModel::new([]))))?;
/// let mut tool_loop = ToolLoop::new(now, &instance, &List::default(), ["hello"], IdSource::seeded(1));
///
/// let Some(Output::Infer(id, request)) = tool_loop.poll_output() else { panic!("the loop starts with the model") };
/// let message = AssistantMessage::new(request.stamp, vec![ContentBlock::text("hi")], None);
/// let response = LlmResponse::new(message, CycleUsage::new(1, 1, 0, 0), "stop");
/// tool_loop.handle_input(now, Input::Model(id, Some(Ok(ModelEvent::Done(Box::new(response))))))?;
///
/// let Some(Output::Finished(result)) = tool_loop.poll_output() else { panic!("no tool was called") };
/// assert_eq!(result?.response.text(), "hi");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: UPP-1.3 tool loop
pub struct ToolLoop {
    instance: LlmInstance,
    ids: IdSource,
    /// The history and the new messages: what the model sees.
    conversation: Messages,
    /// The new messages: what the turn holds.
    messages: Messages,
    executions: List<ToolExecution>,
    usage: TokenUsage,
    cycles: u64,
    rounds: u64,
    data: Option<RawBuf>,
    phase: Phase,
    effects: EffectId,
    out: Outbox<Output>,
}

/// What the loop waits for.
enum Phase {
    Inferring(EffectId),
    RunningTools(Box<ToolRound>),
    /// The limit of rounds is reached; the hook is called before the loop fails.
    LimitReached(EffectId, u64),
    Closed,
}

impl ToolLoop {
    /// Starts a call with a history and new inputs.
    ///
    /// `ids` provides the ids of new messages.
    pub fn new<I: Into<LlmInput>>(
        now: Now,
        instance: &LlmInstance,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        mut ids: IdSource,
    ) -> Self {
        let inputs = inputs.into_iter().map(|input| match input.into() {
            LlmInput::Block(block) => Message::user(Stamp::new(&mut ids, now.wall), block),
            LlmInput::Message(message) => message,
        });
        let messages: Messages = inputs.collect::<Vec<_>>().into();
        let mut conversation = history.clone();
        conversation.extend(messages.iter().cloned());
        let mut tool_loop = Self {
            instance: instance.clone(),
            ids,
            conversation,
            messages,
            executions: List::default(),
            usage: TokenUsage::default(),
            cycles: 0,
            rounds: 0,
            data: None,
            phase: Phase::Closed,
            effects: 0,
            out: Outbox::new(OUTBOX),
        };
        debug!(
            messages = tool_loop.conversation.len(),
            tools = tool_loop.instance.options().tools().tools.len(),
            "tool loop started"
        );
        match tool_loop.unsupported_block() {
            Some(kind) => tool_loop.fail(
                tool_loop
                    .invalid_request(&format!("the model does not accept content of type {kind}")),
            ),
            None => tool_loop.infer(now),
        }
        tool_loop
    }

    /// Takes the result of an effect, or an abort. The result of an effect that was cancelled is ignored.
    ///
    /// # Errors
    ///
    /// [`Closed`] after the call has finished.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        if matches!(self.phase, Phase::Closed) {
            return Err(Closed);
        }
        trace!(
            cycles = self.cycles,
            input = input.name(),
            "tool loop takes an input"
        );
        match input {
            Input::Model(id, item) => self.on_model(now, id, item),
            Input::Tool(id, execution) => self.on_tool(now, id, execution),
            Input::HookDone(id) => self.on_hook_done(id),
            // impl: UPP-6
            Input::Abort => {
                debug!(cycles = self.cycles, "tool loop aborted");
                self.fail(UppError::cancelled(self.provider()));
            }
        }
        Ok(())
    }

    /// Does nothing: a tool loop has no timeouts.
    pub const fn handle_timeout(&mut self, _now: Now) {}

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// Always `None`: a tool loop has no timeouts.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    /// Whether the machine takes input: it has not finished, and its outputs were drained.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && !self.out.is_full()
    }

    /// Whether the call has finished and every output was taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed) && self.out.is_empty()
    }

    /// The type of the first block from the user that the model does not accept.
    fn unsupported_block(&self) -> Option<&str> {
        let capabilities = self.instance.options().model().capabilities();
        self.conversation.iter().find_map(|message| match message {
            Message::User(user) => {
                let block = user
                    .content
                    .iter()
                    .find(|block| !accepts(capabilities, block));
                block.map(ContentBlock::type_name)
            }
            _ => None,
        })
    }

    fn infer(&mut self, now: Now) {
        let stamp = Stamp::new(&mut self.ids, now.wall);
        let request = self.instance.request(self.conversation.clone(), stamp);
        let id = self.next_effect();
        trace!(
            effect = id,
            messages = request.messages.len(),
            "tool loop infers"
        );
        self.out.push(Output::Infer(id, request));
        self.phase = Phase::Inferring(id);
    }

    fn on_model(&mut self, now: Now, id: EffectId, item: Option<Result<ModelEvent, UppError>>) {
        if !matches!(self.phase, Phase::Inferring(waited) if waited == id) {
            return;
        }
        match item {
            Some(Ok(ModelEvent::Event(event))) => {
                self.out.push(Output::Event(event));
                self.out.push(Output::More(id));
            }
            Some(Ok(ModelEvent::Done(response))) => self.on_response(now, *response),
            Some(Err(error)) => self.fail(error),
            None => {
                let text = "the model's stream ended without a response";
                let error = UppError::new(ErrorCode::InvalidResponse, self.provider(), text);
                self.fail(error);
            }
        }
    }

    fn on_response(&mut self, now: Now, response: LlmResponse) {
        self.cycles += 1;
        let has_data = response.data.is_some();
        let is_paused = response.stop() == Stop::Pause;
        self.usage += response.usage;
        self.data = response.data.or_else(|| self.data.take());
        let mut message = response.message;
        // A message is dated when it is complete, not when it was requested.
        Arc::make_mut(&mut message).timestamp = Stamp::with_id("", now.wall).timestamp;
        let calls = message.calls().to_vec();
        self.append(Message::Assistant(message));
        trace!(
            cycle = self.cycles,
            calls = calls.len(),
            "tool loop received a response"
        );
        // Structured output that is sent as a call is the final response. Without tools there is nothing to run.
        let tools = self.instance.options().tools();
        let limit = tools.max_rounds().unwrap_or(MAX_ITERATIONS);
        // The vendor continues a message that it paused when it gets it back. A pause counts as a round.
        if is_paused && calls.is_empty() && self.rounds < limit {
            self.rounds += 1;
            return self.infer(now);
        }
        if calls.is_empty() || has_data || tools.tools.is_empty() {
            let result = self.turn().map(Box::new);
            return self.close(result);
        }
        // impl: UPP-13
        if self.rounds >= limit {
            debug!(limit, "tool loop reached its limit of rounds");
            let id = self.next_effect();
            self.out.push(Output::MaxIterations(id, limit));
            self.phase = Phase::LimitReached(id, limit);
            return;
        }
        self.rounds += 1;
        self.start_tools(now, calls);
    }

    fn start_tools(&mut self, now: Now, calls: Vec<ToolCall>) {
        let tools = self.instance.options().tools();
        let mut round = ToolRound::new(calls, BTreeMap::new(), tools);
        let outputs = round.start(now, &mut self.effects);
        self.perform(outputs);
        self.phase = Phase::RunningTools(Box::new(round));
    }

    fn on_tool(&mut self, now: Now, id: EffectId, execution: ToolExecution) {
        let Phase::RunningTools(round) = &mut self.phase else {
            return;
        };
        if !round.is_running(id) {
            return;
        }
        trace!(
            effect = id,
            duration_ms = execution.duration,
            is_error = execution.is_error,
            "tool loop ran a tool"
        );
        let outputs = round.handle_execution(now, id, execution, &mut self.effects);
        let is_complete = round.is_complete();
        self.perform(outputs);
        if !is_complete {
            return;
        }
        let Phase::RunningTools(round) = core::mem::replace(&mut self.phase, Phase::Closed) else {
            return;
        };
        let executions = round.into_executions();
        let results = executions.iter().map(ToolResult::from).collect();
        let stamp = Stamp::new(&mut self.ids, now.wall);
        self.append(ToolResultMessage::new(stamp, results).into());
        self.executions.extend(executions);
        self.infer(now);
    }

    fn perform(&mut self, outputs: Vec<RoundOutput>) {
        for output in outputs {
            self.out.push(match output {
                RoundOutput::Tool(id, call) => Output::Tool(id, call),
                RoundOutput::Event(event) => Output::Event(event),
            });
        }
    }

    fn on_hook_done(&mut self, id: EffectId) {
        if let Phase::LimitReached(waited, limit) = self.phase
            && waited == id
        {
            let text = format!(
                "the model called tools after {limit} rounds, the limit of the tool strategy"
            );
            self.fail(self.invalid_request(&text));
        }
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

    /// Ends the call with an error, which carries the turn so far where the model has responded.
    fn fail(&mut self, mut error: UppError) {
        if self.cycles > 0 && error.partial_turn.is_none() {
            error.partial_turn = self.turn().ok().map(Arc::new);
        }
        let running: Vec<EffectId> = match &self.phase {
            Phase::Inferring(id) | Phase::LimitReached(id, _) => vec![*id],
            Phase::RunningTools(round) => round.running().collect(),
            Phase::Closed => Vec::new(),
        };
        for id in running {
            self.out.push(Output::Cancel(id));
        }
        self.close(Err(error));
    }

    fn close(&mut self, result: Result<Box<Turn>, UppError>) {
        debug!(
            cycles = self.cycles,
            code = result.as_ref().err().map(|error| error.code.as_str()),
            "tool loop finished"
        );
        self.phase = Phase::Closed;
        self.out.push(Output::Finished(result));
    }

    const fn next_effect(&mut self) -> EffectId {
        self.effects += 1;
        self.effects
    }

    fn invalid_request(&self, text: &str) -> UppError {
        UppError::new(ErrorCode::InvalidRequest, self.provider(), text)
    }

    fn provider(&self) -> &str {
        self.instance.options().model().provider()
    }
}

ubos_common::forward_machine! { [] ToolLoop: Input => Output, Closed }

impl fmt::Debug for ToolLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolLoop")
            .field("cycles", &self.cycles)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

// impl: UPP-5
const fn accepts(capabilities: LlmCapabilities, block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Image { .. } => capabilities.image_input,
        ContentBlock::Document { .. } => capabilities.document_input,
        ContentBlock::Media { kind, .. } => match kind {
            MediaKind::Audio => capabilities.audio_input,
            MediaKind::Video => capabilities.video_input,
            _ => true,
        },
        ContentBlock::Text(_) | ContentBlock::Reasoning(_) => true,
    }
}
