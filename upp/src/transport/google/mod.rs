//! Google's `generateContent` and `streamGenerateContent`.
//!
//! Schemas go out unaltered, as `parametersJsonSchema` and `responseJsonSchema`. The vendor names no calls: each gets
//! the id of its message and its place.

mod chunk;
mod raw;
mod request;
mod response;

use std::sync::Arc;

use super::builder::ResponseReader;
use super::http::Vendor;
use crate::model::{LlmCapabilities, LlmRequest};
use response::ContentReader;

super::vendor_model! {
    /// A model behind Google's `generateContent`; `https://generativelanguage.googleapis.com/v1beta` unless the
    /// configuration says otherwise. It runs on tokio.
    ///
    /// ```
    /// use upp::LlmModel;
    /// use upp::transport::ProviderConfig;
    /// use upp::transport::GoogleModel;
    ///
    /// let config = ProviderConfig::default().with_key("from a vault".to_owned());
    /// let model = GoogleModel::new("gemini-2.5-flash", config)?;
    /// assert_eq!(model.provider(), "google");
    /// # Ok::<(), upp::UppError>(())
    /// ```
    GoogleModel, Google
}

struct Google;

// impl: UPP-10
impl Vendor for Google {
    fn name(&self) -> &'static str {
        "google"
    }

    fn base_url(&self) -> &'static str {
        "https://generativelanguage.googleapis.com/v1beta"
    }

    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities {
            image_input: true,
            document_input: true,
            video_input: true,
            audio_input: true,
            ..LlmCapabilities::text()
        }
    }

    fn path(&self, model: &str, streams: bool) -> (Vec<String>, Option<&'static str>) {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let (method, query) = if streams {
            ("streamGenerateContent", Some("alt=sse"))
        } else {
            ("generateContent", None)
        };
        (vec!["models".into(), format!("{model}:{method}")], query)
    }

    // Not in the URL, where logs would keep it.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn body(
        &self,
        model: &str,
        provider: &str,
        request: &LlmRequest,
        _: bool,
    ) -> Result<Vec<u8>, &'static str> {
        request::body(model, provider, request)
    }

    fn response_reader(
        &self,
        model: &str,
        request: &LlmRequest,
        provider: Arc<str>,
    ) -> Box<dyn ResponseReader> {
        Box::new(ContentReader::new(
            request::form(model, request),
            request,
            provider,
        ))
    }
}
