//! Malformed input: bytes that end a connection, and messages that it tolerates.

use super::writer::frame;
use opensentience_wire::MAX_FRAME_BYTES;

/// Bytes, prefix and all.
pub(super) type Malformed = Vec<u8>;

/// Frames that hold no JSON object.
pub(super) fn not_objects() -> Vec<Malformed> {
    let bodies: [&[u8]; 7] = [
        b"hello, world",
        b"[{\"v\":1}]",
        b"\"agent.heartbeat\"",
        b"{\"v\":1,",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b"{\"v\":1,\"type\":\"\xff\xfe\"}",
    ];
    bodies.iter().map(|body| frame(body)).collect()
}

/// Prefixes over the limit, with no body behind them, or a little of one.
pub(super) fn too_large() -> Vec<Malformed> {
    let over = u32::try_from(MAX_FRAME_BYTES + 1).unwrap_or(u32::MAX);
    let mut begun = over.to_be_bytes().to_vec();
    begun.extend_from_slice(b"{\"v\":1");
    vec![u32::MAX.to_be_bytes().to_vec(), begun]
}

/// A frame of no bytes.
pub(super) fn empty() -> Vec<Malformed> {
    vec![vec![0; 4]]
}

/// Objects that are no messages, for the time after the handshake.
pub(super) fn invalid_messages() -> Vec<String> {
    let texts = [
        "{}",
        r#"{"v":1,"type":"core.ping","id":"u-1","payload":{}}"#,
        r#"{"v":1,"type":"core.ping","id":7,"ts":"2026-01-16T12:00:00Z","payload":{}}"#,
        r#"{"v":1,"type":"core.ping","id":"","ts":"2026-01-16T12:00:00Z","payload":{}}"#,
        r#"{"v":1,"type":"","id":"u-2","ts":"2026-01-16T12:00:00Z","payload":{}}"#,
        r#"{"v":1,"type":"core.ping","id":"u-3","ts":"yesterday","payload":{}}"#,
        r#"{"v":1,"type":"core.ping","id":"u-4","ts":"2026-01-16T12:00:00Z","payload":[]}"#,
        r#"{"v":1,"type":"core.ping","id":"u-5","ts":"2026-01-16T12:00:00Z","payload":null}"#,
        r#"{"v":"1","type":"core.ping","id":"u-6","ts":"2026-01-16T12:00:00Z","payload":{}}"#,
        r#"{"v":2,"type":"core.ping","id":"u-7","ts":"2026-01-16T12:00:00Z","payload":{}}"#,
        r#"{"v":1,"type":"core.ping","id":"u-8","ts":"2026-01-16T12:00:00Z","request_id":[1],"payload":{}}"#,
        r#"{"v":1,"type":"agent.heartbeat","id":"u-9","ts":"2026-01-16T12:00:00Z","payload":{"session_id":5}}"#,
    ];
    texts.iter().map(|text| (*text).to_owned()).collect()
}
