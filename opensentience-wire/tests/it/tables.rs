//! Every state of both machines against everything that can happen in it.
//!
//! Each table is what the machines do, one line an event, one column a state; a change of behaviour shows as a changed cell.

use opensentience_wire::ErrorObject;
use opensentience_wire::Limits;
use opensentience_wire::message::{Channel, Health};
use opensentience_wire::role::agent::{self, AgentConnection, Chunk};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use opensentience_wire::role::{CallId, Input};
use serde_json::{Value, json};

use crate::kit::*;

/// What came out, in few words: messages sent, what the application hears, the end.
fn agent_cell(said: &AgentSaid, result: Option<String>) -> String {
    let mut words: Vec<String> = said
        .sent
        .iter()
        .map(|m| short(m["type"].as_str().unwrap()))
        .collect();
    words.extend(said.calls.iter().map(|_| "RUN".to_owned()));
    words.extend((0..said.cancels).map(|_| "STOP".to_owned()));
    for event in &said.events {
        words.push(match event {
            agent::Event::Rejected { code, .. } => format!("!{}", short(code.as_str())),
            agent::Event::Welcomed { .. } => "welcomed".to_owned(),
            agent::Event::Goodbye { .. } => "goodbye".to_owned(),
            agent::Event::Registered(_) | agent::Event::Unregistered(_) => "tools".to_owned(),
            other => format!("{other:?}"),
        });
    }
    words.extend(result);
    words.extend(
        said.closed
            .as_ref()
            .map(|reason| format!("CLOSED {reason:?}")),
    );
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

fn core_cell(said: &CoreSaid, result: Option<String>) -> String {
    let mut words: Vec<String> = said
        .sent
        .iter()
        .map(|m| short(m["type"].as_str().unwrap()))
        .collect();
    for event in &said.events {
        match event {
            Event::Audit(audit) => words.extend(
                audit
                    .code
                    .as_ref()
                    .map(|code| format!("!{}", short(code.as_str()))),
            ),
            Event::Connected { .. } => words.push("connected".to_owned()),
            Event::ToolsChanged => words.push("tools".to_owned()),
            Event::Stream(..) => words.push("stream".to_owned()),
            Event::Ended(_, outcome) => words.push(format!("ended:{}", outcome.status)),
            Event::CancelAck { .. } => words.push("acked".to_owned()),
            Event::Health(health) => words.push(health.to_string()),
            Event::Pong => words.push("pong".to_owned()),
            other => words.push(format!("{other:?}")),
        }
    }
    words.extend(result);
    words.extend(
        said.closed
            .as_ref()
            .map(|reason| format!("CLOSED {reason:?}")),
    );
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

/// The last part of a dotted word.
fn short(word: &str) -> String {
    word.split_once('.')
        .map_or(word, |(_, rest)| rest)
        .to_owned()
}

fn shown<T, E: std::fmt::Debug>(result: Result<T, E>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(error) => Some(format!("Err({error:?})")),
    }
}

const AGENT_STATES: [&str; 4] = ["AwaitWelcome", "Open", "Draining", "Closed"];

fn agent_in(state: &str) -> AgentConnection {
    let mut conn = match state {
        "AwaitWelcome" => new_agent(Limits::default()),
        _ => open_agent(Limits::default()),
    };
    drain_agent(&mut conn);
    if state != "AwaitWelcome" {
        tell_agent(&mut conn, 0, &call("running"));
    }
    match state {
        "Draining" => drop(tell_agent(
            &mut conn,
            0,
            &message("core.goodbye", json!({"reason": "r"})),
        )),
        "Closed" => drop(conn.handle_input(at(0), Input::Eof)),
        _ => {}
    }
    drain_agent(&mut conn);
    conn
}

fn agent_messages() -> Vec<(&'static str, Value)> {
    let mut unknown_asks = message("core.later", json!({}));
    unknown_asks["request_id"] = json!("r-9");
    let mut other_version = call("other");
    other_version["v"] = json!(2);
    let mut no_id = call("no id");
    no_id["id"] = json!("");
    vec![
        ("core.welcome", welcome()),
        (
            "core.tools.registered",
            message("core.tools.registered", json!({"registered": []})),
        ),
        (
            "core.tools.unregistered",
            message("core.tools.unregistered", json!({"tool_ids": []})),
        ),
        ("core.tool.call", call("new")),
        ("core.tool.call again", call("running")),
        (
            "core.tool.call malformed",
            message(
                "core.tool.call",
                json!({"call_id": "bad", "tool_id": 7, "input": {}}),
            ),
        ),
        (
            "core.tool.cancel live",
            message("core.tool.cancel", json!({"call_id": "running"})),
        ),
        (
            "core.tool.cancel unknown",
            message("core.tool.cancel", json!({"call_id": "none"})),
        ),
        (
            "core.goodbye",
            message("core.goodbye", json!({"reason": "r"})),
        ),
        ("core.ping", message("core.ping", json!({}))),
        ("core.error", message("core.error", json!({}))),
        ("agent.hello", hello()),
        (
            "agent.tool.result",
            message(
                "agent.tool.result",
                json!({"call_id": "running", "status": "succeeded"}),
            ),
        ),
        ("unknown", message("core.later", json!({}))),
        ("unknown that asks", unknown_asks),
        ("another version", other_version),
        ("an envelope without id", no_id),
    ]
}

fn agent_table() -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, act: &dyn Fn(&mut AgentConnection) -> Option<String>| {
        let cell = |state: &&str| {
            let mut conn = agent_in(state);
            let result = act(&mut conn);
            agent_cell(&drain_agent(&mut conn), result)
        };
        lines.push(format!(
            "{name} | {}",
            AGENT_STATES
                .iter()
                .map(cell)
                .collect::<Vec<_>>()
                .join(" | ")
        ));
    };
    for (name, message) in agent_messages() {
        line(name, &|conn| {
            let closed = conn.is_closed();
            let result = conn.handle_input(at(1), Input::Bytes(&frame(&message)));
            result
                .err()
                .filter(|_| closed)
                .map(|error| format!("Err({error:?})"))
        });
    }
    line("no JSON", &|conn| {
        shown(conn.handle_input(at(1), Input::Bytes(&raw_frame(b"{")))).map(|_| "Err".to_owned())
    });
    line("end of stream", &|conn| {
        shown(conn.handle_input(at(1), Input::Eof))
    });
    line("much later", &|conn| {
        conn.handle_timeout(at(3_600_000));
        None
    });
    line("register", &|conn| {
        shown(conn.register(at(1), vec![spec("more")], false))
    });
    line("unregister", &|conn| {
        shown(conn.unregister(at(1), vec!["x".into()]))
    });
    line("set_health", &|conn| {
        conn.set_health(at(1), Health::Degraded);
        None
    });
    line("stream", &|conn| {
        shown(conn.stream(
            at(1),
            &CallId::from("running"),
            Chunk::text(Channel::Log, "l"),
        ))
    });
    line("finish", &|conn| {
        shown(conn.finish(at(1), &CallId::from("running"), Ok(object(&json!({})))))
    });
    line("finish unknown", &|conn| {
        let error = ErrorObject::of(opensentience_wire::ErrorCode::ToolFailed, "no");
        shown(conn.finish(at(1), &CallId::from("none"), Err(error)))
    });
    line("shutdown", &|conn| {
        conn.shutdown(at(1));
        None
    });
    lines
}

