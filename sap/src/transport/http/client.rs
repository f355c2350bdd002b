//! The asking side.

use core::fmt;
use core::future::Future;
use core::time::Duration;
use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Response, StatusCode, Url};
use tokio::time::timeout;
use ubos_common::driver::Sleep as _;

use super::{CORRELATION, JSON, LINES};
use crate::ident::CorrelationId;
use crate::lifecycle::LifecycleError;
use crate::task::Task;
use crate::transport::exchange::begin;
use crate::transport::{Message, SendError, TokioClock};
use crate::validate::Options;

/// Sends tasks to one server. Clones share connections.
///
/// Redirects are not followed, so that a task does not end up elsewhere.
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | how long the server may be silent, and how long after a deadline it may speak | 300 s | [`SendError::NoAnswer`] |
#[derive(Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    url: Url,
    patience: Duration,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none of HTTP or HTTPS.
    #[error("not an address of http or https")]
    Url,
    /// The system gives no TLS.
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be made.
    #[error("no HTTP client")]
    Http(#[from] reqwest::Error),
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
            patience: PATIENCE,
        })
    }

    /// Sets how long the server may be silent, and how long after a task's deadline it may speak.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a task and gives the last that is said: a result, a Nack, or the Ack where results go to an endpoint;
    /// nothing where no Ack is wanted then. Everything is told on the way.
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
        let exchange = self.exchange(task, on_message);
        let Some(deadline) = task.deadline() else {
            return exchange.await;
        };
        let left = deadline.saturating_since(TokioClock::default().now().wall);
        let ended = timeout(left.saturating_add(self.patience), exchange).await;
        ended.unwrap_or_else(|_| Err(silent("no end before the deadline")))
    }

    async fn exchange(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let (bytes, mut exchange) = begin(task)?;
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, format!("{LINES}, {JSON}"))
            .header(CORRELATION, task.correlation_id.to_string())
            .body(bytes);
        let response = self.heard(request.send()).await?.map_err(carrier)?;
        echoed(task, &response)?;
        let status = response.status();
        let refused = status.is_client_error();
        if !refused && !matches!(status, StatusCode::OK | StatusCode::ACCEPTED) {
            return Err(of_status(status));
        }
        let mut lines = Lines::new(response, Options::default().limits.max_bytes);
        let mut is_silent = true;
        while let Some(line) = self.heard(lines.next()).await?? {
            let message = Message::decode(&line, &Options::default()).map_err(SendError::Answer)?;
            exchange.take(message, on_message)?;
            is_silent = false;
        }
        // Such as that of a path where nobody takes tasks.
        if refused && is_silent {
            return Err(of_status(status));
        }
        exchange.end()
    }

    /// What the server says next, where it does not take too long.
    async fn heard<T>(&self, next: impl Future<Output = T>) -> Result<T, SendError> {
        let heard = timeout(self.patience, next).await;
        heard.map_err(|_| silent("nothing for longer than the patience of the client"))
    }
}

fn silent(what: &str) -> SendError {
    SendError::NoAnswer { what: what.into() }
}

fn of_status(status: StatusCode) -> SendError {
    SendError::NoAnswer {
        what: format!("status {}", status.as_u16()),
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
    let header = response.headers().get(CORRELATION);
    let seen = header.and_then(|value| value.to_str().ok()?.parse::<CorrelationId>().ok());
    match seen.filter(|seen| *seen != task.correlation_id) {
        None => Ok(()),
        Some(seen) => Err(SendError::Refused(LifecycleError::Correlation {
            wanted: task.correlation_id,
            seen,
        })),
    }
}

/// A body cut into lines; one without a line break is one line.
struct Lines {
    response: Response,
    buffer: Vec<u8>,
    max_bytes: usize,
    ended: bool,
}

impl Lines {
    const fn new(response: Response, max_bytes: usize) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            max_bytes,
            ended: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, SendError> {
        let mut looked = 0;
        loop {
            let rest = self.buffer.get(looked..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_off(looked + at + 1);
                core::mem::swap(&mut line, &mut self.buffer);
                line.pop();
                return Ok(Some(line));
            }
            looked = self.buffer.len();
            if self.ended {
                let line = core::mem::take(&mut self.buffer);
                return Ok((!line.is_empty()).then_some(line));
            }
            if looked > self.max_bytes {
                return Err(SendError::NoAnswer {
                    what: format!("a line of more than {} bytes", self.max_bytes),
                });
            }
            match self.response.chunk().await.map_err(carrier)? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => self.ended = true,
            }
        }
    }
}

/// The error's own text may name the address with all its parts, so that is left out.
fn carrier(error: reqwest::Error) -> SendError {
    SendError::carrier(error.without_url())
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
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none());
    Ok(builder.build()?)
}

/// How long a server may be silent where nothing else is set.
const PATIENCE: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(10);
