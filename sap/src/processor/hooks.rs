//! What an application decides itself: who may do what, and whether an output keeps its contract.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::Raw;

use super::peer::Peer;
use crate::alignment::{Assessment, Policy, Subject};
use crate::future::{BoxFuture, ready};
use crate::ident::{AgentId, Capability};
use crate::role::consumer::{Access, ContractFinding};
use crate::task::{OutputContract, Task};

/// Whether the issuer of a task may have its capability done, and whether the peer that brought it may speak for
/// that issuer ([`Speakers`](super::Speakers)). Asked before any handler. Spec: SAP 11
pub trait Authorize: fmt::Debug + Send + Sync {
    /// The decision.
    fn authorize<'a>(&'a self, peer: &'a Peer, task: &'a Task) -> BoxFuture<'a, Access>;

    /// Whether a peer may know that a capability is here: MCP lists to it those of which this is true, and
    /// says of any other no more than of one that is not here. It waits for nothing. Nobody may by default.
    fn shows(&self, peer: &Peer, capability: &Capability) -> bool {
        let _ = (peer, capability);
        false
    }
}

/// Everybody may do everything. For agents of one owner, which nobody else can reach.
// exhaustive: it has nothing to set
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it has nothing to set")]
pub struct AllowAll;

impl Authorize for AllowAll {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        ready(Access::Allowed)
    }

    fn shows(&self, _: &Peer, _: &Capability) -> bool {
        true
    }
}

/// What is not in the table is denied.
///
/// ```
/// # use futures::executor::block_on;
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp};
/// use sap::processor::{Access, Authorize as _, Peer, Table};
///
/// # let task = |issuer: &str, capability: &str| Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH,
/// #     Issuer::new(issuer.parse().unwrap(), AgentKind::Agent), Target::new(capability.parse().unwrap()),
/// #     ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// let table = Table::default().allow("A-prime".parse()?, "consult.align".parse()?);
/// let asked = |issuer, what| block_on(table.authorize(&Peer::default(), &task(issuer, what)));
/// assert_eq!(asked("A-prime", "consult.align"), Access::Allowed);
/// assert_eq!(asked("A-prime", "consult.burn"), Access::Forbidden);
/// assert_eq!(asked("A-other", "consult.align"), Access::Unknown);
/// # Ok::<(), sap::NameError>(())
/// ```
///
/// The issuer of a task is what the task says: a claim of whoever brought it. Where strangers may send tasks,
/// [`Speakers`](super::Speakers) or `Signed` in front of this table hold them to it. For the same reason the table alone shows
/// everybody the capabilities that any issuer may have done.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<AgentId, BTreeSet<Capability>>);

impl Table {
    /// Lets an issuer have a capability done.
    #[must_use]
    pub fn allow(mut self, issuer: AgentId, capability: Capability) -> Self {
        self.0.entry(issuer).or_default().insert(capability);
        self
    }
}

impl Authorize for Table {
    fn authorize<'a>(&'a self, _: &'a Peer, task: &'a Task) -> BoxFuture<'a, Access> {
        ready(match self.0.get(&task.issuer.agent_id) {
            Some(allowed) if allowed.contains(&task.target.capability) => Access::Allowed,
            Some(_) => Access::Forbidden,
            None => Access::Unknown,
        })
    }

    fn shows(&self, _: &Peer, capability: &Capability) -> bool {
        self.0.values().any(|allowed| allowed.contains(capability))
    }
}

/// Gives the verdicts of a processor. Each [`Policy`] is a judge that waits for nothing; one that asks a model or a
/// server implements this trait.
pub trait Judge: fmt::Debug + Send + Sync {
    /// The verdict.
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment>;
}

impl<P: Policy> Judge for P {
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        self.assess_apart(subject)
    }
}

/// Whether an output keeps the task's contract. `Schemas` (feature `schema`) is one.
pub trait ContractCheck: fmt::Debug + Send + Sync {
    /// The finding.
    fn check<'a>(
        &'a self,
        contract: &'a OutputContract,
        output: Raw<'a>,
    ) -> BoxFuture<'a, ContractFinding>;
}

/// Takes every output: the default, for handlers that check their outputs themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unchecked;

impl ContractCheck for Unchecked {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        ready(ContractFinding::Kept)
    }
}
