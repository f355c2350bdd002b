//! Messages of any shape, for fuzzing and property tests: sound ones, their corners included.
//!
//! ```
//! use arbitrary::Unstructured;
//! use opensentience_wire::arbitrary::message;
//! use opensentience_wire::Limits;
//! use opensentience_wire::validate;
//!
//! let bytes: Vec<u8> = (0..=255).cycle().take(2_048).collect();
//! let text = message(&mut Unstructured::new(&bytes))?;
//! assert!(validate::message(&text, &Limits::default()).is_valid());
//! # Ok::<(), arbitrary::Error>(())
//! ```

mod seeds;

use arbitrary::{Arbitrary, Result, Unstructured};
use ubos_common::json::{MemberWriter, RawBuf, RawObject, to_string};
use ubos_common::time::{Rfc3339, Timestamp};

use crate::error::{ErrorCode, ErrorObject};
use crate::message::{Actor, ActorType};
use crate::message::{
    CallContext, Caller, CancelAck, Channel, ChunkData, Goodbye, Health, Heartbeat, Hello, Message,
    MessageType, ProtocolOffer, Register, Registered, Rejected, Sdk, SemVer, Server, Status,
    ToolCall, ToolCancel, ToolOutcome, ToolSpec, ToolStream, Unregister, Unregistered, Welcome,
};

/// Messages and streams to begin with: the published vectors, valid and not.
pub fn seeds() -> impl Iterator<Item = &'static [u8]> {
    seeds::VECTORS.iter().copied()
}

/// One sound message as it stands in a frame.
///
/// # Errors
///
/// The source has no more bytes than it needs.
pub fn message(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let content = Message::arbitrary(u)?;
    let mut out = Vec::new();
    let mut object = MemberWriter::begin(&mut out);
    object.member("v", &1_u64);
    object.member("type", &content.message_type());
    object.member("id", &format!("m-{}", u.arbitrary::<u32>()?));
    object.member("ts", &time(u)?);
    for name in ["in_reply_to", "correlation_id", "causation_id"] {
        object.optional(name, maybe(u, text)?.as_ref());
    }
    let calls = matches!(content, Message::ToolCall(_));
    if calls || u.arbitrary()? {
        object.member("request_id", &text(u)?);
    }
    if u.arbitrary()? {
        object.member("actor", &Actor::new(kind(u)?, text(u)?));
    }
    match &content {
        Message::Refused(refused) => object.member("error", &**refused),
        Message::Welcome(_) => {}
        _ => object.optional("error", maybe(u, error)?.as_ref()),
    }
    object.member("payload", &content);
    if u.arbitrary()? {
        object.member("x-later", &object_of(u)?);
    }
    object.end();
    Ok(out)
}

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=16)? {
            0 => Self::Hello(hello(u)?),
            1 => Self::Welcome(welcome(u)?),
            2 => Self::Refused(Box::new(error(u)?)),
            3 => Self::Goodbye(goodbye(u)?),
            4 => Self::Register(register(u)?),
            5 => Self::Registered(registered(u)?),
            6 => Self::Unregister(Unregister::new(many(u, text)?)),
            7 => Self::Unregistered(Unregistered::new(many(u, text)?)),
            8 => Self::ToolCall(call(u)?),
            9 => Self::ToolStream(chunk(u)?),
            10 => Self::ToolResult(outcome(u)?),
            11 => Self::ToolCancel(cancel(u)?),
            12 => {
                let mut ack = CancelAck::new(text(u)?, u.arbitrary()?);
                ack.note = maybe(u, text)?;
                Self::CancelAck(ack)
            }
            13 => Self::Heartbeat(heartbeat(u)?),
            _ => {
                let kinds = [
                    MessageType::Ping,
                    MessageType::Pong,
                    MessageType::CoreError,
                    MessageType::AgentError,
                    MessageType::Other("agent.later".into()),
                    MessageType::Other("core.later".into()),
                ];
                Self::Plain(u.choose(&kinds)?.clone(), object_of(u)?)
            }
        })
    }
}