const CORE_STATES: [&str; 4] = ["AwaitHello", "Open", "Draining", "Closed"];

/// A core in a state, with one call that runs where there is a session, and the id of that call.
fn core_in(state: &str) -> (CoreConnection, String) {
    if state == "AwaitHello" {
        return (new_core(Config::default()), "none".to_owned());
    }
    let mut conn = open_core(Config::default());
    let call = conn
        .call_tool(
            at(0),
            CallRequest::new(format!("{AGENT}/echo"), object(&json!({}))),
        )
        .unwrap();
    match state {
        "Draining" => conn.goodbye(at(0), "r", None).unwrap(),
        "Closed" => conn.handle_input(at(0), Input::Eof).unwrap(),
        _ => {}
    }
    drain_core(&mut conn);
    (conn, call.to_string())
}

fn core_messages(call: &str) -> Vec<(&'static str, Value)> {
    let mut unknown_asks = message("agent.later", json!({}));
    unknown_asks["request_id"] = json!("r-9");
    let chunk = |call: &str, seq: u64| json!({"call_id": call, "seq": seq, "channel": "stdout", "data": {"text": "t"}});
    let beat = |session: &str| json!({"session_id": session, "uptime_ms": 1, "inflight_calls": 0, "status": "ok"});
    vec![
        ("agent.hello", hello()),
        (
            "agent.tools.register",
            message("agent.tools.register", json!({"tools": [tool("more")]})),
        ),
        (
            "agent.tools.unregister",
            message("agent.tools.unregister", json!({"tool_ids": ["x"]})),
        ),
        (
            "agent.tool.stream",
            message("agent.tool.stream", chunk(call, 1)),
        ),
        (
            "agent.tool.stream unknown",
            message("agent.tool.stream", chunk("x", 1)),
        ),
        (
            "agent.tool.stream seq 0",
            message("agent.tool.stream", chunk(call, 0)),
        ),
        (
            "agent.tool.result",
            message(
                "agent.tool.result",
                json!({"call_id": call, "status": "succeeded", "output": {}}),
            ),
        ),
        (
            "agent.tool.result unknown",
            message(
                "agent.tool.result",
                json!({"call_id": "x", "status": "succeeded"}),
            ),
        ),
        (
            "agent.tool.result malformed",
            message(
                "agent.tool.result",
                json!({"call_id": call, "status": "well"}),
            ),
        ),
        (
            "agent.tool.cancel_ack",
            message(
                "agent.tool.cancel_ack",
                json!({"call_id": call, "accepted": true}),
            ),
        ),
        (
            "agent.heartbeat of another session",
            message("agent.heartbeat", beat("other")),
        ),
        ("agent.pong", message("agent.pong", json!({}))),
        ("agent.error", message("agent.error", json!({}))),
        ("core.ping", message("core.ping", json!({}))),
        ("unknown", message("agent.later", json!({}))),
        ("unknown that asks", unknown_asks),
    ]
}

