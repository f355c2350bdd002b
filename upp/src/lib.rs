//! UPP-1.3 for language models: the types that agents are built on, and the adapters that reach a model.
//!
//! This crate has messages, turns, tools, stream events and errors with their exact JSON, one trait that every model
//! implements, a tool loop, a scripted model for tests, and adapters for vendors (by feature). Agents with strategies,
//! state and checkpoints are in `uap-agent`, which uses these types unchanged.
//!
//! ```text
//! transport/{openai,anthropic,google}  models over HTTP             one feature each
//! LlmInstance, StreamResult            the tool loop over futures   feature `driver`
//! tool_loop::ToolLoop                  the tool loop as a machine   no IO
//! RetryModel, KeyStrategy              retries, and the choice of keys
//! LlmModel                             one request, one response, whole or streamed
//! run_call, Accumulator                one tool call with its hooks; events added up
//! types                                Message, Turn, Thread, Tool, StreamEvent, UppError
//! ```
//!
//! Keys are [`Secret`](ubos_common::secret::Secret)s; nothing in this crate prints one. The user's parameters are sent
//! unaltered, and no default is added to them. Arguments are not validated before a tool runs: a tool must treat them as
//! untrusted.
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `driver` | [`LlmInstance`]`::generate` and `stream`, on any async runtime | yes |
//! | `os` | ids and clocks from the operating system: `IdSource::from_os`, `ubos_common::os::Clock`; each adapter brings it | no |
//! | `openai` | chat completions of OpenAI and of compatible vendors, with presets by name; OpenAI's responses endpoint | no |
//! | `anthropic` | the messages API | no |
//! | `google` | `generateContent` | no |
//! | `schemars` | tools whose arguments and results are Rust types | no |
//! | `mcp` | tools of MCP servers | no |
//! | `external-tests` | tests that need Python with the packages openai, anthropic and google-genai (`UBOS_PYTHON`) | no |
//! | `tracing` | trace events of the tool loop, and spans of requests and tools by OpenTelemetry: ids, counts and durations, content only where asked for | no |
//! | `arbitrary` | generators of messages and events for fuzzing, and the reading of server-sent events | no |
//! | `http` | what the three adapters share: reqwest with rustls, on tokio; of no use alone | no |
//!
//! | limit | |
//! |---|---|
//! | a response in one piece, and the texts of a streamed one | 64 MiB |
//! | one server-sent event | 16 MiB |
//! | parts of a response | 4,096 |
//! | rounds of tools | 10, unless the tool strategy sets another limit |
//!
//! Start with [`llm`] and `LlmInstance::generate`; [`ScriptedModel`] needs no network.

mod accumulate;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
mod blob;
mod cancel;
mod content;
mod error;
mod kept;
mod key;
mod list;
mod message;
mod metadata;
mod model;
mod options;
/// The names of fields of spans, for the crates that build on this one.
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub mod otel;
mod response;
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
pub use key::{KeyError, KeyStrategy, RoundRobinKeys, WeightedKeys};
pub use list::{Iter, List};
pub use message::{
    AssistantMessage, Message, MessageType, Messages, Stamp, ToolResultMessage, UserMessage,
};
pub use metadata::Metadata;
pub use model::{
    LlmCapabilities, LlmMiddleware, LlmModel, LlmRequest, ModelEvent, ModelReference, ModelStream,
    ToolChoice,
};
pub use options::{LlmInstance, LlmOptions, llm};
pub use response::LlmResponse;
pub use retry::{
    ExponentialBackoff, Failure, LinearBackoff, NoRetry, RetryAfter, RetryModel, RetryStrategy,
    RetryWorld, TokenBucket,
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
pub use turn::{CycleUsage, NoResponse, Stop, TokenUsage, Turn};
/// The shared foundation: ids, time, JSON and the machine interface that this crate's API uses.
pub use ubos_common;

/// The README's examples.
#[cfg(all(doctest, feature = "anthropic", feature = "driver"))]
#[doc = include_str!("../README.md")]
struct Readme;
