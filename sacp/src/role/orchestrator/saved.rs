//! Saving a run with what it has spent, and continuing it.

use ubos_common::id::IdSource;
use ubos_common::json::{self, RawBuf};
use ubos_common::time::Now;
use ubos_common::violation::Profile;

use crate::any::AnyMessage;
use crate::registry::Registry;
use crate::runner::{ResumeError, Runner};
use crate::v1::Metrics;

use super::{Orchestrator, OrchestratorConfig, RestoreError, Stage};

ubos_common::wire! {
    /// A run, and what the answer says of it beside its steps.
    pub(super) struct Saved {
        required version: u64 = "sacp_orchestrator", "SACP-3-1";
        verbatim run: RawBuf = "run", "SACP-3-1";
        optional spent: Metrics = "spent", "SACP1-4-4";
        optional spawned: u64 = "spawned", "SACP-3-1";
    }
}

impl Saved {
    fn read(text: &[u8]) -> Result<Self, ResumeError> {
        let unreadable = |error: String| ResumeError::Unreadable(error);
        let limits = crate::runner::saved_limits(text.len());
        let (saved, _) = json::decode::<Self>(text, &limits, Profile::Strict)
            .map_err(|error| unreadable(error.to_string()))?;
        match (saved.version, &saved.run) {
            (VERSION, Some(_)) => Ok(saved),
            (VERSION, None) => Err(unreadable("it has no run".to_owned())),
            (seen, _) => Err(ResumeError::Version {
                seen,
                wanted: VERSION,
            }),
        }
    }

    fn restore(&self, now: Now, runner: &mut Runner) -> Result<(), ResumeError> {
        let run = self.run.as_ref().map_or("", |run| run.as_str());
        runner.restore(now, run.as_bytes())
    }
}

impl<R: Registry> Orchestrator<R> {
    /// Continues a run that was [saved](Self::save), of the same message. The plan is checked again, and the acts that were
    /// delegated are delegated anew: an answer to the life before is refused. The tokens and the money that were spent, and
    /// the agents that were spawned, count on.
    ///
    /// # Errors
    ///
    /// The configuration cannot work, or the text is not a saved run of this message.
    pub fn restore(
        now: Now,
        request: impl Into<AnyMessage>,
        registry: R,
        config: OrchestratorConfig,
        ids: IdSource,
        saved: &[u8],
    ) -> Result<Self, RestoreError> {
        let saved = Saved::read(saved)?;
        let mut orchestrator = Self::idle(request.into(), registry, config, ids)?;
        orchestrator.spent = saved.spent.clone().unwrap_or_else(Metrics::new);
        let spawned = usize::try_from(saved.spawned.unwrap_or(0));
        orchestrator.spawned = spawned.unwrap_or(usize::MAX);
        orchestrator.saved = Some(saved);
        match orchestrator.ready(now) {
            Some(runner) => orchestrator.begin(now, runner)?,
            None if matches!(orchestrator.stage, Stage::Spawning(_)) => {
                // What cannot be continued is refused now, not when the agent is there.
                let (request, config) = (&orchestrator.request, orchestrator.config.run.clone());
                if let (Ok(mut runner), Some(saved)) =
                    (Runner::new(request, config), &orchestrator.saved)
                {
                    saved.restore(now, &mut runner)?;
                }
            }
            None => {}
        }
        Ok(orchestrator)
    }

    /// The run as JSON text, for [`restore`](Self::restore). `None` before every act has an agent, and after the answer.
    #[must_use]
    pub fn save(&self, now: Now) -> Option<Vec<u8>> {
        let run = String::from_utf8(self.runner()?.save(now)?).ok()?;
        let mut saved = Saved::new(VERSION);
        saved.run = RawBuf::parse(&run).ok();
        saved.spent = (self.spent != Metrics::new()).then(|| self.spent.clone());
        saved.spawned = (self.spawned > 0).then_some(self.spawned as u64);
        Some(json::to_vec(&saved))
    }

    /// Starts the plan, or continues it.
    pub(super) fn begin(&mut self, now: Now, mut runner: Box<Runner>) -> Result<(), ResumeError> {
        match self.saved.take() {
            Some(saved) => saved.restore(now, &mut runner)?,
            None => runner.start(now),
        }
        self.stage = Stage::Running(runner);
        self.drain_runner(now);
        Ok(())
    }
}

/// The format that is written and read.
const VERSION: u64 = 1;