fn hello(u: &mut Unstructured<'_>) -> Result<Hello> {
    let offer = ProtocolOffer::new(many(u, |u| u.int_in_range(0..=3))?, many(u, text)?);
    let mut hello = Hello::new(text(u)?.into(), text(u)?, version(u)?, offer);
    hello.manifest_hash = maybe(u, text)?;
    hello.sdk = maybe(u, |u| Ok(Sdk::new(text(u)?, version(u)?)))?;
    Ok(hello)
}

fn welcome(u: &mut Unstructured<'_>) -> Result<Welcome> {
    let server = Server::new(text(u)?, text(u)?);
    let (session, beat, frame) = (text(u)?, number(u)?, number(u)?);
    Ok(Welcome::new(
        u.int_in_range(0..=2)?,
        session,
        beat,
        frame,
        server,
    ))
}

fn goodbye(u: &mut Unstructured<'_>) -> Result<Goodbye> {
    let mut goodbye = Goodbye::new(text(u)?);
    goodbye.retry_after_ms = maybe(u, number)?;
    Ok(goodbye)
}

fn register(u: &mut Unstructured<'_>) -> Result<Register> {
    let tools = many(u, |u| {
        let text = to_string(&ToolSpec::arbitrary(u)?);
        Ok(RawBuf::assume_sound(text))
    })?;
    let mut register = Register::new(tools);
    register.replace = maybe(u, |u| u.arbitrary())?;
    Ok(register)
}

impl<'a> Arbitrary<'a> for ToolSpec {
    /// A tool of the agent `a`, with a schema that can be used.
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let name = *u.choose(&["echo", "sleep", "A.b_c-d", "0"])?;
        let schema = *u.choose(&SCHEMAS)?;
        let mut tool = Self::new(format!("a/{name}"), name.into(), text(u)?, object(schema));
        tool.output_schema = maybe(u, |u| Ok(object(u.choose(&SCHEMAS)?)))?;
        tool.capabilities = maybe(u, |u| many(u, text))?;
        tool.side_effects = maybe(u, |u| u.arbitrary())?;
        tool.requires_directive = maybe(u, |u| u.arbitrary())?;
        tool.tags = maybe(u, |u| many(u, text))?;
        Ok(tool)
    }
}

fn registered(u: &mut Unstructured<'_>) -> Result<Registered> {
    let mut reply = Registered::new(many(u, text)?);
    reply.rejected = maybe(u, |u| many(u, |u| Ok(Rejected::new(text(u)?, error(u)?))))?;
    Ok(reply)
}

fn call(u: &mut Unstructured<'_>) -> Result<ToolCall> {
    let tool = format!("a/{}", u.choose(&["echo", "sleep", "none"])?);
    let mut call = ToolCall::new(text(u)?, tool, object_of(u)?);
    call.timeout_ms = maybe(u, number)?;
    call.idempotency_key = maybe(u, text)?;
    call.caller = maybe(u, |u| Ok(Caller::new(kind(u)?, text(u)?)))?;
    call.context = maybe(u, |u| {
        let mut context = CallContext::new();
        context.project_root = maybe(u, text)?;
        context.resource_paths = maybe(u, |u| many(u, text))?;
        context.ui = maybe(u, object_of)?;
        Ok(context)
    })?;
    Ok(call)
}

fn chunk(u: &mut Unstructured<'_>) -> Result<ToolStream> {
    let texts = [
        Channel::Stdout,
        Channel::Stderr,
        Channel::Log,
        Channel::Status,
    ];
    let mut data = ChunkData::new();
    let channel = if u.arbitrary()? {
        data.json = Some(object_of(u)?);
        Channel::PartialResult
    } else {
        data.text = Some(text(u)?);
        u.choose(&texts)?.clone()
    };
    let mut chunk = ToolStream::new(text(u)?, number(u)?.max(1), channel, data);
    chunk.done = maybe(u, |u| u.arbitrary())?;
    Ok(chunk)
}

