//! Messages and streams with known verdicts: the files of `vectors/`, and a kit that asks a validator about them.

use core::fmt;

use ubos_common::violation::Level;

use crate::word_list::WordList;
use crate::{Kit, TestVector, Validity, Vectors};
use opensentience_wire::Limits;
use opensentience_wire::message::{ActorType, Channel, Health, Status};
use opensentience_wire::validate::{message, stream};

/// What a vector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorKind {
    /// One message, without its frame.
    Message,
    /// What one side sent, frame by frame.
    Stream,
}

impl VectorKind {
    /// `message` or `stream`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Stream => "stream",
        }
    }
}

/// Bytes, and whether they keep the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vector {
    /// The file in `vectors/`.
    pub file: &'static str,
    /// What it is.
    pub kind: VectorKind,
    /// The clause that it is about.
    pub clause: &'static str,
    /// Whether it keeps the rules.
    pub valid: bool,
    /// The bytes.
    pub bytes: &'static [u8],
}

/// Without the bytes.
impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vector").field(&self.file).finish()
    }
}

impl TestVector for Vector {
    type Answer = Validity;

    fn clause(&self) -> &str {
        self.clause
    }

    fn name(&self) -> &str {
        self.file
    }

    fn expected(&self) -> Validity {
        Validity::of(self.valid)
    }

    fn wrong(&self) -> Validity {
        self.expected().opposite()
    }
}

/// The kit for validators, with a case for each clause that bytes alone can show.
#[must_use]
pub fn vector_kit() -> Kit<Vectors<Vector>> {
    crate::vector_kit("osw-vectors", VECTORS, CLAUSES, |vector| {
        let limits = Limits::default();
        Validity::of(match vector.kind {
            VectorKind::Message => message(vector.bytes, &limits).is_valid(),
            VectorKind::Stream => stream(vector.bytes, &limits).is_valid(),
        })
    })
    .with_word_lists(&WORD_LISTS, |vector| {
        (vector.valid && vector.kind == VectorKind::Message).then_some(vector.bytes)
    })
    .at_level(
        Level::Should,
        &[
            "OSW-3-5",
            "OSW-4.1-7",
            "OSW-4.2-5",
            "OSW-4.4-1",
            "OSW-4.4-2",
        ],
    )
}

const CLAUSES: &[(&str, &str)] = &[
    ("OSW-2-1", "a frame holds one JSON object"),
    ("OSW-2-2", "many frames are many messages"),
    ("OSW-2-3", "frames over the limit are refused"),
    ("OSW-2-4", "a frame of no bytes is refused"),
    ("OSW-2-5", "a stream ends between frames"),
    ("OSW-3-1", "an envelope has its required members"),
    ("OSW-3-2", "the ids of a call are texts"),
    ("OSW-3-3", "a call names its chain of requests"),
    ("OSW-3-5", "an actor is of one of three kinds"),
    ("OSW-3-6", "an error has its types"),
    ("OSW-3-7", "unknown types and members are passed over"),
    ("OSW-3-9", "no id is used twice"),
    ("OSW-3-11", "an error has a code and a message"),
    ("OSW-4.1-2", "a hello has its members"),
    ("OSW-4.1-3", "a hello has a token"),
    ("OSW-4.1-5", "a welcome has its members"),
    ("OSW-4.1-7", "a goodbye has a reason"),
    (
        "OSW-4.2-1",
        "a tool's id is the agent's, a slash and its name",
    ),
    ("OSW-4.2-2", "the answer to a registration has its lists"),
    ("OSW-4.2-3", "a tool has its members"),
    ("OSW-4.2-4", "replace is true or false"),
    ("OSW-4.2-5", "withdrawn tools are a list"),
    ("OSW-4.2-6", "the other members of a tool have their types"),
    ("OSW-4.3-1", "a call has its members"),
    (
        "OSW-4.3-5",
        "pieces of output are numbered, and fit their channel",
    ),
    ("OSW-4.3-6", "nothing stands behind the last piece"),
    ("OSW-4.3-7", "a call has one result"),
    ("OSW-4.3-8", "a result has its members"),
    ("OSW-4.3-12", "nothing stands behind a result"),
    ("OSW-4.4-1", "a cancel and its answer have their members"),
    ("OSW-4.4-2", "a deadline is a number"),
    ("OSW-4.5-1", "a heartbeat has its members"),
    ("OSW-8-2", "the specification's examples are valid"),
];

