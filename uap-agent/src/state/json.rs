//! The JSON of states: version 1.1.0 is written, 1.1 and 1.0 are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ubos_common::json::{
    self, DecodeError, Limits, MemberWriter, Members, RawBuf, RawObject, Read, Write, decode,
    read_raw,
};
use ubos_common::time::Timestamp;
use ubos_common::violation::{Level, Profile, Report, Violation};
use upp::{
    AssistantMessage, ContentBlock, List, Message, MessageType, Metadata, Stamp, ToolCall,
    ToolResult, ToolResultMessage, UserMessage,
};

use super::parts::{PlanStep, SubagentExecutionTrace};
use super::plan::PlanSteps;
use super::{AgentState, StateId};

/// The version that is written.
const VERSION: &str = "1.1.0";

/// Why a text is not a state.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The version is not supported.
    #[error("Unsupported UAP version: {seen}, where 1.0.x and 1.1.x are read")]
    Version {
        /// The version, cut to 32 characters.
        seen: Box<str>,
    },
    /// The text is not valid JSON, or has findings with their pointers.
    #[error(transparent)]
    Invalid(#[from] DecodeError),
}

ubos_common::wire! {
    /// The JSON of a state.
    struct StateJson {
        /// 1.0.x or 1.1.x.
        required version: String = "version", "UAP-12-6";
        /// UUIDv4.
        required id: StateId = "id", "UAP-12-6";
        /// Read in a second step, by version.
        required messages: RawBuf = "messages", "UAP-12-6";
        /// From 0.
        required step: u64 = "step", "UAP-12-6";
        /// The developer's.
        required metadata: RawObject = "metadata", "UAP-12-6";
        /// In order.
        nullable reasoning: List<Arc<str>> = "reasoning", "UAP-12-6";
        /// In order.
        nullable plan: Vec<PlanStep> = "plan", "UAP-12-6";
        /// In order.
        nullable subagent_traces: List<SubagentExecutionTrace> = "subagentTraces", "UAP-12-6";
    }
}

/// The JSON of a state, a text of version 1.1.0.
///
/// Spec: UAP-1.1 12.1
pub type AgentStateJson = String;

impl AgentState {
    /// The state as JSON of version 1.1.0.
    ///
    /// Spec: UAP-1.1 12.1
    #[must_use]
    pub fn to_json(&self) -> AgentStateJson {
        json::to_string(self)
    }

    /// Reads the JSON of a state of version 1.1 or 1.0. Messages of 1.0 have neither ids nor times: their ids are made of the
    /// state's id and their place, and their time is 1970.
    ///
    /// # Errors
    ///
    /// See [`StateError`]; every finding has its pointer.
    // impl: UAP-12-1, UAP-12-6
    pub fn from_json(bytes: &[u8], limits: &Limits) -> Result<Self, StateError> {
        let (state, mut report) = match decode::<StateJson>(bytes, limits, Profile::Strict) {
            Ok(read) => read,
            Err(error) => {
                return Err(version_of(bytes, limits)
                    .err()
                    .unwrap_or_else(|| error.into()));
            }
        };
        let is_first = check_version(&state.version)?;
        let messages = if is_first {
            read_raw::<Vec<RoleMessage>>(state.messages.as_raw(), limits, Profile::Strict).map(
                |(messages, _)| {
                    (0..)
                        .zip(messages)
                        .map(|(n, m)| m.into_message(state.id, n))
                        .collect()
                },
            )
        } else {
            read_raw::<List<Message>>(state.messages.as_raw(), limits, Profile::Strict)
                .map(|(messages, _)| messages)
        };
        let messages = match messages {
            Ok(messages) => messages,
            Err(DecodeError::Invalid(part)) => {
                report.extend_under("/messages", part);
                return Err(DecodeError::Invalid(report).into());
            }
            Err(error) => return Err(error.into()),
        };
        let metadata = members(&state.metadata, limits)?;
        let plan = state.plan.map(PlanSteps::from);
        check(&mut report, state.id, &messages, plan.as_ref());
        if !report.is_valid() {
            return Err(DecodeError::Invalid(report).into());
        }
        Ok(Self {
            id: state.id,
            messages,
            step: state.step,
            metadata: Arc::new(metadata),
            reasoning: state.reasoning.unwrap_or_default(),
            plan,
            subagent_traces: state.subagent_traces.unwrap_or_default(),
            extra: Arc::new(state.extra),
        })
    }
}

#[cfg(all(feature = "driver", feature = "os"))]
impl AgentState {
    /// Why the state could not be read back, if so: a caller may have added a message twice.
    pub(crate) fn breach(&self) -> Option<String> {
        let mut report = Report::default();
        check(&mut report, self.id, &self.messages, self.plan.as_ref());
        let found = report.iter().next();
        found.map(|found| format!("{}: {}", found.pointer, found.message))
    }
}

// impl: UAP-12-1
impl Write for AgentState {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("version", VERSION);
        object.member("id", &self.id);
        object.member("messages", &self.messages);
        object.member("step", &self.step);
        object.member("metadata", &Object(&self.metadata));
        object.member("reasoning", &self.reasoning);
        object.optional("plan", self.plan.as_ref());
        let traces = Some(&self.subagent_traces).filter(|traces| !traces.is_empty());
        object.optional("subagentTraces", traces);
        self.extra.write_into(&mut object);
        object.end();
    }
}

