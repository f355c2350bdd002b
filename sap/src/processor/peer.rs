//! Who brought a task: what the transport knows, beside what the task says of its issuer.

use std::sync::Arc;

use futures::future::BoxFuture;
use ubos_common::canon::Digest;
use ubos_common::secret::Secret;
use ubos_common::trace_context::TraceContext;

/// Who brought a task, as far as its transport knows. The issuer that the task names is a claim of this peer.
///
/// | transport | what it knows |
/// |---|---|
/// | `bus`, and a direct call | that it is the same process |
/// | `http` | a certificate (mutual TLS), a bearer token, the user of a Unix socket |
/// | `mcp` | over HTTP as `http`; else what the server is told (`with_peer`) |
/// | `nats` | the user that may publish on the subject of the task |
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Peer {
    /// It is the same process.
    pub same_process: bool,
    /// Its certificate in DER form, which an authority of the server has signed.
    pub certificate: Option<Arc<[u8]>>,
    /// Its bearer token, which nobody has checked.
    pub bearer: Option<Arc<Secret<String>>>,
    /// Its user id on this system.
    pub unix_user: Option<u32>,
    /// Its name at the NATS server.
    pub nats_user: Option<String>,
    /// The signature that came beside the task, which nobody has checked.
    #[cfg(feature = "sign")]
    pub signature: Option<crate::sign::Signature>,
    /// The place in a trace that came beside the task. It says nothing of who the peer is.
    pub trace: Option<TraceContext>,
}

impl Peer {
    /// One in the same process.
    #[must_use]
    pub fn same_process() -> Self {
        Self {
            same_process: true,
            ..Self::default()
        }
    }

    #[cfg(all(unix, feature = "http"))]
    pub(crate) fn unix(user: Option<u32>) -> Self {
        Self {
            unix_user: user,
            ..Self::default()
        }
    }

    #[cfg(feature = "nats")]
    pub(crate) fn on_nats(user: Option<String>) -> Self {
        Self {
            nats_user: user,
            ..Self::default()
        }
    }

    /// What the peer can be recognised by.
    pub(super) fn identities(&self) -> impl Iterator<Item = Identity> + '_ {
        let certificate = self.certificate.as_deref().map(Identity::certificate);
        let bearer = self.bearer.as_deref().map(Identity::bearer);
        let same = self.same_process.then_some(Identity::SameProcess);
        [
            certificate,
            bearer,
            self.unix_user.map(Identity::UnixUser),
            self.nats_user.clone().map(Identity::NatsUser),
            same,
        ]
        .into_iter()
        .flatten()
    }
}

/// Who asks for one task.
pub(crate) struct Asker<'a> {
    pub(crate) peer: &'a Peer,
    /// Ready when it wants the task no more.
    pub(crate) cancelled: Option<BoxFuture<'static, ()>>,
}

impl<'a> From<&'a Peer> for Asker<'a> {
    fn from(peer: &'a Peer) -> Self {
        Self {
            peer,
            cancelled: None,
        }
    }
}

/// One thing that a peer is recognised by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Identity {
    /// The same process.
    SameProcess,
    /// The BLAKE3 digest of a certificate's DER form.
    Certificate(Digest),
    /// The BLAKE3 digest of a bearer token, so that no token is kept.
    Bearer(Digest),
    /// A user id of this system.
    UnixUser(u32),
    /// A name at the NATS server.
    NatsUser(String),
}

impl Identity {
    /// The identity of a certificate, given in DER form.
    #[must_use]
    pub fn certificate(der: &[u8]) -> Self {
        Self::Certificate(Digest::of_bytes(der))
    }

    /// The identity of a bearer token.
    #[must_use]
    pub fn bearer(token: &Secret<String>) -> Self {
        Self::Bearer(Digest::of_bytes(token.expose().as_bytes()))
    }
}
