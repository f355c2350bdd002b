//! Results to endpoints that are addresses of HTTP.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::routing::post;
use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use super::admission::text;
use super::client::{ClientError, http};
use super::{CORRELATION, JSON};
use crate::processor::Unreachable;
use crate::result::TaskResult;
use crate::transport::beside::{self, Beside};
use crate::transport::{Replies, ToEndpoint};
use crate::validate::{Options, decode_result};
use crate::work::{self, For};

/// Posts each result to the endpoint of its task.
///
/// Endpoints are named by issuers, so only those of allowed origins are reached; none is by default.
#[derive(Clone, Debug)]
pub struct HttpReplies {
    http: reqwest::Client,
    origins: BTreeSet<String>,
}

impl HttpReplies {
    /// Reaches endpoints of these origins, such as `https://prime.example:8443`. One result takes at most 10 s.
    ///
    /// # Errors
    ///
    /// [`ClientError::Url`]: an origin is not of HTTP or HTTPS. Others: the system has no HTTP client.
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, ClientError> {
        let origins = origins.into_iter().map(|origin| {
            let url = Url::parse(origin).map_err(|_| ClientError::Url)?;
            match url.scheme() {
                "http" | "https" => Ok(url.origin().ascii_serialization()),
                _ => Err(ClientError::Url),
            }
        });
        Ok(Self {
            http: http()?,
            origins: origins.collect::<Result<_, _>>()?,
        })
    }

    async fn post(&self, sent: ToEndpoint<'_>) -> Result<(), Unreachable> {
        let ToEndpoint {
            endpoint, result, ..
        } = sent;
        let url = Url::parse(endpoint).map_err(|_| Unreachable::NoWay)?;
        let is_bare = url.username().is_empty() && url.password().is_none();
        if !is_bare || !self.origins.contains(&url.origin().ascii_serialization()) {
            return Err(Unreachable::NoWay);
        }
        let mut request = self
            .http
            .post(url)
            .timeout(TIMEOUT)
            .header(CONTENT_TYPE, JSON)
            .header(CORRELATION, result.correlation_id.to_string())
            .body(result.encode());
        if let Some(signature) = sent.signature {
            request = request.header(beside::SIGNATURE, signature);
        }
        for (name, value) in sent.trace.iter().flat_map(|trace| trace.to_carry()) {
            request = request.header(name, value);
        }
        let response = request
            .send()
            .await
            .map_err(|error| Unreachable::Carrier(Box::new(error.without_url())))?;
        match response.status().is_success() {
            true => Ok(()),
            false => Err(Unreachable::Refused),
        }
    }
}

impl Replies for HttpReplies {
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(self.post(sent))
    }
}

/// An endpoint: results that are posted to `path` are read and given to `on_result`. It answers 204, or 400.
///
/// Anybody who reaches it can post to it: see [`signed_inbox`]. Whether a result is one that is waited for is the
/// application's to check, with a [`Lifecycle`](crate::Lifecycle).
pub fn inbox(
    path: &str,
    options: Options,
    on_result: impl Fn(TaskResult) + Send + Sync + 'static,
) -> Router {
    routes(path, options, Beside::default(), on_result)
}

/// As [`inbox`], for results that their producer has signed with one of these keys. Any other is answered 401.
// impl: SAP-2-4
#[cfg(feature = "sign")]
pub fn signed_inbox(
    path: &str,
    options: Options,
    keys: Arc<crate::sign::Keys>,
    on_result: impl Fn(TaskResult) + Send + Sync + 'static,
) -> Router {
    let beside = Beside {
        keys: Some(keys),
        ..Beside::default()
    };
    routes(path, options, beside, on_result)
}

fn routes(
    path: &str,
    options: Options,
    beside: Beside,
    on_result: impl Fn(TaskResult) + Send + Sync + 'static,
) -> Router {
    Router::new()
        .route(path, post(take))
        .layer(DefaultBodyLimit::max(options.limits.max_bytes))
        .with_state(Arc::new(Inbox {
            options,
            beside,
            on_result: Box::new(on_result),
        }))
}

/// How long one result may take.
const TIMEOUT: Duration = Duration::from_secs(10);

struct Inbox {
    options: Options,
    beside: Beside,
    on_result: Box<dyn Fn(TaskResult) + Send + Sync>,
}

async fn take(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let name = HeaderName::from_static(beside::SIGNATURE);
    let signature = text(&headers, &name).map(str::to_owned);
    let of = Arc::clone(&inbox);
    let read = work::done(For::Stranger, body.len(), move || {
        let read = decode_result(&body, &of.options);
        let (result, _) = read.map_err(|_| StatusCode::BAD_REQUEST)?;
        let signed = of.beside.check_result(&result, signature.as_deref());
        signed.map_err(|_| StatusCode::UNAUTHORIZED)?;
        Ok(result)
    });
    match read.await {
        Ok(result) => {
            (inbox.on_result)(result);
            StatusCode::NO_CONTENT
        }
        Err(refused) => refused,
    }
}