/// Members as an object.
pub(super) struct Object<'a>(pub(super) &'a Members<'static>);

impl Write for Object<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        self.0.write_into(&mut object);
        object.end();
    }
}

ubos_common::wire! {
    /// The version alone.
    struct VersionOnly {
        /// Any text.
        required version: String = "version", "UAP-12-6";
    }
}

ubos_common::wire! {
    /// An object whose members are all unknown.
    struct Anything {}
}

pub(super) fn members(
    object: &RawObject,
    limits: &Limits,
) -> Result<Members<'static>, DecodeError> {
    read_raw::<Anything>(object.as_raw(), limits, Profile::Strict).map(|(any, _)| any.extra)
}

/// A state of another version may have any shape, so the version is reported and nothing else.
fn version_of(bytes: &[u8], limits: &Limits) -> Result<(), StateError> {
    match decode::<VersionOnly>(bytes, limits, Profile::Strict) {
        Ok((read, _)) => check_version(&read.version).map(drop),
        Err(_) => Ok(()),
    }
}

/// Whether it is the first version, whose messages have roles.
// impl: UAP-12-6
fn check_version(version: &str) -> Result<bool, StateError> {
    let mut parts = version.split('.');
    let [major, minor, patch] = [parts.next(), parts.next(), parts.next()];
    let is_number = |part: Option<&str>| {
        part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_whole = is_number(patch) && parts.next().is_none();
    match (major, minor) {
        (Some("1"), Some(minor @ ("0" | "1"))) if is_whole => Ok(minor == "0"),
        _ => Err(StateError::Version {
            seen: version.chars().take(32).collect::<String>().into(),
        }),
    }
}

/// Checks what the types cannot express.
fn check(report: &mut Report, id: StateId, messages: &List<Message>, plan: Option<&PlanSteps>) {
    let mut refuse = |pointer: String, code: &'static str, message: &'static str| {
        report.push(Violation::new(
            pointer,
            code,
            "UAP-12-6",
            Level::Must,
            message,
        ));
    };
    if id.as_uuid().get_version_num() != 4 {
        refuse("/id".into(), "id_version", "the id is not a UUIDv4");
    }
    let mut seen = BTreeSet::new();
    for (n, message) in messages.iter().enumerate() {
        if !seen.insert(message.id()) {
            refuse(
                format!("/messages/{n}/id"),
                "duplicate_id",
                "the id of an earlier message",
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (n, step) in plan.into_iter().flat_map(PlanSteps::iter).enumerate() {
        if !seen.insert(&step.id) {
            refuse(
                format!("/plan/{n}/id"),
                "duplicate_id",
                "the id of an earlier step",
            );
        }
    }
}

/// A message of version 1.0.
struct RoleMessage {
    body: RoleBody,
    metadata: Option<Metadata>,
    extra: Members<'static>,
}

enum RoleBody {
    User(Vec<ContentBlock>),
    Assistant(AssistantContent),
    ToolResult(Vec<ToolResult>),
}

ubos_common::wire! {
    /// What an assistant's content was.
    struct AssistantContent {
        /// Blocks.
        required content: Vec<ContentBlock> = "content", "UAP-12-6";
        /// Calls.
        nullable tool_calls: Vec<ToolCall> = "toolCalls", "UAP-12-6";
    }
}

ubos_common::wire! {
    /// The message before its content is read.
    struct RoleJson {
        /// The same words as the types of today.
        required role: MessageType = "role", "UAP-12-6";
        /// Its shape follows from the role.
        required content: RawBuf = "content", "UAP-12-6";
        /// As today.
        nullable metadata: Metadata = "metadata", "UAP-12-6";
    }
}

impl<'a> Read<'a> for RoleMessage {
    fn read(reader: &mut json::Reader<'a>) -> Result<Self, json::Fault> {
        let at = reader.offset();
        let message = RoleJson::read(reader)?;
        let (content, limits) = (message.content.as_raw(), reader.limits());
        let body = match message.role {
            MessageType::User => {
                read_raw(content, limits, Profile::Strict).map(|(c, _)| RoleBody::User(c))
            }
            MessageType::Assistant => {
                read_raw(content, limits, Profile::Strict).map(|(c, _)| RoleBody::Assistant(c))
            }
            _ => read_raw(content, limits, Profile::Strict).map(|(c, _)| RoleBody::ToolResult(c)),
        };
        // choice: UAP-12-6: a breach inside 1.0 content is filed at its message.
        Ok(Self {
            body: body.map_err(|_| reader.bad_value(at, "content in the shape of its role"))?,
            metadata: message.metadata,
            extra: message.extra,
        })
    }
}

impl RoleMessage {
    fn into_message(self, state: StateId, place: usize) -> Message {
        let stamp = Stamp::with_id(format!("{state}/{place}"), Timestamp::EPOCH);
        let (metadata, extra) = (self.metadata, self.extra);
        match self.body {
            RoleBody::User(content) => {
                let mut message = UserMessage::new(stamp, content);
                (message.metadata, message.extra) = (metadata, extra);
                message.into()
            }
            RoleBody::Assistant(said) => {
                let mut message = AssistantMessage::new(stamp, said.content, said.tool_calls);
                (message.metadata, message.extra) = (metadata, extra);
                message.into()
            }
            RoleBody::ToolResult(results) => {
                let mut message = ToolResultMessage::new(stamp, results);
                (message.metadata, message.extra) = (metadata, extra);
                message.into()
            }
        }
    }
}
