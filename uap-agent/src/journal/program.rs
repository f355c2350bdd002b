//! The program of a run: what decides which requests it makes.

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::time::Now;

use super::entry::{BeginEntry, HexDigest, VERSION};
use super::lease::Ownership;
use super::{JournalError, fingerprint};
use crate::engine::{Engine, EngineConfig, RunStart};

/// What decides which requests a run makes: a configuration with its strategy.
impl EngineConfig {
    pub(super) fn begin_entry(
        &self,
        now: Now,
        seed: u64,
        start: RunStart,
        owner: &Ownership,
    ) -> BeginEntry {
        let tenure = owner.tenure(1);
        let hex = |(name, digest): (&str, _)| (name.to_owned(), HexDigest(digest));
        BeginEntry {
            at: now,
            version: VERSION,
            owner: tenure.owner,
            term: tenure.term,
            approvals: self.approvals.is_some(),
            agent_id: start.agent_id,
            session_id: start.session_id,
            strategy: self.execution.name().into(),
            has_hooks: self.hooks,
            layers: self.layers.clone(),
            retries: self.retries,
            repairs: self.repair.is_some(),
            plan_events: self.plan_events,
            saves: self.saves,
            seed,
            program: fingerprint::program(&self.llm)
                .into_iter()
                .map(hex)
                .collect(),
            input: start.input,
            state: start.state,
        }
    }

    pub(super) fn engine(&self, begin: &BeginEntry) -> Engine {
        let agent_id = Arc::clone(&begin.agent_id);
        let mut start = RunStart::new(agent_id, begin.state.clone(), begin.input.clone());
        start.session_id.clone_from(&begin.session_id);
        let ids = IdSource::seeded(begin.seed);
        Engine::new(begin.at, self.clone(), ids, start)
    }

    /// Checks that this is the program of a recorded run.
    pub(super) fn check(&self, begin: &BeginEntry) -> Result<(), JournalError> {
        let refuse = |what: &str| Err(JournalError::Program { what: what.into() });
        if *self.execution.name() != *begin.strategy {
            return refuse("strategy");
        }
        let now = fingerprint::program(&self.llm);
        let differs = now
            .iter()
            .find(|(name, digest)| begin.program.get(*name).map(|hex| hex.0) != Some(*digest));
        if let Some((name, _)) = differs {
            return refuse(name);
        }
        let parts = [
            ("middleware", self.layers == begin.layers),
            ("hooks", self.hooks == begin.has_hooks),
            ("retries", self.retries == begin.retries),
            ("repair", self.repair.is_some() == begin.repairs),
            ("plan events", self.plan_events == begin.plan_events),
            ("checkpoints", self.saves == begin.saves),
            ("approvals", self.approvals.is_some() == begin.approvals),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((name, _)) => refuse(name),
            None => Ok(()),
        }
    }
}
