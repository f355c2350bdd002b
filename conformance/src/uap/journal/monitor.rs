//! A model, tools and a journal that count their calls and interrupt the run at a given place.

use core::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::json::{RawBuf, RawObject};
use upp::{
    CancelToken, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, Metadata, ModelReference,
    ModelStream, Tool, ToolContext, ToolError, UppError,
};

use super::interruption::Interruption;
use uap_agent::journal::{Journal, JournalFuture, MemoryJournal};

/// A journal whose process ends at a write.
pub(super) struct InterruptedJournal {
    pub(super) kept: Arc<MemoryJournal>,
    pub(super) interruption: Interruption,
    pub(super) writes: Mutex<usize>,
    pub(super) ended: CancelToken,
}

impl Journal for InterruptedJournal {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = *writes;
        *writes += 1;
        let written = match self.interruption {
            Interruption::BeforeWrite(at) if at == nth => None,
            _ => Some(self.kept.append(first, entries)),
        };
        let ends = matches!(self.interruption, Interruption::BeforeWrite(at) | Interruption::AfterWrite(at) if at == nth);
        Box::pin(async move {
            let written = match written {
                Some(written) => written.await,
                None => Ok(()),
            };
            if ends {
                self.ended.cancel();
                pending::<()>().await;
            }
            written
        })
    }

    /// None: whoever interrupts a run knows that its owner is gone.
    fn default_term(&self) -> Option<core::time::Duration> {
        None
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.kept.read()
    }
}

/// What an agent did.
#[derive(Default)]
pub(super) struct Calls(Mutex<(usize, Vec<String>)>);

impl Calls {
    pub(super) fn requests(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn tools(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1.clone()
    }
}

pub(super) struct MonitoredTool {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) calls: Arc<Calls>,
}

impl Tool for MonitoredTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn parameters(&self) -> &RawObject {
        self.tool.parameters()
    }

    fn metadata(&self) -> Option<&Metadata> {
        self.tool.metadata()
    }

    fn approval<'a>(&'a self, arguments: &'a RawObject) -> BoxFuture<'a, Result<bool, ToolError>> {
        self.tool.approval(arguments)
    }

    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<RawBuf, ToolError>> {
        let mut seen = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1.push(context.tool_call_id.to_string());
        drop(seen);
        self.tool.run(arguments, context)
    }
}

pub(super) struct MonitoredModel {
    pub(super) model: ModelReference,
    pub(super) calls: Arc<Calls>,
}

impl MonitoredModel {
    fn count(&self) {
        let mut seen = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0 += 1;
    }
}

impl LlmModel for MonitoredModel {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn model_id(&self) -> &str {
        self.model.model_id()
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.model.capabilities()
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        self.count();
        self.model.complete(request)
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        self.count();
        self.model.stream(request)
    }
}
