//! Plays for cores: here we are the agent.

use ubos_common::json::RawObject;

use crate::conformance::cores::seat::{
    Core, PATIENCE, Record, beat, chunk, enter, hello, join, offer, offer_texts, reference,
    say_hello, say_result, serve, serve_slowly, session, tool, work_on,
};
use crate::conformance::junk;
use crate::conformance::junk::{Junk, unsound};
use crate::conformance::line::Line;
use crate::conformance::session::{Manners, Session, ids, ms, object};
use crate::envelope::Head;
use crate::error::{ErrorCode, ErrorObject};
use crate::message::{
    CancelAck, Health, Heartbeat, Message, MessageType, Side, ToolSpec, Unregister,
};
use crate::token::SessionToken;

/// Handshake, tools, calls until the goodbye.
pub(super) fn work(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    if join(&mut session) {
        work_on(&mut session);
    }
}

/// The same, and calls that take too long never end.
pub(super) fn slow_work(core: Core<'_>, recorder: Record<'_>) {
    let session = Session::launch(core, recorder, Side::Agent, serve_slowly);
    let Some(mut session) = session else { return };
    if join(&mut session) {
        work_on(&mut session);
    }
}

fn junk(core: Core<'_>, recorder: Record<'_>, of: fn() -> Vec<Junk>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    for (n, bytes) in of().into_iter().enumerate() {
        if n > 0 && !session.relaunch() || !enter(&mut session) {
            return;
        }
        session.raw(&bytes);
        session.rest(PATIENCE);
        if session.open {
            return;
        }
    }
}

pub(super) fn no_objects(core: Core<'_>, recorder: Record<'_>) {
    junk(core, recorder, junk::no_objects);
}

pub(super) fn too_large(core: Core<'_>, recorder: Record<'_>) {
    junk(core, recorder, junk::too_large);
}

pub(super) fn empty(core: Core<'_>, recorder: Record<'_>) {
    junk(core, recorder, junk::empty);
}

