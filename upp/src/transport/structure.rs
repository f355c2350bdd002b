//! How structured output is asked for: in the vendor's native form where it takes the schema, else as a tool.

use crate::model::LlmRequest;

/// The tool whose input is the structured output, where there is no native form.
#[cfg(any(feature = "anthropic", feature = "google"))]
pub(super) const ANSWER_TOOL: &str = "json_response";

/// The form in which structured output is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// None is asked for.
    Text,
    /// The text of the response is the output.
    Native,
    /// The input of a call that nobody sees is the output.
    #[cfg(any(feature = "anthropic", feature = "google"))]
    Tool,
}

impl Form {
    /// The native form, where a request asks for structured output at all.
    pub(super) const fn native(request: &LlmRequest) -> Self {
        match request.structure {
            Some(_) => Self::Native,
            None => Self::Text,
        }
    }
}
