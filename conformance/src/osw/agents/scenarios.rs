//! Scenarios for agents: the kit is the core.

use ubos_common::json::RawObject;

use crate::osw::agents::call_rules::breaks;
use crate::osw::agents::test_core::{
    BEAT, CallOptions, SHORT_BEAT, all_ended, beats, call, call_frame, call_known, cancel, goodbye,
    hello_received, open, open_with, options, send_welcome, welcome,
};
use crate::osw::malformed::{self, Malformed};
use crate::osw::recording::{PATIENCE, START};
use crate::osw::test_peer::{TestPeer, ids, ms, object};
use crate::osw::writer::{Head, head};
use opensentience_wire::MAX_FRAME_BYTES;
use opensentience_wire::message::{MessageType, ToolCancel};
use opensentience_wire::{ErrorCode, ErrorObject};

/// Handshake, registration, some beats, goodbye.
pub(super) fn minimal_session(peer: &mut TestPeer<'_>) {
    open(peer);
    goodbye(peer);
}

/// Calls of every kind.
pub(super) fn typical_session(peer: &mut TestPeer<'_>) {
    if !open(peer) {
        return goodbye(peer);
    }
    let full = CallOptions {
        ids: ids("req-1", Some("chat_session:abc123"), Some("directive-7")),
        ..options("")
    };
    call(peer, "none", "no_such_tool", "{}", &full);
    call_known(peer, "hello", "hello_world", r#"{"name":"Ada"}"#, &full);
    call_known(
        peer,
        "count",
        "stream_counter",
        r#"{"count":5}"#,
        &options("req-2"),
    );
    call_bad_input(peer, "bad");
    all_ended(peer);
    if call_known(
        peer,
        "sleep",
        "sleep",
        r#"{"ms":60000}"#,
        &CallOptions {
            timeout_ms: None,
            ..full
        },
    ) {
        peer.wait(ms(200));
        call(peer, "sleep", "sleep", r#"{"ms":60000}"#, &options("req-3"));
        cancel(peer, "sleep", Some(2_000));
    }
    all_ended(peer);
    cancel(peer, "hello", None);
    cancel(peer, "never", None);
    goodbye(peer);
}

/// Calls some tool with an input that breaks its schema, if there is such an input.
fn call_bad_input(peer: &mut TestPeer<'_>, id: &str) {
    let inputs = [r#"{"value":"seven"}"#, "{}", r#"{"no such member":[1]}"#].map(object);
    let tools = peer.state.tools.values();
    let mut pairs = tools.flat_map(|spec| inputs.iter().map(move |input| (spec, input)));
    let found = pairs.find(|(spec, input)| breaks(spec, input));
    if let Some((tool, input)) = found.map(|(spec, input)| (spec.name.clone(), input.clone())) {
        let frame = call_frame(peer, id, &tool, input, &options("req-4"));
        peer.send_bytes(&frame);
    }
}

/// Bytes that end the connection, each at a launch of its own.
fn malformed_frames(peer: &mut TestPeer<'_>, frames: Vec<Malformed>) {
    for (n, bytes) in frames.into_iter().enumerate() {
        if n > 0 && !peer.relaunch() || !open(peer) {
            return;
        }
        peer.send_bytes(&bytes);
        peer.wait(PATIENCE);
        if peer.open {
            return;
        }
    }
}

pub(super) fn frames_without_object(peer: &mut TestPeer<'_>) {
    malformed_frames(peer, malformed::not_objects());
}

pub(super) fn frames_too_large(peer: &mut TestPeer<'_>) {
    malformed_frames(peer, malformed::too_large());
}

pub(super) fn empty_frames(peer: &mut TestPeer<'_>) {
    malformed_frames(peer, malformed::empty());
}

/// A frame limit that the welcome tells: the limit itself passes, one byte more does not.
pub(super) fn small_frames(peer: &mut TestPeer<'_>) {
    const LIMIT: usize = 8_192;
    if !open_with(peer, BEAT, LIMIT) {
        return;
    }
    call_known(
        peer,
        "big",
        "large_output",
        r#"{"bytes":100000}"#,
        &options("req-1"),
    );
    all_ended(peer);
    for (id, length) in [("fits", LIMIT), ("over", LIMIT + 1)] {
        let least = padded(peer, id, 0).len() - 4;
        let frame = padded(peer, id, length.saturating_sub(least));
        peer.send_bytes(&frame);
        peer.wait_until(PATIENCE, |state| state.running() == 0);
    }
    peer.wait(PATIENCE);
}

/// A call of a tool that is not there, so many bytes longer than it must be.
fn padded(peer: &mut TestPeer<'_>, id: &str, more: usize) -> Vec<u8> {
    let input = object(&format!(r#"{{"padding":"{}"}}"#, "x".repeat(more)));
    call_frame(peer, id, "no_such_tool", input, &options("req-2"))
}

/// The welcome a byte at a time, and many calls in one piece.
pub(super) fn fragmented(peer: &mut TestPeer<'_>) {
    if !hello_received(peer) {
        return;
    }
    let welcome = peer.encode(
        &Head::new(MessageType::Welcome),
        &welcome(BEAT, MAX_FRAME_BYTES),
    );
    for byte in &welcome {
        peer.send_bytes(&[*byte]);
    }
    if !peer.wait_until(START, |state| !state.tools.is_empty()) {
        return peer.wait(PATIENCE);
    }
    let mut together = Vec::new();
    for n in 0..8 {
        let options = CallOptions {
            timeout_ms: Some(1_000),
            ..options("req-1")
        };
        let frame = call_frame(
            peer,
            &format!("call-{n}"),
            "no_such_tool",
            RawObject::empty(),
            &options,
        );
        together.extend(frame);
    }
    peer.send_bytes(&together);
    peer.wait_until(ms(1_000).saturating_add(PATIENCE), |state| {
        state.running() == 0
    });
    goodbye(peer);
}

/// A call and its cancel in one piece.
pub(super) fn call_and_cancel(peer: &mut TestPeer<'_>) {
    if open(peer) && peer.state.tool("sleep").is_some() {
        let mut both = call_frame(
            peer,
            "sleep",
            "sleep",
            object(r#"{"ms":30000}"#),
            &options("req-1"),
        );
        let cancel = ToolCancel::new("sleep".into());
        both.extend(peer.encode(&Head::new(MessageType::ToolCancel), &cancel));
        peer.send_bytes(&both);
        all_ended(peer);
    }
    goodbye(peer);
}

/// One call more than may run at once.
pub(super) fn over_limit(peer: &mut TestPeer<'_>) {
    if open(peer) && peer.state.tool("sleep").is_some() {
        let mut options = options("req-1");
        options.timeout_ms = None;
        for n in 0..=256 {
            let id = format!("sleep-{n}");
            call(peer, &id, "sleep", r#"{"ms":60000}"#, &options);
        }
        peer.wait_until(PATIENCE, |state| {
            state.calls.values().any(|call| call.end.is_some())
        });
    }
    peer.wait(ms(3_000));
}

/// A refusal, and a version that was not offered.
pub(super) fn refusals(peer: &mut TestPeer<'_>) {
    if !hello_received(peer) {
        return;
    }
    peer.wait(ms(300));
    let error = ErrorObject::of(ErrorCode::Unauthorized, "not this time");
    peer.send(
        &head(MessageType::Welcome, |head| head.error = Some(&error)),
        &RawObject::empty(),
    );
    peer.wait(PATIENCE);
    if peer.relaunch() && hello_received(peer) {
        let mut foreign = welcome(BEAT, MAX_FRAME_BYTES);
        foreign.accepted_version = 7;
        send_welcome(peer, &foreign);
        peer.wait(PATIENCE);
    }
}

/// Messages that break the rules, and one that keeps them.
pub(super) fn invalid_messages(peer: &mut TestPeer<'_>) {
    if open(peer) {
        for text in malformed::invalid_messages() {
            peer.send_text(&text);
        }
        call(peer, "after", "no_such_tool", "{}", &options("req-1"));
        all_ended(peer);
    }
    goodbye(peer);
}

/// Types that nobody knows, and members that nobody knows.
pub(super) fn unknown_types(peer: &mut TestPeer<'_>) {
    if open(peer) {
        let kind = || MessageType::Other("core.later".into());
        peer.send_payload(kind(), r#"{"more":[1,2]}"#);
        let ids = ids("req-9", None, None);
        let waits = head(kind(), |head| head.correlation = Some(&ids));
        peer.send(&waits, &RawObject::empty());
        let error = ErrorObject::of(ErrorCode::UnknownType, "none that is known here");
        let error = head(MessageType::CoreError, |head| {
            head.correlation = Some(&ids);
            head.error = Some(&error);
        });
        peer.send(&error, &RawObject::empty());
        peer.wait_until(PATIENCE, |state| {
            !state.unknown.values().any(|unknown| unknown.wants_answer)
        });
        peer.wait(ms(200));
    }
    goodbye(peer);
}

/// A second welcome, and messages that only an agent sends.
pub(super) fn wrong_direction(peer: &mut TestPeer<'_>) {
    if open_with(peer, SHORT_BEAT, MAX_FRAME_BYTES) {
        let mut second = welcome(60_000, MAX_FRAME_BYTES);
        second.session_id = "another".into();
        send_welcome(peer, &second);
        peer.send_payload(MessageType::Unregister, r#"{"tool_ids":[]}"#);
        peer.send_payload(MessageType::Pong, "{}");
        beats(peer);
    }
    goodbye(peer);
}

/// Inputs that are no objects.
pub(super) fn input_not_an_object(peer: &mut TestPeer<'_>) {
    if open(peer)
        && let Some(tool) = peer.state.tools.keys().next().cloned()
    {
        for (n, input) in ["[1]", "null", "\"text\""].iter().enumerate() {
            peer.send_text(&format!(
                r#"{{"v":1,"type":"core.tool.call","id":"m-{n}","ts":"2026-01-16T12:00:01Z","request_id":"r","payload":{{"call_id":"c-{n}","tool_id":"{tool}","input":{input}}}}}"#
            ));
        }
        peer.wait_until(PATIENCE, |state| state.running() == 0);
    }
    goodbye(peer);
}

/// A call that takes longer than it may.
pub(super) fn timeout(peer: &mut TestPeer<'_>) {
    if open(peer) {
        let options = CallOptions {
            timeout_ms: Some(200),
            ..options("req-1")
        };
        call_known(peer, "slow", "sleep", r#"{"ms":30000}"#, &options);
        peer.wait_until(ms(200).saturating_add(PATIENCE), |state| {
            state.running() == 0
        });
    }
    goodbye(peer);
}

/// The same key again, with the same input and with another.
pub(super) fn idempotency_keys(peer: &mut TestPeer<'_>) {
    if open(peer) {
        let keyed = CallOptions {
            key: Some("key-1"),
            ..options("req-1")
        };
        for (id, name) in [("one", "Ada"), ("two", "Ada"), ("three", "Bob")] {
            call_known(
                peer,
                id,
                "hello_world",
                &format!(r#"{{"name":"{name}"}}"#),
                &keyed,
            );
            all_ended(peer);
        }
    }
    goodbye(peer);
}

/// A goodbye while a tool runs.
pub(super) fn early_goodbye(peer: &mut TestPeer<'_>) {
    open(peer);
    call_known(peer, "short", "sleep", r#"{"ms":300}"#, &options("req-1"));
    call_known(
        peer,
        "long",
        "sleep",
        r#"{"ms":60000}"#,
        &CallOptions {
            timeout_ms: None,
            ..options("req-2")
        },
    );
    goodbye(peer);
}

/// A short cadence while a tool runs.
pub(super) fn heartbeats(peer: &mut TestPeer<'_>) {
    open_with(peer, SHORT_BEAT, MAX_FRAME_BYTES);
    let options = CallOptions {
        timeout_ms: None,
        ..options("req-1")
    };
    if call_known(peer, "long", "sleep", r#"{"ms":60000}"#, &options) {
        beats(peer);
        cancel(peer, "long", None);
        all_ended(peer);
    }
    goodbye(peer);
}

/// A ping.
pub(super) fn ping(peer: &mut TestPeer<'_>) {
    open(peer);
    peer.send_payload(MessageType::Ping, "{}");
    peer.wait_until(PATIENCE, |state| state.pings.is_empty());
    goodbye(peer);
}

/// More output than anybody may send.
pub(super) fn huge_output(peer: &mut TestPeer<'_>) {
    if open(peer) {
        call_known(
            peer,
            "huge",
            "large_output",
            r#"{"bytes":1000000000000}"#,
            &options("req-1"),
        );
        peer.wait_until(PATIENCE, |state| state.running() == 0);
    }
    goodbye(peer);
}
