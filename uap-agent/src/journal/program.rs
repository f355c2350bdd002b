//! The program of a run: what decides which requests it makes.

use core::fmt;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::time::Now;

use super::entry::{BeginEntry, HexDigest};
use super::{JournalError, fingerprint};
use crate::engine::{Engine, EngineConfig, RunStart};
use crate::strategy::ExecutionStrategy;

/// The configuration and the strategy of a run: what decides which requests it makes.
///
/// An agent makes its own ([`Agent::record`](crate::Agent::record)). A program that drives a
/// [`Recorder`](super::Recorder) itself makes one here.
#[derive(Clone)]
pub struct Program {
    config: EngineConfig,
    execution: Arc<dyn ExecutionStrategy>,
}

impl Program {
    /// A configuration and a strategy.
    #[must_use]
    pub const fn new(config: EngineConfig, execution: Arc<dyn ExecutionStrategy>) -> Self {
        Self { config, execution }
    }

    pub(super) fn begin(&self, now: Now, seed: u64, start: RunStart) -> BeginEntry {
        let hex = |(name, digest): (&str, _)| (name.to_owned(), HexDigest(digest));
        let config = &self.config;
        BeginEntry {
            at: now,
            agent_id: start.agent_id,
            session_id: start.session_id,
            strategy: self.execution.name().into(),
            has_hooks: config.hooks,
            layers: config.layers.clone(),
            retries: config.retries,
            repairs: config.repair.is_some(),
            plan_events: config.plan_events,
            saves: config.saves,
            seed,
            program: fingerprint::program(&config.llm)
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
        let config = self.config.clone();
        Engine::new(begin.at, config, self.execution.begin(), ids, start)
    }

    /// Checks that this is the program of a recorded run.
    pub(super) fn check(&self, begin: &BeginEntry) -> Result<(), JournalError> {
        let refuse = |what: &str| Err(JournalError::Program { what: what.into() });
        if *self.execution.name() != *begin.strategy {
            return refuse("strategy");
        }
        let config = &self.config;
        let now = fingerprint::program(&config.llm);
        let differs = now
            .iter()
            .find(|(name, digest)| begin.program.get(*name).map(|hex| hex.0) != Some(*digest));
        if let Some((name, _)) = differs {
            return refuse(name);
        }
        let parts = [
            ("middleware", config.layers == begin.layers),
            ("hooks", config.hooks == begin.has_hooks),
            ("retries", config.retries == begin.retries),
            ("repair", config.repair.is_some() == begin.repairs),
            ("plan events", config.plan_events == begin.plan_events),
            ("checkpoints", config.saves == begin.saves),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((name, _)) => refuse(name),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("config", &self.config)
            .field("execution", &self.execution.name())
            .finish()
    }
}