fn core_table() -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, act: &dyn Fn(&mut CoreConnection, &str) -> Option<String>| {
        let cell = |state: &&str| {
            let (mut conn, call) = core_in(state);
            let result = act(&mut conn, &call);
            core_cell(&drain_core(&mut conn), result)
        };
        lines.push(format!(
            "{name} | {}",
            CORE_STATES.iter().map(cell).collect::<Vec<_>>().join(" | ")
        ));
    };
    for n in 0..core_messages("").len() {
        line(core_messages("")[n].0, &|conn, call| {
            let closed = conn.is_closed();
            let result = conn.handle_input(at(1), Input::Bytes(&frame(&core_messages(call)[n].1)));
            result
                .err()
                .filter(|_| closed)
                .map(|error| format!("Err({error:?})"))
        });
    }
    line("no JSON", &|conn, _| {
        shown(conn.handle_input(at(1), Input::Bytes(&raw_frame(b"{")))).map(|_| "Err".to_owned())
    });
    line("end of stream", &|conn, _| {
        shown(conn.handle_input(at(1), Input::Eof))
    });
    line("much later", &|conn, _| {
        conn.handle_timeout(at(3_600_000));
        None
    });
    line("call_tool", &|conn, _| {
        shown(conn.call_tool(
            at(1),
            CallRequest::new(format!("{AGENT}/echo"), object(&json!({}))),
        ))
    });
    line("call_tool unknown", &|conn, _| {
        shown(conn.call_tool(at(1), CallRequest::new("x/y", object(&json!({})))))
    });
    line("cancel", &|conn, call| {
        shown(conn.cancel(at(1), &CallId::from(call), None))
    });
    line("cancel unknown", &|conn, _| {
        shown(conn.cancel(at(1), &CallId::from("x"), None))
    });
    line("ping", &|conn, _| shown(conn.ping(at(1))));
    line("goodbye", &|conn, _| shown(conn.goodbye(at(1), "r", None)));
    lines
}

fn same(seen: &[String], wanted: &str) {
    let wanted: Vec<&str> = wanted
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, wanted, "\n{}", seen.join("\n"));
}

// spec: OSW-4.1-4, OSW-4.1-7, OSW-4.1-10, OSW-4-1
#[test]
fn the_agent_in_every_state() {
    same(&agent_table(), AGENT_TABLE);
}

// spec: OSW-4.1-4, OSW-4.1-7, OSW-4-1
#[test]
fn the_core_in_every_state() {
    same(&core_table(), CORE_TABLE);
}

