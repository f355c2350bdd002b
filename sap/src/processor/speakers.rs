//! Which issuers a peer may speak for.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::hooks::Authorize;
use super::peer::{Identity, Peer};
use crate::future::{BoxFuture, ready};
use crate::ident::{AgentId, Capability};
use crate::role::consumer::Access;
use crate::task::Task;

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

    /// To a peer that speaks for somebody, what the hook behind shows it.
    fn shows(&self, peer: &Peer, capability: &Capability) -> bool {
        let is_known = peer.identities().any(|id| self.issuers.contains_key(&id));
        is_known && self.then.shows(peer, capability)
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
