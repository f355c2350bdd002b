//! The HTTP client of the adapters. It runs on tokio.

mod client;
mod secrets;
mod streaming;
mod world;

use core::fmt;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use futures_core::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use ubos_common::secret::Secret;
use ubos_common::trace_context::{TRACEPARENT, TRACESTATE};

use super::body::merged;
use super::builder::{MAX_BODY_BYTES, ResponseReader};
use super::config::ProviderConfig;
use super::failure::http_error;
use super::history::answered;
use crate::error::{ErrorCode, UppError};
use crate::model::{LlmCapabilities, LlmModel, LlmRequest, ModelStream};
use crate::response::LlmResponse;
use crate::retry::{RetryModel, RetryWorld, retry_after, seconds};
use secrets::Secrets;
use streaming::Streaming;
use world::TokioWorld;

/// The differences between vendors.
pub(super) trait Vendor: Send + Sync {
    fn name(&self) -> &'static str;

    fn base_url(&self) -> &'static str;

    fn capabilities(&self) -> LlmCapabilities;

    /// The path below the base URL, its segments unescaped, and the query.
    fn path(&self, model: &str, streams: bool) -> (Vec<String>, Option<&'static str>);

    /// The headers of every request.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The header of the key, and the prefix of its value.
    fn key_header(&self) -> (&'static str, &'static str);

    /// The body of a request.
    fn body(
        &self,
        model: &str,
        provider: &str,
        request: &LlmRequest,
        streams: bool,
    ) -> Result<Vec<u8>, &'static str>;

    fn response_reader(
        &self,
        model: &str,
        request: &LlmRequest,
        provider: Arc<str>,
    ) -> Box<dyn ResponseReader>;
}

/// A model of a vendor. Clones share connections.
#[derive(Clone)]
pub(super) struct HttpModel {
    client: reqwest::Client,
    base: reqwest::Url,
    headers: HeaderMap,
    model_id: Arc<str>,
    provider: Arc<str>,
    config: Arc<ProviderConfig>,
    vendor: &'static dyn Vendor,
    world: Arc<TokioWorld>,
    /// Whether requests are retried. The retrying model sends its attempts through a clone that does not retry.
    retries: bool,
}

impl HttpModel {
    // impl: UPP-8
    pub(super) fn new(
        model_id: Arc<str>,
        config: ProviderConfig,
        vendor: &'static dyn Vendor,
    ) -> Result<Self, UppError> {
        let provider = config
            .provider
            .clone()
            .unwrap_or_else(|| vendor.name().into());
        for (setting, span) in [
            ("timeout", config.timeout),
            ("idle_timeout", config.idle_timeout),
        ] {
            if span.is_some_and(|span| span.is_zero()) {
                let text = format!("{setting} is 0 s, but a request needs more than 0 s");
                return Err(refuse(&provider, &text));
            }
        }
        let base = client::base_url(&config, vendor.base_url()).map_err(|what| {
            UppError::new(ErrorCode::InvalidRequest, Arc::clone(&provider), what)
        })?;
        let headers = headers(&config, vendor)
            .ok_or_else(|| refuse(&provider, "a header is not valid and cannot be sent"))?;
        let client = client::client(&config)
            .map_err(|error| UppError::wrap(Arc::clone(&provider), error))?;
        Ok(Self {
            client,
            base,
            headers,
            model_id,
            provider,
            retries: config.retry.is_some(),
            config: Arc::new(config),
            vendor,
            world: Arc::new(TokioWorld::new()),
        })
    }

    pub(super) fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("model_id", &self.model_id)
            .field("host", &self.base.host_str())
            .finish_non_exhaustive()
    }

    /// This model with its retry strategy, where there is one.
    fn retrying(&self) -> Option<RetryModel> {
        let strategy = self.config.retry.as_ref().filter(|_| self.retries)?;
        let mut plain = self.clone();
        plain.retries = false;
        let world: Arc<dyn RetryWorld> = Arc::clone(&self.world) as _;
        Some(RetryModel::new(
            Arc::new(plain),
            Arc::clone(strategy),
            world,
        ))
    }

    fn url(&self, streams: bool) -> reqwest::Url {
        let mut url = self.base.clone();
        let (path, query) = self.vendor.path(&self.model_id, streams);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url.set_query(query);
        url
    }

