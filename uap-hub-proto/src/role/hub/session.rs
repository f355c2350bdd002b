//! The table of sessions: live ones, and the ids of ended ones.

use std::collections::{HashMap, VecDeque};

use crate::{
    capability::Skill,
    id::{ClientId, JobId, SessionId, StreamId},
    state::State,
    status::Status,
};

/// Names a session in the hub's tables; on the wire it has its id. Keys are in the order in which the sessions were made, and
/// none is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    number: u64,
    slot: u32,
}

#[cfg(test)]
impl SessionKey {
    /// A key of no session.
    pub(super) const fn numbered(number: u64) -> Self {
        Self { number, slot: 0 }
    }
}

/// One offer of a job to an agent, and its session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
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
    /// The live ones, each with its number.
    slots: Vec<Option<(u64, Session)>>,
    free: Vec<u32>,
    /// How many there were.
    made: u64,
    /// Live sessions by id, and ended ones, which have no key.
    by_id: HashMap<SessionId, Option<SessionKey>>,
    ended: VecDeque<SessionId>,
}

impl Sessions {
    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The live session with an id.
    pub(super) fn find(&self, id: &str) -> Option<SessionKey> {
        *self.by_id.get(id)?
    }

    /// Whether a session with this id is among the remembered ended ones.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        matches!(self.by_id.get(id), Some(None))
    }

    #[cfg(test)]
    pub(super) fn named(&self, id: &str) -> Option<&Session> {
        self.get(self.find(id)?)
    }

    pub(super) fn get(&self, key: SessionKey) -> Option<&Session> {
        match self.slots.get(key.slot as usize) {
            Some(Some((number, session))) if *number == key.number => Some(session),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        match self.slots.get_mut(key.slot as usize) {
            Some(Some((number, session))) if *number == key.number => Some(session),
            _ => None,
        }
    }

    pub(super) fn add(&mut self, session: Session) -> SessionKey {
        self.made += 1;
        let number = self.made;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // choice: 2^32 sessions at once fit into no memory
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let key = SessionKey { number, slot };
        self.by_id.insert(session.id.clone(), Some(key));
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some((number, session));
        }
        key
    }

    /// Takes a session out of the table and remembers its id among the last `most`.
    pub(super) fn forget(&mut self, key: SessionKey, most: usize) {
        if self.get(key).is_none() {
            return;
        }
        let place = self.slots.get_mut(key.slot as usize);
        let Some((_, session)) = place.and_then(Option::take) else {
            return;
        };
        self.free.push(key.slot);
        self.by_id.insert(session.id.clone(), None);
        self.ended.push_back(session.id);
        while self.ended.len() > most {
            if let Some(oldest) = self.ended.pop_front() {
                self.by_id.remove(&oldest);
            }
        }
    }

    /// The sessions in a stage, the first made first.
    pub(super) fn in_stage(&self, is: impl Fn(&Stage) -> bool) -> Vec<SessionKey> {
        let live = self.slots.iter().zip(0..).filter_map(|(place, slot)| {
            let (number, session) = place.as_ref()?;
            let number = *number;
            is(&session.stage).then_some(SessionKey { number, slot })
        });
        let mut keys: Vec<_> = live.collect();
        keys.sort_unstable();
        keys
    }
}
