//! What an application decides itself: who may do what, and whether an output keeps its contract.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::Raw;

use crate::ident::{AgentId, Capability};
use crate::task::{Issuer, OutputContract};

/// Whether an issuer may have a capability done. Asked before any handler. Spec: SAP 11
pub trait Authorize: fmt::Debug + Send + Sync {
    /// The decision.
    fn authorize(&self, issuer: &Issuer, capability: &Capability) -> Access;
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

/// Everybody may do everything: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowAll;

impl Authorize for AllowAll {
    fn authorize(&self, _: &Issuer, _: &Capability) -> Access {
        Access::Allowed
    }
}

/// What is not in the table is denied.
///
/// ```
/// use sap::processor::{Access, Authorize as _, Table};
/// use sap::{AgentKind, Issuer};
///
/// let table = Table::default().allow("A-prime".parse()?, "consult.align".parse()?);
/// let issuer = |id: &str| Issuer::new(id.parse().unwrap(), AgentKind::Agent);
/// assert_eq!(table.authorize(&issuer("A-prime"), &"consult.align".parse()?), Access::Allowed);
/// assert_eq!(table.authorize(&issuer("A-prime"), &"consult.burn".parse()?), Access::Forbidden);
/// assert_eq!(table.authorize(&issuer("A-other"), &"consult.align".parse()?), Access::Unknown);
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
    fn authorize(&self, issuer: &Issuer, capability: &Capability) -> Access {
        match self.0.get(&issuer.agent_id) {
            Some(allowed) if allowed.contains(capability) => Access::Allowed,
            Some(_) => Access::Forbidden,
            None => Access::Unknown,
        }
    }
}

/// Whether an output keeps the task's contract. `Schemas` (feature `schema`) is one.
pub trait ContractCheck: fmt::Debug + Send + Sync {
    /// The finding.
    fn check(&self, contract: &OutputContract, output: Raw<'_>) -> ContractFinding;
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
    fn check(&self, _: &OutputContract, _: Raw<'_>) -> ContractFinding {
        ContractFinding::Kept
    }
}
