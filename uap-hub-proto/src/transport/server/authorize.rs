//! Authorization of registrations.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::task::JoinSet;
use tonic::{Code, Request, Status, metadata::MetadataMap};

use crate::wire::AgentRegistration;

/// A hook that decides about each registration. A denied agent learns the reason.
///
/// ```
/// use uap_hub_proto::transport::server::{Authorize, Denied, ServerConfig};
///
/// let hook = Authorize::new(|applicant| async move {
///     match applicant.bearer_token() {
///         Some("sesame") => Ok(()),
///         Some(_) => Err(Denied::permission("that token may not register")),
///         None => Err(Denied::unauthenticated("a bearer token is wanted")),
///     }
/// });
/// let config = ServerConfig::default().with_authorize(hook);
/// ```
///
/// Spec: UAP hub 2
#[derive(Clone)]
pub struct Authorize(Arc<AuthorizeFn>);

type Asked = Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>;
type AuthorizeFn = dyn Fn(Applicant) -> Asked + Send + Sync;

impl Authorize {
    /// A hook made of an async function. It ends with the call that it is asked for.
    pub fn new<F, Fut>(hook: F) -> Self
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
            Some(Ok(Err(denied))) => Err(Status::new(denied.code, denied.reason)),
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

/// Why a registration is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    code: Code,
    reason: String,
}

impl Denied {
    /// The agent is unknown: `UNAUTHENTICATED`.
    pub fn unauthenticated(reason: impl Into<String>) -> Self {
        Self {
            code: Code::Unauthenticated,
            reason: reason.into(),
        }
    }

    /// The agent is known but not allowed: `PERMISSION_DENIED`.
    pub fn permission(reason: impl Into<String>) -> Self {
        Self {
            code: Code::PermissionDenied,
            reason: reason.into(),
        }
    }
}
