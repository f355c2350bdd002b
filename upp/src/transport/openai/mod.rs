//! Chat completions in OpenAI's shape: OpenAI itself and everybody who speaks like it, by base URL. The responses endpoint
//! beside it.

mod chunk;
mod extras;
mod preset;
mod request;
mod response;
mod responses;

use std::sync::Arc;

pub use preset::{PRESETS, Preset, preset};
pub use responses::OpenAiResponsesModel;

use super::builder::ResponseReader;
use super::http::Vendor;
use crate::model::{LlmCapabilities, LlmRequest};
use response::CompletionReader;

super::vendor_model! {
    /// A model behind an OpenAI-compatible endpoint; `https://api.openai.com/v1` unless the configuration says
    /// otherwise. It runs on tokio.
    ///
    /// ```
    /// use upp::transport::ProviderConfig;
    /// use upp::transport::OpenAiModel;
    ///
    /// let config = ProviderConfig::default().with_base_url("http://127.0.0.1:11434/v1");
    /// let model = OpenAiModel::new("llama3", config)?;
    /// # let _ = model;
    /// let outside = ProviderConfig::default().with_base_url("http://example.org/v1");
    /// assert!(OpenAiModel::new("llama3", outside).is_err());
    /// # Ok::<(), upp::UppError>(())
    /// ```
    OpenAiModel, OpenAi
}

struct OpenAi;

// impl: UPP-10
impl Vendor for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn base_url(&self) -> &'static str {
        "https://api.openai.com/v1"
    }

    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities {
            image_input: true,
            document_input: true,
            audio_input: true,
            ..LlmCapabilities::text()
        }
    }

    fn path(&self, _: &str, _: bool) -> (Vec<String>, Option<&'static str>) {
        (vec!["chat".into(), "completions".into()], None)
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
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
        _: &str,
        request: &LlmRequest,
        provider: Arc<str>,
    ) -> Box<dyn ResponseReader> {
        Box::new(CompletionReader::new(request, provider))
    }
}
