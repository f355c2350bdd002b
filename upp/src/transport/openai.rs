//! Chat completions in OpenAI's shape: OpenAI itself and everybody who speaks like it, by base URL.

mod request;
mod response;

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use futures_core::future::BoxFuture;
use ubos_common::secret::Secret;

use super::SseReader;
use crate::error::{ErrorCode, UppError};
use crate::model::{LlmCapabilities, LlmModel, LlmRequest, LlmResponse, ModelEvent, ModelStream};
use response::Chunks;

/// Bytes of an answer in one piece, or of an error's body.
const MAX_BODY_BYTES: usize = 64 << 20;

/// How a vendor is reached.
///
/// | option | default |
/// |---|---|
/// | `base_url` | `https://api.openai.com/v1` |
/// | `key` | none: no header is sent |
/// | `timeout` | none |
/// | `allow_plain_http` | false: plain HTTP to loopback alone |
/// | `provider` | `openai` |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenAiConfig {
    /// Where `/chat/completions` lies.
    pub base_url: String,
    /// Sent as a bearer token, to the base URL alone.
    pub key: Option<Secret<String>>,
    /// For a whole request; none by default.
    pub timeout: Option<Duration>,
    /// Lets keys and conversations travel unencrypted to other hosts than this one.
    pub allow_plain_http: bool,
    /// The name in errors.
    pub provider: Arc<str>,
}

impl Default for OpenAiConfig {
    fn default() -> Self {
        Self {
            base_url: "https://api.openai.com/v1".into(),
            key: None,
            timeout: None,
            allow_plain_http: false,
            provider: "openai".into(),
        }
    }
}

impl OpenAiConfig {
    /// Sets where the vendor is.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret<String>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how long a whole request may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the name in errors.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<Arc<str>>) -> Self {
        self.provider = name.into();
        self
    }

    /// Lets requests go unencrypted to any host.
    #[must_use]
    pub const fn with_plain_http_allowed(mut self) -> Self {
        self.allow_plain_http = true;
        self
    }
}

/// A model behind an OpenAI-compatible endpoint. It runs on tokio.
///
/// ```
/// use upp::transport::openai::{OpenAiConfig, OpenAiModel};
///
/// let config = OpenAiConfig::default().with_base_url("http://127.0.0.1:11434/v1");
/// let model = OpenAiModel::new("llama3", config)?;
/// # let _ = model;
/// let outside = OpenAiConfig::default().with_base_url("http://example.org/v1");
/// assert!(OpenAiModel::new("llama3", outside).is_err());
/// # Ok::<(), upp::UppError>(())
/// ```
#[derive(Clone)]
pub struct OpenAiModel {
    client: reqwest::Client,
    url: reqwest::Url,
    model_id: Arc<str>,
    config: OpenAiConfig,
}

impl fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiModel")
            .field("model_id", &self.model_id)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

impl OpenAiModel {
    /// A model of a vendor.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` where the base URL is none, or plain HTTP to another host without leave for it;
    /// `PROVIDER_ERROR` where no TLS is to be had.
    // impl: UPP-8
    pub fn new(model_id: impl Into<Arc<str>>, config: OpenAiConfig) -> Result<Self, UppError> {
        let refuse = |what: &str| {
            UppError::new(
                ErrorCode::InvalidRequest,
                Arc::clone(&config.provider),
                what,
            )
        };
        let text = format!("{}/chat/completions", config.base_url.trim_end_matches('/'));
        // The text itself stays out of the error: it may hold a password.
        let url: reqwest::Url = text.parse().map_err(|_| refuse("the base URL is none"))?;
        match url.scheme() {
            "https" => {}
            "http" if config.allow_plain_http || is_loopback(&url) => {}
            "http" => return Err(refuse("plain HTTP to another host than this one")),
            _ => return Err(refuse("a base URL that is neither HTTPS nor HTTP")),
        }
        let client =
            client(&config).map_err(|error| UppError::wrap(Arc::clone(&config.provider), error))?;
        Ok(Self {
            client,
            url,
            model_id: model_id.into(),
            config,
        })
    }

    fn send(
        &self,
        request: &LlmRequest,
        streams: bool,
    ) -> Result<reqwest::RequestBuilder, UppError> {
        let provider = &self.config.provider;
        let body = request::body(&self.model_id, request, streams)
            .map_err(|what| UppError::new(ErrorCode::InvalidRequest, Arc::clone(provider), what))?;
        let mut builder = self.client.post(self.url.clone());
        if let Some(key) = &self.config.key {
            builder = builder.bearer_auth(key.expose());
        }
        Ok(builder
            .header("content-type", "application/json")
            .body(body))
    }
}