    /// Sends a request and returns the response with the secrets of the request. A status that is not a success becomes an
    /// error.
    async fn open(
        &self,
        request: &LlmRequest,
        streams: bool,
    ) -> Result<(reqwest::Response, Secrets), UppError> {
        #[cfg(feature = "tracing")]
        crate::otel::record_server(
            &request.span,
            self.base.host_str().unwrap_or_default(),
            self.base.port_or_known_default(),
        );
        let body = self.body(request, streams);
        let body = body.map_err(|what| refuse(&self.provider, what))?;
        let mut headers = self.headers.clone();
        // The caller's own place in a trace wins whole: its parent and the state of another would be no place.
        let is_placed = [TRACEPARENT, TRACESTATE].map(|name| headers.contains_key(name));
        let trace = request.trace.iter().filter(|_| is_placed == [false; 2]);
        for (name, value) in trace.flat_map(|trace| trace.to_carry()) {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        let key = self.key().await?;
        let secrets = Secrets::new(&self.config, &self.base, key.as_ref());
        if let Some(key) = &key {
            let (name, before) = self.vendor.key_header();
            let value = secret_value(&format!("{before}{}", key.expose())).ok_or_else(|| {
                self.error(
                    ErrorCode::AuthenticationFailed,
                    "the key cannot be sent in a header",
                )
            })?;
            // A header of the caller's own wins.
            headers.entry(name).or_insert(value);
        }
        let sent = self.client.post(self.url(streams)).headers(headers);
        let answer = sent.body(body).send().await;
        let answer = answer.map_err(|error| client::transport(&error, &self.provider))?;
        if answer.status().is_success() {
            return Ok((answer, secrets));
        }
        Err(secrets.hide(self.refused(answer).await))
    }

    fn body(&self, request: &LlmRequest, streams: bool) -> Result<Vec<u8>, &'static str> {
        let mut request = request.clone();
        if let Some(every) = &self.config.params {
            request.params = Some(merged(every, request.params.as_deref())?);
        }
        if let Some(messages) = answered(&request.messages) {
            request.messages = messages;
        }
        self.vendor
            .body(&self.model_id, &self.provider, &request, streams)
    }

    async fn key(&self) -> Result<Option<Secret<String>>, UppError> {
        let Some(keys) = &self.config.keys else {
            return Ok(None);
        };
        let key = keys.key(self.world.random()).await.map_err(|error| {
            self.error(ErrorCode::AuthenticationFailed, "no key")
                .with_cause(error)
        })?;
        Ok(Some(key))
    }

    async fn refused(&self, answer: reqwest::Response) -> UppError {
        let status = answer.status().as_u16();
        let max = self.config.retry_after_max;
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        let millis = header("retry-after-ms").and_then(|value| seconds(value.trim()));
        let wait = match millis {
            Some(millis) => Some((millis / 1_000).min(max)),
            None => {
                header("retry-after").and_then(|value| retry_after(self.world.wall(), value, max))
            }
        };
        let body = collect(answer, &self.provider).await.unwrap_or_default();
        let mut error = http_error(status, &body, &self.provider);
        let said = error.retry_after.map(|wait| wait.min(max));
        error.retry_after = wait.or(said);
        error
    }

    fn error(&self, code: ErrorCode, text: &str) -> UppError {
        UppError::new(code, Arc::clone(&self.provider), text)
    }
}

impl LlmModel for HttpModel {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn model_id(&self) -> &str {
        &self.model_id
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.config
            .capabilities
            .unwrap_or_else(|| self.vendor.capabilities())
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        if let Some(retrying) = self.retrying() {
            return retrying.complete(request);
        }
        let this = self.clone();
        Box::pin(async move {
            let (answer, secrets) = this.open(&request, false).await?;
            let body = collect(answer, &this.provider).await?;
            let reading =
                this.vendor
                    .response_reader(&this.model_id, &request, Arc::clone(&this.provider));
            read_whole(reading, &body).map_err(|error| secrets.hide(error))
        })
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        if let Some(retrying) = self.retrying() {
            return retrying.stream(request);
        }
        let this = self.clone();
        let opened = async move {
            #[cfg(feature = "tracing")]
            let began = this.world.now();
            let (answer, secrets) = this.open(&request, true).await?;
            let reading =
                this.vendor
                    .response_reader(&this.model_id, &request, Arc::clone(&this.provider));
            let streaming = Streaming::new(answer, reading, this.provider, secrets);
            #[cfg(feature = "tracing")]
            let streaming = streaming.timed(this.world, began, request.span.clone());
            Ok(streaming.into_stream())
        };
        stream::once(opened)
            .flat_map(|opened: Result<ModelStream, UppError>| match opened {
                Ok(events) => events,
                Err(error) => stream::once(async { Err(error) }).boxed(),
            })
            .boxed()
    }
}

/// The headers of every request. The caller's replace the adapter's.
fn headers(config: &ProviderConfig, vendor: &dyn Vendor) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    for &(name, value) in vendor.headers() {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in &config.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.insert(name, secret_value(value.expose())?);
    }
    Some(headers)
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn read_whole(mut reading: Box<dyn ResponseReader>, body: &[u8]) -> Result<LlmResponse, UppError> {
    reading.read_body(body)?;
    reading.check_end()?;
    reading.builder().finish()
}

fn refuse(provider: &Arc<str>, what: &str) -> UppError {
    UppError::new(ErrorCode::InvalidRequest, Arc::clone(provider), what)
}

async fn collect(mut answer: reqwest::Response, provider: &Arc<str>) -> Result<Vec<u8>, UppError> {
    let mut body = Vec::new();
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| client::transport(&error, provider))?
    {
        if body.len() + bytes.len() > MAX_BODY_BYTES {
            let text = "the response has more than 64 MiB";
            let code = ErrorCode::InvalidResponse;
            return Err(UppError::new(code, Arc::clone(provider), text));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UPP-8
    #[test]
    fn secrets_in_headers_are_not_printed_by_who_handles_them() {
        let value = secret_value("Bearer hush").unwrap();
        assert!(value.is_sensitive() && !format!("{value:?}").contains("hush"));
        assert_eq!(value.as_bytes(), b"Bearer hush");
    }
}
