//! Operating a running hub.

use super::{HubHandle, JobHandle};
use crate::{
    id::{ClientId, JobId},
    role::hub::{CommandError, Job, View},
    transport::lock,
};

impl HubHandle {
    /// Reads the whole state. Calls wait meanwhile: copy what is needed and return.
    pub fn inspect<T>(&self, look: impl FnOnce(View<'_>) -> T) -> T {
        self.0.shared.act(|hub, _| look(hub.view()))
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

    /// The jobs that an earlier process had accepted and not ended, which wait again; once.
    #[must_use]
    pub fn take_restored(&self) -> Vec<JobHandle> {
        std::mem::take(&mut *lock(&self.0.restored))
    }

    /// Offers nothing until [`resume`](Self::resume); see [`Hub::pause`](crate::role::hub::Hub::pause).
    pub fn pause(&self) {
        self.0.shared.act(|hub, _| hub.pause());
    }

    /// Offers again what waits.
    pub fn resume(&self) {
        self.0.shared.act(|hub, now| hub.resume(now));
    }

    /// Offers an agent nothing until it is resumed; its sessions go on.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn pause_agent(&self, agent: &ClientId) -> Result<(), CommandError> {
        self.0.shared.act(|hub, now| hub.pause_agent(now, agent))
    }

    /// Offers an agent jobs again.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn resume_agent(&self, agent: &ClientId) -> Result<(), CommandError> {
        self.0.shared.act(|hub, now| hub.resume_agent(now, agent))
    }

    /// Drains an agent: it is offered nothing, and disconnected when its sessions have ended.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn drain_agent(&self, agent: &ClientId) -> Result<(), CommandError> {
        self.0.shared.act(|hub, now| hub.drain_agent(now, agent))
    }
}
