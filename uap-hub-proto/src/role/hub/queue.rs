//! The jobs, and an index from skill to waiting jobs in the order in which they came.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    capability::Skill,
    id::{ClientId, JobId, SessionId},
    wire::Payload,
};

/// One job that has not ended.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) skill: Skill,
    /// Moved out when the agent is sent them.
    pub(super) payloads: Vec<Payload>,
    pub(super) bytes: usize,
    /// The one agent that may run it.
    pub(super) pinned: Option<ClientId>,
    /// Agents that are passed over until all others have refused too.
    pub(super) refused: BTreeSet<ClientId>,
    /// The last reason that an agent gave.
    pub(super) reason: Option<String>,
    /// How often all agents have refused.
    pub(super) rounds: u32,
    /// The offer or session that it is in; `None` while it waits.
    pub(super) session: Option<SessionId>,
    order: u64,
}

/// All jobs. The index holds exactly those without a session.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: BTreeMap<JobId, Entry>,
    waiting: BTreeMap<Skill, BTreeMap<u64, JobId>>,
    /// Bytes of payloads of jobs whose payloads were not moved out.
    bytes: usize,
    submitted: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Entry> {
        self.jobs.get(&id)
    }

    /// For changes to what the indexes do not hold.
    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Entry> {
        self.jobs.get_mut(&id)
    }

    pub(super) fn add(
        &mut self,
        id: JobId,
        skill: Skill,
        payloads: Vec<Payload>,
        bytes: usize,
        pinned: Option<ClientId>,
    ) {
        self.submitted += 1;
        self.bytes += bytes;
        let entry = Entry {
            skill,
            payloads,
            bytes,
            pinned,
            refused: BTreeSet::new(),
            reason: None,
            rounds: 0,
            session: None,
            order: self.submitted,
        };
        self.waiting
            .entry(entry.skill.clone())
            .or_default()
            .insert(entry.order, id);
        self.jobs.insert(id, entry);
    }

    pub(super) fn assign(&mut self, id: JobId, session: SessionId) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.session = Some(session);
            unlist(&mut self.waiting, entry);
        }
    }

    pub(super) fn unassign(&mut self, id: JobId) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.session = None;
            self.waiting
                .entry(entry.skill.clone())
                .or_default()
                .insert(entry.order, id);
        }
    }

    /// The payloads, to be sent.
    pub(super) fn take_payloads(&mut self, id: JobId) -> Vec<Payload> {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return Vec::new();
        };
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut entry.bytes));
        std::mem::take(&mut entry.payloads)
    }

    pub(super) fn remove(&mut self, id: JobId) -> Option<Entry> {
        let entry = self.jobs.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        if entry.session.is_none() {
            unlist(&mut self.waiting, &entry);
        }
        Some(entry)
    }

    /// The first waiting job of a skill after the one with this order, with its order.
    pub(super) fn waiting_after(&self, skill: &Skill, order: u64) -> Option<(u64, JobId)> {
        let (order, id) = self.waiting.get(skill)?.range(order + 1..).next()?;
        Some((*order, *id))
    }

    /// All jobs without a session.
    pub(super) fn waiting(&self) -> Vec<JobId> {
        self.waiting
            .values()
            .flat_map(|jobs| jobs.values().copied())
            .collect()
    }
}

fn unlist(waiting: &mut BTreeMap<Skill, BTreeMap<u64, JobId>>, entry: &Entry) {
    if let Some(jobs) = waiting.get_mut(&entry.skill) {
        jobs.remove(&entry.order);
        if jobs.is_empty() {
            waiting.remove(&entry.skill);
        }
    }
}
