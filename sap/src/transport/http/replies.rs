//! Results to endpoints that are addresses of HTTP.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use ubos_common::trace_context::TraceContext;

use super::client::{ClientError, http};
use super::{CORRELATION, JSON};
use crate::processor::Unreachable;
use crate::result::TaskResult;
use crate::transport::Replies;
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

    async fn post(
        &self,
        endpoint: &str,
        result: &TaskResult,
        trace: Option<&TraceContext>,
    ) -> Result<(), Unreachable> {
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
        for (name, value) in trace.iter().flat_map(|trace| trace.to_carry()) {
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
    fn send<'a>(
        &'a self,
        endpoint: &'a str,
        result: &'a TaskResult,
        trace: Option<&'a TraceContext>,
    ) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(self.post(endpoint, result, trace))
    }
}

/// An endpoint: results that are posted to `path` are read and given to `on_result`. It answers 204, or 400.
///
/// Whether a result is one that is waited for is the application's to check, with a
/// [`Lifecycle`](crate::Lifecycle).
pub fn inbox(
    path: &str,
    options: Options,
    on_result: impl Fn(TaskResult) + Send + Sync + 'static,
) -> Router {
    Router::new()
        .route(path, post(take))
        .layer(DefaultBodyLimit::max(options.limits.max_bytes))
        .with_state(Arc::new(Inbox {
            options,
            on_result: Box::new(on_result),
        }))
}

/// How long one result may take.
const TIMEOUT: Duration = Duration::from_secs(10);

struct Inbox {
    options: Options,
    on_result: Box<dyn Fn(TaskResult) + Send + Sync>,
}

async fn take(State(inbox): State<Arc<Inbox>>, body: Bytes) -> StatusCode {
    let options = inbox.options;
    let read = work::done(For::Stranger, body.len(), move || {
        decode_result(&body, &options)
    });
    match read.await {
        Ok((result, _)) => {
            (inbox.on_result)(result);
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
