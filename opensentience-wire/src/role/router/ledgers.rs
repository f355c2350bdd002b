//! The ledgers of the agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::Ledger;

/// One for each agent. It outlives connections, and goes when nothing is kept for its agent any more.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    known: BTreeMap<Arc<str>, Ledger>,
    /// The number at which those that nobody knows any more are removed.
    prune_at: usize,
}

impl Ledgers {
    pub(super) fn of(&mut self, agent: &str, max_bytes: usize) -> Ledger {
        if let Some(known) = self.known.get(agent) {
            return known.clone();
        }
        if self.known.len() >= self.prune_at {
            self.known.retain(|_, ledger| ledger.is_shared());
            self.prune_at = self.known.len().saturating_mul(2).max(FEW);
        }
        let ledger = Ledger::new(max_bytes);
        self.known.insert(agent.into(), ledger.clone());
        ledger
    }
}

/// As many ledgers are always kept.
const FEW: usize = 64;
