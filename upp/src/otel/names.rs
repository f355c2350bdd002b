//! The names of OpenTelemetry's conventions for generative AI, as they stood in autumn 2026 (status Development).
//!
//! `otel.*` are the fields from which `tracing-opentelemetry` takes the name, the kind and the status of a span.

pub const SPAN_NAME: &str = "otel.name";
pub const SPAN_KIND: &str = "otel.kind";
pub const STATUS: &str = "otel.status_code";
pub const ERROR_TYPE: &str = "error.type";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";

pub const OPERATION: &str = "gen_ai.operation.name";
pub const PROVIDER: &str = "gen_ai.provider.name";
pub const AGENT_NAME: &str = "gen_ai.agent.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const OUTPUT_TYPE: &str = "gen_ai.output.type";

pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const REQUEST_STREAM: &str = "gen_ai.request.stream";
pub const REQUEST_CHOICES: &str = "gen_ai.request.choice.count";
pub const REQUEST_SEED: &str = "gen_ai.request.seed";
pub const REQUEST_TOP_K: &str = "gen_ai.request.top_k";
pub const REQUEST_TOP_P: &str = "gen_ai.request.top_p";
pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub const REQUEST_FREQUENCY: &str = "gen_ai.request.frequency_penalty";
pub const REQUEST_PRESENCE: &str = "gen_ai.request.presence_penalty";
pub const REQUEST_STOPS: &str = "gen_ai.request.stop_sequences";

pub const RESPONSE_ID: &str = "gen_ai.response.id";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const RESPONSE_FINISH: &str = "gen_ai.response.finish_reasons";
pub const RESPONSE_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";

pub const USAGE_INPUT: &str = "gen_ai.usage.input_tokens";
pub const USAGE_OUTPUT: &str = "gen_ai.usage.output_tokens";
pub const USAGE_REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
pub const USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
pub const USAGE_CACHE_WRITE: &str = "gen_ai.usage.cache_write.input_tokens";

pub const TOOL_NAME: &str = "gen_ai.tool.name";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const TOOL_DESCRIPTION: &str = "gen_ai.tool.description";
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";

// Content, which is in no span by default.
pub const SYSTEM: &str = "gen_ai.system_instructions";
pub const INPUT: &str = "gen_ai.input.messages";
pub const OUTPUT: &str = "gen_ai.output.messages";
pub const TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";

/// The name of a provider in the conventions, where it has another here.
pub fn provider(name: &str) -> &str {
    match name {
        "google" => "gcp.gemini",
        "xai" => "x_ai",
        "moonshot" => "moonshot_ai",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_have_the_names_of_the_conventions() {
        let names = ["google", "xai", "moonshot", "openai", "my-own"].map(provider);
        let wanted = ["gcp.gemini", "x_ai", "moonshot_ai", "openai", "my-own"];
        assert_eq!(names, wanted);
    }
}
