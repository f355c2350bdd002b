//! Authorization of calls, before anything of their bodies is read.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::task::JoinSet;
use tonic::{Status, codegen::http, metadata::MetadataMap};
use ubos_common::trace_context::TraceContext;

use super::connection::{Peer, certificates};
use crate::{id::Identity, transport::carry::carried};

/// The hook that decides about each call.
#[derive(Clone)]
pub(crate) struct Authorize(Arc<AuthorizeFn>);

type Asked = Pin<Box<dyn Future<Output = Result<Identity, Denied>> + Send>>;
type AuthorizeFn = dyn Fn(Caller) -> Asked + Send + Sync;

impl Authorize {
    /// A hook made of an async function. It ends with the call that it is asked for.
    pub(super) fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(Caller) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Identity, Denied>> + Send + 'static,
    {
        Self(Arc::new(move |caller| Box::pin(hook(caller))))
    }

    /// Calls the hook, and turns its panic into an error.
    pub(super) async fn ask(&self, caller: Caller) -> Result<Identity, Status> {
        let (hook, mut task) = (self.0.clone(), JoinSet::new());
        task.spawn(async move { hook(caller).await });
        match task.join_next().await {
            Some(Ok(Ok(identity))) => Ok(identity),
            Some(Ok(Err(denied))) => Err(denied.into()),
            Some(Err(_)) | None => Err(Status::internal("the authorization hook panicked")),
        }
    }
}

impl fmt::Debug for Authorize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorize")
    }
}

/// An agent that makes a call: `Register`, `Listen`, `Execute` or `Translate`, or one of reflection. Nothing shows its metadata, which may hold a
/// secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Caller {
    /// Its network address.
    pub addr: Option<SocketAddr>,
    /// The certificate chain (DER) that it proved to hold; empty without mutual TLS.
    pub certificates: Vec<Vec<u8>>,
    metadata: MetadataMap,
}

impl Caller {
    pub(super) fn of<B>(request: &http::Request<B>) -> Self {
        Self {
            addr: Peer::of(request.extensions()).and_then(|peer| peer.addr),
            certificates: certificates(request.extensions()),
            metadata: MetadataMap::from_headers(request.headers().clone()),
        }
    }

    /// The identity of its certificate, which is what it has where no hook is set; `None` without mutual TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<Identity> {
        identity_of(&self.certificates)
    }

    /// A text of the call's metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.to_str().ok()
    }

    /// The place in a distributed trace that the call says it comes from; `None` where it says none, or none that is valid.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        carried(&self.metadata)
    }

    /// The token of `authorization: Bearer ...`.
    #[must_use]
    pub fn bearer_token(&self) -> Option<&str> {
        let (scheme, token) = self.metadata("authorization")?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim_start())
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

/// Notes the identity of a caller where no hook is set.
pub(super) fn note_certificate<B>(request: &mut http::Request<B>) {
    if let Some(identity) = identity_of(&certificates(request.extensions())) {
        request.extensions_mut().insert(identity);
    }
}

// impl: HUB-6-3
fn identity_of(certificates: &[Vec<u8>]) -> Option<Identity> {
    #[cfg(feature = "tls")]
    if let Some(own) = certificates.first() {
        let digest = ubos_common::canon::Digest::of_bytes(own);
        return Some(Identity::from(format!("certificate {digest}")));
    }
    let _ = certificates;
    None
}

/// Why a call is denied, in words that the agent gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// The agent is unknown: `UNAUTHENTICATED`.
    Unauthenticated(String),
    /// The agent is known but not allowed: `PERMISSION_DENIED`.
    Forbidden(String),
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unauthenticated(reason) => Self::unauthenticated(reason),
            Denied::Forbidden(reason) => Self::permission_denied(reason),
        }
    }
}