/// The hello a byte at a time, and two registrations in one piece.
pub(super) fn pieces(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    let Some(hello) = hello(s) else { return };
    let frame = s.written(&Head::new(MessageType::Hello), &hello);
    for byte in &frame {
        s.raw(&[*byte]);
    }
    if s.until(PATIENCE, |course| course.welcome.is_some()) {
        let mut together = Vec::new();
        for name in ["hello_world", "sleep"] {
            let spec = ubos_common::json::to_string(&tool(s, name));
            let payload = object(&format!(r#"{{"tools":[{spec}]}}"#));
            together.extend(s.written(&Head::new(MessageType::Register), &payload));
        }
        s.raw(&together);
        s.until(PATIENCE, |course| course.answered == 2);
    }
    s.rest(ms(200));
}

/// Something else than a hello first.
pub(super) fn stranger(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    let tools = reference(s);
    offer(s, &tools, false);
    s.rest(PATIENCE);
}

/// A hello without what it offers, and one whose version is none.
pub(super) fn half_hello(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    for (n, (from, to)) in [("\"protocol\"", "\"protocols\""), ("\"1.0.0\"", "\"one\"")]
        .iter()
        .enumerate()
    {
        if n > 0 && !s.relaunch() {
            return;
        }
        let Some(hello) = hello(s) else { return };
        let text = ubos_common::json::to_string(&hello).replace(from, to);
        s.say(&Head::new(MessageType::Hello), &object(&text));
        s.rest(PATIENCE);
    }
}

/// A wrong token, another agent's id, no token, and a token for the second time.
pub(super) fn tokens(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    say_hello(s, |hello| {
        hello.session_token = SessionToken::from_random([0x5a; 32])
    });
    s.rest(PATIENCE);
    if !s.relaunch() {
        return;
    }
    say_hello(s, |hello| {
        hello.agent_id = "com.example.somebody.else".into()
    });
    s.rest(PATIENCE);
    if s.relaunch() && enter(s) && s.reconnect() {
        say_hello(s, |_| {});
        s.rest(PATIENCE);
    }
}

/// Versions that nobody speaks, and none at all.
pub(super) fn versions(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    say_hello(s, |hello| hello.protocol.supported_versions = vec![7, 9]);
    s.rest(PATIENCE);
    if s.relaunch() {
        say_hello(s, |hello| hello.protocol.supported_versions = Vec::new());
        s.rest(PATIENCE);
    }
}

/// Tools of every kind, good and bad, in some registrations.
pub(super) fn tools(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    if !enter(s) {
        return;
    }
    let text = ubos_common::json::to_string::<ToolSpec>;
    let good = text(&tool(s, "hello_world"));
    let wrong = [
        ("hello_world\",\"name", "hello world\",\"name"),
        ("\"name\":\"hello_world\"", "\"name\":\"another\""),
        ("\"tool_id\":\"", "\"tool_id\":\"x"),
    ];
    let mut ids: Vec<String> = wrong
        .iter()
        .map(|(from, to)| good.replace(from, to))
        .collect();
    ids.push(text(&tool(s, "sleep")));
    offer_texts(s, &ids, false);
    let lacking = text(&tool(s, "lacking")).replace("\"description\"", "\"about\"");
    let useless = text(&tool(s, "useless")).replace("{\"type\":\"object\"}", "{\"type\":7}");
    offer_texts(s, &[good.clone(), lacking, useless, good.clone()], false);
    offer_texts(s, std::slice::from_ref(&good), false);
    offer_texts(s, std::slice::from_ref(&good), true);
    let gone: Vec<String> = ["hello_world", "never_there"]
        .map(|name| tool(s, name).tool_id)
        .into();
    s.say(&Head::new(MessageType::Unregister), &Unregister::new(gone));
    s.until(ms(1_000), |course| course.withdrawals.is_empty());
    offer_texts(s, &[good], false);
    s.rest(ms(200));
}

/// Messages that break the rules, and a registration that keeps them.
pub(super) fn unsound_messages(core: Core<'_>, recorder: Record<'_>) {
    survived(core, recorder, |s| {
        for text in unsound() {
            s.text(&text);
        }
    });
}

/// Does something that the connection must survive, then registers.
fn survived(core: Core<'_>, recorder: Record<'_>, what: fn(&mut Session<'_>)) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    if enter(s) {
        what(s);
        let tools = reference(s);
        offer(s, &tools, false);
        s.rest(ms(200));
    }
}

/// Types that nobody knows.
pub(super) fn unknown(core: Core<'_>, recorder: Record<'_>) {
    survived(core, recorder, |s| {
        let kind = || MessageType::Other("agent.later".into());
        let ids = ids("req-9", None, None);
        s.say(&Head::new(kind()).correlation(&ids), &RawObject::empty());
        let error = ErrorObject::of(ErrorCode::UnknownType, "none that is known here");
        let head = Head::new(MessageType::AgentError)
            .correlation(&ids)
            .error(&error);
        s.say(&head, &RawObject::empty());
        s.until(PATIENCE, |course| course.unknown.is_empty());
        s.rest(ms(200));
    });
}

/// A second hello, and messages that only a core sends.
pub(super) fn misdirected(core: Core<'_>, recorder: Record<'_>) {
    survived(core, recorder, |s| {
        say_hello(s, |_| {});
        s.plain(MessageType::Goodbye, r#"{"reason":"no"}"#);
        s.plain(MessageType::Ping, "{}");
    });
}

/// Results, pieces and acknowledgements of calls that never were.
pub(super) fn strange_calls(core: Core<'_>, recorder: Record<'_>) {
    survived(core, recorder, |s| {
        say_result(s, "never", None);
        chunk(s, "never", 1, false);
        s.say(
            &Head::new(MessageType::CancelAck),
            &CancelAck::new("never".into(), true),
        );
    });
}

/// A heartbeat of another session.
pub(super) fn strange_beat(core: Core<'_>, recorder: Record<'_>) {
    survived(core, recorder, |s| {
        let beat = Heartbeat::new("another".into(), 1, 0, Health::Ok);
        s.say(&Head::new(MessageType::Heartbeat), &beat);
    });
}

/// A heartbeat that says unhealthy, before there is anything to call.
pub(super) fn unwell(core: Core<'_>, recorder: Record<'_>) {
    let Some(mut session) = session(core, recorder) else {
        return;
    };
    let s = &mut session;
    if enter(s) {
        s.agenda.clear();
        beat(s, Health::Unhealthy);
        s.rest(ms(600));
        let tools = reference(s);
        offer(s, &tools, false);
        s.rest(ms(1_500));
    }
}

/// Pieces of output out of order.
pub(super) fn bad_numbers(core: Core<'_>, recorder: Record<'_>) {
    answer_badly(core, recorder, |session, line| {
        answer(session, line, |session, id| {
            for seq in [7, 1, 1] {
                chunk(session, id, seq, false);
            }
            say_result(session, id, None);
        });
    });
}

/// A piece of output behind the last one.
pub(super) fn behind_the_last(core: Core<'_>, recorder: Record<'_>) {
    answer_badly(core, recorder, |session, line| {
        answer(session, line, |session, id| {
            chunk(session, id, 1, true);
            chunk(session, id, 2, false);
            say_result(session, id, None);
        });
    });
}

/// Each result twice.
pub(super) fn second_results(core: Core<'_>, recorder: Record<'_>) {
    answer_badly(core, recorder, |session, line| {
        answer(session, line, |session, id| {
            say_result(session, id, None);
            say_result(session, id, None);
        });
    });
}

fn answer_badly(core: Core<'_>, recorder: Record<'_>, manners: Manners) {
    let session = Session::launch(core, recorder, Side::Agent, manners);
    let Some(mut session) = session else { return };
    if join(&mut session) {
        work_on(&mut session);
    }
}

/// Answers a call in a way of its own, and everything else as an agent does.
fn answer(session: &mut Session<'_>, line: &Line, call: fn(&mut Session<'_>, &str)) {
    match line
        .said_by(Side::Core)
        .and_then(|said| said.content.as_ref())
    {
        Some(Message::ToolCall(asked)) => call(session, &asked.call_id),
        _ => serve(session, line),
    }
}
