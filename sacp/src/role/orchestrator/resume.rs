//! Saving a run with what it has spent, and continuing it.

use ubos_common::id::IdSource;
use ubos_common::time::Now;

use crate::any::AnyMessage;
use crate::registry::Registry;
use crate::runner::{ResumeError, Runner};
use crate::v1::Metrics;

use super::saved::Saved;
use super::{Orchestrator, OrchestratorConfig, RestoreError, Stage};

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
        let mut saved = Saved::of(&run);
        saved.spent = (self.spent != Metrics::new()).then(|| self.spent.clone());
        saved.spawned = (self.spawned > 0).then_some(self.spawned as u64);
        Some(ubos_common::json::to_vec(&saved))
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
