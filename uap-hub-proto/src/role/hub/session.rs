//! The table of sessions: live ones, and the ids of ended ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    capability::Skill,
    id::{ClientId, JobId, SessionId, StreamId},
    state::State,
    status::Status,
};

/// One offer of a job to an agent, and its session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) job: JobId,
    pub(super) agent: ClientId,
    pub(super) skill: Skill,
    pub(super) stage: Stage,
    /// Whether its stream has brought a message.
    pub(super) has_spoken: bool,
    /// Of an agent that can resume the session.
    pub(super) reports: Option<Reports>,
}

/// The numbered reports of a session that can be resumed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    /// Which opening of its stream the session is on.
    pub(super) opening: u64,
    /// The last number that came.
    pub(super) received: u64,
    /// The last number that the agent was told.
    pub(super) acknowledged: u64,
    /// Bytes of the reports between them.
    pub(super) bytes: usize,
}

/// The stage of a session; the diagram is at [`Hub`](super::Hub).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// The agent has not answered.
    Proposed,
    /// The caller prepares it.
    Preparing,
    /// The agent may open the stream.
    Ready,
    /// The stream is open, or was cut and may be opened again. A terminal `state` waits for its result.
    Open {
        /// `None` while it is cut.
        stream: Option<StreamId>,
        state: Option<State>,
        message: String,
    },
    /// Ended, with the stream still open; it ends with `status` if the agent does not close it.
    Over { stream: StreamId, status: Status },
}

impl Stage {
    pub(super) const fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Proposed | Self::Preparing | Self::Ready => None,
            Self::Open { stream, .. } => *stream,
            Self::Over { stream, .. } => Some(*stream),
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    live: BTreeMap<SessionId, Session>,
    ended: BTreeSet<SessionId>,
    ended_in_order: VecDeque<SessionId>,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Session> {
        self.live.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.live.get_mut(id)
    }

    pub(super) fn add(&mut self, id: SessionId, session: Session) {
        self.live.insert(id, session);
    }

    /// Whether a session with this id is among the remembered ended ones.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.ended.contains(id)
    }

    /// Takes a session out of the table and remembers its id among the last `most`.
    pub(super) fn forget(&mut self, id: &SessionId, most: usize) {
        if self.live.remove(id).is_none() {
            return;
        }
        self.ended.insert(id.clone());
        self.ended_in_order.push_back(id.clone());
        while self.ended_in_order.len() > most {
            if let Some(oldest) = self.ended_in_order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }

    /// The ids of the sessions in a stage.
    pub(super) fn in_stage(&self, is: impl Fn(&Stage) -> bool) -> Vec<SessionId> {
        self.live
            .iter()
            .filter(|(_, session)| is(&session.stage))
            .map(|(id, _)| id.clone())
            .collect()
    }
}
