//! Adapters for models over HTTP, one feature each, and for tools of MCP servers.

#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod body;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod builder;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod config;
#[cfg(any(feature = "openai", feature = "anthropic"))]
mod dialect;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod failure;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod history;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod http;
#[cfg(any(
    feature = "openai",
    feature = "anthropic",
    feature = "google",
    feature = "arbitrary"
))]
mod sse;

#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod structure;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
mod vendor_json;

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "google")]
mod google;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "openai")]
mod openai;
#[cfg(feature = "openai")]
mod unchanged;

#[cfg(feature = "anthropic")]
pub use anthropic::AnthropicModel;
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
pub use config::ProviderConfig;
#[cfg(feature = "google")]
pub use google::GoogleModel;
#[cfg(feature = "openai")]
pub use openai::{OpenAiModel, OpenAiResponsesModel, PRESETS, Preset, preset};
#[cfg(feature = "arbitrary")]
pub(crate) use sse::SseReader;

#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
/// Declares the public model of a vendor.
macro_rules! vendor_model {
    ($(#[$meta:meta])* $name:ident, $vendor:expr) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $name($crate::transport::http::HttpModel);

        impl $name {
            /// A model of a vendor.
            ///
            /// # Errors
            ///
            /// `INVALID_REQUEST` where a timeout is zero, where the base URL is not a URL, or plain HTTP to another host without
            /// permission, or where a header is not valid; `PROVIDER_ERROR` where TLS is not available.
            pub fn new(
                model_id: impl Into<::std::sync::Arc<str>>,
                config: $crate::transport::ProviderConfig,
            ) -> Result<Self, $crate::UppError> {
                $crate::transport::http::HttpModel::new(model_id.into(), config, &$vendor).map(Self)
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                self.0.describe(stringify!($name), f)
            }
        }

        impl $crate::LlmModel for $name {
            fn provider(&self) -> &str {
                self.0.provider()
            }

            fn model_id(&self) -> &str {
                self.0.model_id()
            }

            fn capabilities(&self) -> $crate::LlmCapabilities {
                self.0.capabilities()
            }

            fn complete(
                &self,
                request: $crate::LlmRequest,
            ) -> ::futures_core::future::BoxFuture<'static, Result<$crate::LlmResponse, $crate::UppError>> {
                self.0.complete(request)
            }

            fn stream(&self, request: $crate::LlmRequest) -> $crate::ModelStream {
                self.0.stream(request)
            }
        }
    };
}
#[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
use vendor_model;
