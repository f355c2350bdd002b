//! What has happened on a connection so far: the common knowledge of plays and judges.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::RawObject;
use ubos_common::time::Mono;

use super::recording::{FramingError, Launch, Line, LineKind, RecordedMessage, index};
use opensentience_wire::Correlation;
use opensentience_wire::ErrorCode;
use opensentience_wire::message::{
    Channel, Health, Heartbeat, Message, MessageType, Register, Registered, Side, Status, ToolCall,
    ToolOutcome, ToolSpec, ToolStream, Welcome,
};

/// A connection, as it was before the line that is looked at.
#[derive(Debug, Default)]
pub(super) struct ObservedState {
    pub(super) launch: Option<Launch>,
    /// Earlier launches.
    pub(super) launches: Vec<Launch>,
    /// The token opened a connection before.
    pub(super) token_used: bool,
    pub(super) connected_at: Mono,
    /// When each side ended.
    pub(super) ended: [Option<Mono>; 2],
    /// When each side sent what ends a connection, and what it was.
    pub(super) framing_errors: [Option<(Mono, FramingError)>; 2],
    /// Faults that a connection tolerates: when, who, by clause.
    pub(super) violations: BTreeMap<&'static str, (Mono, Side)>,
    /// Ids of messages of each side, by type.
    pub(super) ids: [BTreeMap<String, MessageType>; 2],
    /// The hello, and whether its token and agent are those of the launch.
    pub(super) hello: Option<ObservedHello>,
    /// When something else than a hello came first, and whether it was a sound message.
    pub(super) before_hello: Option<(Mono, bool)>,
    pub(super) welcome: Option<(Mono, Welcome)>,
    pub(super) refused: Option<(Mono, ErrorCode)>,
    pub(super) goodbye: Option<Mono>,
    /// Registrations that were not answered, with the ids of their messages.
    pub(super) registrations: BTreeMap<String, Registration>,
    pub(super) tools: BTreeMap<String, ToolSpec>,
    pub(super) calls: BTreeMap<String, Call>,
    /// Messages that named a call that there was already, and were not answered.
    pub(super) duplicate_calls: BTreeMap<String, Mono>,
    /// Calls that the core wanted stopped, also such as there are none.
    pub(super) cancels: BTreeSet<String>,
    /// Tools that the agent withdraws, by the id of its message.
    pub(super) unregistrations: BTreeMap<String, Vec<String>>,
    pub(super) heartbeat: Option<(Mono, Heartbeat)>,
    /// Messages of a type that no side knows, by id, and when.
    pub(super) unknown: BTreeMap<String, UnknownMessage>,
    /// Pings that were not answered.
    pub(super) pings: BTreeMap<String, Mono>,
    /// Answers to registrations.
    pub(super) registration_replies: usize,
}

/// A hello.
#[derive(Debug)]
pub(super) struct ObservedHello {
    pub(super) at: Mono,
    pub(super) sound: bool,
    pub(super) ours: bool,
    pub(super) speaks: bool,
}

/// What an agent offers.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) at: Mono,
    pub(super) tools: Vec<Tool>,
    pub(super) replace: bool,
}

/// A tool on offer.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) id: String,
    /// The declaration; `None` where a member is wrong or lacking.
    pub(super) spec: Option<ToolSpec>,
}

/// A message of a type that no side knows.
#[derive(Debug)]
pub(super) struct UnknownMessage {
    pub(super) at: Mono,
    pub(super) from: Side,
    pub(super) wants_answer: bool,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) at: Mono,
    pub(super) tool: String,
    /// `None` where the payload broke the rules.
    pub(super) asked: Option<ToolCall>,
    pub(super) ids: Correlation,
    /// The tool was there when it was called.
    pub(super) known: bool,
    /// Calls that ran when it came.
    pub(super) before_it: usize,
    pub(super) canceled: Option<(Mono, Option<u64>)>,
    pub(super) acked: Option<bool>,
    pub(super) last_seq: u64,
    pub(super) done: bool,
    pub(super) end: Option<End>,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Mono,
    pub(super) status: Status,
    pub(super) code: Option<ErrorCode>,
    pub(super) output: Option<RawObject>,
}

impl Call {
    /// The tool's name without the agent.
    pub(super) fn name(&self) -> &str {
        self.tool.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        let millis = self.asked.as_ref()?.timeout_ms?;
        Some(Duration::from_millis(millis))
    }

    /// A number in the input.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let input: BTreeMap<String, ubos_common::json::RawBuf> =
            self.asked.as_ref()?.input.deserialize().ok()?;
        input.get(name)?.as_str().parse().ok()
    }
}

