//! One tool of an agent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ubos_common::json::RawObject;

use super::super::context::{ToolContext, ToolError};
use crate::error::{ErrorCode, ErrorObject};
use crate::message::ToolSpec;

pub(super) type ToolFuture = Pin<Box<dyn Future<Output = Result<RawObject, ToolError>> + Send>>;
pub(super) type Handler = Arc<dyn Fn(ToolContext, RawObject) -> ToolFuture + Send + Sync>;

/// A tool: what it is, and what runs when it is called.
#[derive(Clone)]
pub struct Tool {
    pub(super) spec: ToolSpec,
    pub(super) run: Handler,
}

impl Tool {
    /// An asynchronous tool: see [`Agent::tool`](super::Agent::tool).
    #[must_use]
    pub fn new<F, R>(spec: ToolSpec, run: F) -> Self
    where
        F: Fn(ToolContext, RawObject) -> R + Send + Sync + 'static,
        R: Future<Output = Result<RawObject, ToolError>> + Send + 'static,
    {
        let run: Handler = Arc::new(move |context, input| Box::pin(run(context, input)));
        Self { spec, run }
    }
}

// impl: OSW-7-4
pub(super) fn internal() -> ErrorObject {
    ErrorObject::of(ErrorCode::ToolInternal, "the tool panicked").noticed_by("agent.runtime")
}
