//! OpenAI's responses endpoint: what a model says comes as items, and goes back as the same items.
//!
//! The vendor stores responses, and finds the reasoning among them by its id, unless the parameters say otherwise. To have it
//! store nothing, set `{"store":false,"include":["reasoning.encrypted_content"]}`: reasoning then goes back encrypted.

mod event;
mod request;
mod response;

use std::sync::Arc;

use crate::model::{LlmCapabilities, LlmRequest};
use crate::transport::builder::ResponseReader;
use crate::transport::http::Vendor;
use response::ItemReader;

crate::transport::vendor_model! {
    /// A model behind OpenAI's responses endpoint; `https://api.openai.com/v1` unless the configuration says otherwise. It
    /// runs on tokio.
    ///
    /// ```
    /// use upp::LlmModel;
    /// use upp::transport::{OpenAiResponsesModel, ProviderConfig};
    ///
    /// let config = ProviderConfig::default().with_key("from a vault".to_owned());
    /// let model = OpenAiResponsesModel::new("gpt-5", config)?;
    /// assert_eq!(model.provider(), "openai");
    /// # Ok::<(), upp::UppError>(())
    /// ```
    OpenAiResponsesModel, Responses
}

struct Responses;

impl Vendor for Responses {
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
            ..LlmCapabilities::text()
        }
    }

    fn path(&self, _: &str, _: bool) -> (Vec<String>, Option<&'static str>) {
        (vec!["responses".into()], None)
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
        Box::new(ItemReader::new(request, provider))
    }
}
