//! Messages and streams with known verdicts: the files of `vectors/`, and a kit that asks a validator for its own.

use ubos_common::conformance::{Case, Protocol, Reach, SameVerdict, TestVector, ask_about};

use crate::limits::Limits;
use crate::validate::{message, stream};

/// What a vector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One message, without its frame.
    Message,
    /// What one side sent, frame by frame.
    Stream,
}

impl Kind {
    /// `message` or `stream`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Stream => "stream",
        }
    }
}

/// Bytes and their verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vector {
    /// The file in `vectors/`.
    pub file: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The clause that it is about.
    pub clause: &'static str,
    /// Whether it keeps the rules.
    pub valid: bool,
    /// The bytes.
    pub bytes: &'static [u8],
}

macro_rules! files {
    ($($file:literal $kind:ident $clause:literal $valid:literal;)*) => {
        /// All of them, as `vectors/index.json` lists them for others.
        pub const FILES: &[Vector] = &[$(Vector {
            file: $file,
            kind: Kind::$kind,
            clause: $clause,
            valid: $valid,
            bytes: include_bytes!(concat!("../../vectors/", $file)),
        }),*];
    };
}

/// Asking a validator whether bytes keep the rules.
#[derive(Clone, Copy, Debug)]
pub struct Validators;

impl Protocol for Validators {
    type Line = (&'static Vector, bool);
    type Peer = dyn FnMut(Kind, &[u8]) -> bool;
}

impl TestVector for Vector {
    fn clause(&self) -> &str {
        self.clause
    }

    fn name(&self) -> &str {
        self.file
    }

    fn is_valid(&self) -> bool {
        self.valid
    }
}

/// This crate's validator.
fn own(kind: Kind, bytes: &[u8]) -> bool {
    let limits = Limits::default();
    match kind {
        Kind::Message => message(bytes, &limits).is_valid(),
        Kind::Stream => stream(bytes, &limits).is_valid(),
    }
}

/// One that is wrong about every vector of a clause, and about no other.
fn wrong_about(clause: &'static str) -> Box<<Validators as Protocol>::Peer> {
    Box::new(move |kind, bytes| {
        let mut of_clause = FILES.iter().filter(|vector| vector.clause == clause);
        let wrong = of_clause.any(|vector| vector.bytes == bytes && vector.kind == kind);
        own(kind, bytes) != wrong
    })
}

macro_rules! cases {
    ($($clause:literal $name:literal;)*) => {
        /// A case for each clause that bytes alone can show.
        pub const VECTORS: &[Case<Validators>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Vector,
            drags: &[],
            play: |peer, recorder| {
                ask_about(FILES, $clause, recorder, |vector| peer(vector.kind, vector.bytes));
            },
            judge: || Box::<SameVerdict>::default(),
            good: || Box::new(own),
            bad: || wrong_about($clause),
        }),*];
    };
}

cases! {
    "OSW-2-1" "a frame holds one JSON object";
    "OSW-2-2" "many frames are many messages";
    "OSW-2-3" "frames over the limit are refused";
    "OSW-2-4" "a frame of no bytes is refused";
    "OSW-2-5" "a stream ends between frames";
    "OSW-3-1" "an envelope has its required members";
    "OSW-3-2" "the ids of a call are texts";
    "OSW-3-3" "a call names its chain of requests";
    "OSW-3-5" "an actor is of one of three kinds";
    "OSW-3-6" "an error has its types";
    "OSW-3-7" "unknown types and members are passed over";
    "OSW-3-9" "no id is used twice";
    "OSW-3-11" "an error has a code and a message";
    "OSW-4.1-2" "a hello has its members";
    "OSW-4.1-3" "a hello has a token";
    "OSW-4.1-5" "a welcome has its members";
    "OSW-4.1-7" "a goodbye has a reason";
    "OSW-4.2-1" "a tool's id is the agent's, a slash and its name";
    "OSW-4.2-2" "the answer to a registration has its lists";
    "OSW-4.2-3" "a tool has its members";
    "OSW-4.2-4" "replace is true or false";
    "OSW-4.2-5" "withdrawn tools are a list";
    "OSW-4.2-6" "the other members of a tool have their types";
    "OSW-4.3-1" "a call has its members";
    "OSW-4.3-5" "pieces of output are numbered, and fit their channel";
    "OSW-4.3-6" "nothing stands behind the last piece";
    "OSW-4.3-7" "a call has one result";
    "OSW-4.3-8" "a result has its members";
    "OSW-4.3-12" "nothing stands behind a result";
    "OSW-4.4-1" "a cancel and its answer have their members";
    "OSW-4.4-2" "a deadline is a number";
    "OSW-4.5-1" "a heartbeat has its members";
    "OSW-8-2" "the specification's examples are valid";
}

