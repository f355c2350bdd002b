//! Repeated messages: the same message gets the same answer again.

use core::num::NonZeroUsize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::any::{AnyMessage, MessageRef};
use crate::error::Code;
use crate::reply::{ErrReply, Reply};

/// What to do with a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Arrival {
    /// It is new, or has no id: act on it.
    New,
    /// It is already being acted on: do nothing.
    Underway,
    /// It was answered: send this reply again.
    Answered(Arc<Reply>),
}

/// Remembers messages by `msg_id`, up to a limit. At the limit the oldest answered message is forgotten.
///
/// ```
/// use sacp::Message;
/// use sacp::role::{Arrival, Inbox};
///
/// let mut inbox = Inbox::new(100.try_into()?);
/// let message = Message::decode(br#"{"msg_id":"m","g":"G","plan":[]}"#)?;
/// assert_eq!(inbox.receive(&message)?, Arrival::New);
/// assert_eq!(inbox.receive(&message)?, Arrival::Underway);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 2 (`msg_id`)
#[derive(Clone, Debug)]
pub struct Inbox {
    bound: NonZeroUsize,
    seen: BTreeMap<String, (AnyMessage, Option<Arc<Reply>>)>,
    order: VecDeque<String>,
}

impl Inbox {
    /// An inbox that remembers at most this many messages.
    #[must_use]
    pub const fn new(bound: NonZeroUsize) -> Self {
        Self {
            bound,
            seen: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Registers an incoming message of either edition.
    ///
    /// # Errors
    ///
    /// [`Code::MalformedMessage`]: another message has the same id. [`Code::InternalError`]: the inbox is full of
    /// messages that are being acted on.
    // impl: SACP-1-3
    pub fn receive<'a>(&mut self, message: impl Into<MessageRef<'a>>) -> Result<Arrival, ErrReply> {
        let message = message.into();
        let Some(id) = message.msg_id() else {
            return Ok(Arrival::New);
        };
        match self.seen.get(id) {
            Some((before, _)) if MessageRef::from(before) != message => {
                let what = "another message has this msg_id";
                return Err(ErrReply::new(Code::MalformedMessage, what)
                    .at("/msg_id")
                    .to(message));
            }
            Some((_, Some(reply))) => return Ok(Arrival::Answered(Arc::clone(reply))),
            Some((_, None)) => return Ok(Arrival::Underway),
            None => {}
        }
        if self.seen.len() >= self.bound.get() && !self.forget_one() {
            let what =
                "this agent acts on as many messages as it can: send the message again later";
            return Err(ErrReply::new(Code::InternalError, what).to(message));
        }
        self.seen
            .insert(id.to_owned(), (AnyMessage::from(message), None));
        self.order.push_back(id.to_owned());
        Ok(Arrival::New)
    }

    /// Keeps the answer to a message for its repetitions.
    pub fn answered(&mut self, msg_id: &str, reply: Arc<Reply>) {
        if let Some((_, answer)) = self.seen.get_mut(msg_id) {
            *answer = Some(reply);
        }
    }

    fn forget_one(&mut self) -> bool {
        let answered = |id: &String| self.seen.get(id).is_none_or(|(_, answer)| answer.is_some());
        let Some(place) = self.order.iter().position(answered) else {
            return false;
        };
        if let Some(id) = self.order.remove(place) {
            self.seen.remove(&id);
        }
        true
    }
}