fn outcome(u: &mut Unstructured<'_>) -> Result<ToolOutcome> {
    let status = u.choose(&[Status::Succeeded, Status::Failed, Status::Canceled])?;
    let mut outcome = ToolOutcome::new(text(u)?, status.clone());
    match status {
        Status::Succeeded => outcome.output = maybe(u, object_of)?,
        _ => outcome.error = Some(error(u)?),
    }
    let at = |u: &mut Unstructured<'_>| Ok(Rfc3339::from(time(u)?));
    outcome.started_at = maybe(u, at)?;
    outcome.finished_at = maybe(u, at)?;
    outcome.metrics = maybe(u, object_of)?;
    Ok(outcome)
}

fn cancel(u: &mut Unstructured<'_>) -> Result<ToolCancel> {
    let mut cancel = ToolCancel::new(text(u)?);
    cancel.reason = maybe(u, text)?;
    cancel.deadline_ms = maybe(u, number)?;
    Ok(cancel)
}

fn heartbeat(u: &mut Unstructured<'_>) -> Result<Heartbeat> {
    let health = u.choose(&[Health::Ok, Health::Degraded, Health::Unhealthy])?;
    let mut beat = Heartbeat::new(text(u)?, number(u)?, number(u)?, health.clone());
    beat.details = maybe(u, object_of)?;
    Ok(beat)
}

fn error(u: &mut Unstructured<'_>) -> Result<ErrorObject> {
    let code = ErrorCode::from(*u.choose(ErrorCode::WORDS)?);
    let mut error = ErrorObject::of(code, text(u)?);
    error.details = maybe(u, object_of)?;
    error.component = maybe(u, text)?;
    Ok(error)
}

fn maybe<T>(
    u: &mut Unstructured<'_>,
    make: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if u.arbitrary()? {
        make(u).map(Some)
    } else {
        Ok(None)
    }
}

fn many<T>(
    u: &mut Unstructured<'_>,
    mut make: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..u.int_in_range(0..=3)?).map(|_| make(u)).collect()
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    u.choose(&WORDS).map(|word| (*word).to_owned())
}

fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    let corners = [0, 1, 2, 100, 5_000, 4_194_304, (1 << 53) - 1];
    u.choose(&corners).copied()
}

fn kind(u: &mut Unstructured<'_>) -> Result<ActorType> {
    let kinds = [ActorType::Human, ActorType::Agent, ActorType::System];
    u.choose(&kinds).cloned()
}

fn version(u: &mut Unstructured<'_>) -> Result<SemVer> {
    let texts = ["1.0.0", "0.0.1-rc.1+build", "10.20.30"];
    let version = u.choose(&texts)?.parse();
    version.map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn time(u: &mut Unstructured<'_>) -> Result<Timestamp> {
    let seconds = u.int_in_range(0..=4_102_444_800)?;
    Ok(Timestamp::from_unix(seconds).unwrap_or(Timestamp::EPOCH))
}

fn object_of(u: &mut Unstructured<'_>) -> Result<RawObject> {
    u.choose(&OBJECTS).map(|text| object(text))
}

fn object(text: &str) -> RawObject {
    let value = RawBuf::parse(text).ok().and_then(RawObject::new);
    value.unwrap_or_default()
}

/// Texts that mean something somewhere, and some that are hard to write.
const WORDS: [&str; 12] = [
    "a",
    "a/echo",
    "c-1",
    "c-2",
    "s-1",
    "key",
    "",
    "\"\\",
    "\n\u{0}",
    "é\u{2028}🦀",
    "x y",
    "sha256:00",
];

/// Inputs and outputs.
const OBJECTS: [&str; 6] = [
    "{}",
    r#"{"ms":5}"#,
    r#"{"ms":"five"}"#,
    r#"{"a":{"b":[1,-0.5,1e3,null,true]}}"#,
    r#"{"":""}"#,
    r#"{"text":"\ud83e\udd80 \u0000"}"#,
];

/// Schemas that can be used.
const SCHEMAS: [&str; 4] = [
    "{}",
    r#"{"type":"object"}"#,
    r#"{"type":"object","properties":{"ms":{"type":"integer"}},"required":["ms"]}"#,
    r#"{"type":"object","additionalProperties":false}"#,
];
