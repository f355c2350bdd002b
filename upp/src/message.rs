//! Messages of users, models and tools.

use core::fmt::Write as _;
use std::borrow::Cow;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Fault, MemberWriter, Members, RawObject, Read, Reader, Write};
use ubos_common::time::{Rfc3339, Timestamp};
use ubos_common::violation::Level;

use crate::content::ContentBlock;
use crate::list::List;
use crate::metadata::Metadata;
use crate::settled::Settled;
use crate::tool::{ToolCall, ToolResult};

/// A conversation, in order. A clone shares every message.
pub type Messages = List<Message>;

/// One message of a conversation. A clone shares the message.
///
/// ```
/// use ubos_common::{id::IdSource, json, time::Timestamp, violation::Profile};
/// use upp::{Message, Stamp};
///
/// let stamp = Stamp::new(&mut IdSource::seeded(1), Timestamp::EPOCH);
/// let message = Message::user(stamp, "hello");
/// let text = json::to_string(&message);
/// assert!(text.ends_with(r#""content":[{"type":"text","text":"hello"}],"timestamp":"1970-01-01T00:00:00.000Z"}"#));
/// let (read, _) = json::decode::<Message>(text.as_bytes(), &json::Limits::default(), Profile::Strict)?;
/// assert_eq!(read, message);
/// # Ok::<(), json::DecodeError>(())
/// ```
///
/// Spec: UPP-1.3 messages
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Message {
    /// A message of the user.
    User(Arc<UserMessage>),
    /// A message of the model.
    Assistant(Arc<AssistantMessage>),
    /// The results of tools.
    ToolResult(Arc<ToolResultMessage>),
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        // Histories share their messages: one that is shared is not read through.
        match (self, other) {
            (Self::User(one), Self::User(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Assistant(one), Self::Assistant(other)) => {
                Arc::ptr_eq(one, other) || one == other
            }
            (Self::ToolResult(one), Self::ToolResult(other)) => {
                Arc::ptr_eq(one, other) || one == other
            }
            _ => false,
        }
    }
}

/// The id and the time of a new message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamp {
    /// The message's id, any text but an empty one.
    pub id: Arc<str>,
    /// The time of the message.
    pub timestamp: Rfc3339,
}

impl Stamp {
    /// A fresh id (UUIDv4), at a time.
    #[must_use]
    pub fn new(ids: &mut IdSource, at: Timestamp) -> Self {
        Self::with_id(ids.uuid().to_string(), at)
    }

    /// An id of the caller's, at a time.
    #[must_use]
    pub fn with_id(id: impl Into<Arc<str>>, at: Timestamp) -> Self {
        Self {
            id: id.into(),
            timestamp: wire_time(at),
        }
    }
}

/// A timestamp with milliseconds, as messages write it.
pub(crate) fn wire_time(at: Timestamp) -> Rfc3339 {
    Rfc3339::from(at.truncated_to_millis())
}

/// Declares one kind of message.
macro_rules! message {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident : $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            /// The id: any text that is not empty.
            pub id: Arc<str>,
            /// The time of the message.
            pub timestamp: Rfc3339,
            /// Metadata of vendors and protocols.
            pub metadata: Option<Metadata>,
            $($(#[$field_meta])* pub $field: $type,)*
            /// Unknown members, which are kept and written back.
            pub extra: Members<'static>,
        }

        impl $name {
            /// A message without metadata.
            #[must_use]
            pub fn new(stamp: Stamp, $($field: $type),*) -> Self {
                let Stamp { id, timestamp } = stamp;
                Self { id, timestamp, metadata: None, $($field,)* extra: Members::new() }
            }
        }
    };
}

message! {
    /// A message of the user.
    UserMessage {
        /// The content blocks, in order.
        content: Vec<ContentBlock>,
    }
}

message! {
    /// The content and the tool calls of a model.
    AssistantMessage {
        /// The content blocks, in order.
        content: Vec<ContentBlock>,
        /// The tool calls, in order; absent where there are none.
        tool_calls: Option<Vec<ToolCall>>,
    }
}

message! {
    /// The results of tool calls, in the order of the calls.
    ToolResultMessage {
        /// One result for each call.
        results: Vec<ToolResult>,
    }
}

impl AssistantMessage {
    /// The tool calls.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        self.tool_calls.as_deref().unwrap_or_default()
    }

    /// Whether there are tool calls.
    #[must_use]
    pub fn has_tool_calls(&self) -> bool {
        !self.calls().is_empty()
    }

    /// The text blocks, two newlines between them.
    #[must_use]
    pub fn text(&self) -> String {
        join(self.content.iter().filter_map(ContentBlock::as_text))
    }
}

