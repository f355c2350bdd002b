//! One tool call, with its hooks.

use core::fmt;
use core::future::{Future, poll_fn};
use core::panic::AssertUnwindSafe;
use core::task::Poll;
use std::panic::catch_unwind;
use std::sync::Arc;

use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Mono;

use super::{
    Permit, Tool, ToolCall, ToolContext, ToolError, ToolExecution, ToolUseStrategy, json_text,
};

/// The tools of an instance, and the hooks around their calls. A clone shares them.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ToolSet {
    /// What the model may call.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// The hooks around tool calls.
    pub strategy: Option<Arc<dyn ToolUseStrategy>>,
    /// Whether spans have the content of calls.
    pub(crate) shows_content: bool,
}

impl ToolSet {
    /// Tools, and the hooks around tool calls.
    #[must_use]
    pub fn new(
        tools: impl Into<Arc<[Arc<dyn Tool>]>>,
        strategy: Option<Arc<dyn ToolUseStrategy>>,
    ) -> Self {
        Self {
            tools: tools.into(),
            strategy,
            shows_content: false,
        }
    }

    /// The tool with a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// The limit of rounds, where the hooks set one.
    #[must_use]
    pub fn max_rounds(&self) -> Option<u64> {
        self.strategy.as_ref()?.max_iterations()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tools.iter().map(|tool| tool.name());
        f.debug_list().entries(names).finish()
    }
}

/// Runs one call with its hooks. Every failure, a panic included, becomes an execution with an error result.
///
/// Spec: UPP-1.3 tools
// impl: UPP-4
pub async fn run_call(
    set: &ToolSet,
    call: &ToolCall,
    context: &ToolContext,
    clock: &(dyn Fn() -> Mono + Send + Sync),
) -> ToolExecution {
    let run = run_untraced(set, call, context, clock);
    #[cfg(feature = "tracing")]
    let run = {
        let tool = set.find(&call.tool_name);
        crate::otel::execute_tool(tool, call, set.shows_content, run)
    };
    run.await
}

async fn run_untraced(
    set: &ToolSet,
    call: &ToolCall,
    context: &ToolContext,
    clock: &(dyn Fn() -> Mono + Send + Sync),
) -> ToolExecution {
    let began = clock();
    let Some(tool) = set.find(&call.tool_name) else {
        let text = format!("tool {} not found", call.tool_name);
        return record(call, call.arguments.clone(), Err(text.into()), 0, None);
    };
    if call.malformed_arguments().is_some() {
        let error = "the arguments are not a JSON object: send the call again with one".into();
        return record(call, call.arguments.clone(), Err(error), 0, None);
    }
    let mut course = Course {
        tool: tool.as_ref(),
        strategy: set.strategy.as_deref(),
        arguments: call.arguments.clone(),
        approved: None,
        ended: None,
    };
    let result = match guard(Box::pin(course.run(context, clock))).await {
        Ok(result) => result,
        Err(panic) => Err(Fault::told(panic)),
    };
    if let (Err(Fault { error, tell: true }), Some(strategy)) = (&result, course.strategy) {
        // A fault of this hook must not take the run with it.
        let told = async {
            strategy
                .on_error(course.tool, &course.arguments, error)
                .await
        };
        let _ = guard(Box::pin(told)).await;
    }
    let ended = course.ended.unwrap_or_else(clock);
    let millis = ended.saturating_since(began).as_millis();
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    let result = result.map_err(|fault| fault.error);
    record(call, course.arguments, result, millis, course.approved)
}

/// A call while it runs.
struct Course<'a> {
    tool: &'a dyn Tool,
    strategy: Option<&'a dyn ToolUseStrategy>,
    arguments: RawObject,
    approved: Option<bool>,
    ended: Option<Mono>,
}

/// The error of a call, and whether the error hook is called.
struct Fault {
    error: ToolError,
    tell: bool,
}

impl Fault {
    const fn told(error: ToolError) -> Self {
        Self { error, tell: true }
    }
}

impl Course<'_> {
    async fn run(
        &mut self,
        context: &ToolContext,
        clock: &(dyn Fn() -> Mono + Send + Sync),
    ) -> Result<RawBuf, Fault> {
        self.before().await?;
        let approved = self
            .tool
            .approval(&self.arguments)
            .await
            .map_err(Fault::told)?;
        self.approved = Some(approved);
        if !approved {
            let error = "the call was denied".into();
            return Err(Fault { error, tell: false });
        }
        let ran = guard(self.tool.run(&self.arguments, context)).await;
        self.ended = Some(clock());
        let result = ran.and_then(|result| result).map_err(Fault::told)?;
        let Some(strategy) = self.strategy else {
            return Ok(result);
        };
        let after = strategy
            .on_after_call(self.tool, &self.arguments, &result)
            .await;
        Ok(after.map_err(Fault::told)?.unwrap_or(result))
    }

    async fn before(&mut self) -> Result<(), Fault> {
        let Some(strategy) = self.strategy else {
            return Ok(());
        };
        let told = strategy.on_tool_call(self.tool, &self.arguments).await;
        told.map_err(Fault::told)?;
        let permit = strategy.on_before_call(self.tool, &self.arguments).await;
        match permit.map_err(Fault::told)? {
            Permit::Proceed => {}
            Permit::ProceedWith(arguments) => self.arguments = arguments,
            Permit::Skip => return Err(Fault::told("the call was skipped".into())),
        }
        Ok(())
    }
}

fn record(
    call: &ToolCall,
    arguments: RawObject,
    result: Result<RawBuf, ToolError>,
    millis: u64,
    approved: Option<bool>,
) -> ToolExecution {
    let is_error = result.is_err();
    let result = result.unwrap_or_else(|error| json_text(&error.0));
    let (name, id) = (Arc::clone(&call.tool_name), Arc::clone(&call.tool_call_id));
    let mut execution = ToolExecution::new(name, id, arguments, result, is_error, millis);
    execution.approved = approved;
    execution
}

/// Runs a future of the user. A panic becomes an error without the panic's text, which may hold secrets.
pub(crate) async fn guard<F: Future + Unpin>(mut future: F) -> Result<F::Output, ToolError> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            core::pin::Pin::new(&mut future).poll(cx)
        }));
        match polled {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(Err("the tool panicked".into())),
        }
    })
    .await
}
