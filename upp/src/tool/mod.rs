//! Tools, tool calls and their results.

mod run;
#[cfg(feature = "schemars")]
mod typed;

use core::any::{Any, TypeId};
use core::fmt;
use core::future::{Future, ready};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use ubos_common::json::{Kind, RawBuf, RawObject};
use ubos_common::trace_context::TraceContext;

#[cfg(feature = "driver")]
pub(crate) use run::guard;
pub use run::{ToolSet, run_call};

use crate::cancel::CancelToken;
use crate::metadata::Metadata;

ubos_common::wire! {
    /// A tool call of a model.
    pub struct ToolCall {
        /// The id of the call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// The name of the tool.
        required tool_name: Arc<str> = "toolName", "UPP-1";
        /// The arguments. They are not validated.
        required arguments: RawObject = "arguments", "UPP-1";
    }
}

ubos_common::wire! {
    /// The result of a call, as it is sent to the model.
    pub struct ToolResult {
        /// The id of the call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// The result of the tool, or the text of an error.
        required result: RawBuf = "result", "UPP-1";
        /// Whether the result is an error; absent means no.
        nullable is_error: bool = "isError", "UPP-1";
    }
}

ubos_common::wire! {
    /// The record of one call, whether it ran or was prevented.
    pub struct ToolExecution {
        /// The name of the tool.
        required tool_name: Arc<str> = "toolName", "UPP-1";
        /// The id of the call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// The arguments, as the tool received them.
        required arguments: RawObject = "arguments", "UPP-1";
        /// The result, after all hooks.
        required result: RawBuf = "result", "UPP-1";
        /// Whether the result is an error.
        required is_error: bool = "isError", "UPP-1";
        /// The duration in milliseconds, hooks before the call included.
        required duration: u64 = "duration", "UPP-1";
        /// Whether the call was approved; absent where approval was not requested.
        nullable approved: bool = "approved", "UPP-1";
    }
}

impl ToolResult {
    /// The result as text: a string as it is, anything else as JSON.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self.result.kind() {
            Kind::String => self
                .result
                .deserialize()
                .map_or(Cow::Borrowed(""), Cow::Owned),
            _ => Cow::Borrowed(self.result.as_str()),
        }
    }
}

impl ToolCall {
    /// The member with the text of arguments that are not an object.
    const MALFORMED: &'static str = "malformedArguments";

    /// A call whose arguments are not a JSON object.
    pub(crate) fn malformed(id: Arc<str>, name: Arc<str>, text: &str) -> Self {
        let mut call = Self::new(id, name, RawObject::empty());
        call.extra.insert(Self::MALFORMED, json_text(text));
        call
    }

    /// The arguments as the model wrote them, where they are not a JSON object. [`ToolCall::arguments`] is empty then, and
    /// [`run_call`] answers with an error result instead of running the tool.
    #[must_use]
    pub fn malformed_arguments(&self) -> Option<String> {
        self.extra.value(Self::MALFORMED)?.deserialize().ok()
    }
}

/// The result that is sent to the model.
impl From<&ToolExecution> for ToolResult {
    fn from(execution: &ToolExecution) -> Self {
        let call = Arc::clone(&execution.tool_call_id);
        let mut result = Self::new(call, execution.result.clone());
        result.is_error = Some(execution.is_error);
        result
    }
}

/// A tool that a model may call.
///
/// Arguments are not validated against [`Tool::parameters`]: a tool must treat them as untrusted.
///
/// Spec: UPP-1.3 tools
pub trait Tool: Send + Sync {
    /// The name, unique among the tools of one instance.
    fn name(&self) -> &str;

    /// The description for the model.
    fn description(&self) -> &str;

    /// The JSON Schema of the arguments. Its root is an object.
    fn parameters(&self) -> &RawObject;

    /// Metadata for vendors and protocols.
    fn metadata(&self) -> Option<&Metadata> {
        None
    }

    /// Whether the call may run. Called after the hooks, with the arguments that they returned.
    fn approval<'a>(&'a self, _arguments: &'a RawObject) -> BoxFuture<'a, Result<bool, ToolError>> {
        Box::pin(ready(Ok(true)))
    }

    /// Runs one call. Dropping the future cancels the call; [`ToolContext::cancel`] is cancelled at the same time.
    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>>;
}

/// The context of a tool call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The id of the call.
    pub tool_call_id: Arc<str>,
    /// Cancelled when the call has to end.
    pub cancel: CancelToken,
    /// Values of the protocol above, such as an agent's run.
    pub extensions: Extensions,
    /// The place in a distributed trace that the tool is called from: what it asks of others goes out from there. Tools of MCP
    /// servers put it into `_meta`. `None` where the caller has given none.
    pub trace: Option<TraceContext>,
}

