//! The asking side.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use ubos_common::secret::Secret;
use ubos_common::trace_context::TraceContext;

use super::admission::{is_json, text};
use super::lines::{Lines, carrier};
use super::{CORRELATION, ISSUER, JSON, LINES};
use crate::ident::CorrelationId;
use crate::lifecycle::LifecycleError;
use crate::role::producer;
use crate::task::Task;
use crate::transport::beside::{self, Beside};
use crate::transport::exchange::Exchange;
use crate::transport::sent::Heard;
use crate::transport::waits::{Waits, waiting};
use crate::transport::{Message, SendError};
use crate::validate::Options;

/// Sends tasks to one server. Clones share connections.
///
/// Redirects are not followed, so that a task does not end up elsewhere.
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | how long the server may be silent, and how long after a deadline it may speak | 300 s | the task is sent again, or [`SendError::NoAnswer`] |
/// | how often it is sent again | never | [`SendError::NoAnswer`] |
/// | the time of a task that names no deadline | 1 hour | as a deadline |
///
/// Credentials that the server refuses are not sent again by themselves, whatever the settings: the first 401 is the answer,
/// as a Nack `UNAUTHORIZED` or as [`SendError::Credentials`]. A client with others is made by [`with_bearer`](Self::with_bearer).
///
/// A task has an hour where it says nothing else, and a handler that says nothing on the way is silent for as long: a server
/// that is gone looks the same. Where a handler may be silent for more than 300 s, set a longer patience or
/// [`with_resends`](Self::with_resends), or have it [report](crate::processor::Context::report). A client that gave up
/// finds the task again by [`status`](Self::status) and [`follow`](Self::follow).
#[derive(Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    url: Url,
    waits: Waits,
    bearer: Option<HeaderValue>,
    beside: Beside,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none of HTTP or HTTPS.
    #[error("not an address of http or https")]
    Url,
    /// The token cannot be sent in a header.
    #[error("the token has other characters than those of a header")]
    Token,
    /// The system gives no TLS.
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("no HTTP client")]
    Http(#[from] reqwest::Error),
}

waiting! {
    HttpClient:
    /// Sets how long the server may be silent, and how long after a task's deadline it may speak.
    with_patience(patience: Duration) by set_patience;

    /// Sets how often a task is sent again for which nothing came in time. The server knows the copies, and answers
    /// one with the latest result.
    with_resends(resends: u32) by set_resends;

    /// Sets the time of a task that names no deadline. The server may have a time of its own for it.
    with_default_time(time: Duration) by set_default_time;
}