impl Message {
    /// A user message of one block, such as a text.
    pub fn user(stamp: Stamp, content: impl Into<ContentBlock>) -> Self {
        UserMessage::new(stamp, vec![content.into()]).into()
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::User(message) => &message.id,
            Self::Assistant(message) => &message.id,
            Self::ToolResult(message) => &message.id,
        }
    }

    /// The metadata of vendors and protocols.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::User(message) => message.metadata.as_ref(),
            Self::Assistant(message) => message.metadata.as_ref(),
            Self::ToolResult(message) => message.metadata.as_ref(),
        }
    }

    /// The message with an object of a vendor or protocol in its metadata.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<Cow<'static, str>>, value: RawObject) -> Self {
        let metadata = match &mut self {
            Self::User(message) => &mut Arc::make_mut(message).metadata,
            Self::Assistant(message) => &mut Arc::make_mut(message).metadata,
            Self::ToolResult(message) => &mut Arc::make_mut(message).metadata,
        };
        metadata.get_or_insert_default().set(name, value);
        self
    }

    /// The content blocks; none for tool results.
    #[must_use]
    pub fn content(&self) -> &[ContentBlock] {
        match self {
            Self::User(message) => &message.content,
            Self::Assistant(message) => &message.content,
            Self::ToolResult(_) => &[],
        }
    }

    /// The texts, two newlines between them; of a tool result a string as it is, anything else as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::ToolResult(message) => join(message.results.iter().map(ToolResult::text)),
            _ => join(self.content().iter().filter_map(ContentBlock::as_text)),
        }
    }

    /// The assistant message, if this is one.
    #[must_use]
    pub const fn as_assistant(&self) -> Option<&Arc<AssistantMessage>> {
        match self {
            Self::Assistant(message) => Some(message),
            _ => None,
        }
    }

    /// The type of the message.
    #[must_use]
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::User(_) => MessageType::User,
            Self::Assistant(_) => MessageType::Assistant,
            Self::ToolResult(_) => MessageType::ToolResult,
        }
    }
}

fn join<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> String {
    let mut all = String::new();
    for (n, text) in texts.enumerate() {
        let between = if n == 0 { "" } else { "\n\n" };
        // Writing to a string does not fail.
        let _ = write!(all, "{between}{}", text.as_ref());
    }
    all
}

impl From<UserMessage> for Message {
    fn from(message: UserMessage) -> Self {
        Self::User(message.into())
    }
}

impl From<AssistantMessage> for Message {
    fn from(message: AssistantMessage) -> Self {
        Self::Assistant(message.into())
    }
}

impl From<ToolResultMessage> for Message {
    fn from(message: ToolResultMessage) -> Self {
        Self::ToolResult(message.into())
    }
}

ubos_common::words! {
    /// The tag of a message on the wire.
    closed pub enum MessageType {
        /// A user message.
        User = "user",
        /// An assistant message.
        Assistant = "assistant",
        /// A message of tool results.
        ToolResult = "tool_result",
    }
}

ubos_common::wire! {
    /// The members of all messages.
    struct AnyMessage {
        /// The id: any text that is not empty.
        required id: String = "id", "UPP-1";
        /// The tag.
        required kind: MessageType = "type", "UPP-1";
        /// Empty for tool results.
        nullable content: Settled<Vec<ContentBlock>> = "content", "UPP-1";
        /// Unknown names survive.
        nullable metadata: Metadata = "metadata", "UPP-1";
        /// ISO 8601.
        required timestamp: Rfc3339 = "timestamp", "UPP-1";
        /// Assistant.
        nullable tool_calls: Vec<ToolCall> = "toolCalls", "UPP-1";
        /// Tools.
        nullable results: Vec<ToolResult> = "results", "UPP-1";
    }
}

// impl: UPP-1
impl<'a> Read<'a> for Message {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let any = AnyMessage::read(reader)?;
        if any.id.is_empty() {
            return Err(reader.bad_value(at, "an id that is not empty"));
        }
        if any.content.is_none() && any.kind != MessageType::ToolResult {
            reader.missing(at, "content", "UPP-1", Level::Must);
            return Err(reader.noted());
        }
        let content = match any.content {
            None => Vec::new(),
            Some(Settled(Some(blocks))) => blocks,
            Some(Settled(None)) => return Err(reader.noted()),
        };
        let (id, timestamp, metadata, extra) =
            (any.id.into(), any.timestamp, any.metadata, any.extra);
        let message = match any.kind {
            MessageType::User => Self::from(UserMessage {
                id,
                timestamp,
                metadata,
                content,
                extra,
            }),
            MessageType::Assistant => Self::from(AssistantMessage {
                id,
                timestamp,
                metadata,
                content,
                tool_calls: any.tool_calls,
                extra,
            }),
            _ => {
                let results = any.results.unwrap_or_default();
                Self::from(ToolResultMessage {
                    id,
                    timestamp,
                    metadata,
                    results,
                    extra,
                })
            }
        };
        match stranger(&message) {
            None => Ok(message),
            Some(wanted) => Err(reader.bad_value(at, wanted)),
        }
    }
}

/// The text of the finding about a block that the message may not hold.
fn stranger(message: &Message) -> Option<&'static str> {
    let has = |names: &[&str]| {
        message
            .content()
            .iter()
            .any(|block| names.contains(&block.type_name()))
    };
    match message {
        Message::User(_) if has(&["reasoning"]) => Some("no reasoning in a user's message"),
        Message::Assistant(_) if has(&["document", "binary"]) => {
            Some("no document or binary in an assistant's message")
        }
        _ => None,
    }
}

impl Write for Message {
    fn write(&self, out: &mut Vec<u8>) {
        let (timestamp, extra) = match self {
            Self::User(message) => (&message.timestamp, &message.extra),
            Self::Assistant(message) => (&message.timestamp, &message.extra),
            Self::ToolResult(message) => (&message.timestamp, &message.extra),
        };
        let mut object = MemberWriter::begin(out);
        object.member("id", self.id());
        object.member("type", &self.message_type());
        object.member("content", self.content());
        object.optional("metadata", self.metadata());
        object.member("timestamp", timestamp);
        match self {
            Self::Assistant(message) => object.optional("toolCalls", message.tool_calls.as_ref()),
            Self::ToolResult(message) => object.member("results", &message.results),
            Self::User(_) => {}
        }
        extra.write_into(&mut object);
        object.end();
    }
}
