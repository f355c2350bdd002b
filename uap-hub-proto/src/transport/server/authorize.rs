//! Authorization of registrations.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::task::JoinSet;
use tonic::{Request, Status, metadata::MetadataMap};

use crate::wire::AgentRegistration;

/// The hook that decides about each registration.
#[derive(Clone)]
pub(crate) struct Authorize(Arc<AuthorizeFn>);

type Asked = Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>;
type AuthorizeFn = dyn Fn(Applicant) -> Asked + Send + Sync;

impl Authorize {
    /// A hook made of an async function. It ends with the call that it is asked for.
    pub(super) fn new<F, Fut>(hook: F) -> Self
    where
        F: Fn(Applicant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        Self(Arc::new(move |applicant| Box::pin(hook(applicant))))
    }

    /// Calls the hook, and turns its panic into an error.
    pub(super) async fn ask(&self, request: &Request<AgentRegistration>) -> Result<(), Status> {
        let applicant = Applicant {
            registration: request.get_ref().clone(),
            addr: request.remote_addr(),
            certificates: certificates(request),
            metadata: request.metadata().clone(),
        };
        let (hook, mut task) = (self.0.clone(), JoinSet::new());
        task.spawn(async move { hook(applicant).await });
        match task.join_next().await {
            Some(Ok(Ok(()))) => Ok(()),
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

#[cfg(feature = "tls")]
fn certificates(request: &Request<AgentRegistration>) -> Vec<Vec<u8>> {
    let chain = request.peer_certs().unwrap_or_default();
    chain.iter().map(|one| one.as_ref().to_vec()).collect()
}

#[cfg(not(feature = "tls"))]
const fn certificates(_: &Request<AgentRegistration>) -> Vec<Vec<u8>> {
    Vec::new()
}

/// An agent that asks to register. Nothing shows its metadata, which may hold a secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Applicant {
    /// Its registration.
    pub registration: AgentRegistration,
    /// Its network address.
    pub addr: Option<SocketAddr>,
    /// The certificate chain (DER) that it proved to hold; empty without mutual TLS.
    pub certificates: Vec<Vec<u8>>,
    metadata: MetadataMap,
}

impl Applicant {
    /// A text of the call's metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.to_str().ok()
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

impl fmt::Debug for Applicant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applicant")
            .field("registration", &self.registration)
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

/// Why a registration is denied, in words that the agent gets.
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
