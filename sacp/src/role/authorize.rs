//! Who may ask whom for what.

use core::fmt;
use std::collections::BTreeMap;

/// What a sender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access<'a> {
    /// The sender: the one that the host names, else the one that a message of 1.0 names itself. `None` if neither does.
    pub sender: Option<&'a str>,
    /// The verb, under its registered name.
    pub verb: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// The agent; `None` if one would be spawned.
    pub agent: Option<&'a str>,
}

/// Decides who may ask whom for what.
///
/// An orchestrator asks before it delegates or spawns anything, and again for each delegation. What a message of 1.0 says of
/// its sender is not proved: a host that knows better says so with
/// [`OrchestratorConfig::with_requester`](super::orchestrator::OrchestratorConfig::with_requester).
///
/// Spec: SACP 1.0, 7 (`AUTHZ_DENIED`)
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Whether the sender may have this.
    fn allows(&self, access: &Access<'_>) -> bool;
}

/// What each sender may ask for. Nothing else is allowed, and nothing without a sender.
///
/// ```
/// use sacp::role::{AllowList, Grant};
///
/// let searches = Grant { verb: Some("search".into()), ..Grant::default() };
/// let list = AllowList::default().with("alice", searches).with("root", Grant::default());
/// # drop(list);
/// ```
///
/// Spec: SACP 1.0, 7 (`AUTHZ_DENIED`)
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    grants: BTreeMap<String, Vec<Grant>>,
}

/// Something that is allowed; an absent member stands for any.
///
/// Spec: SACP 1.0, 7 (`AUTHZ_DENIED`)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
// exhaustive: what an access has, but its sender
pub struct Grant {
    /// The verb, under its registered name.
    pub verb: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The agent. A grant that names one does not allow a spawn.
    pub agent: Option<String>,
}

impl AllowList {
    /// Allows something to a sender, besides what it already may.
    #[must_use]
    pub fn with(mut self, sender: &str, grant: Grant) -> Self {
        self.grants
            .entry(sender.to_owned())
            .or_default()
            .push(grant);
        self
    }
}

impl Authorizer for AllowList {
    fn allows(&self, access: &Access<'_>) -> bool {
        let grants = access.sender.and_then(|sender| self.grants.get(sender));
        grants
            .into_iter()
            .flatten()
            .any(|grant| grant.covers(access))
    }
}

impl Grant {
    fn covers(&self, access: &Access<'_>) -> bool {
        let is = |own: &Option<String>, asked: Option<&str>| match own {
            None => true,
            Some(own) => asked == Some(own),
        };
        is(&self.verb, Some(access.verb))
            && is(&self.tool, Some(access.tool))
            && is(&self.agent, access.agent)
    }
}
