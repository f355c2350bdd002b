//! What an application decides itself: who may do what, and whether an output keeps its contract.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::Raw;

use crate::alignment::{Assessment, Policy, Subject};
use crate::future::{BoxFuture, ready};
use crate::ident::{AgentId, Capability};
use crate::task::{Issuer, OutputContract};

/// Whether an issuer may have a capability done. Asked before any handler. Spec: SAP 11
pub trait Authorize: fmt::Debug + Send + Sync {
    /// The decision.
    fn authorize<'a>(
        &'a self,
        issuer: &'a Issuer,
        capability: &'a Capability,
    ) -> BoxFuture<'a, Access>;
}

/// What is decided about an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It may.
    Allowed,
    /// It is known and may not: `FORBIDDEN`.
    Forbidden,
    /// It is not known: `UNAUTHORIZED`.
    Unknown,
}

/// Everybody may do everything. For agents of one owner, which nobody else can reach.
// exhaustive: it has nothing to set
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it has nothing to set")]
pub struct AllowAll;

impl Authorize for AllowAll {
    fn authorize<'a>(&'a self, _: &'a Issuer, _: &'a Capability) -> BoxFuture<'a, Access> {
        ready(Access::Allowed)
    }
}

/// What is not in the table is denied.
///
/// ```
/// # use futures::executor::block_on;
/// use sap::processor::{Access, Authorize as _, Table};
/// use sap::{AgentKind, Issuer};
///
/// let table = Table::default().allow("A-prime".parse()?, "consult.align".parse()?);
/// let issuer = |id: &str| Issuer::new(id.parse().unwrap(), AgentKind::Agent);
/// assert_eq!(block_on(table.authorize(&issuer("A-prime"), &"consult.align".parse()?)), Access::Allowed);
/// assert_eq!(block_on(table.authorize(&issuer("A-prime"), &"consult.burn".parse()?)), Access::Forbidden);
/// assert_eq!(block_on(table.authorize(&issuer("A-other"), &"consult.align".parse()?)), Access::Unknown);
/// # Ok::<(), sap::NameError>(())
/// ```
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
    fn authorize<'a>(
        &'a self,
        issuer: &'a Issuer,
        capability: &'a Capability,
    ) -> BoxFuture<'a, Access> {
        ready(match self.0.get(&issuer.agent_id) {
            Some(allowed) if allowed.contains(capability) => Access::Allowed,
            Some(_) => Access::Forbidden,
            None => Access::Unknown,
        })
    }
}

/// Gives the verdicts of a processor. Each [`Policy`] is a judge that answers at once; one that asks a model or a
/// server implements this trait.
pub trait Judge: fmt::Debug + Send + Sync {
    /// The verdict.
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment>;
}

impl<P: Policy> Judge for P {
    fn judge<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        ready(self.assess(&subject))
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

/// What was found about an output and its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContractFinding {
    /// The contract is kept, or asks for nothing.
    Kept,
    /// It is broken at these pointers into the output: `UNPROCESSABLE`.
    Broken(Vec<String>),
    /// It cannot be judged, and is not enforced.
    NotEnforced(NotEnforced),
}

/// Why a contract is not enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotEnforced {
    /// Its schema is a descriptor: it does not compile as JSON Schema.
    #[error("the schema of the contract is no JSON Schema that can be compiled")]
    NoSchema,
    /// The schema is longer, or refers more often, than may be.
    #[error("the schema of the contract is over its bounds")]
    TooLarge,
    /// The schema refers to something that is not in it, which is not fetched.
    #[error("the schema of the contract refers to something outside of it")]
    Remote,
    /// The output has a number that the check cannot hold.
    #[error("the output has a number that no double holds")]
    Number,
    /// To hold this output against the schema takes more steps than the budget.
    #[error("holding the output against its contract takes more steps than the budget")]
    TooExpensive,
}

/// Takes every output: the default, for handlers that check their outputs themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unchecked;

impl ContractCheck for Unchecked {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        ready(ContractFinding::Kept)
    }
}
