//! Scenarios for cores: the kit is the agent.

use ubos_common::json::RawObject;

use crate::osw::cores::test_agent::{
    handshake, handshake_and_register, hello, reference_tools, register, register_texts,
    send_chunk, send_heartbeat, send_hello, send_result, serve, serve_slowly, serve_until_goodbye,
    tool,
};
use crate::osw::malformed::{self, Malformed};
use crate::osw::recording::{Line, PATIENCE, START};
use crate::osw::test_peer::{Responder, TestPeer, ids, ms, object};
use crate::osw::writer::{Head, head};
use opensentience_wire::SessionToken;
use opensentience_wire::message::{
    CancelAck, Health, Heartbeat, Message, MessageType, Side, ToolSpec, Unregister,
};
use opensentience_wire::{ErrorCode, ErrorObject};

/// Handshake, tools, calls until the goodbye.
pub(super) fn typical_session(peer: &mut TestPeer<'_>) {
    if handshake_and_register(peer) {
        serve_until_goodbye(peer);
    }
}

/// The same, and calls that take too long never end.
pub(super) fn slow_session(peer: &mut TestPeer<'_>) {
    peer.respond_with(serve_slowly);
    if handshake_and_register(peer) {
        serve_until_goodbye(peer);
    }
}

fn malformed_frames(peer: &mut TestPeer<'_>, frames: Vec<Malformed>) {
    for (n, bytes) in frames.into_iter().enumerate() {
        if n > 0 && !peer.relaunch() || !handshake(peer) {
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

/// The hello a byte at a time, and two registrations in one piece.
pub(super) fn fragmented(peer: &mut TestPeer<'_>) {
    let Some(hello) = hello(peer) else { return };
    let frame = peer.encode(&Head::new(MessageType::Hello), &hello);
    for byte in &frame {
        peer.send_bytes(&[*byte]);
    }
    if peer.wait_until(START, |state| state.welcome.is_some()) {
        let mut together = Vec::new();
        for name in ["hello_world", "sleep"] {
            let spec = ubos_common::json::to_string(&tool(peer, name));
            let payload = object(&format!(r#"{{"tools":[{spec}]}}"#));
            together.extend(peer.encode(&Head::new(MessageType::Register), &payload));
        }
        peer.send_bytes(&together);
        peer.wait_until(START, |state| state.registration_replies == 2);
    }
    peer.wait(ms(200));
}

/// Something else than a hello first.
pub(super) fn message_before_hello(peer: &mut TestPeer<'_>) {
    let tools = reference_tools(peer);
    register(peer, &tools, false);
    peer.wait(PATIENCE);
}

/// A hello without what it offers, and one whose version is none.
pub(super) fn incomplete_hello(peer: &mut TestPeer<'_>) {
    for (n, (from, to)) in [("\"protocol\"", "\"protocols\""), ("\"1.0.0\"", "\"one\"")]
        .iter()
        .enumerate()
    {
        if n > 0 && !peer.relaunch() {
            return;
        }
        let Some(hello) = hello(peer) else { return };
        let text = ubos_common::json::to_string(&hello).replace(from, to);
        peer.send(&Head::new(MessageType::Hello), &object(&text));
        peer.wait(PATIENCE);
    }
}

/// A wrong token, another agent's id, no token, and a token for the second time.
pub(super) fn tokens(peer: &mut TestPeer<'_>) {
    send_hello(peer, |hello| {
        hello.session_token = SessionToken::from_random([0x5a; 32])
    });
    peer.wait(PATIENCE);
    if !peer.relaunch() {
        return;
    }
    send_hello(peer, |hello| {
        hello.agent_id = "com.example.somebody.else".into()
    });
    peer.wait(PATIENCE);
    if peer.relaunch() && handshake(peer) && peer.reconnect() {
        send_hello(peer, |_| {});
        peer.wait(PATIENCE);
    }
}

/// Versions that nobody speaks, and none at all.
pub(super) fn versions(peer: &mut TestPeer<'_>) {
    send_hello(peer, |hello| hello.protocol.supported_versions = vec![7, 9]);
    peer.wait(PATIENCE);
    if peer.relaunch() {
        send_hello(peer, |hello| hello.protocol.supported_versions = Vec::new());
        peer.wait(PATIENCE);
    }
}

/// Tools of every kind, good and bad, in some registrations.
pub(super) fn registrations(peer: &mut TestPeer<'_>) {
    if !handshake(peer) {
        return;
    }
    let text = ubos_common::json::to_string::<ToolSpec>;
    let good = text(&tool(peer, "hello_world"));
    let wrong = [
        ("hello_world\",\"name", "hello world\",\"name"),
        ("\"name\":\"hello_world\"", "\"name\":\"another\""),
        ("\"tool_id\":\"", "\"tool_id\":\"x"),
    ];
    let mut ids: Vec<String> = wrong
        .iter()
        .map(|(from, to)| good.replace(from, to))
        .collect();
    ids.push(text(&tool(peer, "sleep")));
    register_texts(peer, &ids, false);
    let lacking = text(&tool(peer, "lacking")).replace("\"description\"", "\"about\"");
    let useless = text(&tool(peer, "useless")).replace("{\"type\":\"object\"}", "{\"type\":7}");
    register_texts(peer, &[good.clone(), lacking, useless, good.clone()], false);
    // While `sleep` is there, a core that calls it does not end.
    let gone: Vec<String> = ["hello_world", "never_there"]
        .map(|name| tool(peer, name).tool_id)
        .into();
    peer.send(&Head::new(MessageType::Unregister), &Unregister::new(gone));
    peer.wait_until(START, |state| state.unregistrations.is_empty());
    for replaces in [false, false, true] {
        register_texts(peer, std::slice::from_ref(&good), replaces);
    }
    peer.wait(ms(200));
}

/// Messages that break the rules, and a registration that keeps them.
pub(super) fn invalid_messages(peer: &mut TestPeer<'_>) {
    tolerated(peer, |peer| {
        for text in malformed::invalid_messages() {
            peer.send_text(&text);
        }
    });
}

/// Does something that the connection must survive, then registers.
fn tolerated(peer: &mut TestPeer<'_>, what: fn(&mut TestPeer<'_>)) {
    if handshake(peer) {
        what(peer);
        let tools = reference_tools(peer);
        register(peer, &tools, false);
        peer.wait(ms(200));
    }
}

/// Types that nobody knows.
pub(super) fn unknown_types(peer: &mut TestPeer<'_>) {
    tolerated(peer, |peer| {
        let kind = || MessageType::Other("agent.later".into());
        let ids = ids("req-9", None, None);
        peer.send(
            &head(kind(), |head| head.correlation = Some(&ids)),
            &RawObject::empty(),
        );
        let error = ErrorObject::of(ErrorCode::UnknownType, "none that is known here");
        let head = head(MessageType::AgentError, |head| {
            head.correlation = Some(&ids);
            head.error = Some(&error);
        });
        peer.send(&head, &RawObject::empty());
        peer.wait_until(START, |state| state.unknown.is_empty());
        peer.wait(ms(200));
    });
}

/// A second hello, and messages that only a core sends.
pub(super) fn wrong_direction(peer: &mut TestPeer<'_>) {
    tolerated(peer, |peer| {
        send_hello(peer, |_| {});
        peer.send_payload(MessageType::Goodbye, r#"{"reason":"no"}"#);
        peer.send_payload(MessageType::Ping, "{}");
    });
}

/// Results, pieces and acknowledgements of calls that never were.
pub(super) fn unknown_calls(peer: &mut TestPeer<'_>) {
    tolerated(peer, |peer| {
        send_result(peer, "never", None);
        send_chunk(peer, "never", 1, false);
        peer.send(
            &Head::new(MessageType::CancelAck),
            &CancelAck::new("never".into(), true),
        );
    });
}

/// A heartbeat of another peer.
pub(super) fn foreign_heartbeat(peer: &mut TestPeer<'_>) {
    tolerated(peer, |peer| {
        let beat = Heartbeat::new("another".into(), 1, 0, Health::Ok);
        peer.send(&Head::new(MessageType::Heartbeat), &beat);
    });
}

/// A heartbeat that says unhealthy, before there is anything to call.
pub(super) fn unhealthy(peer: &mut TestPeer<'_>) {
    if handshake(peer) {
        peer.scheduled.clear();
        send_heartbeat(peer, Health::Unhealthy);
        peer.wait(ms(600));
        let tools = reference_tools(peer);
        register(peer, &tools, false);
        peer.wait(ms(1_500));
    }
}

/// Pieces of output out of order.
pub(super) fn unordered_output(peer: &mut TestPeer<'_>) {
    respond_with(peer, |peer, line| {
        answer(peer, line, |peer, id| {
            for seq in [7, 1, 1] {
                send_chunk(peer, id, seq, false);
            }
            send_result(peer, id, None);
        });
    });
}

/// A piece of output behind the last one.
pub(super) fn output_after_done(peer: &mut TestPeer<'_>) {
    respond_with(peer, |peer, line| {
        answer(peer, line, |peer, id| {
            send_chunk(peer, id, 1, true);
            send_chunk(peer, id, 2, false);
            send_result(peer, id, None);
        });
    });
}

/// Each result twice.
pub(super) fn duplicate_results(peer: &mut TestPeer<'_>) {
    respond_with(peer, |peer, line| {
        answer(peer, line, |peer, id| {
            send_result(peer, id, None);
            send_result(peer, id, None);
        });
    });
}

fn respond_with(peer: &mut TestPeer<'_>, responder: Responder) {
    peer.respond_with(responder);
    if handshake_and_register(peer) {
        serve_until_goodbye(peer);
    }
}

/// Answers a call in a way of its own, and everything else as an agent does.
fn answer(peer: &mut TestPeer<'_>, line: &Line, call: fn(&mut TestPeer<'_>, &str)) {
    match line
        .message_from(Side::Core)
        .and_then(|message| message.content.as_ref())
    {
        Some(Message::ToolCall(asked)) => call(peer, &asked.call_id),
        _ => serve(peer, line),
    }
}
