//! The shapes of the messages API.

use std::sync::Arc;

use serde::Deserialize;

use crate::transport::vendor_json::{Count, Json, Piece, Spare};

/// What every event has.
#[derive(Deserialize)]
pub(super) struct EventKind {
    #[serde(rename = "type", default)]
    pub(super) kind: Spare<Box<str>>,
    /// An error instead of a response.
    pub(super) error: Option<Json>,
}

/// `message_start`.
#[derive(Deserialize)]
pub(super) struct MessageStart {
    pub(super) message: MessageBody,
}

/// `content_block_start`.
#[derive(Deserialize)]
pub(super) struct BlockStart {
    pub(super) index: u32,
    pub(super) content_block: Json,
}

/// `content_block_delta`.
#[derive(Deserialize)]
pub(super) struct BlockDelta {
    pub(super) index: u32,
    pub(super) delta: DeltaBody,
}

/// `content_block_stop`.
#[derive(Deserialize)]
pub(super) struct BlockStop {
    pub(super) index: u32,
}

/// `message_delta`.
#[derive(Deserialize)]
pub(super) struct MessageDelta {
    pub(super) delta: StopBody,
    #[serde(default)]
    pub(super) usage: Spare<MessageUsage>,
}

/// Why the model stopped.
#[derive(Deserialize)]
pub(super) struct StopBody {
    pub(super) stop_reason: Option<Box<str>>,
    /// The stop sequence that was reached, where the request has any.
    pub(super) stop_sequence: Option<Json>,
}

/// A message.
#[derive(Deserialize)]
pub(super) struct MessageBody {
    /// The vendor's id of the message.
    pub(super) id: Option<Json>,
    /// The model that answered.
    pub(super) model: Option<Json>,
    /// The content blocks.
    pub(super) content: Option<Vec<Json>>,
    pub(super) stop_reason: Option<Box<str>>,
    /// The stop sequence that was reached, where the request has any.
    pub(super) stop_sequence: Option<Json>,
    /// Token counts.
    #[serde(default)]
    pub(super) usage: Spare<MessageUsage>,
}

/// A content block; its type determines which members it has.
#[derive(Deserialize)]
pub(super) struct BlockBody {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    /// Text.
    pub(super) text: Option<Piece>,
    /// Reasoning; empty where the vendor shows none.
    pub(super) thinking: Option<Piece>,
    /// The id of a tool call.
    pub(super) id: Option<Arc<str>>,
    /// The tool's name.
    pub(super) name: Option<Arc<str>>,
    /// The arguments.
    pub(super) input: Option<Json>,
}

/// A delta of a block; its type determines which members it has.
#[derive(Deserialize)]
pub(super) struct DeltaBody {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    /// Text.
    pub(super) text: Option<Piece>,
    /// Reasoning.
    pub(super) thinking: Option<Piece>,
    /// The vendor's signature over the reasoning.
    pub(super) signature: Option<Box<str>>,
    /// A part of the arguments' JSON.
    pub(super) partial_json: Option<Piece>,
    /// A citation of the text.
    pub(super) citation: Option<Json>,
}

/// Token counts; later counts replace earlier ones.
#[derive(Deserialize)]
pub(super) struct MessageUsage {
    /// Input tokens, cached ones excluded.
    #[serde(default)]
    pub(super) input_tokens: Spare<Count>,
    /// Output tokens.
    #[serde(default)]
    pub(super) output_tokens: Spare<Count>,
    /// Input tokens read from the cache.
    #[serde(default, rename = "cache_read_input_tokens")]
    pub(super) cache_read: Spare<Count>,
    /// Input tokens written to the cache.
    #[serde(default, rename = "cache_creation_input_tokens")]
    pub(super) cache_write: Spare<Count>,
    #[serde(default)]
    pub(super) output_tokens_details: Spare<OutputDetails>,
}

/// Details of the output tokens.
#[derive(Deserialize)]
pub(super) struct OutputDetails {
    /// Output tokens of reasoning.
    #[serde(default)]
    pub(super) thinking_tokens: Spare<Count>,
}
