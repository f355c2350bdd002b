//! Launches: of agents that are there from the start, come anew, take the place of others, or are launched again.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::agents;
use super::connected::Live;
use super::report::{AgentEvent, LaunchId, Report, RunningAgent, Wanted};
use super::source::{AddError, AgentSource};
use super::state::{AddReply, Driver, Launching, Mode};
use crate::audit::{AuditEvent, AuditName};
use crate::role::router::{Ended, Input};

impl Driver {
    pub(super) fn may_add(&self, source: &AgentSource, mode: Mode) -> Result<(), AddError> {
        let id = Arc::clone(&source.id);
        let changing = |launching: &Launching| launching.change.is_some();
        let exists = self.sources.contains_key(&id);
        let limit = self.max_agents;
        if self.launching.get(&id).is_some_and(changing) {
            return Err(AddError::InProgress { id });
        }
        match mode {
            Mode::Add if exists => Err(AddError::Exists { id }),
            Mode::Replace if !exists => Err(AddError::Unknown { id }),
            Mode::Add if self.sources.len() + self.additions() >= limit => {
                Err(AddError::TooMany { limit })
            }
            _ => Ok(source.policy.check()?),
        }
    }

    /// Agents that are being added.
    fn additions(&self) -> usize {
        let is_new = |agent: &&Arc<str>| !self.sources.contains_key(*agent);
        self.launching.keys().filter(is_new).count()
    }

    /// Launches an agent beside the one of its id, if there is one, whose place it takes when it is connected.
    pub(super) fn add(&mut self, source: Box<AgentSource>, reply: AddReply) {
        let agent = Arc::clone(&source.id);
        self.launch(&agent, Some((source, reply)));
    }

    /// Launches an agent, unless it is being launched or nobody wants it any more.
    pub(super) fn launch_again(&mut self, agent: &Arc<str>) {
        if !self.launching.contains_key(agent) {
            self.launch(agent, None);
        }
    }

    fn launch(&mut self, agent: &Arc<str>, change: Option<(Box<AgentSource>, AddReply)>) {
        let new = change.as_ref().map(|(source, _)| source.as_ref());
        let Some(source) = new.or_else(|| self.sources.get(agent)) else {
            return;
        };
        let Ok(launcher) = catch_unwind(AssertUnwindSafe(|| (source.make_launcher)())) else {
            return self.not_made(agent, change);
        };
        let launcher = launcher.with_audit(self.audit.clone());
        let launcher = launcher.for_router(agent, self.router.ledger(agent), self.clock);
        let mut launcher = launcher.needing_manifest(source.manifest());
        // The router alone checks permissions.
        launcher.map_config(|config| {
            config
                .with_agent_grant("tool:invoke:*")
                .with_directives(false)
        });
        self.last_launch += 1;
        let launch = self.last_launch;
        let (wanted, unwanted) = oneshot::channel();
        let named = (Arc::clone(agent), launch);
        let launched = agents::launch(named, launcher, change.is_some(), unwanted);
        let (agent_id, launch_id) = (Arc::clone(agent), launch);
        self.launches
            .spawn(agents::unless_panicked(launched, move || {
                let failed = AgentEvent::Launched(Err(AddError::Panicked));
                Report::Agent(agent_id, launch_id, failed)
            }));
        let launching = Launching {
            launch,
            _wanted: wanted,
            change,
        };
        // What was being launched of the one before has no calls yet, and is given up with its entry.
        self.launching.insert(Arc::clone(agent), launching);
    }

    /// What makes the launchers of an agent panicked: it is as if the launch had failed.
    fn not_made(&mut self, agent: &Arc<str>, change: Option<(Box<AgentSource>, AddReply)>) {
        self.starting.remove(agent);
        let error = AddError::Panicked;
        let mut event = AuditEvent::of(AuditName::RunCrashed, self.clock.now().wall);
        event.agent_id = Some(agent.to_string());
        event.detail = Some(error.to_string());
        self.audit.take(event);
        match change {
            Some((_, reply)) => self.not_changed(agent, reply, error),
            None => self.launch_failed(agent),
        }
    }

    /// Ends a launch that is not over, whose task ends with its process.
    pub(super) fn give_up_launch(&mut self, agent: &str) {
        self.starting.remove(agent);
        // Who asked for a change is told by the end of the channel.
        self.launching.remove(agent);
    }

    pub(super) fn on_launched(
        &mut self,
        agent: &Arc<str>,
        result: Result<Box<RunningAgent>, AddError>,
    ) {
        let Some(Launching { launch, change, .. }) = self.launching.remove(agent) else {
            return;
        };
        self.starting.remove(agent);
        let running = match (result, change) {
            (Ok(running), None) => return self.keep(agent, launch, *running, Duration::ZERO),
            (Ok(running), Some(change)) => (running, change),
            (Err(_), None) => return self.launch_failed(agent),
            (Err(error), Some((_, reply))) => return self.not_changed(agent, reply, error),
        };
        let (running, (source, reply)) = running;
        // Without its policy nobody takes its place, nor one who has gone meanwhile.
        let taken = match running.handle.has_ended() {
            true => Err(AddError::Disconnected),
            // Those that are not wanted any more have their places until they have ended.
            false if !self.router.has_room_for(agent) => Err(AddError::TooMany {
                limit: self.max_agents,
            }),
            false => (self.router.set_policy(agent, source.policy.clone())).map_err(AddError::from),
        };
        if let Err(error) = taken {
            let ending = agents::end((Arc::clone(agent), launch), *running);
            let down = down(agent, launch, Ended::Asked);
            self.launches.spawn(agents::unless_panicked(ending, down));
            return self.not_changed(agent, reply, error);
        }
        let drain_time = source.drain_time;
        self.sources.insert(Arc::clone(agent), *source);
        self.keep(agent, launch, *running, drain_time);
        drop(reply.send(Ok(())));
    }

    fn not_changed(&mut self, agent: &Arc<str>, reply: AddReply, error: AddError) {
        // Who asked may be gone.
        drop(reply.send(Err(error)));
        // The one before may have gone down meanwhile, and waited for this one.
        if self.connected.get(agent).is_none() {
            self.launch_failed(agent);
        }
    }

    fn keep(
        &mut self,
        agent: &Arc<str>,
        launch: LaunchId,
        running: RunningAgent,
        drain_time: Duration,
    ) {
        let (wanted, wanted_rx) = watch::channel(Wanted::Run);
        let tools = running.handle.tools().to_vec();
        let live = Live {
            launch,
            caller: running.handle.caller.clone(),
            wanted,
            calls: 0,
        };
        self.connected.add(agent, live, drain_time);
        let reports = self.reports_tx.clone();
        let keeping = agents::keep((Arc::clone(agent), launch), running, wanted_rx, reports);
        let down = down(agent, launch, Ended::Failed);
        self.tasks.spawn(agents::unless_panicked(keeping, down));
        let agent = agent.to_string();
        self.input(Input::AgentUp { agent, tools });
    }

    /// Nobody is told to launch one again that is not wanted any more.
    fn launch_failed(&mut self, agent: &Arc<str>) {
        if self.sources.contains_key(agent) {
            let agent = agent.to_string();
            self.input(Input::LaunchFailed { agent });
        }
    }
}

/// The end of an agent, for where its task panicked.
fn down(agent: &Arc<str>, launch: LaunchId, ended: Ended) -> impl FnOnce() -> Report + use<> {
    let agent = Arc::clone(agent);
    move || Report::Agent(agent, launch, AgentEvent::Down(ended))
}