impl LlmModel for OpenAiModel {
    fn provider(&self) -> &str {
        &self.config.provider
    }

    fn model_id(&self) -> &str {
        &self.model_id
    }

    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities {
            image_input: true,
            ..LlmCapabilities::text()
        }
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let (sent, provider) = (
            self.send(&request, false),
            Arc::clone(&self.config.provider),
        );
        Box::pin(async move {
            let answer = open(sent?, &provider).await?;
            let body = collect(answer, &provider).await?;
            response::whole(&body, request.stamp, request.structure.is_some(), &provider)
        })
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        let (sent, provider) = (self.send(&request, true), Arc::clone(&self.config.provider));
        let opened = async move {
            let answer = open(sent?, &provider).await?;
            let chunks = Chunks::new(
                request.stamp,
                request.structure.is_some(),
                Arc::clone(&provider),
            );
            Ok(stream::unfold(
                Some(Streaming::new(answer, chunks, provider)),
                |state| async {
                    let mut state = state?;
                    let item = state.next().await;
                    let goes_on = matches!(item, Ok(ModelEvent::Event(_)));
                    Some((item, goes_on.then_some(state)))
                },
            ))
        };
        stream::once(opened)
            .flat_map(|opened: Result<_, UppError>| match opened {
                Ok(events) => events.boxed(),
                Err(error) => stream::once(async { Err(error) }).boxed(),
            })
            .boxed()
    }
}

/// A streamed answer on its way.
struct Streaming {
    answer: reqwest::Response,
    sse: SseReader,
    chunks: Chunks,
    ready: VecDeque<ModelEvent>,
    provider: Arc<str>,
}

impl Streaming {
    fn new(answer: reqwest::Response, chunks: Chunks, provider: Arc<str>) -> Self {
        Self {
            answer,
            sse: SseReader::default(),
            chunks,
            ready: VecDeque::new(),
            provider,
        }
    }

    async fn next(&mut self) -> Result<ModelEvent, UppError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            while let Some(data) = self.sse.next_data() {
                self.ready.extend(self.chunks.add(&data)?);
            }
            if !self.ready.is_empty() {
                continue;
            }
            let bytes = self.answer.chunk().await;
            let unreadable = |error| UppError::wrap(Arc::clone(&self.provider), error);
            match bytes.map_err(|error| transport(&error, &self.provider))? {
                Some(bytes) => self.sse.feed(&bytes).map_err(unreadable)?,
                None => {
                    self.sse.finish().map_err(unreadable)?;
                    while let Some(data) = self.sse.next_data() {
                        self.ready.extend(self.chunks.add(&data)?);
                    }
                    self.ready.extend(self.chunks.end()?);
                }
            }
        }
    }
}

/// Sends a request; an answer that is no success is the error that it says.
async fn open(
    sent: reqwest::RequestBuilder,
    provider: &Arc<str>,
) -> Result<reqwest::Response, UppError> {
    let answer = sent
        .send()
        .await
        .map_err(|error| transport(&error, provider))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let header = answer.headers().get("retry-after");
    let seconds = header.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = collect(answer, provider).await.unwrap_or_default();
    let mut error = response::refusal(status.as_u16(), &body, provider);
    error.retry_after = seconds.map(Duration::from_secs);
    Err(error)
}

async fn collect(mut answer: reqwest::Response, provider: &Arc<str>) -> Result<Vec<u8>, UppError> {
    let mut body = Vec::new();
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| transport(&error, provider))?
    {
        if body.len() + bytes.len() > MAX_BODY_BYTES {
            let text = "an answer of more than 64 MiB";
            return Err(UppError::new(
                ErrorCode::InvalidResponse,
                Arc::clone(provider),
                text,
            ));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// The vendor was not reached, or left in the middle. The error's own text names the URL, so it is not kept.
fn transport(error: &reqwest::Error, provider: &Arc<str>) -> UppError {
    let (code, text) = if error.is_timeout() {
        (ErrorCode::Timeout, "no answer in time")
    } else if error.is_connect() {
        (ErrorCode::NetworkError, "no connection")
    } else {
        (ErrorCode::NetworkError, "the connection failed")
    };
    UppError::new(code, Arc::clone(provider), text)
}

/// Whether a URL names this very machine.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// A client with a TLS provider of its own: nothing needs to be installed for the process.
fn client(config: &OpenAiConfig) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // The verifier is the platform's own.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // A redirect could lead from HTTPS to another host: a vendor's endpoint has none.
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none());
    if let Some(timeout) = config.timeout {
        builder = builder.timeout(timeout);
    }
    Ok(builder.build()?)
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
    #[error("no HTTP client")]
    Http(#[from] reqwest::Error),
}
