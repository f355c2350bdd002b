//! Agents for the acts that nobody serves: one is spawned after the other before the run begins.

use ubos_common::time::Now;

use crate::any::MessageRef;
use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::registry::Registry;
use crate::reply::{ErrReply, Reply};
use crate::runner::Runner;
use crate::spawn;
use crate::trace::debug;

use super::{Orchestrator, OrchestratorError, Output, Stage};

impl<R: Registry> Orchestrator<R> {
    /// Spawns the next missing agent, or starts the plan.
    pub(super) fn prepare(&mut self, now: Now) {
        if let Some(runner) = self.ready(now)
            && let Err(error) = self.begin(now, runner)
        {
            self.refuse(now, ErrReply::new(Code::InternalError, error.to_string()));
        }
    }

    /// The runner, if the plan may run and every act has an agent; else the message is answered, or an agent is spawned.
    pub(super) fn ready(&mut self, now: Now) -> Option<Box<Runner>> {
        let runner = match Runner::new(&self.request, self.config.run.clone()) {
            Ok(runner) => runner,
            Err(refused) => {
                let reply = refused.reply(&self.request);
                self.give_back(now, reply);
                return None;
            }
        };
        // What the plan says of itself is known before anything is spawned for it.
        if self.is_refused(now, false) {
            return None;
        }
        if let Some(step) = self.denied() {
            self.deny(now, &step);
            return None;
        }
        let missing = gaps(&self.request, &self.registry);
        let open = |gap: &&Gap| {
            let simulated =
                |(verb, tool): &(String, String)| (verb, tool) == (&gap.verb, &gap.tool);
            !self.simulated_spawns.iter().any(simulated)
        };
        if let Some(gap) = missing.iter().find(open) {
            if !self.config.spawning {
                let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
                self.refuse(now, ErrReply::new(gap.code, what).at(&gap.pointer));
                return None;
            }
            let next = spawn::next_request(
                now.wall,
                MessageRef::from(&self.request),
                &self.registry,
                gap,
                self.last_spawn.as_ref(),
                self.spawned,
            );
            match next {
                Ok(request) => {
                    self.spawned += 1;
                    debug!(step = gap.number, spawned = self.spawned, "agent requested");
                    self.out.push(Output::Spawn(Box::new(request.clone())));
                    self.stage = Stage::Spawning(Box::new((gap.clone(), request)));
                }
                Err(error) => self.refuse(now, error),
            }
            return None;
        }
        if self.is_refused(now, true) {
            return None;
        }
        Some(Box::new(runner))
    }

    pub(super) fn on_spawned(&mut self, now: Now, reply: &Reply) -> Result<(), OrchestratorError> {
        let Stage::Spawning(requested) = &self.stage else {
            return Err(OrchestratorError::NotRequested);
        };
        let (gap, request) = requested.as_ref().clone();
        let request = MessageRef::from(&request);
        let made = spawn::confirmed(request, reply).and_then(|record| {
            if request.is_test() {
                self.simulated_spawns
                    .push((gap.verb.clone(), gap.tool.clone()));
                return Ok(record.agent_name);
            }
            spawn::take_in(request, record, &mut self.registry)
        });
        match made {
            Ok(name) => {
                self.last_spawn = Some((gap, name));
                self.prepare(now);
            }
            Err(error) => {
                let error = ErrReply::new(Code::SpawnFailed, error.details).at(&gap.pointer);
                self.refuse(now, error);
            }
        }
        Ok(())
    }
}
