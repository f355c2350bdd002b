//! The messages API of Anthropic.
//!
//! The vendor needs `max_tokens` with every request: set it in the parameters of the configuration or of the request. A
//! request without it is refused before it is sent.
//! Structured output is native where model and schema allow it. Elsewhere it is a tool that the model must call in the end; its
//! input is the answer, and no call of it is seen.

mod event;
mod raw;
mod request;
mod response;

use std::sync::Arc;

use super::builder::ResponseReader;
use super::http::Vendor;
use crate::model::{LlmCapabilities, LlmRequest};
use response::MessageReader;

super::vendor_model! {
    /// A model behind Anthropic's messages API; `https://api.anthropic.com/v1` unless the configuration says
    /// otherwise. It runs on tokio.
    ///
    /// ```
    /// use upp::LlmModel;
    /// use upp::transport::ProviderConfig;
    /// use upp::transport::AnthropicModel;
    ///
    /// let config = ProviderConfig::default()
    ///     .with_key("from a vault".to_owned())
    ///     .with_params(upp::object(r#"{"max_tokens":1024}"#)?);
    /// let model = AnthropicModel::new("claude-sonnet-4-5", config)?;
    /// assert_eq!(model.provider(), "anthropic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AnthropicModel, Anthropic
}

struct Anthropic;

// impl: UPP-10
impl Vendor for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn base_url(&self) -> &'static str {
        "https://api.anthropic.com/v1"
    }

    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities {
            image_input: true,
            document_input: true,
            ..LlmCapabilities::text()
        }
    }

    fn path(&self, _: &str, _: bool) -> (Vec<String>, Option<&'static str>) {
        (vec!["messages".into()], None)
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn body(
        &self,
        model: &str,
        provider: &str,
        request: &LlmRequest,
        streams: bool,
    ) -> Result<Vec<u8>, &'static str> {
        request::body(model, provider, request, streams)
    }

    fn response_reader(
        &self,
        model: &str,
        request: &LlmRequest,
        provider: Arc<str>,
    ) -> Box<dyn ResponseReader> {
        Box::new(MessageReader::new(
            request::form(model, request),
            request,
            provider,
        ))
    }
}