impl ObservedState {
    pub(super) fn has_ended(&self, side: Side) -> Option<Mono> {
        self.ended.get(index(side)).copied().flatten()
    }

    pub(super) fn framing_error(&self, side: Side) -> Option<(Mono, FramingError)> {
        self.framing_errors.get(index(side)).copied().flatten()
    }

    /// Whether a side has no reason to end the connection, as far as one can see.
    pub(super) fn must_stay_open(&self, side: Side) -> bool {
        let other = side.other();
        self.welcome.is_some()
            && self.goodbye.is_none()
            && self.has_ended(other).is_none()
            && self.framing_error(other).is_none()
    }

    /// Calls without a result.
    pub(super) fn running(&self) -> usize {
        self.calls
            .values()
            .filter(|call| call.end.is_none())
            .count()
    }

    /// The tool of a name.
    pub(super) fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.values().find(|tool| tool.name == name)
    }

    /// Takes a line in.
    pub(super) fn observe(&mut self, line: &Line) {
        if let Some((clause, _)) = violation_of(self, line) {
            self.violations
                .entry(clause)
                .or_insert((line.at, line.from));
        }
        let side = index(line.from);
        match &line.kind {
            LineKind::Launched(launch) => {
                let mut launches = core::mem::take(&mut self.launches);
                launches.extend(self.launch.take());
                *self = Self::begin(line.at, launch, launches);
            }
            LineKind::Reconnected(launch) => {
                let launches = core::mem::take(&mut self.launches);
                let used = self.token_used || self.welcome.is_some();
                *self = Self::begin(line.at, launch, launches);
                self.token_used = used;
            }
            LineKind::NotAMessage(broken) => {
                if let Some(broke) = self.framing_errors.get_mut(side) {
                    broke.get_or_insert((line.at, *broken));
                }
                self.note_before_hello(line, false);
            }
            LineKind::End { .. } => {
                if let Some(ended) = self.ended.get_mut(side) {
                    ended.get_or_insert(line.at);
                }
            }
            LineKind::Message(message) => self.take(line, message),
            LineKind::Silence => {}
        }
    }

    fn begin(connected_at: Mono, launch: &Launch, launches: Vec<Launch>) -> Self {
        Self {
            connected_at,
            launch: Some(launch.clone()),
            launches,
            ..Self::default()
        }
    }

    fn note_before_hello(&mut self, line: &Line, sound: bool) {
        if line.from == Side::Agent && self.hello.is_none() {
            self.before_hello.get_or_insert((line.at, sound));
        }
    }

    fn take(&mut self, line: &Line, message: &RecordedMessage) {
        let side = index(line.from);
        if let Some(ids) = self.ids.get_mut(side) {
            ids.insert(message.id.clone(), message.kind.clone());
        }
        if message.kind != MessageType::Hello {
            self.note_before_hello(line, message.is_sound());
        }
        if message.kind.sender() == Some(line.from.other()) {
            return;
        }
        match (&message.kind, &message.content) {
            (MessageType::Hello, content)
                if self.hello.is_none() && self.before_hello.is_none() =>
            {
                self.hello = Some(self.greeting(line.at, content.as_ref()));
            }
            (MessageType::ToolCall, None) => self.call(line.at, message, None),
            (MessageType::ToolResult, None) => self.broken_result(line.at, message),
            (MessageType::Other(_), Some(_)) => self.unknown(line, message),
            (_, Some(content)) => self.content(line.at, message, content),
            (_, None) => {}
        }
    }

    fn greeting(&self, at: Mono, content: Option<&Message>) -> ObservedHello {
        let (mut ours, mut speaks) = (false, false);
        if let (Some(Message::Hello(hello)), Some(launch)) = (content, &self.launch) {
            ours = hello.session_token == launch.token && hello.agent_id == launch.agent_id;
            speaks = hello.protocol.supported_versions.contains(&1);
        }
        let sound = content.is_some();
        ObservedHello {
            at,
            sound,
            ours,
            speaks,
        }
    }

    fn unknown(&mut self, line: &Line, message: &RecordedMessage) {
        let request = message.ids.request_id.as_deref();
        let live = |call: &Call| call.end.is_none() && call.ids.request_id.as_deref() == request;
        let live = self.calls.values().any(live);
        let wants_answer =
            request.is_some() && !live && message.in_reply_to.is_none() && message.error.is_none();
        let unknown = UnknownMessage {
            at: line.at,
            from: line.from,
            wants_answer,
        };
        self.unknown.insert(message.id.clone(), unknown);
    }

    fn content(&mut self, at: Mono, message: &RecordedMessage, content: &Message) {
        match content {
            Message::Welcome(welcome) if self.welcome.is_none() => {
                self.welcome = Some((at, welcome.clone()));
            }
            Message::Refused(error) if self.welcome.is_none() => {
                self.refused.get_or_insert_with(|| (at, error.code.clone()));
            }
            // One with an error is the end for a fault.
            Message::Goodbye(_) if message.error.is_none() => drop(self.goodbye.get_or_insert(at)),
            Message::Register(register) => self.offer(at, message, register),
            Message::Registered(reply) => self.registered(message, reply),
            Message::Unregister(gone) => {
                self.unregistrations
                    .insert(message.id.clone(), gone.tool_ids.clone());
            }
            Message::Unregistered(reply) => {
                self.registration_replies += 1;
                self.unregistrations
                    .remove(message.in_reply_to.as_deref().unwrap_or_default());
                self.tools.retain(|id, _| !reply.tool_ids.contains(id));
            }
            Message::ToolCall(call) => self.call(at, message, Some(call)),
            Message::ToolStream(chunk) => self.chunk(chunk),
            Message::ToolResult(result) => self.result(at, message, result),
            Message::ToolCancel(cancel) => {
                self.cancels.insert(cancel.call_id.clone());
                if let Some(call) = self.calls.get_mut(&cancel.call_id) {
                    call.canceled.get_or_insert((at, cancel.deadline_ms));
                }
            }
            Message::CancelAck(ack) => {
                if let Some(call) = self.calls.get_mut(&ack.call_id) {
                    call.acked.get_or_insert(ack.accepted);
                }
            }
            Message::Heartbeat(beat) => self.heartbeat = Some((at, beat.clone())),
            Message::Plain(MessageType::Ping, _) => {
                self.pings.insert(message.id.clone(), at);
            }
            Message::Plain(MessageType::Pong, _) => {
                self.pings
                    .remove(message.in_reply_to.as_deref().unwrap_or_default());
            }
            Message::Plain(MessageType::CoreError | MessageType::AgentError, _) => {
                let about = message.in_reply_to.as_deref().unwrap_or_default();
                self.unknown.remove(about);
                self.duplicate_calls.remove(about);
            }
            _ => {}
        }
    }

    fn offer(&mut self, at: Mono, message: &RecordedMessage, register: &Register) {
        let limits = ubos_common::json::Limits::default();
        let tools = register.tools.iter().map(|raw| {
            let spec = ToolSpec::read(raw.as_raw(), &limits).ok();
            let id = match &spec {
                Some(spec) => spec.tool_id.clone(),
                None => named(raw),
            };
            Tool { id, spec }
        });
        let offer = Registration {
            at,
            tools: tools.collect(),
            replace: register.replace == Some(true),
        };
        self.registrations.insert(message.id.clone(), offer);
    }

    /// The offer that a reply answers: the one it names, else the oldest.
    pub(super) fn answered_registration(
        &self,
        message: &RecordedMessage,
    ) -> Option<(&String, &Registration)> {
        let named = message.in_reply_to.as_ref();
        let named = named.and_then(|id| self.registrations.get_key_value(id));
        named.or_else(|| self.registrations.iter().min_by_key(|(_, offer)| offer.at))
    }

    fn registered(&mut self, message: &RecordedMessage, reply: &Registered) {
        self.registration_replies += 1;
        let Some(id) = self
            .answered_registration(message)
            .map(|(id, _)| id.clone())
        else {
            return;
        };
        let Some(offer) = self.registrations.remove(&id) else {
            return;
        };
        if offer.replace {
            self.tools.clear();
        }
        for spec in offer.tools.into_iter().filter_map(|tool| tool.spec) {
            if reply.registered.contains(&spec.tool_id) {
                self.tools.entry(spec.tool_id.clone()).or_insert(spec);
            }
        }
    }

    fn call(&mut self, at: Mono, message: &RecordedMessage, call: Option<&ToolCall>) {
        let id = call.map(|call| call.call_id.clone());
        let Some(id) = id.or_else(|| message.call_id.clone()) else {
            return;
        };
        if self.calls.contains_key(&id) {
            self.duplicate_calls.insert(message.id.clone(), at);
            return;
        }
        let tool = call.map(|call| call.tool_id.clone()).unwrap_or_default();
        let call = Call {
            at,
            known: self.tools.contains_key(&tool),
            tool,
            asked: call.cloned(),
            ids: message.ids.clone(),
            before_it: self.running(),
            canceled: None,
            acked: None,
            last_seq: 0,
            done: false,
            end: None,
        };
        self.calls.insert(id, call);
    }

    fn chunk(&mut self, chunk: &ToolStream) {
        if let Some(call) = self.calls.get_mut(&chunk.call_id) {
            call.last_seq = call.last_seq.max(chunk.seq);
            call.done |= chunk.done == Some(true);
        }
    }

    fn result(&mut self, at: Mono, message: &RecordedMessage, result: &ToolOutcome) {
        let code = result.error.as_ref().or(message.error.as_ref());
        let end = End {
            at,
            status: result.status.clone(),
            code: code.map(|error| error.code.clone()),
            output: result.output.clone(),
        };
        if let Some(call) = self.calls.get_mut(&result.call_id) {
            call.end.get_or_insert(end);
        }
    }

    /// A result that breaks the rules ends its call all the same.
    fn broken_result(&mut self, at: Mono, message: &RecordedMessage) {
        let call = message
            .call_id
            .as_ref()
            .and_then(|id| self.calls.get_mut(id));
        if let Some(call) = call {
            call.end.get_or_insert(End {
                at,
                status: Status::Failed,
                code: Some(ErrorCode::InvalidMessage),
                output: None,
            });
        }
    }

    /// How the agent says it feels.
    pub(super) fn is_unhealthy(&self) -> Option<Mono> {
        let (at, beat) = self.heartbeat.as_ref()?;
        (beat.status == Health::Unhealthy).then_some(*at)
    }
}