impl ToolContext {
    /// The context of one call, without extensions and without a place in a trace.
    #[must_use]
    pub fn new(tool_call_id: impl Into<Arc<str>>, cancel: CancelToken) -> Self {
        Self {
            tool_call_id: tool_call_id.into(),
            cancel,
            extensions: Extensions::default(),
            trace: None,
        }
    }
}

/// A map from types to values of the type.
#[derive(Clone, Default)]
pub struct Extensions(BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Extensions {
    /// Sets the value of a type.
    pub fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of a type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({})", self.0.len())
    }
}

/// The error of a tool. The text is sent to the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
// exhaustive: a text and no more
pub struct ToolError(pub Box<str>);

impl From<&str> for ToolError {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for ToolError {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Errors that a tool meets, so that it returns them with `?`. Their text is sent to the model.
macro_rules! from_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for ToolError {
            fn from(error: $error) -> Self {
                error.to_string().into()
            }
        })*
    };
}

from_errors!(
    serde_json::Error,
    std::io::Error,
    ubos_common::json::JsonError,
    Box<dyn core::error::Error + Send + Sync>
);

/// A tool that calls a function.
///
/// ```
/// use std::collections::BTreeMap;
/// use ubos_common::json::RawBuf;
/// use upp::{FnTool, ToolError, object};
///
/// let schema = object(r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#)?;
/// let double = FnTool::new("double", "Doubles a number", schema, |arguments, _context| async move {
///     let numbers: BTreeMap<String, i64> = arguments.deserialize()?;
///     Ok(RawBuf::from_serialize(&numbers.get("n").map(|n| 2 * n))?)
/// });
/// # let _ = double;
/// # Ok::<(), ToolError>(())
/// ```
pub struct FnTool {
    name: Box<str>,
    description: Box<str>,
    parameters: RawObject,
    metadata: Option<Metadata>,
    run: Box<Run>,
}

type Run =
    dyn Fn(RawObject, ToolContext) -> BoxFuture<'static, Result<RawBuf, ToolError>> + Send + Sync;

impl FnTool {
    /// A tool that calls `run`.
    pub fn new<F, R>(
        name: impl Into<Box<str>>,
        description: impl Into<Box<str>>,
        parameters: RawObject,
        run: F,
    ) -> Self
    where
        F: Fn(RawObject, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<RawBuf, ToolError>> + Send + 'static,
    {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            metadata: None,
            run: Box::new(move |arguments, context| Box::pin(run(arguments, context))),
        }
    }

    /// Sets what vendors and protocols read beside it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }
}

impl Tool for FnTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &RawObject {
        &self.parameters
    }

    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>> {
        (self.run)(arguments.clone(), context.clone())
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FnTool({})", self.name)
    }
}

/// Parses a JSON object, such as the parameters of a tool or the arguments of a call.
///
/// # Errors
///
/// The text is not valid JSON, or not an object.
pub fn object(text: &str) -> Result<RawObject, ToolError> {
    let value = RawBuf::parse(text).map_err(|error| error.to_string())?;
    RawObject::new(value).ok_or_else(|| "the JSON is not an object".into())
}

/// A text as a JSON string.
#[must_use]
pub fn json_text(text: &str) -> RawBuf {
    // A string serializes always.
    RawBuf::from_serialize(text).unwrap_or_else(|_| RawObject::empty().into())
}

/// The decision of a hook about a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Permit {
    /// Run it.
    Proceed,
    /// Run it with these arguments.
    ProceedWith(RawObject),
    /// Do not run it.
    Skip,
}

/// The future of a hook.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, ToolError>>;

/// Hooks around tool calls.
///
/// Spec: UPP-1.3 tools
pub trait ToolUseStrategy: Send + Sync {
    /// The maximum number of tool rounds; `None` for the default of the caller.
    fn max_iterations(&self) -> Option<u64> {
        None
    }

    /// The model calls a tool.
    fn on_tool_call<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
    ) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Whether the call may run, and with which arguments.
    fn on_before_call<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
    ) -> HookFuture<'a, Permit> {
        Box::pin(ready(Ok(Permit::Proceed)))
    }

    /// The call succeeded. A returned value replaces its result.
    fn on_after_call<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
        _result: &'a RawBuf,
    ) -> HookFuture<'a, Option<RawBuf>> {
        Box::pin(ready(Ok(None)))
    }

    /// The call, or a hook before or after it, failed. An error of this hook is ignored.
    fn on_error<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
        _error: &'a ToolError,
    ) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// The limit of rounds is reached. The run fails after this hook.
    fn on_max_iterations(&self, _rounds: u64) -> HookFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}
