//! What a router enters in the ledgers of its agents.

use ubos_common::time::Mono;

use super::state::{About, Route, Router};
use crate::ledger::{Charge, Ledger, Share};
use crate::message::Caller;
use crate::role::core::{CallRequest, Outcome};
use crate::role::idempotency::Key;

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
        let own = Route::bytes(request, key) + input_bytes(key, request);
        let charge = ledger.take(Share::Calls, own)?;
        request.charge = ledger.take(Share::Calls, request.weight())?;
        Some(charge)
    }

    /// A copy of an end for somebody else, among the results of its agent.
    pub(super) fn copy_of(&mut self, agent: &str, outcome: &Outcome) -> Outcome {
        let mut copy = outcome.clone();
        // Any other is a sentence of ours.
        if copy.by_agent {
            copy.enter(&self.ledger(agent));
        }
        copy
    }

    /// A copy of an end that is to be remembered, and its bytes. The oldest ones of the agent make room for it.
    pub(super) fn remembered(
        &mut self,
        entry: &Route,
        key: &Key,
        outcome: &Outcome,
    ) -> Option<(Outcome, usize)> {
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
    pub(super) fn bytes(request: &CallRequest, key: Option<&Key>) -> usize {
        let keyed = key.map_or(0, |key| 2 * key.weight() + About::bytes(request));
        ROUTE_BYTES + request.tool_id.len() + keyed
    }
}

impl About {
    pub(super) fn of(asked: Mono, request: &CallRequest) -> Box<Self> {
        Box::new(Self {
            request_id: request.request_id.clone(),
            correlation_id: request.correlation_id.clone(),
            causation_id: request.causation_id.clone(),
            caller: request.caller.clone(),
            asked,
        })
    }

    /// The bytes of what a request says.
    fn bytes(request: &CallRequest) -> usize {
        let ids = [
            &request.request_id,
            &request.correlation_id,
            &request.causation_id,
        ];
        let ids = ids.into_iter().flatten().map(String::len).sum::<usize>();
        ids + request.caller.as_ref().map_or(0, Caller::weight)
    }
}

/// The bytes of the input that is kept for a key.
fn input_bytes(key: Option<&Key>, request: &CallRequest) -> usize {
    key.map_or(0, |_| request.input.as_str().len())
}

/// Bytes that a call takes in a router beside its texts.
const ROUTE_BYTES: usize = 512;
