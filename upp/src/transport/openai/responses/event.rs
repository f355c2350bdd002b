//! The shapes of the responses endpoint.

use std::sync::Arc;

use serde::Deserialize;

use crate::transport::openai::chunk::Arguments;
use crate::transport::vendor_json::{Count, Json, Piece, Spare};

/// What every event has.
#[derive(Deserialize)]
pub(super) struct EventKind {
    #[serde(rename = "type", default)]
    pub(super) kind: Spare<Box<str>>,
    /// An error instead of a response.
    pub(super) error: Option<Json>,
}

/// `response.output_item.added` and `.done`.
#[derive(Deserialize)]
pub(super) struct ItemEvent {
    pub(super) output_index: u32,
    pub(super) item: Json,
}

/// A delta of a text or of arguments.
#[derive(Deserialize)]
pub(super) struct DeltaEvent {
    pub(super) output_index: u32,
    /// The part of the item; arguments have none.
    #[serde(default, alias = "summary_index")]
    pub(super) content_index: u32,
    pub(super) delta: Piece,
}

/// `response.created`, and the events that end a response.
#[derive(Deserialize)]
pub(super) struct ResponseEvent {
    pub(super) response: Json,
}

/// A response.
#[derive(Deserialize)]
pub(super) struct ResponseBody {
    pub(super) id: Option<Json>,
    /// The model that answered.
    pub(super) model: Option<Json>,
    pub(super) status: Option<Box<str>>,
    pub(super) output: Option<Vec<Json>>,
    pub(super) error: Option<Json>,
    /// Why the response is incomplete.
    #[serde(default)]
    pub(super) incomplete_details: Spare<Incomplete>,
    #[serde(default)]
    pub(super) usage: Spare<ResponseUsage>,
}

/// Why a response is incomplete.
#[derive(Deserialize)]
pub(super) struct Incomplete {
    pub(super) reason: Option<Box<str>>,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct ResponseUsage {
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub(super) input_tokens: Spare<Count>,
    #[serde(default)]
    pub(super) input_tokens_details: Spare<InputDetails>,
    /// Output tokens, those of reasoning included.
    #[serde(default)]
    pub(super) output_tokens: Spare<Count>,
    #[serde(default)]
    pub(super) output_tokens_details: Spare<OutputDetails>,
}

/// Details of the input tokens.
#[derive(Deserialize)]
pub(super) struct InputDetails {
    /// Read from the cache.
    #[serde(default)]
    pub(super) cached_tokens: Spare<Count>,
    /// Written to the cache.
    #[serde(default)]
    pub(super) cache_write_tokens: Spare<Count>,
}

/// Details of the output tokens.
#[derive(Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default)]
    pub(super) reasoning_tokens: Spare<Count>,
}

/// An item of the output; its type determines which members it has.
#[derive(Deserialize)]
pub(super) struct ItemBody {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    /// The id of a call.
    pub(super) call_id: Option<Arc<str>>,
    /// The called function.
    pub(super) name: Option<Arc<str>>,
    #[serde(default)]
    pub(super) arguments: Arguments,
    /// What may be shown of reasoning.
    pub(super) summary: Option<Vec<ItemPart>>,
    /// The parts of a message, or reasoning itself.
    pub(super) content: Option<Vec<ItemPart>>,
}

/// A part of an item.
#[derive(Deserialize)]
pub(super) struct ItemPart {
    pub(super) text: Option<Piece>,
    pub(super) refusal: Option<Piece>,
}
