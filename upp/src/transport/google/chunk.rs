//! The shapes of `generateContent`.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};

use crate::blob::Blob;
use crate::transport::vendor_json::{Count, Json, Piece, Spare};

/// A response, or a part of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerateContentResponse {
    pub(super) candidates: Option<Vec<Candidate>>,
    /// The vendor's verdict on the prompt.
    pub(super) prompt_feedback: Option<PromptFeedback>,
    /// Token counts so far.
    #[serde(default)]
    pub(super) usage_metadata: Spare<UsageMetadata>,
    /// The model that answered.
    pub(super) model_version: Option<Json>,
    /// The vendor's id of the response.
    pub(super) response_id: Option<Json>,
    /// An error instead of a response.
    pub(super) error: Option<Json>,
}

/// The vendor's verdict on the prompt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    /// Why the prompt was refused.
    pub(super) block_reason: Option<Box<str>>,
}

/// One candidate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    /// Its place among the alternatives.
    #[serde(default)]
    pub(super) index: Spare<Count>,
    pub(super) content: Option<CandidateContent>,
    /// Why the model stopped.
    pub(super) finish_reason: Option<Box<str>>,
    pub(super) safety_ratings: Option<Json>,
    pub(super) citation_metadata: Option<Json>,
    pub(super) grounding_metadata: Option<Json>,
}

/// The content of a candidate.
#[derive(Deserialize)]
pub(super) struct CandidateContent {
    /// The parts, in order.
    pub(super) parts: Option<Vec<Json>>,
}

/// A part: a text, a function call, inline data, or something that UPP has no type for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentPart {
    /// Text, or reasoning.
    pub(super) text: Option<Piece>,
    /// Whether the text is reasoning.
    pub(super) thought: Option<bool>,
    pub(super) function_call: Option<FunctionCall>,
    pub(super) inline_data: Option<InlineData>,
}

/// A function call.
#[derive(Deserialize)]
pub(super) struct FunctionCall {
    /// The vendor's id of the call, where it has one.
    pub(super) id: Option<Arc<str>>,
    pub(super) name: Arc<str>,
    /// The arguments.
    pub(super) args: Option<Json>,
}

/// Inline data.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    #[serde(default)]
    pub(super) mime_type: Box<str>,
    /// The data, as base64.
    pub(super) data: InlineBytes,
}

/// The bytes of inline data.
pub(super) struct InlineBytes(pub(super) Blob);

impl<'de> Deserialize<'de> for InlineBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let blob = Blob::from_base64(&text);
        blob.map(Self)
            .ok_or_else(|| de::Error::custom("expected base64"))
    }
}

/// Token counts; later counts replace earlier ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub(super) prompt_token_count: Spare<Count>,
    /// Input tokens of the vendor's own tools.
    #[serde(default)]
    pub(super) tool_use_prompt_token_count: Spare<Count>,
    /// Output tokens.
    #[serde(default)]
    pub(super) candidates_token_count: Spare<Count>,
    /// Reasoning tokens.
    #[serde(default)]
    pub(super) thoughts_token_count: Spare<Count>,
    /// Input tokens read from the cache.
    #[serde(default)]
    pub(super) cached_content_token_count: Spare<Count>,
}