/// Columns: AwaitWelcome, Open, Draining, Closed; where there is a session, the call `running` runs.
const AGENT_TABLE: &str = "
    core.welcome | heartbeat welcomed | !invalid_message | !invalid_message | Err(Closed)
    core.tools.registered | CLOSED Protocol(InvalidMessage) | tools | tools | Err(Closed)
    core.tools.unregistered | CLOSED Protocol(InvalidMessage) | tools | tools | Err(Closed)
    core.tool.call | CLOSED Protocol(InvalidMessage) | RUN | tool.result | Err(Closed)
    core.tool.call again | CLOSED Protocol(InvalidMessage) | error !invalid_message | error !invalid_message | Err(Closed)
    core.tool.call malformed | CLOSED Protocol(InvalidMessage) | tool.result !invalid_message | tool.result !invalid_message | Err(Closed)
    core.tool.cancel live | CLOSED Protocol(InvalidMessage) | tool.cancel_ack STOP | tool.cancel_ack STOP | Err(Closed)
    core.tool.cancel unknown | CLOSED Protocol(InvalidMessage) | tool.cancel_ack | tool.cancel_ack | Err(Closed)
    core.goodbye | CLOSED Protocol(InvalidMessage) | goodbye | goodbye | Err(Closed)
    core.ping | CLOSED Protocol(InvalidMessage) | pong | pong | Err(Closed)
    core.error | CLOSED Protocol(InvalidMessage) | !invalid_message | !invalid_message | Err(Closed)
    agent.hello | CLOSED Protocol(InvalidMessage) | !invalid_message | !invalid_message | Err(Closed)
    agent.tool.result | CLOSED Protocol(InvalidMessage) | !invalid_message | !invalid_message | Err(Closed)
    unknown | CLOSED Protocol(InvalidMessage) | !unknown_type | !unknown_type | Err(Closed)
    unknown that asks | CLOSED Protocol(InvalidMessage) | error !unknown_type | error !unknown_type | Err(Closed)
    another version | CLOSED Protocol(InvalidMessage) | !invalid_message | !invalid_message | Err(Closed)
    an envelope without id | CLOSED Protocol(InvalidMessage) | !invalid_message | !invalid_message | Err(Closed)
    no JSON | Err CLOSED Protocol(InvalidFrame) | error STOP Err CLOSED Protocol(InvalidFrame) | error STOP Err CLOSED Protocol(InvalidFrame) | Err
    end of stream | CLOSED Disconnected | STOP CLOSED Disconnected | STOP CLOSED Disconnected | Err(Closed)
    much later | CLOSED Protocol(HandshakeTimeout) | heartbeat | heartbeat tool.result STOP CLOSED Goodbye | -
    register | Err(NotOpen) | tools.register | Err(Closing) | Err(Closing)
    unregister | Err(NotOpen) | tools.unregister | Err(Closing) | Err(Closing)
    set_health | - | heartbeat | heartbeat | -
    stream | Err(NoSuchCall) | tool.stream | tool.stream | Err(NoSuchCall)
    finish | Err(NoSuchCall) | tool.result | tool.result CLOSED Goodbye | Err(NoSuchCall)
    finish unknown | Err(NoSuchCall) | Err(NoSuchCall) | Err(NoSuchCall) | Err(NoSuchCall)
    shutdown | CLOSED Shutdown | - | - | -
";

/// Columns: AwaitHello, Open, Draining, Closed; where there is a session, a call runs.
const CORE_TABLE: &str = "
    agent.hello | welcome connected | !invalid_message | !invalid_message | Err(Closed)
    agent.tools.register | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | tools.registered tools | tools.registered tools | Err(Closed)
    agent.tools.unregister | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | tools.unregistered | tools.unregistered | Err(Closed)
    agent.tool.stream | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | stream | stream | Err(Closed)
    agent.tool.stream unknown | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    agent.tool.stream seq 0 | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    agent.tool.result | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | ended:succeeded | ended:succeeded CLOSED Goodbye | Err(Closed)
    agent.tool.result unknown | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    agent.tool.result malformed | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message !invalid_message ended:failed | !invalid_message !invalid_message ended:failed CLOSED Goodbye | Err(Closed)
    agent.tool.cancel_ack | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    agent.heartbeat of another session | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !session_mismatch | !session_mismatch | Err(Closed)
    agent.pong | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | pong | pong | Err(Closed)
    agent.error | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    core.ping | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !invalid_message | !invalid_message | Err(Closed)
    unknown | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | !unknown_type | !unknown_type | Err(Closed)
    unknown that asks | welcome !handshake_required CLOSED Protocol(HandshakeRequired) | error !unknown_type | error !unknown_type | Err(Closed)
    no JSON | welcome !invalid_frame !invalid_frame Err CLOSED Protocol(InvalidFrame) | goodbye !invalid_frame !disconnected ended:failed Err CLOSED Protocol(InvalidFrame) | goodbye !invalid_frame !disconnected ended:failed Err CLOSED Protocol(InvalidFrame) | Err
    end of stream | CLOSED Disconnected | !disconnected ended:failed CLOSED Disconnected | !disconnected ended:failed CLOSED Disconnected | Err(Closed)
    much later | welcome !handshake_timeout CLOSED Protocol(HandshakeTimeout) | unhealthy | !disconnected ended:failed CLOSED Goodbye | -
    call_tool | Err(NotOpen) | tool.call | !disconnected Err(Closing) | !disconnected Err(Closing)
    call_tool unknown | Err(NotOpen) | !not_found Err(ToolNotFound { tool: \"x/y\" }) | !disconnected Err(Closing) | !disconnected Err(Closing)
    cancel | Err(NoSuchCall) | tool.cancel | tool.cancel | Err(NoSuchCall)
    cancel unknown | Err(NoSuchCall) | Err(NoSuchCall) | Err(NoSuchCall) | Err(NoSuchCall)
    ping | Err(NotOpen) | ping | Err(Closing) | Err(Closing)
    goodbye | Err(NotOpen) | goodbye | Err(Closing) | Err(Closing)
";
