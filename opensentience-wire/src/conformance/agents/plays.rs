//! Plays for agents: here we are the core.

use ubos_common::json::RawObject;

use crate::conformance::agents::calls::breaks;
use crate::conformance::agents::seat::{
    Agent, Ask, BEAT, PATIENCE, Record, all_ended, ask, call, call_frame, call_if, cancel, greet,
    hello_came, open, open_with, part, session, welcome,
};
use crate::conformance::junk::{Junk, unsound};
use crate::conformance::session::{Session, ids, ms, object};
use crate::envelope::Head;
use crate::error::{ErrorCode, ErrorObject};
use crate::limits::MAX_FRAME_BYTES;
use crate::message::{MessageType, ToolCancel};

/// Handshake, registration, some beats, goodbye.
pub(super) fn visit(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    open(&mut session);
    part(&mut session);
}

/// Calls of every kind.
pub(super) fn work(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if !open(s) {
        return part(s);
    }
    let full = Ask {
        ids: ids("req-1", Some("chat_session:abc123"), Some("directive-7")),
        ..ask("")
    };
    call(s, "none", "no_such_tool", "{}", &full);
    call_if(s, "hello", "hello_world", r#"{"name":"Ada"}"#, &full);
    call_if(
        s,
        "count",
        "stream_counter",
        r#"{"count":5}"#,
        &ask("req-2"),
    );
    call_bad_input(s, "bad");
    all_ended(s);
    if call_if(
        s,
        "sleep",
        "sleep",
        r#"{"ms":60000}"#,
        &Ask {
            timeout_ms: None,
            ..full
        },
    ) {
        s.rest(ms(200));
        call(s, "sleep", "sleep", r#"{"ms":60000}"#, &ask("req-3"));
        cancel(s, "sleep", Some(2_000));
    }
    all_ended(s);
    cancel(s, "hello", None);
    cancel(s, "never", None);
    part(s);
}

/// Calls some tool with an input that breaks its schema, if there is such an input.
fn call_bad_input(s: &mut Session<'_>, id: &str) {
    let inputs = [r#"{"value":"seven"}"#, "{}", r#"{"no such member":[1]}"#].map(object);
    let tools = s.course.tools.values();
    let mut pairs = tools.flat_map(|spec| inputs.iter().map(move |input| (spec, input)));
    let found = pairs.find(|(spec, input)| breaks(spec, input));
    if let Some((tool, input)) = found.map(|(spec, input)| (spec.name.clone(), input.clone())) {
        let frame = call_frame(s, id, &tool, input, &ask("req-4"));
        s.raw(&frame);
    }
}

/// Bytes that end the connection, each at a launch of its own.
fn junk(agent: Agent<'_>, recorder: Record<'_>, of: fn() -> Vec<Junk>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    for (n, bytes) in of().into_iter().enumerate() {
        if n > 0 && !session.relaunch() || !open(&mut session) {
            return;
        }
        session.raw(&bytes);
        session.rest(PATIENCE);
        if session.open {
            return;
        }
    }
}

pub(super) fn no_objects(agent: Agent<'_>, recorder: Record<'_>) {
    junk(agent, recorder, crate::conformance::junk::no_objects);
}

pub(super) fn too_large(agent: Agent<'_>, recorder: Record<'_>) {
    junk(agent, recorder, crate::conformance::junk::too_large);
}

pub(super) fn empty(agent: Agent<'_>, recorder: Record<'_>) {
    junk(agent, recorder, crate::conformance::junk::empty);
}

/// A frame limit that the welcome tells: the limit itself passes, one byte more does not.
pub(super) fn small_frames(agent: Agent<'_>, recorder: Record<'_>) {
    const LIMIT: usize = 8_192;
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if !open_with(s, BEAT, LIMIT) {
        return;
    }
    call_if(
        s,
        "big",
        "large_output",
        r#"{"bytes":100000}"#,
        &ask("req-1"),
    );
    all_ended(s);
    for (id, length) in [("fits", LIMIT), ("over", LIMIT + 1)] {
        let least = padded(s, id, 0).len() - 4;
        let frame = padded(s, id, length.saturating_sub(least));
        s.raw(&frame);
        s.until(ms(1_000), |course| course.running() == 0);
    }
    s.rest(PATIENCE);
}

/// A call of a tool that is not there, so many bytes longer than it must be.
fn padded(s: &mut Session<'_>, id: &str, more: usize) -> Vec<u8> {
    let input = object(&format!(r#"{{"padding":"{}"}}"#, "x".repeat(more)));
    call_frame(s, id, "no_such_tool", input, &ask("req-2"))
}

/// The welcome a byte at a time, and many calls in one piece.
pub(super) fn pieces(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if !hello_came(s) {
        return;
    }
    let welcome = s.written(
        &Head::new(MessageType::Welcome),
        &welcome(BEAT, MAX_FRAME_BYTES),
    );
    for byte in &welcome {
        s.raw(&[*byte]);
    }
    if !s.until(ms(5_000), |course| !course.tools.is_empty()) {
        return s.rest(PATIENCE);
    }
    let mut together = Vec::new();
    for n in 0..8 {
        let ask = Ask {
            timeout_ms: Some(1_000),
            ..ask("req-1")
        };
        let frame = call_frame(
            s,
            &format!("call-{n}"),
            "no_such_tool",
            RawObject::empty(),
            &ask,
        );
        together.extend(frame);
    }
    s.raw(&together);
    s.until(ms(1_000).saturating_add(PATIENCE), |course| {
        course.running() == 0
    });
    part(s);
}

/// A call and its cancel in one piece.
pub(super) fn at_once(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) && s.course.tool("sleep").is_some() {
        let mut both = call_frame(
            s,
            "sleep",
            "sleep",
            object(r#"{"ms":30000}"#),
            &ask("req-1"),
        );
        let cancel = ToolCancel::new("sleep".into());
        both.extend(s.written(&Head::new(MessageType::ToolCancel), &cancel));
        s.raw(&both);
        all_ended(s);
    }
    part(s);
}

/// One call more than may run at once.
pub(super) fn crowd(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) && s.course.tool("sleep").is_some() {
        for n in 0..=256 {
            call(
                s,
                &format!("sleep-{n}"),
                "sleep",
                r#"{"ms":6000}"#,
                &ask("req-1"),
            );
        }
        s.until(PATIENCE, |course| {
            course.calls.values().any(|call| call.end.is_some())
        });
    }
    s.rest(PATIENCE);
}

/// A refusal, and a version that was not offered.
pub(super) fn refusals(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if !hello_came(s) {
        return;
    }
    s.rest(ms(300));
    let error = ErrorObject::of(ErrorCode::Unauthorized, "not this time");
    s.say(
        &Head::new(MessageType::Welcome).error(&error),
        &RawObject::empty(),
    );
    s.rest(PATIENCE);
    if s.relaunch() && hello_came(s) {
        let mut foreign = welcome(BEAT, MAX_FRAME_BYTES);
        foreign.accepted_version = 7;
        greet(s, &foreign);
        s.rest(PATIENCE);
    }
}

/// Messages that break the rules, and one that keeps them.
pub(super) fn unsound_messages(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) {
        for text in unsound() {
            s.text(&text);
        }
        call(s, "after", "no_such_tool", "{}", &ask("req-1"));
        all_ended(s);
    }
    part(s);
}

/// Types that nobody knows, and members that nobody knows.
pub(super) fn unknown(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) {
        let kind = || MessageType::Other("core.later".into());
        s.plain(kind(), r#"{"more":[1,2]}"#);
        let ids = ids("req-9", None, None);
        let waits = Head::new(kind()).correlation(&ids);
        s.say(&waits, &RawObject::empty());
        let error = ErrorObject::of(ErrorCode::UnknownType, "none that is known here");
        let error = Head::new(MessageType::CoreError)
            .correlation(&ids)
            .error(&error);
        s.say(&error, &RawObject::empty());
        s.until(PATIENCE, |course| {
            !course.unknown.values().any(|unknown| unknown.wants_answer)
        });
        s.rest(ms(200));
    }
    part(s);
}

/// A second welcome, and messages that only an agent sends.
pub(super) fn misdirected(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open_with(s, 300, MAX_FRAME_BYTES) {
        let mut second = welcome(60_000, MAX_FRAME_BYTES);
        second.session_id = "another".into();
        greet(s, &second);
        s.plain(MessageType::Unregister, r#"{"tool_ids":[]}"#);
        s.plain(MessageType::Pong, "{}");
        s.rest(ms(1_200));
    }
    part(s);
}

/// Inputs that are no objects.
pub(super) fn no_object_input(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s)
        && let Some(tool) = s.course.tools.keys().next().cloned()
    {
        for (n, input) in ["[1]", "null", "\"text\""].iter().enumerate() {
            s.text(&format!(
                r#"{{"v":1,"type":"core.tool.call","id":"m-{n}","ts":"2026-01-16T12:00:01Z","request_id":"r","payload":{{"call_id":"c-{n}","tool_id":"{tool}","input":{input}}}}}"#
            ));
        }
        s.until(PATIENCE, |course| course.running() == 0);
    }
    part(s);
}

/// A call that takes longer than it may.
pub(super) fn slow(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) {
        let ask = Ask {
            timeout_ms: Some(200),
            ..ask("req-1")
        };
        call_if(s, "slow", "sleep", r#"{"ms":30000}"#, &ask);
        s.until(ms(200).saturating_add(PATIENCE), |course| {
            course.running() == 0
        });
    }
    part(s);
}

/// The same key again, with the same input and with another.
pub(super) fn keys(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) {
        let keyed = Ask {
            key: Some("key-1"),
            ..ask("req-1")
        };
        for (id, name) in [("one", "Ada"), ("two", "Ada"), ("three", "Bob")] {
            call_if(
                s,
                id,
                "hello_world",
                &format!(r#"{{"name":"{name}"}}"#),
                &keyed,
            );
            all_ended(s);
        }
    }
    part(s);
}

/// A goodbye while a tool runs.
pub(super) fn early_goodbye(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    open(s);
    call_if(s, "short", "sleep", r#"{"ms":300}"#, &ask("req-1"));
    call_if(
        s,
        "long",
        "sleep",
        r#"{"ms":60000}"#,
        &Ask {
            timeout_ms: None,
            ..ask("req-2")
        },
    );
    part(s);
}

/// A short cadence while a tool runs.
pub(super) fn beats(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    open_with(s, 300, MAX_FRAME_BYTES);
    let ask = Ask {
        timeout_ms: None,
        ..ask("req-1")
    };
    if call_if(s, "long", "sleep", r#"{"ms":60000}"#, &ask) {
        s.rest(ms(2_500));
        cancel(s, "long", None);
        all_ended(s);
    }
    part(s);
}

/// A ping.
pub(super) fn ping(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    open(s);
    s.plain(MessageType::Ping, "{}");
    s.until(ms(500), |course| course.pings.is_empty());
    part(s);
}

/// More output than anybody may send.
pub(super) fn huge_output(agent: Agent<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(agent, recorder) else {
        return;
    };
    let s = &mut session;
    if open(s) {
        call_if(
            s,
            "huge",
            "large_output",
            r#"{"bytes":1000000000000}"#,
            &ask("req-1"),
        );
        s.until(PATIENCE, |course| course.running() == 0);
    }
    part(s);
}
