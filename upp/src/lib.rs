//! UPP-1.3 for language models: the types that agents are built on, and the adapters that reach a model.
//!
//! Here are messages, turns, tools, stream events and errors with their exact JSON, one trait that every model
//! implements, a scripted model for tests and demonstrations, and (by feature) adapters for vendors. There is no
//! agent here: strategies, state and checkpoints are in `uap-agent`, which uses these types as they are.
//!
//! ```text
//! transport/{openai,anthropic,google}  models over HTTP             one feature each
//! LlmInstance, StreamResult            model, tools, model again
//! RetryModel, KeyStrategy              when to ask again, and with which key
//! LlmModel                             one request, one answer, in pieces or whole
//! run_call, Accumulator                one tool call with its hooks; events added up
//! types                                Message, Turn, Thread, Tool, StreamEvent, UppError
//! ```
//!
//! Keys are [`ubos_common::secret::Secret`]s; nothing here prints one. No parameter of the user's is changed and no
//! default is added to them. Arguments of tools are never checked: a tool takes them as untrusted.
//!
//! | feature | what it adds |
//! |---|---|
//! | `openai` | chat completions of OpenAI and of everybody who speaks like it, with presets by name |
//! | `anthropic` | the messages API |
//! | `google` | `generateContent` |
//! | `schemars` | tools whose arguments and results are Rust types |
//! | `mcp` | tools of MCP servers |
//! | `arbitrary` | generators of messages and events for fuzzing; the reader of server-sent events without HTTP |
//! | `http` | what the three share: reqwest with rustls, on tokio; of no use alone |
//!
//! | limit | |
//! |---|---|
//! | an answer in one piece, and the texts of a streamed one | 64 MiB |
//! | one server-sent event | 16 MiB |
//! | parts of an answer | 4,096 |
//! | rounds of tools | 10, unless the tool strategy says otherwise |
//!
//! Begin with [`llm`] and [`LlmInstance::generate`]; [`ScriptedModel`] needs no network.

mod accumulate;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod blob;
mod cancel;
mod content;
mod error;
mod key;
mod list;
mod message;
mod model;
mod retry;
mod scripted;
mod settled;
mod stream;
mod thread;
mod tool;
pub mod tool_loop;
mod trace;
mod turn;

#[cfg(any(
    feature = "openai",
    feature = "anthropic",
    feature = "google",
    feature = "mcp",
    feature = "arbitrary"
))]
pub mod transport;

pub use accumulate::Accumulator;
pub use blob::Blob;
pub use cancel::{CancelToken, Cancelled};
pub use content::{ContentBlock, MediaKind, Source};
pub use error::{ErrorCode, UppError};
pub use key::{DynamicKey, KeyError, KeyStrategy, OneKey, RoundRobinKeys, WeightedKeys};
pub use list::{Iter, List};
pub use message::{
    AssistantMessage, Message, MessageType, Messages, Metadata, Stamp, ToolResultMessage,
    UserMessage,
};
pub use model::{
    LlmCapabilities, LlmInstance, LlmMiddleware, LlmModel, LlmOptions, LlmRequest, LlmResponse,
    ModelEvent, ModelReference, ModelStream, llm,
};
pub use retry::{
    Attempts, ExponentialBackoff, Failure, LinearBackoff, NoRetry, RetryAfter, RetryModel,
    RetryStrategy, RetryWorld, TokenBucket, retry_after,
};
pub use scripted::{Reply, ScriptedModel};
pub use stream::{EventDelta, StreamEvent, StreamEventType, events_of};
pub use thread::Thread;
pub use tool::{
    Extensions, FnTool, HookFuture, Permit, Tool, ToolCall, ToolContext, ToolError, ToolExecution,
    ToolResult, ToolSet, ToolUseStrategy, json_text, object, run_call,
};
pub use tool_loop::LlmInput;
#[cfg(feature = "driver")]
pub use tool_loop::{LlmCall, StreamResult};
pub use turn::{CycleUsage, NoResponse, TokenUsage, Turn};
/// The shared foundation: ids, time, JSON and the machine interface that this crate's API uses.
pub use ubos_common;
