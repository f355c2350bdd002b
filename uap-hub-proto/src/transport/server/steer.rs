//! Operating a running hub.

use super::{HubHandle, JobHandle};
use crate::{
    id::{ClientId, JobId},
    role::hub::{CommandError, Job, View},
    transport::lock,
};

impl HubHandle {
    /// Reads the whole state. Calls wait meanwhile: copy what is needed and return. The hub cannot be called inside: commands
    /// are refused with [`CommandError::Inspecting`], job handles may be dropped.
    ///
    /// # Panics
    ///
    /// Inside, another method of the same hub was called that is no command.
    pub fn inspect<T>(&self, look: impl FnOnce(View<'_>) -> T) -> T {
        self.0.shared.inspect(look)
    }

    /// Submits a job with an id of the caller.
    ///
    /// # Errors
    ///
    /// As [`Hub::submit_as`](crate::role::hub::Hub::submit_as).
    pub fn submit_as(&self, id: JobId, job: Job) -> Result<JobHandle, CommandError> {
        let shared = &self.0.shared;
        let (id, inbox) = shared.submit(|hub, now| hub.submit_as(now, id, job).map(|()| id))?;
        Ok(JobHandle::new(id, inbox, shared))
    }

    /// The jobs that an earlier process had accepted and not ended, which wait again; once. Their events come from now on, and
    /// the end in any case. Jobs that nobody takes run all the same.
    #[must_use]
    pub fn take_restored(&self) -> Vec<JobHandle> {
        let restored = std::mem::take(&mut *lock(&self.0.restored));
        restored.iter().for_each(JobHandle::claim);
        restored
    }

    /// Pauses the hub, or lets it go on; see [`Hub::set_paused`](crate::role::hub::Hub::set_paused).
    pub fn set_paused(&self, paused: bool) {
        self.0.shared.act(|hub, now| hub.set_paused(now, paused));
    }

    /// Pauses an agent, or lets it go on; see [`Hub::set_agent_paused`](crate::role::hub::Hub::set_agent_paused).
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn set_agent_paused(&self, agent: &ClientId, paused: bool) -> Result<(), CommandError> {
        self.0
            .shared
            .command(|hub, now| hub.set_agent_paused(now, agent, paused))
    }

    /// Drains an agent: it is offered nothing, and disconnected when its sessions have ended.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn drain_agent(&self, agent: &ClientId) -> Result<(), CommandError> {
        self.0
            .shared
            .command(|hub, now| hub.drain_agent(now, agent))
    }
}
