//! The turn: the result of one call of a model with its tool rounds.

use std::sync::Arc;

use ubos_common::json::{Fault, MemberWriter, RawBuf, Read, Reader, Write, decode};
use ubos_common::violation::Profile;

use crate::list::List;
use crate::message::{AssistantMessage, Message, Messages};
use crate::tool::ToolExecution;

ubos_common::wire! {
    /// The token counts of one inference.
    pub struct CycleUsage {
        /// Input tokens.
        required input_tokens: u64 = "inputTokens", "UPP-1";
        /// Output tokens.
        required output_tokens: u64 = "outputTokens", "UPP-1";
        /// Input tokens read from the cache; 0 where the vendor does not report them.
        required cache_read_tokens: u64 = "cacheReadTokens", "UPP-1";
        /// Input tokens written to the cache; 0 where the vendor does not report them.
        required cache_write_tokens: u64 = "cacheWriteTokens", "UPP-1";
    }
}

ubos_common::wire! {
    /// The token counts of a call.
    ///
    /// Spec: UPP-1.3 TokenUsage
    pub struct TokenUsage {
        /// Input tokens.
        required input_tokens: u64 = "inputTokens", "UPP-1";
        /// Output tokens.
        required output_tokens: u64 = "outputTokens", "UPP-1";
        /// Input and output together.
        required total_tokens: u64 = "totalTokens", "UPP-1";
        /// Input tokens read from the cache.
        required cache_read_tokens: u64 = "cacheReadTokens", "UPP-1";
        /// Input tokens written to the cache.
        required cache_write_tokens: u64 = "cacheWriteTokens", "UPP-1";
        /// One entry for each inference; absent where the writer does not record them.
        nullable cycles: List<CycleUsage> = "cycles", "UPP-1";
    }
}

impl CycleUsage {
    /// The member with the tokens of reasoning, which the protocol does not have.
    const REASONING: &'static str = "reasoningTokens";

    /// Sets the tokens of reasoning among the output tokens.
    #[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
    pub(crate) fn with_reasoning(mut self, tokens: Option<impl Into<u64>>) -> Self {
        if let Some(tokens) = tokens {
            let text = ubos_common::json::to_string(&tokens.into());
            self.extra
                .insert(Self::REASONING, RawBuf::assume_sound(text));
        }
        self
    }

    /// The tokens of reasoning among the output tokens, where the vendor reports them.
    #[must_use]
    pub fn reasoning_tokens(&self) -> Option<u64> {
        self.extra.value(Self::REASONING)?.deserialize().ok()
    }
}

/// Adds one inference. Sums saturate.
impl core::ops::AddAssign<CycleUsage> for TokenUsage {
    fn add_assign(&mut self, cycle: CycleUsage) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.input_tokens, cycle.input_tokens);
        add(&mut self.output_tokens, cycle.output_tokens);
        add(&mut self.cache_read_tokens, cycle.cache_read_tokens);
        add(&mut self.cache_write_tokens, cycle.cache_write_tokens);
        self.total_tokens = self.input_tokens.saturating_add(self.output_tokens);
        self.cycles.get_or_insert_default().push(cycle);
    }
}

impl Default for TokenUsage {
    fn default() -> Self {
        let mut usage = Self::new(0, 0, 0, 0, 0);
        usage.cycles = Some(List::default());
        usage
    }
}

impl From<CycleUsage> for TokenUsage {
    fn from(cycle: CycleUsage) -> Self {
        let mut usage = Self::default();
        usage += cycle;
        usage
    }
}

/// The result of one call. A clone shares its lists.
///
/// [`Turn::stop`] tells a whole response from one that was cut.
///
/// Spec: UPP-1.3 Turn
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Turn {
    /// New input and everything produced, in order; never the history.
    pub messages: Messages,
    /// The last assistant message among them.
    pub response: Arc<AssistantMessage>,
    /// The tool calls that were run, in call order.
    pub tool_executions: List<ToolExecution>,
    /// Token counts.
    pub usage: TokenUsage,
    /// The number of inferences.
    pub cycles: u64,
    /// Structured output, where it was requested and received.
    pub data: Option<RawBuf>,
}