const WORD_LISTS: [WordList; 5] = [
    WordList::new(&["OSW-3-5"], "/actor/type", ActorType::WORDS),
    WordList::new(&["OSW-4.3-1"], "/payload/caller/type", ActorType::WORDS),
    WordList::new(&["OSW-4.3-5"], "/payload/channel", Channel::WORDS),
    WordList::new(&["OSW-4.3-8"], "/payload/status", Status::WORDS),
    WordList::new(&["OSW-4.5-1"], "/payload/status", Health::WORDS),
];

/// A vector; its arguments are the file, its kind, the clause and whether it is valid.
macro_rules! vector {
    ($file:literal, $kind:ident, $clause:literal, $valid:literal) => {
        Vector {
            file: $file,
            kind: VectorKind::$kind,
            clause: $clause,
            valid: $valid,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/osw/", $file)),
        }
    };
}

/// All vectors, as `vectors/index.json` lists them for other programs.
pub static VECTORS: &[Vector] = &[
    vector!("valid/spec-8-agent-hello.json", Message, "OSW-8-2", true),
    vector!("valid/spec-8-core-tool-call.json", Message, "OSW-8-2", true),
    vector!(
        "valid/spec-8-agent-tool-result.json",
        Message,
        "OSW-8-2",
        true
    ),
    vector!("invalid/no-json.json", Message, "OSW-2-1", false),
    vector!("invalid/list.json", Message, "OSW-2-1", false),
    vector!("invalid/text.json", Message, "OSW-2-1", false),
    vector!("invalid/cut-off.json", Message, "OSW-2-1", false),
    vector!("invalid/two-objects.json", Message, "OSW-2-1", false),
    vector!("invalid/byte-order-mark.json", Message, "OSW-2-1", false),
    vector!("invalid/no-utf8.json", Message, "OSW-2-1", false),
    vector!("invalid/double-member.json", Message, "OSW-2-9", false),
    vector!("invalid/deep.json", Message, "OSW-2-9", false),
    vector!("valid/ping.json", Message, "OSW-3-1", true),
    vector!("valid/time-offset.json", Message, "OSW-3-1", true),
    vector!("invalid/no-v.json", Message, "OSW-3-1", false),
    vector!("invalid/v-null.json", Message, "OSW-3-1", false),
    vector!("invalid/no-type.json", Message, "OSW-3-1", false),
    vector!("invalid/type-null.json", Message, "OSW-3-1", false),
    vector!("invalid/no-id.json", Message, "OSW-3-1", false),
    vector!("invalid/id-null.json", Message, "OSW-3-1", false),
    vector!("invalid/no-ts.json", Message, "OSW-3-1", false),
    vector!("invalid/ts-null.json", Message, "OSW-3-1", false),
    vector!("invalid/no-payload.json", Message, "OSW-3-1", false),
    vector!("invalid/payload-null.json", Message, "OSW-3-1", false),
    vector!("invalid/v-text.json", Message, "OSW-3-1", false),
    vector!("invalid/v-fraction.json", Message, "OSW-3-1", false),
    vector!("invalid/v-2.json", Message, "OSW-3-1", false),
    vector!("invalid/type-empty.json", Message, "OSW-3-1", false),
    vector!("invalid/id-number.json", Message, "OSW-3-1", false),
    vector!("invalid/id-empty.json", Message, "OSW-3-1", false),
    vector!("invalid/ts-date.json", Message, "OSW-3-1", false),
    vector!("invalid/ts-no-day.json", Message, "OSW-3-1", false),
    vector!("invalid/payload-list.json", Message, "OSW-3-1", false),
    vector!("valid/ids-null.json", Message, "OSW-3-2", true),
    vector!("invalid/in-reply-to-number.json", Message, "OSW-3-2", false),
    vector!("invalid/request-id-number.json", Message, "OSW-3-2", false),
    vector!(
        "invalid/correlation-id-number.json",
        Message,
        "OSW-3-2",
        false
    ),
    vector!(
        "invalid/causation-id-number.json",
        Message,
        "OSW-3-2",
        false
    ),
    vector!(
        "invalid/call-without-request-id.json",
        Message,
        "OSW-3-3",
        false
    ),
    vector!("valid/actor.json", Message, "OSW-3-5", true),
    vector!("valid/actor-agent.json", Message, "OSW-3-5", true),
    vector!("valid/actor-system.json", Message, "OSW-3-5", true),
    vector!("invalid/actor-robot.json", Message, "OSW-3-5", false),
    vector!("valid/error-anywhere.json", Message, "OSW-3-6", true),
    vector!(
        "invalid/error-retryable-text.json",
        Message,
        "OSW-3-6",
        false
    ),
    vector!("valid/unknown-type.json", Message, "OSW-3-7", true),
    vector!("valid/unknown-members.json", Message, "OSW-3-7", true),
    vector!(
        "invalid/error-without-code.json",
        Message,
        "OSW-3-11",
        false
    ),
    vector!(
        "invalid/error-message-number.json",
        Message,
        "OSW-3-11",
        false
    ),
    vector!("valid/refusal.json", Message, "OSW-3-11", true),
    vector!("valid/hello-full.json", Message, "OSW-4.1-2", true),
    vector!(
        "invalid/hello-no-agent-id.json",
        Message,
        "OSW-4.1-2",
        false
    ),
    vector!(
        "invalid/hello-no-agent-version.json",
        Message,
        "OSW-4.1-2",
        false
    ),
    vector!(
        "invalid/hello-no-protocol.json",
        Message,
        "OSW-4.1-2",
        false
    ),
    vector!(
        "invalid/hello-no-session-token.json",
        Message,
        "OSW-4.1-3",
        false
    ),
    vector!(
        "invalid/hello-version-word.json",
        Message,
        "OSW-4.1-2",
        false
    ),
    vector!(
        "invalid/hello-versions-texts.json",
        Message,
        "OSW-4.1-2",
        false
    ),
    vector!("valid/welcome.json", Message, "OSW-4.1-5", true),
    vector!(
        "invalid/welcome-no-accepted-version.json",
        Message,
        "OSW-4.1-5",
        false
    ),
    vector!(
        "invalid/welcome-no-session-id.json",
        Message,
        "OSW-4.1-5",
        false
    ),
    vector!(
        "invalid/welcome-no-heartbeat-interval-ms.json",
        Message,
        "OSW-4.1-5",
        false
    ),
    vector!(
        "invalid/welcome-no-max-frame-bytes.json",
        Message,
        "OSW-4.1-5",
        false
    ),
    vector!(
        "invalid/welcome-no-server.json",
        Message,
        "OSW-4.1-5",
        false
    ),
    vector!("invalid/welcome-negative.json", Message, "OSW-4.1-5", false),
    vector!("valid/goodbye.json", Message, "OSW-4.1-7", true),
    vector!(
        "invalid/goodbye-no-reason.json",
        Message,
        "OSW-4.1-7",
        false
    ),
    vector!("valid/register.json", Message, "OSW-4.2-6", true),
    vector!("valid/register-none.json", Message, "OSW-4.2-3", true),
    vector!("invalid/tool-id-no-slash.json", Message, "OSW-4.2-1", false),
    vector!(
        "invalid/tool-id-other-name.json",
        Message,
        "OSW-4.2-1",
        false
    ),
    vector!(
        "invalid/tool-id-two-slashes.json",
        Message,
        "OSW-4.2-1",
        false
    ),
    vector!("invalid/tool-name-space.json", Message, "OSW-4.2-1", false),
    vector!("invalid/tool-no-name.json", Message, "OSW-4.2-3", false),
    vector!(
        "invalid/tool-no-description.json",
        Message,
        "OSW-4.2-3",
        false
    ),
    vector!(
        "invalid/tool-no-input-schema.json",
        Message,
        "OSW-4.2-3",
        false
    ),
    vector!("invalid/tool-schema-text.json", Message, "OSW-4.2-3", false),
    vector!(
        "invalid/register-no-tools.json",
        Message,
        "OSW-4.2-3",
        false
    ),
    vector!("invalid/replace-text.json", Message, "OSW-4.2-4", false),
    vector!("valid/registered.json", Message, "OSW-4.2-2", true),
    vector!("invalid/registered-none.json", Message, "OSW-4.2-2", false),
    vector!("valid/unregister.json", Message, "OSW-4.2-5", true),
    vector!("invalid/unregister-text.json", Message, "OSW-4.2-5", false),
    vector!("invalid/tags-numbers.json", Message, "OSW-4.2-6", false),
    vector!("valid/call-full.json", Message, "OSW-4.3-1", true),
    vector!("valid/call-caller-human.json", Message, "OSW-4.3-1", true),
    vector!("valid/call-caller-system.json", Message, "OSW-4.3-1", true),
    vector!("invalid/call-no-call-id.json", Message, "OSW-4.3-1", false),
    vector!("invalid/call-no-tool-id.json", Message, "OSW-4.3-1", false),
    vector!("invalid/call-no-input.json", Message, "OSW-4.3-1", false),
    vector!("invalid/call-input-list.json", Message, "OSW-4.3-1", false),
    vector!(
        "invalid/call-timeout-negative.json",
        Message,
        "OSW-4.3-1",
        false
    ),
    vector!(
        "invalid/call-caller-robot.json",
        Message,
        "OSW-4.3-1",
        false
    ),
    vector!("valid/chunk.json", Message, "OSW-4.3-5", true),
    vector!("valid/chunk-stderr.json", Message, "OSW-4.3-5", true),
    vector!("valid/chunk-log.json", Message, "OSW-4.3-5", true),
    vector!("valid/chunk-status.json", Message, "OSW-4.3-5", true),
    vector!("valid/chunk-partial.json", Message, "OSW-4.3-5", true),
    vector!("invalid/chunk-zero.json", Message, "OSW-4.3-5", false),
    vector!("invalid/chunk-channel.json", Message, "OSW-4.3-5", false),
    vector!(
        "invalid/chunk-text-partial.json",
        Message,
        "OSW-4.3-5",
        false
    ),
    vector!(
        "invalid/chunk-json-stdout.json",
        Message,
        "OSW-4.3-5",
        false
    ),
    vector!("invalid/chunk-json-list.json", Message, "OSW-4.3-5", false),
    vector!("invalid/chunk-done-text.json", Message, "OSW-4.3-6", false),
    vector!("valid/result.json", Message, "OSW-4.3-8", true),
    vector!("valid/result-failed.json", Message, "OSW-4.3-8", true),
    vector!("valid/result-canceled.json", Message, "OSW-4.3-8", true),
    vector!("invalid/result-no-status.json", Message, "OSW-4.3-8", false),
    vector!(
        "invalid/result-status-cancelled.json",
        Message,
        "OSW-4.3-8",
        false
    ),
    vector!(
        "invalid/result-output-text.json",
        Message,
        "OSW-4.3-8",
        false
    ),
    vector!(
        "invalid/result-finished-noon.json",
        Message,
        "OSW-4.3-8",
        false
    ),
    vector!("invalid/result-no-call.json", Message, "OSW-4.3-8", false),
    vector!("valid/cancel.json", Message, "OSW-4.4-1", true),
    vector!("invalid/cancel-no-call.json", Message, "OSW-4.4-1", false),
    vector!(
        "invalid/cancel-deadline-text.json",
        Message,
        "OSW-4.4-2",
        false
    ),
    vector!("valid/cancel-ack.json", Message, "OSW-4.4-1", true),
    vector!("invalid/cancel-ack-maybe.json", Message, "OSW-4.4-1", false),
    vector!("valid/heartbeat.json", Message, "OSW-4.5-1", true),
    vector!("valid/heartbeat-degraded.json", Message, "OSW-4.5-1", true),
    vector!("valid/heartbeat-unhealthy.json", Message, "OSW-4.5-1", true),
    vector!(
        "invalid/heartbeat-no-session-id.json",
        Message,
        "OSW-4.5-1",
        false
    ),
    vector!(
        "invalid/heartbeat-no-uptime-ms.json",
        Message,
        "OSW-4.5-1",
        false
    ),
    vector!(
        "invalid/heartbeat-no-inflight-calls.json",
        Message,
        "OSW-4.5-1",
        false
    ),
    vector!(
        "invalid/heartbeat-no-status.json",
        Message,
        "OSW-4.5-1",
        false
    ),
    vector!("invalid/heartbeat-fine.json", Message, "OSW-4.5-1", false),
    vector!("invalid/heartbeat-minus.json", Message, "OSW-4.5-1", false),
    vector!("valid/session.bin", Stream, "OSW-2-2", true),
    vector!("valid/empty-stream.bin", Stream, "OSW-2-5", true),
    vector!("invalid/zero-length.bin", Stream, "OSW-2-4", false),
    vector!("invalid/too-long.bin", Stream, "OSW-2-3", false),
    vector!("invalid/longest-prefix.bin", Stream, "OSW-2-3", false),
    vector!("invalid/cut-in-prefix.bin", Stream, "OSW-2-5", false),
    vector!("invalid/cut-in-body.bin", Stream, "OSW-2-5", false),
    vector!("invalid/length-of-characters.bin", Stream, "OSW-2-1", false),
    vector!("invalid/little-endian.bin", Stream, "OSW-2-3", false),
    vector!("invalid/no-object.bin", Stream, "OSW-2-1", false),
    vector!("invalid/id-twice.bin", Stream, "OSW-3-9", false),
    vector!("valid/gap.bin", Stream, "OSW-4.3-5", true),
    vector!("invalid/begins-with-2.bin", Stream, "OSW-4.3-5", false),
    vector!("invalid/seq-twice.bin", Stream, "OSW-4.3-5", false),
    vector!("invalid/behind-done.bin", Stream, "OSW-4.3-6", false),
    vector!("invalid/second-result.bin", Stream, "OSW-4.3-7", false),
    vector!("invalid/behind-result.bin", Stream, "OSW-4.3-12", false),
];
