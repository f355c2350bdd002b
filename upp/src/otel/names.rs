//! The names of OpenTelemetry's conventions for generative AI, as they stood in autumn 2026 (status Development).
//!
//! `otel.*` are the fields from which `tracing-opentelemetry` takes the name, the kind and the status of a span.

pub(super) const SPAN_NAME: &str = "otel.name";
pub(super) const SPAN_KIND: &str = "otel.kind";
pub(super) const STATUS: &str = "otel.status_code";
pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const SERVER_ADDRESS: &str = "server.address";
pub(super) const SERVER_PORT: &str = "server.port";

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const OUTPUT_TYPE: &str = "gen_ai.output.type";

pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const REQUEST_STREAM: &str = "gen_ai.request.stream";
pub(super) const REQUEST_CHOICES: &str = "gen_ai.request.choice.count";
pub(super) const REQUEST_SEED: &str = "gen_ai.request.seed";
pub(super) const REQUEST_TOP_K: &str = "gen_ai.request.top_k";
pub(super) const REQUEST_TOP_P: &str = "gen_ai.request.top_p";
pub(super) const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub(super) const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub(super) const REQUEST_FREQUENCY: &str = "gen_ai.request.frequency_penalty";
pub(super) const REQUEST_PRESENCE: &str = "gen_ai.request.presence_penalty";
pub(super) const REQUEST_STOPS: &str = "gen_ai.request.stop_sequences";

pub(super) const RESPONSE_ID: &str = "gen_ai.response.id";
pub(super) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(super) const RESPONSE_FINISH: &str = "gen_ai.response.finish_reasons";
pub(super) const RESPONSE_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";

pub(super) const USAGE_INPUT: &str = "gen_ai.usage.input_tokens";
pub(super) const USAGE_OUTPUT: &str = "gen_ai.usage.output_tokens";
pub(super) const USAGE_REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
pub(super) const USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const USAGE_CACHE_WRITE: &str = "gen_ai.usage.cache_write.input_tokens";

pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const TOOL_DESCRIPTION: &str = "gen_ai.tool.description";
pub(super) const TOOL_CALL: &str = "gen_ai.tool.call.id";

// Content, which is in no span by default.
pub(super) const SYSTEM: &str = "gen_ai.system_instructions";
pub(super) const INPUT: &str = "gen_ai.input.messages";
pub(super) const OUTPUT: &str = "gen_ai.output.messages";
pub(super) const TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const TOOL_RESULT: &str = "gen_ai.tool.call.result";

/// The name of a provider in the conventions, where it has another here.
pub(super) fn provider(name: &str) -> &str {
    match name {
        "google" => "gcp.gemini",
        "xai" => "x_ai",
        "moonshot" => "moonshot_ai",
        other => other,
    }
}
