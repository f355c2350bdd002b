//! Messages that came before: the same one again gets the same answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::Code;
use crate::message::Message;
use crate::reply::{ErrReply, Reply};

/// What to do with a message that came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Arrival {
    /// It is new, or has no name: act on it.
    New,
    /// It came before and is still acted on: do nothing, its answer will come.
    Underway,
    /// It came before and was answered: send this again.
    Answered(Arc<Reply>),
}

/// Remembers messages by `msg_id`, up to a bound; at the bound the oldest that was answered is forgotten.
///
/// ```
/// use sacp::Message;
/// use sacp::role::{Arrival, Inbox};
///
/// let mut inbox = Inbox::new(100);
/// let message = Message::decode(br#"{"msg_id":"m","g":"G","plan":[]}"#)?;
/// assert_eq!(inbox.receive(&message)?, Arrival::New);
/// assert_eq!(inbox.receive(&message)?, Arrival::Underway);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 2 (`msg_id`)
// impl: SACP-1-3
#[derive(Clone, Debug)]
pub struct Inbox {
    bound: usize,
    seen: BTreeMap<String, (Message, Option<Arc<Reply>>)>,
    order: VecDeque<String>,
}

impl Inbox {
    /// An inbox that remembers so many messages; at least one.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            seen: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Takes a message in.
    ///
    /// # Errors
    ///
    /// [`Code::MalformedMessage`] for another message under a name that is taken; [`Code::InternalError`] where every
    /// message that is remembered is still acted on, and there are as many as the bound lets.
    pub fn receive(&mut self, message: &Message) -> Result<Arrival, ErrReply> {
        let Some(id) = message.msg_id.as_deref() else {
            return Ok(Arrival::New);
        };
        match self.seen.get(id) {
            Some((before, _)) if before != message => {
                let what = "another message under a msg_id that is taken";
                return Err(ErrReply::new(Code::MalformedMessage, what)
                    .at("/msg_id")
                    .to(message));
            }
            Some((_, Some(reply))) => return Ok(Arrival::Answered(Arc::clone(reply))),
            Some((_, None)) => return Ok(Arrival::Underway),
            None => {}
        }
        if self.seen.len() >= self.bound && !self.forget_one() {
            let what = "as many messages are acted on as this agent takes at once";
            return Err(ErrReply::new(Code::InternalError, what).to(message));
        }
        self.seen.insert(id.to_owned(), (message.clone(), None));
        self.order.push_back(id.to_owned());
        Ok(Arrival::New)
    }

    /// Keeps the answer to a message, for when it comes again.
    pub fn answered(&mut self, msg_id: &str, reply: Arc<Reply>) {
        if let Some((_, answer)) = self.seen.get_mut(msg_id) {
            *answer = Some(reply);
        }
    }

    /// Messages that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
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
