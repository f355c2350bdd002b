//! Tools: what a model may call, and what calls come to.

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

#[cfg(feature = "driver")]
pub(crate) use run::guard;
pub use run::{ToolSet, run_call};

use crate::cancel::CancelToken;
use crate::message::Metadata;

ubos_common::wire! {
    /// A model's wish that a tool be called.
    pub struct ToolCall {
        /// The model's name for this call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// Which tool.
        required tool_name: Arc<str> = "toolName", "UPP-1";
        /// What it is given; nobody has checked it.
        required arguments: RawObject = "arguments", "UPP-1";
    }
}

ubos_common::wire! {
    /// What a call came to, as the model is told.
    pub struct ToolResult {
        /// Which call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// What the tool gave, or a text that says what went wrong.
        required result: RawBuf = "result", "UPP-1";
        /// Whether it went wrong; absent is no.
        nullable is_error: bool = "isError", "UPP-1";
    }
}

ubos_common::wire! {
    /// One call that was run, or kept from running.
    pub struct ToolExecution {
        /// Which tool.
        required tool_name: Arc<str> = "toolName", "UPP-1";
        /// Which call.
        required tool_call_id: Arc<str> = "toolCallId", "UPP-1";
        /// What the tool was given in the end.
        required arguments: RawObject = "arguments", "UPP-1";
        /// What it gave in the end.
        required result: RawBuf = "result", "UPP-1";
        /// Whether it went wrong.
        required is_error: bool = "isError", "UPP-1";
        /// How long it took, in milliseconds, hooks before it included.
        required duration: u64 = "duration", "UPP-1";
        /// Whether the call was let through; absent where it never came to that.
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

impl ToolExecution {
    /// What the model is told of it.
    #[must_use]
    pub fn to_result(&self) -> ToolResult {
        let mut result = ToolResult::new(Arc::clone(&self.tool_call_id), self.result.clone());
        result.is_error = Some(self.is_error);
        result
    }
}

/// What a model may call.
///
/// Nobody checks arguments against [`Tool::parameters`] before they come: a tool takes them as untrusted.
///
/// Spec: UPP-1.3 tools
pub trait Tool: Send + Sync {
    /// Unique among the tools of one instance.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// The JSON Schema of its arguments: an object at its root.
    fn parameters(&self) -> &RawObject;

    /// What vendors and protocols read beside it.
    fn metadata(&self) -> Option<&Metadata> {
        None
    }

    /// Whether the call may run. Asked after the hooks, with the arguments as they stand then.
    fn approval<'a>(&'a self, _arguments: &'a RawObject) -> BoxFuture<'a, Result<bool, ToolError>> {
        Box::pin(ready(Ok(true)))
    }

    /// Runs one call. Dropping the future ends it; [`ToolContext::cancel`] is told at the same time.
    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>>;
}

/// What a tool knows of the call that it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The model's name for the call.
    pub tool_call_id: Arc<str>,
    /// Told when the call is to end.
    pub cancel: CancelToken,
    /// What the protocol above hands down.
    pub extensions: Extensions,
}

impl ToolContext {
    /// The context of one call, with nothing handed down.
    #[must_use]
    pub fn new(tool_call_id: impl Into<Arc<str>>, cancel: CancelToken) -> Self {
        Self {
            tool_call_id: tool_call_id.into(),
            cancel,
            extensions: Extensions::default(),
        }
    }
}

/// Values by their type: one of each.
#[derive(Clone, Default)]
pub struct Extensions(BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Extensions {
    /// Puts a value in, in place of one of the same type.
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

/// Why a tool gave nothing. The model reads the text.
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

/// A tool made of a function.
///
/// ```
/// use ubos_common::json::RawBuf;
/// use upp::{FnTool, ToolError, object};
///
/// let schema = object(r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#)?;
/// let double = FnTool::new("double", "Doubles a number", schema, |arguments, _context| async move {
///     let n = arguments.as_raw().as_str().len();
///     RawBuf::from_serialize(&(2 * n)).map_err(|e| e.to_string().into())
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
    /// A tool whose calls a function runs.
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

/// A JSON object from its text: the parameters of a tool, the arguments of a call.
///
/// # Errors
///
/// The text is no sound JSON, or no object.
pub fn object(text: &str) -> Result<RawObject, ToolError> {
    let value = RawBuf::parse(text).map_err(|error| error.to_string())?;
    RawObject::new(value).ok_or_else(|| "no object".into())
}

/// The JSON string of a text.
#[must_use]
pub fn json_text(text: &str) -> RawBuf {
    // A string serializes always.
    RawBuf::from_serialize(text).unwrap_or_else(|_| RawObject::empty().into())
}

/// What a hook says of a call that is about to run.
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

/// The answer of a hook, which may take its time and may fail.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, ToolError>>;

/// What the user wants told and asked while tools run.
///
/// Spec: UPP-1.3 tools
pub trait ToolUseStrategy: Send + Sync {
    /// Rounds of tool calls allowed in one run; `None` leaves it to the caller of the model.
    fn max_iterations(&self) -> Option<u64> {
        None
    }

    /// The model wants the tool called.
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

    /// The call went well; what is given back takes the place of its result.
    fn on_after_call<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
        _result: &'a RawBuf,
    ) -> HookFuture<'a, Option<RawBuf>> {
        Box::pin(ready(Ok(None)))
    }

    /// The call, or a hook before or after it, went wrong. A fault here changes nothing.
    fn on_error<'a>(
        &'a self,
        _tool: &'a dyn Tool,
        _arguments: &'a RawObject,
        _error: &'a ToolError,
    ) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// The rounds are used up; the run is about to fail.
    fn on_max_iterations(&self, _rounds: u64) -> HookFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}
