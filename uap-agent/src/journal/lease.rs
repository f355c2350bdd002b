//! Who may write a run: a lease with an epoch.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::time::{Mono, Now, Timestamp};

/// The lease of a run: who writes its journal.
///
/// A run that is recorded has epoch 1, and each resumption takes the next. From then on every write of an earlier epoch is
/// refused, because the lease is an entry itself and [`Journal::append`](super::Journal::append) compares the place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Counts the owners of the run, from 1.
    pub epoch: u64,
    /// The name of the owner.
    pub owner: Arc<str>,
    /// Until when nobody else takes the run over. `None` where it can be taken over at any time: the lease has no term, or
    /// was released.
    pub until: Option<Timestamp>,
}

/// What is done on a resumption with a tool call that was requested and has no recorded result. Nobody can know whether
/// it has run.
///
/// Calls inside of a `SubagentTool` are not recorded. Where its call is repeated, those tools are called again for which
/// nothing else is set by name ([`Ownership::with_unknown_of`]), in the outer runs or in the agent's own `Ownership`: with
/// `Fail` and `Wait` they get an error result, because a run inside of a call cannot wait. The default of the agent's own
/// `Ownership` ([`Ownership::with_unknown`]) counts as well, that of the outer runs does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownOutcome {
    /// The tool is called again, with the same `RunScope::idempotency_key`, and `CallScope::is_repeated` is set.
    #[default]
    AskAgain,
    /// The call fails: the model is told that its outcome is unknown.
    Fail,
    /// The run waits for a person who approves another call, rejects it, or tells its result.
    Wait,
}

/// How an agent owns the runs that it records and resumes.
///
/// | setting | default |
/// |---|---|
/// | name | the agent's id |
/// | term | that of the journal ([`Journal::default_term`](super::Journal::default_term)): 60 seconds in databases, none in files and in memory |
/// | tools whose outcome is unknown | [`UnknownOutcome::AskAgain`] |
///
/// A lease has a term where several processes reach a journal and none holds it open alone. The run then renews its lease
/// while it waits, and a resumption is refused until the lease has ended. Without one, another process takes the run over at
/// any time. Clocks that differ make a takeover early or late, but never let two processes write.
///
/// ```
/// use std::time::Duration;
/// use uap_agent::journal::{Ownership, UnknownOutcome};
///
/// let ownership = Ownership::new("worker-7")
///     .with_term(Duration::from_secs(30))
///     .with_unknown(UnknownOutcome::AskAgain)
///     .with_unknown_of("pay", UnknownOutcome::Wait);
/// assert_eq!(ownership.unknown_of("pay"), UnknownOutcome::Wait);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    pub(crate) owner: Option<Arc<str>>,
    /// `None` where it is that of the journal.
    term: Option<Option<Duration>>,
    unknown: UnknownOutcome,
    of_tools: BTreeMap<Box<str>, UnknownOutcome>,
    takes_living: bool,
}

impl Ownership {
    /// An owner with a name, such as that of a process, and the default for every setting.
    #[must_use]
    pub fn new(owner: impl Into<Arc<str>>) -> Self {
        Self {
            owner: Some(owner.into()),
            ..Self::default()
        }
    }

    /// Sets how long nobody else takes the run over after an entry was written; [`agent`](crate::agent()) refuses less than
    /// a millisecond. The run writes an entry after each third of it in which it has written nothing else.
    #[must_use]
    pub const fn with_term(mut self, term: Duration) -> Self {
        self.term = Some(Some(term));
        self
    }

    /// Lets everybody take the run over at any time, whatever the journal.
    #[must_use]
    pub const fn without_term(mut self) -> Self {
        self.term = Some(None);
        self
    }

    /// Takes the term of a journal, where none is set.
    #[must_use]
    pub fn in_journal(mut self, journal: &dyn super::Journal) -> Self {
        self.term.get_or_insert_with(|| journal.default_term());
        self
    }

    #[cfg(feature = "driver")]
    pub(crate) fn check(&self) -> Result<(), ubos_common::ConfigError> {
        match self.term.flatten() {
            Some(term) => {
                ubos_common::ConfigError::at_least("term", term, Duration::from_millis(1))
            }
            None => Ok(()),
        }
    }

    /// Sets what is done with tool calls whose outcome is unknown.
    #[must_use]
    pub const fn with_unknown(mut self, policy: UnknownOutcome) -> Self {
        self.unknown = policy;
        self
    }

    /// Sets what is done with calls of one tool whose outcome is unknown.
    #[must_use]
    pub fn with_unknown_of(mut self, tool: impl Into<Box<str>>, policy: UnknownOutcome) -> Self {
        self.of_tools.insert(tool.into(), policy);
        self
    }

    /// Sets whether a run is taken over although its lease has not ended.
    #[must_use]
    pub const fn with_force(mut self, takes_living: bool) -> Self {
        self.takes_living = takes_living;
        self
    }

    /// What is done with calls of a tool whose outcome is unknown.
    #[must_use]
    pub fn unknown_of(&self, tool: &str) -> UnknownOutcome {
        self.unknown_by_name(tool).unwrap_or(self.unknown)
    }

    /// What is done with calls of a tool for which it was set ([`Ownership::with_unknown_of`]).
    pub(crate) fn unknown_by_name(&self, tool: &str) -> Option<UnknownOutcome> {
        self.of_tools.get(tool).copied()
    }

    /// Whether a lease may be taken.
    pub(super) fn may_take(&self, now: Timestamp, lease: &Lease) -> bool {
        self.takes_living || lease.until.is_none_or(|until| until <= now)
    }

    pub(super) fn tenure(&self, epoch: u64) -> Tenure {
        Tenure {
            epoch,
            owner: self.owner.clone().unwrap_or_default(),
            term: self.term.flatten(),
            renew_at: None,
        }
    }
}

/// The lease that a recorder holds.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) epoch: u64,
    pub(super) owner: Arc<str>,
    pub(super) term: Option<Duration>,
    /// When the lease is renewed, if nothing is written before.
    pub(super) renew_at: Option<Mono>,
}

impl Tenure {
    /// The entry that takes or renews the lease.
    pub(super) fn entry(&self, at: Now) -> LeaseEntry {
        LeaseEntry {
            at,
            epoch: self.epoch,
            owner: Arc::clone(&self.owner),
            term: self.term,
            is_released: false,
        }
    }

    /// The entry that gives the lease up.
    pub(super) fn release(&self, at: Now) -> LeaseEntry {
        LeaseEntry {
            is_released: true,
            ..self.entry(at)
        }
    }

    /// Something was written: the lease begins anew.
    pub(super) fn written(&mut self, now: Now) {
        self.renew_at = self.term.map(|term| now.mono.saturating_add(term / 3));
    }
}

/// A lease as an entry. The entry of the present epoch renews it.
#[derive(Clone, Debug)]
pub(super) struct LeaseEntry {
    pub(super) at: Now,
    pub(super) epoch: u64,
    pub(super) owner: Arc<str>,
    pub(super) term: Option<Duration>,
    pub(super) is_released: bool,
}

/// The lease as the entries of a journal leave it.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    pub(super) last: LeaseEntry,
}

impl LeaseState {
    /// Each entry that has a time prolongs the lease.
    pub(super) fn prolong(&mut self, at: Now) {
        self.last.at = at;
    }

    pub(super) fn lease(&self) -> Lease {
        let last = &self.last;
        let term = last.term.filter(|_| !last.is_released);
        Lease {
            epoch: last.epoch,
            owner: Arc::clone(&last.owner),
            until: term.map(|term| last.at.wall.saturating_add(term)),
        }
    }
}