files! {
    "valid/spec-8-agent-hello.json" Message "OSW-8-2" true;
    "valid/spec-8-core-tool-call.json" Message "OSW-8-2" true;
    "valid/spec-8-agent-tool-result.json" Message "OSW-8-2" true;
    "invalid/no-json.json" Message "OSW-2-1" false;
    "invalid/list.json" Message "OSW-2-1" false;
    "invalid/text.json" Message "OSW-2-1" false;
    "invalid/cut-off.json" Message "OSW-2-1" false;
    "invalid/two-objects.json" Message "OSW-2-1" false;
    "invalid/byte-order-mark.json" Message "OSW-2-1" false;
    "invalid/no-utf8.json" Message "OSW-2-1" false;
    "invalid/double-member.json" Message "OSW-2-9" false;
    "invalid/deep.json" Message "OSW-2-9" false;
    "valid/ping.json" Message "OSW-3-1" true;
    "valid/time-offset.json" Message "OSW-3-1" true;
    "invalid/no-v.json" Message "OSW-3-1" false;
    "invalid/v-null.json" Message "OSW-3-1" false;
    "invalid/no-type.json" Message "OSW-3-1" false;
    "invalid/type-null.json" Message "OSW-3-1" false;
    "invalid/no-id.json" Message "OSW-3-1" false;
    "invalid/id-null.json" Message "OSW-3-1" false;
    "invalid/no-ts.json" Message "OSW-3-1" false;
    "invalid/ts-null.json" Message "OSW-3-1" false;
    "invalid/no-payload.json" Message "OSW-3-1" false;
    "invalid/payload-null.json" Message "OSW-3-1" false;
    "invalid/v-text.json" Message "OSW-3-1" false;
    "invalid/v-fraction.json" Message "OSW-3-1" false;
    "invalid/v-2.json" Message "OSW-3-1" false;
    "invalid/type-empty.json" Message "OSW-3-1" false;
    "invalid/id-number.json" Message "OSW-3-1" false;
    "invalid/id-empty.json" Message "OSW-3-1" false;
    "invalid/ts-date.json" Message "OSW-3-1" false;
    "invalid/ts-no-day.json" Message "OSW-3-1" false;
    "invalid/payload-list.json" Message "OSW-3-1" false;
    "valid/ids-null.json" Message "OSW-3-2" true;
    "invalid/in-reply-to-number.json" Message "OSW-3-2" false;
    "invalid/request-id-number.json" Message "OSW-3-2" false;
    "invalid/correlation-id-number.json" Message "OSW-3-2" false;
    "invalid/causation-id-number.json" Message "OSW-3-2" false;
    "invalid/call-without-request-id.json" Message "OSW-3-3" false;
    "valid/actor.json" Message "OSW-3-5" true;
    "invalid/actor-robot.json" Message "OSW-3-5" false;
    "valid/error-anywhere.json" Message "OSW-3-6" true;
    "invalid/error-retryable-text.json" Message "OSW-3-6" false;
    "valid/unknown-type.json" Message "OSW-3-7" true;
    "valid/unknown-members.json" Message "OSW-3-7" true;
    "invalid/error-without-code.json" Message "OSW-3-11" false;
    "invalid/error-message-number.json" Message "OSW-3-11" false;
    "valid/refusal.json" Message "OSW-3-11" true;
    "valid/hello-full.json" Message "OSW-4.1-2" true;
    "invalid/hello-no-agent-id.json" Message "OSW-4.1-2" false;
    "invalid/hello-no-agent-version.json" Message "OSW-4.1-2" false;
    "invalid/hello-no-protocol.json" Message "OSW-4.1-2" false;
    "invalid/hello-no-session-token.json" Message "OSW-4.1-3" false;
    "invalid/hello-version-word.json" Message "OSW-4.1-2" false;
    "invalid/hello-versions-texts.json" Message "OSW-4.1-2" false;
    "valid/welcome.json" Message "OSW-4.1-5" true;
    "invalid/welcome-no-accepted-version.json" Message "OSW-4.1-5" false;
    "invalid/welcome-no-session-id.json" Message "OSW-4.1-5" false;
    "invalid/welcome-no-heartbeat-interval-ms.json" Message "OSW-4.1-5" false;
    "invalid/welcome-no-max-frame-bytes.json" Message "OSW-4.1-5" false;
    "invalid/welcome-no-server.json" Message "OSW-4.1-5" false;
    "invalid/welcome-negative.json" Message "OSW-4.1-5" false;
    "valid/goodbye.json" Message "OSW-4.1-7" true;
    "invalid/goodbye-no-reason.json" Message "OSW-4.1-7" false;
    "valid/register.json" Message "OSW-4.2-6" true;
    "valid/register-none.json" Message "OSW-4.2-3" true;
    "invalid/tool-id-no-slash.json" Message "OSW-4.2-1" false;
    "invalid/tool-id-other-name.json" Message "OSW-4.2-1" false;
    "invalid/tool-id-two-slashes.json" Message "OSW-4.2-1" false;
    "invalid/tool-name-space.json" Message "OSW-4.2-1" false;
    "invalid/tool-no-name.json" Message "OSW-4.2-3" false;
    "invalid/tool-no-description.json" Message "OSW-4.2-3" false;
    "invalid/tool-no-input-schema.json" Message "OSW-4.2-3" false;
    "invalid/tool-schema-text.json" Message "OSW-4.2-3" false;
    "invalid/register-no-tools.json" Message "OSW-4.2-3" false;
    "invalid/replace-text.json" Message "OSW-4.2-4" false;
    "valid/registered.json" Message "OSW-4.2-2" true;
    "invalid/registered-none.json" Message "OSW-4.2-2" false;
    "valid/unregister.json" Message "OSW-4.2-5" true;
    "invalid/unregister-text.json" Message "OSW-4.2-5" false;
    "invalid/tags-numbers.json" Message "OSW-4.2-6" false;
    "valid/call-full.json" Message "OSW-4.3-1" true;
    "invalid/call-no-call-id.json" Message "OSW-4.3-1" false;
    "invalid/call-no-tool-id.json" Message "OSW-4.3-1" false;
    "invalid/call-no-input.json" Message "OSW-4.3-1" false;
    "invalid/call-input-list.json" Message "OSW-4.3-1" false;
    "invalid/call-timeout-negative.json" Message "OSW-4.3-1" false;
    "invalid/call-caller-robot.json" Message "OSW-4.3-1" false;
    "valid/chunk.json" Message "OSW-4.3-5" true;
    "valid/chunk-partial.json" Message "OSW-4.3-5" true;
    "invalid/chunk-zero.json" Message "OSW-4.3-5" false;
    "invalid/chunk-channel.json" Message "OSW-4.3-5" false;
    "invalid/chunk-text-partial.json" Message "OSW-4.3-5" false;
    "invalid/chunk-json-stdout.json" Message "OSW-4.3-5" false;
    "invalid/chunk-json-list.json" Message "OSW-4.3-5" false;
    "invalid/chunk-done-text.json" Message "OSW-4.3-6" false;
    "valid/result.json" Message "OSW-4.3-8" true;
    "valid/result-canceled.json" Message "OSW-4.3-8" true;
    "invalid/result-no-status.json" Message "OSW-4.3-8" false;
    "invalid/result-status-cancelled.json" Message "OSW-4.3-8" false;
    "invalid/result-output-text.json" Message "OSW-4.3-8" false;
    "invalid/result-finished-noon.json" Message "OSW-4.3-8" false;
    "invalid/result-no-call.json" Message "OSW-4.3-8" false;
    "valid/cancel.json" Message "OSW-4.4-1" true;
    "invalid/cancel-no-call.json" Message "OSW-4.4-1" false;
    "invalid/cancel-deadline-text.json" Message "OSW-4.4-2" false;
    "valid/cancel-ack.json" Message "OSW-4.4-1" true;
    "invalid/cancel-ack-maybe.json" Message "OSW-4.4-1" false;
    "valid/heartbeat.json" Message "OSW-4.5-1" true;
    "invalid/heartbeat-no-session-id.json" Message "OSW-4.5-1" false;
    "invalid/heartbeat-no-uptime-ms.json" Message "OSW-4.5-1" false;
    "invalid/heartbeat-no-inflight-calls.json" Message "OSW-4.5-1" false;
    "invalid/heartbeat-no-status.json" Message "OSW-4.5-1" false;
    "invalid/heartbeat-fine.json" Message "OSW-4.5-1" false;
    "invalid/heartbeat-minus.json" Message "OSW-4.5-1" false;
    "valid/session.bin" Stream "OSW-2-2" true;
    "valid/empty-stream.bin" Stream "OSW-2-5" true;
    "invalid/zero-length.bin" Stream "OSW-2-4" false;
    "invalid/too-long.bin" Stream "OSW-2-3" false;
    "invalid/longest-prefix.bin" Stream "OSW-2-3" false;
    "invalid/cut-in-prefix.bin" Stream "OSW-2-5" false;
    "invalid/cut-in-body.bin" Stream "OSW-2-5" false;
    "invalid/length-of-characters.bin" Stream "OSW-2-1" false;
    "invalid/little-endian.bin" Stream "OSW-2-3" false;
    "invalid/no-object.bin" Stream "OSW-2-1" false;
    "invalid/id-twice.bin" Stream "OSW-3-9" false;
    "valid/gap.bin" Stream "OSW-4.3-5" true;
    "invalid/begins-with-2.bin" Stream "OSW-4.3-5" false;
    "invalid/seq-twice.bin" Stream "OSW-4.3-5" false;
    "invalid/behind-done.bin" Stream "OSW-4.3-6" false;
    "invalid/second-result.bin" Stream "OSW-4.3-7" false;
    "invalid/behind-result.bin" Stream "OSW-4.3-12" false;
}
