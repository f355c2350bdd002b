//! The shapes of chat completions, as OpenAI and compatible vendors write them.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::transport::vendor_json::{Count, Json, Piece, Spare};

/// A completion, or a chunk of one.
#[derive(Deserialize)]
pub(super) struct Completion {
    pub(super) choices: Option<Vec<Choice>>,
    /// The vendor's id of the response.
    pub(super) id: Option<Json>,
    /// The model that answered.
    pub(super) model: Option<Json>,
    /// The build of that model.
    pub(super) system_fingerprint: Option<Json>,
    /// Present in the last chunk.
    #[serde(default)]
    pub(super) usage: Spare<CompletionUsage>,
    /// An error instead of a response.
    pub(super) error: Option<Json>,
}

/// One choice.
#[derive(Deserialize)]
pub(super) struct Choice {
    /// Its place among the alternatives.
    #[serde(default)]
    pub(super) index: Spare<Count>,
    /// Present in a whole completion.
    pub(super) message: Option<ChatDelta>,
    /// Present in a chunk.
    pub(super) delta: Option<ChatDelta>,
    /// Why the model stopped.
    pub(super) finish_reason: Option<Box<str>>,
    /// The probabilities of the tokens.
    #[serde(default)]
    pub(super) logprobs: Spare<Logprobs>,
    /// An error of this choice.
    pub(super) error: Option<Json>,
}

/// The message, or a delta of it.
#[derive(Deserialize)]
pub(super) struct ChatDelta {
    pub(super) content: Option<Content>,
    /// The model's reasoning, as DeepSeek and vLLM name it.
    pub(super) reasoning_content: Option<Piece>,
    /// The model's reasoning, as OpenRouter, Ollama and newer servers name it.
    pub(super) reasoning: Option<Piece>,
    /// The model's refusal.
    pub(super) refusal: Option<Piece>,
    /// Parts of the reasoning, some of them signed, as OpenRouter sends them.
    #[serde(default)]
    pub(super) reasoning_details: Spare<Vec<Json>>,
    /// Citations.
    #[serde(default)]
    pub(super) annotations: Spare<Vec<Json>>,
    #[serde(default)]
    pub(super) audio: Spare<Audio>,
    /// Tool calls, or deltas of them.
    pub(super) tool_calls: Option<Vec<ToolCallDelta>>,
}

/// A tool call, or a delta of one.
#[derive(Deserialize)]
pub(super) struct ToolCallDelta {
    /// The call that a delta belongs to.
    #[serde(default)]
    pub(super) index: Spare<Count>,
    /// The id of the call.
    pub(super) id: Option<Arc<str>>,
    /// The function to call.
    pub(super) function: Option<FunctionDelta>,
    /// What compatible vendors send beside it, such as the signatures of Google.
    pub(super) extra_content: Option<Json>,
}

/// A spoken answer, or a delta of one.
#[derive(Clone, Deserialize)]
pub(super) struct Audio {
    pub(super) id: Option<Json>,
    pub(super) expires_at: Option<Json>,
    /// Base64.
    pub(super) data: Option<String>,
    pub(super) transcript: Option<Piece>,
}

/// The probabilities of tokens.
#[derive(Default, Deserialize)]
pub(super) struct Logprobs {
    pub(super) content: Option<Vec<Json>>,
    pub(super) refusal: Option<Vec<Json>>,
}

/// The called function.
#[derive(Deserialize)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<Arc<str>>,
    /// JSON as a string, or the object itself.
    #[serde(default)]
    pub(super) arguments: Arguments,
}

/// Token counts.
#[derive(Deserialize)]
pub(super) struct CompletionUsage {
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub(super) prompt_tokens: Spare<Count>,
    /// Output tokens, those of reasoning included.
    #[serde(default)]
    pub(super) completion_tokens: Spare<Count>,
    /// Details of the input tokens.
    #[serde(default, rename = "prompt_tokens_details")]
    pub(super) details: Spare<PromptTokensDetails>,
    /// Details of the output tokens.
    #[serde(default, rename = "completion_tokens_details")]
    pub(super) output_details: Spare<CompletionTokensDetails>,
    /// Input tokens read from the cache, as DeepSeek says it.
    #[serde(default)]
    pub(super) prompt_cache_hit_tokens: Spare<Count>,
}

/// Details of the input tokens.
#[derive(Deserialize)]
pub(super) struct PromptTokensDetails {
    /// Input tokens read from the cache.
    #[serde(default)]
    pub(super) cached_tokens: Spare<Count>,
    /// Input tokens written to the cache.
    #[serde(default)]
    pub(super) cache_write_tokens: Spare<Count>,
}

/// Details of the output tokens.
#[derive(Deserialize)]
pub(super) struct CompletionTokensDetails {
    #[serde(default)]
    pub(super) reasoning_tokens: Spare<Count>,
}

/// Content: a text, or a list of parts.
#[derive(Default)]
pub(super) struct Content {
    pub(super) text: Piece,
    /// Parts that are reasoning.
    pub(super) reasoning: Piece,
}

/// One part of content that is a list.
#[derive(Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    text: Option<Piece>,
    refusal: Option<Piece>,
    thinking: Option<Content>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let mut content = Self::default();
        if json.text().starts_with('"') {
            content.text = json
                .read()
                .ok_or_else(|| D::Error::custom("expected a string"))?;
            return Ok(content);
        }
        // Errors of a nested parser would bring their own place.
        let parts: Option<Vec<ContentPart>> = json.read();
        let parts = parts.ok_or_else(|| D::Error::custom("expected a string or parts"))?;
        for part in parts {
            match part.kind.as_deref() {
                Some("thinking") => {
                    let thinking = part.thinking.unwrap_or_default().text;
                    content.reasoning.0.extend(thinking.0);
                }
                _ => {
                    let text = part.text.or(part.refusal);
                    content.text.0.extend(text.unwrap_or_default().0);
                }
            }
        }
        Ok(content)
    }
}

/// Arguments of a call: a text, or the object itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments(pub(super) Piece);

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        match json.text() {
            "null" => Ok(Self::default()),
            text if text.starts_with('"') => {
                let piece = json.read().map(Self);
                piece.ok_or_else(|| D::Error::custom("expected a string"))
            }
            text => Ok(Self(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_text_or_the_object() {
        let arguments = |text| serde_json::from_str::<Arguments>(text).unwrap().0.0;
        assert_eq!(arguments(r#"{"a": 1}"#), br#"{"a": 1}"#);
        assert_eq!(arguments(r#""{\"a\":1}""#), br#"{"a":1}"#);
        assert_eq!(arguments("null"), b"");
    }
}
