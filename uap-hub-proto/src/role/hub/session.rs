//! The table of sessions: live ones, and the ids of ended ones.

use std::collections::VecDeque;

pub(super) use crate::role::slots::SlotKey as SessionKey;
use crate::{
    capability::Skill,
    hash::ById,
    id::{ClientId, Identity, JobId, SessionId, StreamId},
    role::slots::Slots,
    state::State,
    status::Status,
};

/// One offer of a job to an agent, and its session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) job: JobId,
    pub(super) agent: ClientId,
    /// Who registered the agent, which may be gone by now.
    pub(super) identity: Option<Identity>,
    pub(super) skill: Skill,
    pub(super) stage: Stage,
    /// Whether its stream has brought a message.
    pub(super) has_spoken: bool,
    /// Of an agent that can resume the session.
    pub(super) reports: Option<Reports>,
}

impl Session {
    fn owner(&self) -> Owner {
        Owner {
            agent: self.agent.clone(),
            identity: self.identity.clone(),
        }
    }
}

/// Whose something is: an agent, and who registered it.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) agent: ClientId,
    pub(super) identity: Option<Identity>,
}

/// What is known of a session id.
#[derive(Debug)]
enum Known {
    Live(SessionKey),
    Ended(Owner),
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
#[derive(Debug)]
pub(super) struct Sessions {
    live: Slots<Session>,
    by_id: ById<SessionId, Known>,
    ended: VecDeque<SessionId>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            live: Slots::new(),
            by_id: ById::default(),
            ended: VecDeque::new(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.live.len()
    }

    /// The live session with an id.
    pub(super) fn find(&self, id: &str) -> Option<SessionKey> {
        match self.by_id.get(id)? {
            Known::Live(key) => Some(*key),
            Known::Ended(_) => None,
        }
    }

    /// Whose the session with an id is, one that has ended and is remembered included.
    pub(super) fn owner(&self, id: &str) -> Option<Owner> {
        match self.by_id.get(id)? {
            Known::Live(key) => self.get(*key).map(Session::owner),
            Known::Ended(owner) => Some(owner.clone()),
        }
    }

    #[cfg(test)]
    pub(super) fn named(&self, id: &str) -> Option<&Session> {
        self.get(self.find(id)?)
    }

    pub(super) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.live.get(key)
    }

    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.live.get_mut(key)
    }

    pub(super) fn add(&mut self, session: Session) -> SessionKey {
        let id = session.id.clone();
        let key = self.live.add(session);
        self.by_id.insert(id, Known::Live(key));
        key
    }

    /// Takes a session out of the table and remembers its id among the last `most`.
    pub(super) fn forget(&mut self, key: SessionKey, most: usize) {
        let Some(session) = self.live.remove(key) else {
            return;
        };
        if let Some(known) = self.by_id.get_mut(&session.id) {
            *known = Known::Ended(session.owner());
        }
        self.ended.push_back(session.id);
        while self.ended.len() > most {
            if let Some(oldest) = self.ended.pop_front() {
                self.by_id.remove(&oldest);
            }
        }
    }

    /// The sessions in a stage, the first made first.
    pub(super) fn in_stage(&self, is: impl Fn(&Stage) -> bool) -> Vec<SessionKey> {
        self.live.keys_of(|session| is(&session.stage))
    }
}
