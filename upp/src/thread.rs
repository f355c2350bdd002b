//! A conversation with an id and times.

use ubos_common::id::IdSource;
use ubos_common::json::{Fault, MemberWriter, Read, Reader, Write};
use ubos_common::time::{Rfc3339, Timestamp};

use crate::list::List;
use crate::message::{Message, Messages, wire_time};
use crate::turn::Turn;

/// A conversation with an id.
///
/// Spec: UPP-1.3 Thread
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Thread {
    /// The id, a UUIDv4 unless it was read.
    pub id: Box<str>,
    /// The messages, in order. A clone serves as the history of a call.
    pub messages: Messages,
    /// The time of creation.
    pub created_at: Rfc3339,
    /// The time of the last change.
    pub updated_at: Rfc3339,
}

impl Thread {
    /// An empty conversation with a new id.
    #[must_use]
    pub fn new(ids: &mut IdSource, at: Timestamp) -> Self {
        Self {
            id: ids.uuid().to_string().into(),
            messages: List::default(),
            created_at: wire_time(at),
            updated_at: wire_time(at),
        }
    }

    /// Adds the messages of a turn.
    pub fn append(&mut self, at: Timestamp, turn: &Turn) {
        self.messages.extend(turn.messages.iter().cloned());
        self.updated_at = wire_time(at);
    }

    /// Adds one message.
    // impl: UPP-1
    pub fn push(&mut self, at: Timestamp, message: Message) {
        self.messages.push(message);
        self.updated_at = wire_time(at);
    }

    /// Removes all messages.
    pub fn clear(&mut self, at: Timestamp) {
        self.messages = List::default();
        self.updated_at = wire_time(at);
    }
}

ubos_common::wire! {
    /// The JSON of a thread.
    struct ThreadJson {
        /// Any text.
        required id: Box<str> = "id", "UPP-1";
        /// In order.
        required messages: List<Message> = "messages", "UPP-1";
        /// ISO 8601.
        required created_at: Rfc3339 = "createdAt", "UPP-1";
        /// ISO 8601.
        required updated_at: Rfc3339 = "updatedAt", "UPP-1";
    }
}

impl<'a> Read<'a> for Thread {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let json = ThreadJson::read(reader)?;
        Ok(Self {
            id: json.id,
            messages: json.messages,
            created_at: json.created_at,
            updated_at: json.updated_at,
        })
    }
}

impl Write for Thread {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("id", &*self.id);
        object.member("messages", &self.messages);
        object.member("createdAt", &self.created_at);
        object.member("updatedAt", &self.updated_at);
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AssistantMessage, Stamp};
    use crate::turn::TokenUsage;

    // spec: UPP-1
    #[test]
    fn a_conversation_grows_by_messages_and_turns() {
        let at = |seconds| Timestamp::from_unix(seconds).unwrap();
        let stamp = |id: &str| Stamp::with_id(id, Timestamp::EPOCH);
        let mut thread = Thread::new(&mut IdSource::seeded(1), at(1));
        let created = thread.created_at.clone();
        let ids = |thread: &Thread| -> Vec<String> {
            let messages = thread.messages.iter();
            messages.map(|message| message.id().to_string()).collect()
        };
        thread.push(at(2), Message::user(stamp("a"), "?"));
        assert_eq!(
            (ids(&thread), &thread.updated_at),
            (vec!["a".into()], &wire_time(at(2)))
        );
        let answer = AssistantMessage::new(stamp("c"), vec!["!".into()], None);
        let said = List::from(vec![Message::user(stamp("b"), "?"), answer.into()]);
        let turn = Turn::new(said, List::default(), TokenUsage::default(), 1).unwrap();
        thread.append(at(3), &turn);
        assert_eq!(ids(&thread), ["a", "b", "c"]);
        assert_eq!(thread.updated_at, wire_time(at(3)));
        thread.clear(at(4));
        assert!(thread.messages.is_empty());
        assert_eq!(thread.updated_at, wire_time(at(4)));
        assert_eq!(thread.created_at, created);
    }
}
