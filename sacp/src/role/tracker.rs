//! The states of the messages of a conversation.

use core::num::NonZeroUsize;
use std::collections::{BTreeMap, VecDeque};

use crate::any::MessageRef;
use crate::error::Code;
use crate::message::State;
use crate::reply::ErrReply;
use crate::v1;

/// Follows the states of messages of both editions, and refuses a state that the lifecycle does not reach from the last one.
///
/// An answer carries the state of the message that it answers. Whoever sees a message only from outside may miss states
/// between two answers, so that a state may be left out; none is ever taken back. At the limit the oldest message that has
/// ended is forgotten.
///
/// ```
/// use sacp::Message;
/// use sacp::role::Tracker;
///
/// let mut tracker = Tracker::new(100.try_into()?);
/// let answer = |state: &str| {
///     let text = format!(r#"{{"reply_to":"m","g":"G","plan":[],"state":"{state}"}}"#);
///     Message::decode(text.as_bytes()).unwrap()
/// };
/// tracker.follow(&answer("IN_PROGRESS"))?;
/// tracker.follow(&answer("DONE"))?;
/// let refused = tracker.follow(&answer("IN_PROGRESS")).unwrap_err();
/// assert_eq!(refused.to_string(), "message m does not go from DONE to IN_PROGRESS");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 1; SACP 1.0, 5
#[derive(Clone, Debug)]
pub struct Tracker {
    bound: NonZeroUsize,
    states: BTreeMap<String, Seen>,
    order: VecDeque<String>,
}

/// The last state of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    V01(State),
    V10(v1::State),
}

impl Seen {
    fn of(message: MessageRef<'_>) -> Self {
        match message {
            MessageRef::V01(message) => Self::V01(message.state()),
            MessageRef::V10(message) => Self::V10(message.state.clone()),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::V01(state) => state.as_str(),
            Self::V10(state) => state.as_str(),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::V01(state) => matches!(state, State::Done | State::Failed),
            Self::V10(state) => state.has_ended(),
        }
    }

    /// Whether the lifecycle leads from here to another state, perhaps by way of others.
    fn reaches(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::V01(from), Self::V01(to)) => {
                from == to
                    || from.may_become(to)
                    || State::InProgress.may_become(to) && from.may_become(&State::InProgress)
            }
            (Self::V10(from), Self::V10(to)) => from.reaches(to),
            _ => false,
        }
    }
}

impl Tracker {
    /// A tracker of at most this many messages.
    #[must_use]
    pub const fn new(bound: NonZeroUsize) -> Self {
        Self {
            bound,
            states: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Takes a message, or an answer to one. A message without an id is not followed.
    ///
    /// # Errors
    ///
    /// The lifecycle does not lead from the last state to this one, the answer is of the other edition, or no more messages
    /// can be followed. Nothing has changed.
    // impl: SACP1-5-1
    pub fn follow<'a>(&mut self, message: impl Into<MessageRef<'a>>) -> Result<(), StateError> {
        let message = message.into();
        let Some(id) = message.reply_to().or_else(|| message.msg_id()) else {
            return Ok(());
        };
        let next = Seen::of(message);
        if let Some(last) = self.states.get_mut(id) {
            if !last.reaches(&next) {
                return Err(StateError::Transition {
                    id: id.to_owned(),
                    from: last.as_str().to_owned(),
                    to: next.as_str().to_owned(),
                });
            }
            *last = next;
            return Ok(());
        }
        if self.states.len() >= self.bound.get() && !self.forget_one() {
            return Err(StateError::Full {
                limit: self.bound.get(),
            });
        }
        self.order.push_back(id.to_owned());
        self.states.insert(id.to_owned(), next);
        Ok(())
    }

    fn forget_one(&mut self) -> bool {
        let ended = |id: &String| self.states.get(id).is_none_or(Seen::has_ended);
        let Some(id) = (self.order.iter().position(ended)).and_then(|at| self.order.remove(at))
        else {
            return false;
        };
        self.states.remove(&id);
        true
    }
}

/// Why a [`Tracker`] refuses a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The lifecycle does not lead from the last state to this one.
    #[error("message {id} does not go from {from} to {to}")]
    Transition {
        /// The id of the message.
        id: String,
        /// Its last state.
        from: String,
        /// The state that was seen.
        to: String,
    },
    /// Every message that is followed is still open.
    #[error("{limit} messages are open, and no more are followed")]
    Full {
        /// The limit.
        limit: usize,
    },
}

impl From<&StateError> for ErrReply {
    /// The answer in 0.1: `INVALID_STATE`, or `INTERNAL_ERROR` where the tracker is full.
    fn from(refused: &StateError) -> Self {
        let code = match refused {
            StateError::Transition { .. } => Code::InvalidState,
            StateError::Full { .. } => Code::InternalError,
        };
        Self::new(code, refused.to_string())
    }
}