/// The id that a wrong declaration gives itself.
fn named(raw: &ubos_common::json::RawBuf) -> String {
    let members: Option<BTreeMap<String, ubos_common::json::RawBuf>> = raw.deserialize().ok();
    let id = members.and_then(|members| members.get("tool_id")?.deserialize::<String>().ok());
    id.unwrap_or_default()
}

/// What a line does wrong that a connection tolerates: the clause, and what was seen.
pub(super) fn violation_of(
    state: &ObservedState,
    line: &Line,
) -> Option<(&'static str, &'static str)> {
    let LineKind::Message(message) = &line.kind else {
        return None;
    };
    let content = match &message.content {
        None if message.kind == MessageType::ToolResult => {
            return Some(("OSW-4.3-8", "a result that breaks the rules"));
        }
        None => return Some(("OSW-3-1", "a message that breaks the rules")),
        Some(content) => content,
    };
    if message.kind.sender() == Some(line.from.other()) {
        return Some(("OSW-4-1", "a message of the other side"));
    }
    match content {
        Message::Hello(_) if state.hello.is_some() => Some(("OSW-4-1", "a second hello")),
        Message::Welcome(_) if state.welcome.is_some() => Some(("OSW-4-1", "a second welcome")),
        Message::ToolStream(chunk) => chunk_violation(state.calls.get(&chunk.call_id), chunk),
        Message::ToolResult(result) => match state.calls.get(&result.call_id) {
            None => Some(("OSW-4.3-12", "a result of a call that never was")),
            Some(call) if call.end.is_some() => Some(("OSW-4.3-7", "a second result of one call")),
            Some(_) => None,
        },
        Message::CancelAck(ack) if !state.cancels.contains(&ack.call_id) => {
            Some(("OSW-4.3-12", "a cancel_ack that nobody waits for"))
        }
        Message::Heartbeat(beat) => {
            let (_, welcome) = state.welcome.as_ref()?;
            let other = beat.session_id != welcome.session_id;
            other.then_some(("OSW-4.5-1", "a heartbeat of another session"))
        }
        _ => None,
    }
}

fn chunk_violation(
    call: Option<&Call>,
    chunk: &ToolStream,
) -> Option<(&'static str, &'static str)> {
    let Some(call) = call.filter(|call| call.end.is_none()) else {
        return Some(("OSW-4.3-12", "output of a call that does not run"));
    };
    if call.done {
        Some(("OSW-4.3-6", "output behind the last piece"))
    } else if call.last_seq == 0 && chunk.seq != 1 {
        Some(("OSW-4.3-5", "output that does not begin with 1"))
    } else if chunk.seq <= call.last_seq {
        Some(("OSW-4.3-5", "a number that does not increase"))
    } else if !fits_channel(chunk) {
        Some(("OSW-4.3-5", "data of another shape than the channel's"))
    } else {
        None
    }
}

/// Whether the data has the shape that its channel wants.
fn fits_channel(chunk: &ToolStream) -> bool {
    let (text, json) = (chunk.data.text.is_some(), chunk.data.json.is_some());
    match chunk.channel {
        Channel::PartialResult => json && !text,
        _ => text && !json,
    }
}
