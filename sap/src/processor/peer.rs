//! Who brought a task: what the transport knows, beside what the task says of its issuer.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::secret::Secret;

use super::hooks::Authorize;
use crate::future::{BoxFuture, ready};
use crate::ident::AgentId;
use crate::role::consumer::Access;
use crate::task::Task;

/// Who brought a task, as far as its transport knows. The issuer that the task names is a claim of this peer.
///
/// | transport | what it knows |
/// |---|---|
/// | `bus`, and a direct call | that it is the same process |
/// | `http` | a certificate (mutual TLS), a bearer token, the user of a Unix socket |
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
}

impl Peer {
    /// What the peer can be recognised by.
    fn identities(&self) -> impl Iterator<Item = Identity> + '_ {
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

/// Which issuers a peer may speak for, before another hook decides what they may have done. A peer that is not
/// listed is unknown, and one that names another issuer is refused.
///
/// ```
/// # use futures::executor::block_on;
/// # use std::sync::Arc;
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, secret::Secret, time::Timestamp};
/// use sap::processor::{Access, AllowAll, Authorize as _, Identity, Peer, Speakers};
///
/// let token = Arc::new(Secret::new("tok-1".to_owned()));
/// let speakers = Speakers::new(Arc::new(AllowAll)).allow(Identity::bearer(&token), "A-desk".parse()?);
/// # let task = |issuer: &str| Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH,
/// #     Issuer::new(issuer.parse().unwrap(), AgentKind::Agent), Target::new("text.upper".parse().unwrap()),
/// #     ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// let mut peer = Peer::default();
/// assert_eq!(block_on(speakers.authorize(&peer, &task("A-desk"))), Access::Unknown);
/// peer.bearer = Some(token);
/// assert_eq!(block_on(speakers.authorize(&peer, &task("A-desk"))), Access::Allowed);
/// assert_eq!(block_on(speakers.authorize(&peer, &task("A-other"))), Access::Forbidden);
/// # Ok::<(), sap::NameError>(())
/// ```
#[derive(Clone)]
pub struct Speakers {
    issuers: BTreeMap<Identity, BTreeSet<AgentId>>,
    then: Arc<dyn Authorize>,
}

impl Speakers {
    /// Nobody may speak for anybody yet; `then` decides about those who may.
    #[must_use]
    pub fn new(then: Arc<dyn Authorize>) -> Self {
        Self {
            issuers: BTreeMap::new(),
            then,
        }
    }

    /// Lets a peer speak for an issuer.
    #[must_use]
    pub fn allow(mut self, identity: Identity, issuer: AgentId) -> Self {
        self.issuers.entry(identity).or_default().insert(issuer);
        self
    }
}

impl Authorize for Speakers {
    // impl: SAP-11-2
    fn authorize<'a>(&'a self, peer: &'a Peer, task: &'a Task) -> BoxFuture<'a, Access> {
        let mut refused = Access::Unknown;
        for issuers in peer.identities().filter_map(|id| self.issuers.get(&id)) {
            if issuers.contains(&task.issuer.agent_id) {
                return self.then.authorize(peer, task);
            }
            refused = Access::Forbidden;
        }
        ready(refused)
    }
}

impl fmt::Debug for Speakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = &self.issuers.len();
        f.debug_struct("Speakers")
            .field("peers", peers)
            .finish_non_exhaustive()
    }
}
