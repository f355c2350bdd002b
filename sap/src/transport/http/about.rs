//! What is asked about a task that was sent before.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::get;
use futures::StreamExt as _;
use reqwest::Url;

use super::ISSUER;
use super::accept::wants_lines;
use super::admission::admit_head;
use super::closing::Closing;
use super::config::Config;
use super::request::peer_of;
use super::response::{echo, last, lines, signed, whole};
use crate::error::ErrorCode;
use crate::ident::{AgentId, TaskId};
use crate::receipt::Nack;
use crate::transport::{About, Message, Service};

struct Asked {
    service: Service,
    config: Config,
    closing: Closing,
}

/// The routes below the path where tasks are posted.
pub(super) fn router(service: Service, config: Config, closing: Closing) -> Router {
    let path = config.path.trim_end_matches('/').to_owned();
    let asked = Asked {
        service,
        config,
        closing,
    };
    Router::new()
        .route(&format!("{path}/{{task}}"), get(latest).delete(latest))
        .route(&format!("{path}/{{task}}/events"), get(events))
        .with_state(Arc::new(asked))
}

/// `GET` tells how far a task is; `DELETE` has it stopped before.
// impl: SAP-10-2
async fn latest(
    State(asked): State<Arc<Asked>>,
    Path(task_id): Path<String>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let about = match asked.find(&head, &task_id).await {
        Ok(about) => about,
        Err(refused) => return refused,
    };
    let message = match head.method == Method::DELETE {
        true => about.cancel().await,
        false => about.latest().await,
    };
    let mut response = signed(&asked.service, &message).await;
    echo(&mut response, message.correlation_id(), &head.headers);
    response
}

/// How far a task is, and what is said about it from now on, in the forms in which a task is answered.
async fn events(
    State(asked): State<Arc<Asked>>,
    Path(task_id): Path<String>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let about = match asked.find(&head, &task_id).await {
        Ok(about) => about,
        Err(refused) => return refused,
    };
    let correlation = about.latest().await.correlation_id().copied();
    let messages = futures::stream::unfold(about, async |mut about: About| {
        let message = about.next().await?;
        Some((Ok(message), about))
    });
    // A task that came another way may go on when this server has ended.
    let messages = messages.take_until(asked.closing.closed()).boxed();
    let mut response = match wants_lines(&head.headers) {
        true => lines(messages).await,
        false => last(&asked.service, messages).await,
    };
    echo(&mut response, correlation.as_ref(), &head.headers);
    response
}

impl Asked {
    /// The task that a request is about, or what it is answered.
    async fn find(&self, head: &Parts, task_id: &str) -> Result<About, Response> {
        let found = match admit_head(head, &self.config) {
            Err(turned) => {
                let mut nack = Nack::malformed(turned.why);
                nack.code = turned.code;
                Err((turned.status, self.service.note(nack).await))
            }
            Ok(()) => match (task_id.parse(), issuer_of(head)) {
                (Ok(task_id), Some(issuer)) => self.known(head, &issuer, &task_id).await,
                _ => {
                    let why = "a task is asked about by its id and a parameter \"issuer\"";
                    let nack = self.service.note(Nack::malformed(why)).await;
                    Err((StatusCode::BAD_REQUEST, nack))
                }
            },
        };
        found.map_err(|(status, nack)| {
            let mut response = whole(status, &Message::Nack(nack));
            echo(&mut response, None, &head.headers);
            response
        })
    }

    async fn known(
        &self,
        head: &Parts,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Result<About, (StatusCode, Nack)> {
        let about = self.service.about(&peer_of(head), issuer, task_id).await;
        about.map_err(|nack| match nack.code {
            ErrorCode::RateLimit => (StatusCode::TOO_MANY_REQUESTS, nack),
            _ => (StatusCode::NOT_FOUND, nack),
        })
    }
}

/// Whose task it is, which its id alone does not say.
fn issuer_of(head: &Parts) -> Option<AgentId> {
    // The query alone is looked at; a host is needed to read it.
    let url = format!("http://host/?{}", head.uri.query()?);
    let url = Url::parse(&url).ok()?;
    let mut named = url.query_pairs().filter(|(name, _)| name == ISSUER);
    let (_, issuer) = named.next()?;
    issuer.parse().ok()
}