impl HttpClient {
    /// A client of the server whose tasks are posted to `url`, such as `http://127.0.0.1:8080/sap/tasks`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let url = Url::parse(url).map_err(|_| ClientError::Url)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ClientError::Url);
        }
        Ok(Self {
            http: http()?,
            url,
            bearer: None,
            beside: Beside::default(),
            waits: Waits::new(
                producer::Config::default()
                    .with_patience(PATIENCE, PATIENCE)
                    .with_deadline_patience(PATIENCE),
            ),
        })
    }

    /// Sets the token that says who asks.
    ///
    /// # Errors
    ///
    /// [`ClientError::Token`].
    pub fn with_bearer(mut self, token: &Secret<String>) -> Result<Self, ClientError> {
        let value = Secret::new(format!("Bearer {}", token.expose()));
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| ClientError::Token)?;
        value.set_sensitive(true);
        self.bearer = Some(value);
        Ok(self)
    }

    /// Sets the key that signs tasks.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_signing_key(mut self, key: Arc<crate::sign::SigningKey>) -> Self {
        self.beside.key = Some(key);
        self
    }

    /// Takes only results that their producer has signed with one of these keys. A stream of lines has no place for
    /// signatures, so results on the way are not asked for.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_trusted_keys(mut self, keys: Arc<crate::sign::Keys>) -> Self {
        self.beside.keys = Some(keys);
        self
    }

    /// Sets the place in a trace that tasks are sent from: in the headers `traceparent` and `tracestate`. A clone may have a place of its own.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.beside.trace = Some(trace);
        self
    }

    /// Sets the settings of TLS in the place of the system's, such as with a certificate of this side.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn with_tls(mut self, tls: rustls::ClientConfig) -> Result<Self, ClientError> {
        self.http = http_with(tls)?;
        Ok(self)
    }

    /// Sends a task and gives the last that is said: a result, a Nack, or the Ack where results go to an endpoint;
    /// nothing where no Ack is wanted then. Of a task that was sent before and still runs it is the latest: a result that
    /// is not the last, or the Ack. Everything is told on the way.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Spec: SAP 10
    // impl: SAP-10-2
    pub async fn send(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let (bytes, mut exchange) = self.waits.begin(task).await?;
        let bytes = Bytes::from(bytes);
        loop {
            let answer = self.answer(task, &bytes, &mut exchange, on_message).await;
            if !exchange.goes_on(self.waits.clock(), answer).await? {
                return exchange.end();
            }
        }
    }

    /// How far a task is that was sent before: its latest result, or the Ack where it has none yet. A Nack
    /// `NOT_FOUND` where the server does not know it, or where this client may not send it.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn status(&self, task: &Task) -> Result<Message, SendError> {
        self.ask(task, Method::GET).await
    }

    /// Has a task stopped that was sent before, and gives how far it is. Its end is CANCELLED where it had not
    /// ended by itself, and comes to those who wait for it.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn cancel(&self, task: &Task) -> Result<Message, SendError> {
        self.ask(task, Method::DELETE).await
    }

    /// Follows a task that was sent before, by anybody who may: tells how far it is and all that is said from now
    /// on, and gives the last. Between results that come faster than this client reads, some are left out.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn follow(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let mut exchange = self.waits.about(task)?;
        let request = self.request(task, Method::GET, self.url_of(task, Some("events")));
        let request = request.await?;
        self.hear(task, request, &mut exchange, on_message).await?;
        exchange.end()
    }

    async fn ask(&self, task: &Task, method: Method) -> Result<Message, SendError> {
        let mut exchange = self.waits.about(task)?;
        let request = self.request(task, method, self.url_of(task, None)).await?;
        self.hear(task, request, &mut exchange, &mut |_| {}).await?;
        exchange.latest()
    }

    fn url_of(&self, task: &Task, what: Option<&str>) -> Url {
        let mut url = self.url.clone();
        // An address of HTTP has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            let id = task.task_id.to_string();
            path.pop_if_empty().push(&id).extend(what);
        }
        let issuer = task.issuer.agent_id.as_str();
        url.query_pairs_mut().append_pair(ISSUER, issuer);
        url
    }

    /// Sends the task once, and takes all that is said then.
    async fn answer(
        &self,
        task: &Task,
        bytes: &Bytes,
        exchange: &mut Exchange,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Heard<()>, SendError> {
        let request = self.request(task, Method::POST, self.url.clone()).await?;
        let request = request.header(CONTENT_TYPE, JSON).body(bytes.clone());
        self.hear(task, request, exchange, on_message).await
    }

    /// A request about a task, with who asks.
    async fn request(
        &self,
        task: &Task,
        method: Method,
        url: Url,
    ) -> Result<RequestBuilder, SendError> {
        let accept = match self.beside.is_strict() {
            true => JSON.to_owned(),
            false => format!("{LINES}, {JSON}"),
        };
        let mut request = self
            .http
            .request(method, url)
            .header(ACCEPT, accept)
            .header(CORRELATION, task.correlation_id.to_string());
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        for (name, value) in self.beside.of(task).await? {
            request = request.header(name, value);
        }
        Ok(request)
    }

    /// Sends a request, and takes all that is said then.
    async fn hear(
        &self,
        task: &Task,
        request: RequestBuilder,
        exchange: &mut Exchange,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Heard<()>, SendError> {
        let clock = self.waits.clock();
        let response = match exchange.sent.hear(clock, request.send()).await? {
            Heard::Said(response) => response.map_err(carrier)?,
            Heard::SendAgain => return Ok(Heard::SendAgain),
        };
        echoed(task, &response)?;
        let status = response.status();
        let refused = status.is_client_error();
        if !refused && !matches!(status, StatusCode::OK | StatusCode::ACCEPTED) {
            return Err(of_status(status));
        }
        // A page of whoever stands before the server, such as one that asks for a password.
        if refused && text(response.headers(), &CONTENT_TYPE).is_some_and(|kind| !is_message(kind))
        {
            return Err(of_status(status));
        }
        let name = HeaderName::from_static(beside::SIGNATURE);
        let signature = text(response.headers(), &name).map(str::to_owned);
        let mut lines = Lines::new(response, Options::default().limits.max_bytes);
        let mut is_silent = true;
        loop {
            let line = match exchange.sent.hear(clock, lines.next()).await? {
                Heard::Said(line) => line?,
                Heard::SendAgain => return Ok(Heard::SendAgain),
            };
            let Some(line) = line else { break };
            let read = self.beside.read(line, signature.as_deref()).await?;
            is_silent = false;
            if exchange.take(clock.now(), read, on_message)? {
                break;
            }
        }
        // Such as that of a path where nobody takes tasks.
        if refused && is_silent {
            return Err(of_status(status));
        }
        Ok(Heard::Said(()))
    }
}

/// Whether a body of this kind can hold messages.
fn is_message(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    is_json(content_type) || media.eq_ignore_ascii_case(LINES)
}

fn of_status(status: StatusCode) -> SendError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            SendError::Credentials {
                status: status.as_u16(),
            }
        }
        _ => SendError::NoAnswer {
            what: format!("status {}", status.as_u16()),
        },
    }
}

impl fmt::Debug for HttpClient {
    /// An address may hold a password, and a token in its path: its origin is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("origin", &self.url.origin().ascii_serialization())
            .finish_non_exhaustive()
    }
}

/// A header that names another correlation id is of another task.
fn echoed(task: &Task, response: &Response) -> Result<(), SendError> {
    let headers = response.headers().get_all(CORRELATION).iter();
    let mut seen = headers.filter_map(|value| value.to_str().ok()?.parse::<CorrelationId>().ok());
    match seen.find(|seen| *seen != task.correlation_id) {
        None => Ok(()),
        Some(seen) => Err(SendError::Refused(LifecycleError::Correlation {
            wanted: task.correlation_id,
            seen,
        })),
    }
}

/// A client with a TLS provider of its own: nothing needs to be installed for the process.
pub(super) fn http() -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // The verifier is the platform's own.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    http_with(tls)
}

fn http_with(tls: rustls::ClientConfig) -> Result<reqwest::Client, ClientError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none());
    Ok(builder.build()?)
}

/// How long a server may be silent where nothing else is set.
const PATIENCE: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_marked_as_one_that_nobody_shows() {
        let client = HttpClient::new("https://prime.example/").unwrap();
        let token = Secret::new("hunter2".to_owned());
        let bearer = client.with_bearer(&token).unwrap().bearer.unwrap();
        assert_eq!(bearer.as_bytes(), b"Bearer hunter2");
        // As other libraries log a header, and decide on its compression.
        assert!(bearer.is_sensitive());
        assert!(!format!("{bearer:?}").contains("hunter2"));
    }
}
