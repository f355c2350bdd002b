//! The ledgers of the agents, and what the router enters there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Route, Router};
use crate::ledger::{Charge, Ledger, Share};
use crate::role::core::{CallRequest, Outcome};
use crate::role::idempotency::Key;

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

impl Router {
    /// The ledger of an agent, for its connections: see [`CoreConnection::with_ledger`]. It is the same one as long as anything
    /// is kept for the agent.
    ///
    /// [`CoreConnection::with_ledger`]: crate::role::core::CoreConnection::with_ledger
    pub fn ledger(&mut self, agent: &str) -> Ledger {
        self.ledgers.of(agent, self.config.max_agent_bytes)
    }

    /// Enters a call: what the router keeps of it, and the request.
    pub(super) fn enter(
        &mut self,
        agent: &str,
        key: Option<&Key>,
        request: &mut CallRequest,
    ) -> Option<Charge> {
        let ledger = self.ledger(agent);
        let own = Route::bytes(&request.tool_id, key) + input_bytes(key, request);
        let charge = ledger.take(Share::Calls, own)?;
        request.charge = ledger.take(Share::Calls, request.weight())?;
        Some(charge)
    }

    /// A copy of an end for somebody else, among the results of its agent.
    pub(super) fn copy_of(&mut self, agent: &str, outcome: &Outcome) -> Outcome {
        let ledger = self.ledger(agent);
        match outcome.by_agent {
            true => outcome.clone().entered(&ledger),
            // A sentence of ours.
            false => outcome.clone(),
        }
    }

    /// A copy of an end that is to be remembered, and its bytes. The oldest ones of the agent make room for it.
    pub(super) fn to_remember(&mut self, entry: &Route, key: &Key, outcome: &Outcome) -> Option<(Outcome, usize)> {
        let weight = outcome.weight();
        let bytes = self.memory.bytes_with(key, weight);
        let ledger = self.ledger(&entry.agent);
        let charge = loop {
            match ledger.take(Share::Remembered, bytes) {
                Some(charge) => break charge,
                None if self.memory.forget_oldest(key.owner()) => {}
                None => return None,
            }
        };
        let mut kept = outcome.clone();
        kept.charge = charge;
        Some((kept, weight))
    }
}

impl Route {
    /// The bytes of one that waits for another, or has no key.
    pub(super) fn bytes(tool_id: &str, key: Option<&Key>) -> usize {
        ROUTE_BYTES + tool_id.len() + key.map_or(0, |key| 2 * key.weight())
    }
}

/// The bytes of the input that is kept for a key.
fn input_bytes(key: Option<&Key>, request: &CallRequest) -> usize {
    key.map_or(0, |_| request.input.as_str().len())
}

/// Bytes that a call takes in a router beside its texts.
const ROUTE_BYTES: usize = 512;