impl Turn {
    /// A turn without structured output.
    ///
    /// # Errors
    ///
    /// There is no assistant message.
    pub fn new(
        messages: Messages,
        tool_executions: List<ToolExecution>,
        usage: TokenUsage,
        cycles: u64,
    ) -> Result<Self, NoResponse> {
        // The last message is the answer, or the results of its calls: the search ends at once.
        let last = (0..messages.len())
            .rev()
            .find_map(|n| messages.get(n)?.as_assistant());
        Ok(Self {
            response: Arc::clone(last.ok_or(NoResponse)?),
            messages,
            tool_executions,
            usage,
            cycles,
            data: None,
        })
    }

    /// Why the model ended its response, as the adapter kept it in the metadata. `None` where no adapter did.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        #[derive(Default)]
        struct Word(Option<String>);
        impl<'a> Read<'a> for Word {
            fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
                let mut word = Self::default();
                reader.object(|reader, name| {
                    let value = RawBuf::read(reader)?;
                    if name == "stop_reason" {
                        word.0 = value.deserialize().ok();
                    }
                    Ok(())
                })?;
                Ok(word)
            }
        }
        let mut objects = self.response.metadata.as_ref()?.objects();
        objects.find_map(|object| {
            let limits = crate::kept::kept_limits();
            let read = decode::<Word>(object.as_str().as_bytes(), &limits, Profile::Strict);
            Some(Stop::of_word(&read.ok()?.0.0?))
        })
    }
}

ubos_common::words! {
    /// Why a model ended its message. A vendor's word that is none of these is kept.
    open pub enum Stop {
        /// The model had finished, or reached a stop sequence.
        End = "end",
        /// The limit of tokens, or of the context, cut the message.
        Length = "length",
        /// The model calls tools.
        ToolCalls = "tool_calls",
        /// The vendor's filter cut the message.
        Filter = "filter",
        /// The vendor paused a long message, which it continues in the next response.
        Pause = "pause",
    }
}

impl Stop {
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "stop" | "completed" | "end_turn" | "stop_sequence" | "STOP" => Self::End,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "MAX_TOKENS"
            | "model_context_window_exceeded" => Self::Length,
            "tool_calls" | "tool_use" | "function_call" => Self::ToolCalls,
            "content_filter" => Self::Filter,
            "pause_turn" => Self::Pause,
            other => Self::Other(other.into()),
        }
    }
}

/// A turn needs an assistant message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no assistant message among the messages")]
#[non_exhaustive]
pub struct NoResponse;

ubos_common::wire! {
    /// The JSON of a turn.
    struct TurnJson {
        /// The response is the last assistant message among them.
        required messages: List<Message> = "messages", "UPP-1";
        /// In call order.
        required tool_executions: List<ToolExecution> = "toolExecutions", "UPP-1";
        /// The sum.
        required usage: TokenUsage = "usage", "UPP-1";
        /// At least one.
        required cycles: u64 = "cycles", "UPP-1";
        /// Structured output.
        nullable data: RawBuf = "data", "UPP-1";
    }
}

impl<'a> Read<'a> for Turn {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let json = TurnJson::read(reader)?;
        let turn = Self::new(json.messages, json.tool_executions, json.usage, json.cycles);
        let mut turn =
            turn.map_err(|_| reader.bad_value(at, "an assistant message among the messages"))?;
        turn.data = json.data;
        Ok(turn)
    }
}

impl Write for Turn {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("messages", &self.messages);
        object.member("toolExecutions", &self.tool_executions);
        object.member("usage", &self.usage);
        object.member("cycles", &self.cycles);
        object.optional("data", self.data.as_ref());
        object.end();
    }
}
