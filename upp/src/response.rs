//! Responses of models.

use std::sync::Arc;

use ubos_common::json::RawBuf;

use crate::message::AssistantMessage;
use crate::turn::{CycleUsage, Stop};

/// One response of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LlmResponse {
    /// The message.
    pub message: Arc<AssistantMessage>,
    /// Token counts.
    pub usage: CycleUsage,
    /// The vendor's stop reason.
    pub stop_reason: Box<str>,
    /// Structured output, where it was requested.
    pub data: Option<RawBuf>,
}

impl LlmResponse {
    /// A response without structured output.
    pub fn new(
        message: impl Into<Arc<AssistantMessage>>,
        usage: CycleUsage,
        stop_reason: impl Into<Box<str>>,
    ) -> Self {
        Self {
            message: message.into(),
            usage,
            stop_reason: stop_reason.into(),
            data: None,
        }
    }

    /// Why the model ended its message.
    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop::of_word(&self.stop_reason)
    }
}
