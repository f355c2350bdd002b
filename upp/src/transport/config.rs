//! The configuration of an adapter.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::secret::Secret;

use crate::key::{KeyStrategy, OneKey};
use crate::model::LlmCapabilities;
use crate::retry::RetryStrategy;

/// The configuration of an adapter.
///
/// | option | default |
/// |---|---|
/// | `base_url` | the vendor's own |
/// | `keys` | none: no key is sent |
/// | `timeout` | none; of one attempt, to the end of its response |
/// | `idle_timeout` | none; between two parts of a response |
/// | `retry` | none: a failure is returned to the caller |
/// | `retry_after_max` | 1 h; a longer wait that a vendor requests is cut to it |
/// | `headers` | none; they replace headers of the adapter |
/// | `allow_plain_http` | false: plain HTTP to loopback only |
/// | `params` | none; those of a request go before them |
/// | `provider` | the adapter's name |
/// | `capabilities` | the adapter's |
///
/// Spec: UPP-1.3 ProviderConfig
#[derive(Clone)]
pub struct ProviderConfig {
    /// The base URL, including the version.
    pub(super) base_url: Option<String>,
    /// The keys. They are sent to the base URL only.
    pub(super) keys: Option<Arc<dyn KeyStrategy>>,
    /// The timeout of one attempt.
    pub(super) timeout: Option<Duration>,
    /// The timeout between two parts of a response.
    pub(super) idle_timeout: Option<Duration>,
    /// The retry strategy.
    pub(super) retry: Option<Arc<dyn RetryStrategy>>,
    /// The maximum wait that a vendor may request.
    pub(super) retry_after_max: Duration,
    /// Additional headers. Their values may be secrets.
    pub(super) headers: Vec<(String, Secret<String>)>,
    /// Whether keys and conversations may be sent unencrypted to other hosts.
    pub(super) allow_plain_http: bool,
    /// Parameters of every request.
    pub(super) params: Option<Arc<RawObject>>,
    /// The name in errors and metadata.
    pub(super) provider: Option<Arc<str>>,
    /// The capabilities of the model, where they differ from the adapter's default.
    pub(super) capabilities: Option<LlmCapabilities>,
}

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            base_url: None,
            keys: None,
            timeout: None,
            idle_timeout: None,
            retry: None,
            retry_after_max: Duration::from_secs(3600),
            headers: Vec::new(),
            allow_plain_http: false,
            params: None,
            provider: None,
            capabilities: None,
        }
    }
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().map(|(name, _)| name);
        // A base URL may hold a password.
        f.debug_struct("ProviderConfig")
            .field("provider", &self.provider)
            .field("has_key", &self.keys.is_some())
            .field("timeout", &self.timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("retries", &self.retry.is_some())
            .field("headers", &headers.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl ProviderConfig {
    /// Sets the base URL, version included.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: impl Into<Secret<String>>) -> Self {
        self.with_keys(Arc::new(OneKey::new(key)))
    }

    /// Sets how keys are chosen.
    #[must_use]
    pub fn with_keys(mut self, keys: Arc<dyn KeyStrategy>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Sets the timeout of one attempt.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the timeout between two parts of a response.
    #[must_use]
    pub const fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Sets the retry strategy.
    #[must_use]
    pub fn with_retry(mut self, strategy: Arc<dyn RetryStrategy>) -> Self {
        self.retry = Some(strategy);
        self
    }

    /// Sets the maximum wait that a vendor may request.
    #[must_use]
    pub const fn with_retry_after_max(mut self, max: Duration) -> Self {
        self.retry_after_max = max;
        self
    }

    /// Adds a header, in place of one of the same name that the adapter sends.
    #[must_use]
    pub fn with_header(
        mut self,
        name: impl Into<String>,
        value: impl Into<Secret<String>>,
    ) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the vendor's parameters for every request, such as Anthropic's `max_tokens`. A parameter of a request replaces
    /// the one of the same name.
    #[must_use]
    pub fn with_params(mut self, params: impl Into<Arc<RawObject>>) -> Self {
        self.params = Some(params.into());
        self
    }

    /// Sets the name in errors and metadata.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<Arc<str>>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Sets the capabilities of the model.
    #[must_use]
    pub const fn with_capabilities(mut self, capabilities: LlmCapabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Permits unencrypted requests to any host.
    #[must_use]
    pub const fn with_plain_http_allowed(mut self) -> Self {
        self.allow_plain_http = true;
        self
    }
}
