//! `osw-message`, `osw-stream`: the messages of the OpenSentience runtime protocol.

use opensentience_wire::validate::{message, stream};
use opensentience_wire::{Limits, MAX_FRAME_BYTES};

use super::kind::Kind;

/// One message: the body of a frame.
pub const MESSAGE: Kind = Kind {
    name: "osw-message",
    about: "a message of OpenSentience",
    profiles: &[V1],
    max_bytes: MAX_FRAME_BYTES,
    judge: |bytes, _| message(bytes, &Limits::default()),
};

/// What one side sent on a connection, frame by frame.
pub const STREAM: Kind = Kind {
    name: "osw-stream",
    about: "one side's frames of OpenSentience",
    profiles: &[V1],
    max_bytes: 256 << 20,
    judge: |bytes, _| stream(bytes, &Limits::default()),
};

const V1: &str = "1";
