//! The agent that tests cores: it does what it is asked; scenarios make it do something else.

use core::time::Duration;

use ubos_common::json::RawObject;

use crate::osw::recording::{Line, START};
use crate::osw::test_peer::{TestPeer, ms, object};
use crate::osw::writer::{Head, head};
use opensentience_wire::Correlation;
use opensentience_wire::message::{
    CancelAck, Channel, ChunkData, Health, Heartbeat, Hello, Message, MessageType, ProtocolOffer,
    SemVer, Side, Status, ToolCall, ToolOutcome, ToolSpec, ToolStream,
};
use opensentience_wire::{ErrorCode, ErrorObject};

/// An agent that does what it is asked.
pub(super) fn serve(peer: &mut TestPeer<'_>, line: &Line) {
    let Some(message) = line.message_from(Side::Core) else {
        return;
    };
    match &message.content {
        Some(Message::Welcome(_)) => send_heartbeat(peer, Health::Ok),
        Some(Message::ToolCall(call)) => run_tool(peer, call),
        Some(Message::ToolCancel(cancel)) => cancel_call(peer, &message.id, &cancel.call_id),
        Some(Message::Plain(MessageType::Ping, _)) => {
            let head = head(MessageType::Pong, |head| {
                head.in_reply_to = Some(&message.id)
            });
            peer.send(&head, &RawObject::empty());
        }
        Some(Message::Goodbye(_)) => peer.close(),
        _ => {}
    }
}

/// An agent that never ends a call that takes its time, whatever it is told.
pub(super) fn serve_slowly(peer: &mut TestPeer<'_>, line: &Line) {
    let content = line
        .message_from(Side::Core)
        .and_then(|message| message.content.as_ref());
    match content {
        Some(Message::ToolCall(call)) if call.timeout_ms.is_some() => {}
        Some(Message::ToolCancel(_)) => {}
        _ => serve(peer, line),
    }
}

/// Sends a heartbeat now, and the next ones at the cadence told.
pub(super) fn send_heartbeat(peer: &mut TestPeer<'_>, health: Health) {
    let Some((_, welcome)) = peer.state.welcome.clone() else {
        return;
    };
    let running = peer.state.running() as u64;
    let beat = Heartbeat::new(welcome.session_id, 1, running, health.clone());
    peer.send(&Head::new(MessageType::Heartbeat), &beat);
    let half = Duration::from_millis(welcome.heartbeat_interval_ms / 2).max(ms(5));
    peer.schedule(
        half,
        Box::new(move |peer| send_heartbeat_again(peer, health)),
    );
}

pub(super) fn send_heartbeat_again(peer: &mut TestPeer<'_>, health: Health) {
    if peer.open && peer.state.goodbye.is_none() {
        send_heartbeat(peer, health);
    }
}

pub(super) fn run_tool(peer: &mut TestPeer<'_>, call: &ToolCall) {
    let id = call.call_id.clone();
    let number = |name| peer.state.calls.get(&id).and_then(|call| call.number(name));
    let name = call.tool_id.rsplit('/').next().unwrap_or_default();
    let (count, millis) = (number("count").unwrap_or(0), number("ms").unwrap_or(0));
    match name {
        "sleep" => {
            let span = Duration::from_millis(call.timeout_ms.unwrap_or(millis).min(millis));
            let late = call.timeout_ms.is_some_and(|most| most < millis);
            peer.schedule(span, Box::new(move |peer| finish_sleep(peer, &id, late)));
        }
        "stream_counter" => {
            for seq in 1..=count.min(100) {
                send_chunk(peer, &id, seq, false);
            }
            finish_call(peer, &id, None);
        }
        _ => finish_call(peer, &id, None),
    }
}

pub(super) fn finish_sleep(peer: &mut TestPeer<'_>, id: &str, late: bool) {
    finish_call(peer, id, late.then_some(ErrorCode::ToolTimeout));
}

pub(super) fn cancel_call(peer: &mut TestPeer<'_>, message: &str, id: &str) {
    let runs = peer
        .state
        .calls
        .get(id)
        .is_some_and(|call| call.end.is_none());
    let ids = correlation(peer, id);
    let head = head(MessageType::CancelAck, |head| {
        head.correlation = Some(&ids);
        head.in_reply_to = Some(message);
    });
    peer.send(&head, &CancelAck::new(id.into(), runs));
    finish_call(peer, id, Some(ErrorCode::ToolCanceled));
}

pub(super) fn correlation(peer: &TestPeer<'_>, id: &str) -> Correlation {
    let call = peer.state.calls.get(id);
    call.map(|call| call.ids.clone()).unwrap_or_default()
}

/// Ends a call, unless it has ended.
pub(super) fn finish_call(peer: &mut TestPeer<'_>, id: &str, code: Option<ErrorCode>) {
    if peer
        .state
        .calls
        .get(id)
        .is_some_and(|call| call.end.is_none())
    {
        send_result(peer, id, code);
    }
}

pub(super) fn send_result(peer: &mut TestPeer<'_>, id: &str, code: Option<ErrorCode>) {
    let status = match &code {
        None => Status::Succeeded,
        Some(ErrorCode::ToolCanceled) => Status::Canceled,
        Some(_) => Status::Failed,
    };
    let mut outcome = ToolOutcome::new(id.into(), status);
    outcome.output = code.is_none().then(RawObject::empty);
    outcome.error = code.map(|code| ErrorObject::of(code, "as was asked"));
    let ids = correlation(peer, id);
    peer.send(
        &head(MessageType::ToolResult, |head| {
            head.correlation = Some(&ids)
        }),
        &outcome,
    );
}

pub(super) fn send_chunk(peer: &mut TestPeer<'_>, id: &str, seq: u64, done: bool) {
    let mut data = ChunkData::new();
    data.text = Some(seq.to_string());
    let mut chunk = ToolStream::new(id.into(), seq, Channel::Stdout, data);
    chunk.done = done.then_some(true);
    let ids = correlation(peer, id);
    peer.send(
        &head(MessageType::ToolStream, |head| {
            head.correlation = Some(&ids)
        }),
        &chunk,
    );
}

/// The hello of the launch.
pub(super) fn hello(peer: &TestPeer<'_>) -> Option<Hello> {
    let launch = peer.state.launch.as_ref()?;
    let words = ["tools", "streaming", "cancellation"].map(str::to_owned);
    let offer = ProtocolOffer::new(vec![1], words.into());
    let version = "1.0.0".parse::<SemVer>().ok()?;
    Some(Hello::new(
        launch.token.clone(),
        launch.agent_id.clone(),
        version,
        offer,
    ))
}

pub(super) fn send_hello(peer: &mut TestPeer<'_>, change: impl FnOnce(&mut Hello)) {
    if let Some(mut hello) = hello(peer) {
        change(&mut hello);
        peer.send(&Head::new(MessageType::Hello), &hello);
    }
}

/// Handshake; gives whether we are taken in.
pub(super) fn handshake(peer: &mut TestPeer<'_>) -> bool {
    send_hello(peer, |_| {});
    peer.wait_until(START, |state| state.welcome.is_some())
}

pub(super) fn tool(peer: &TestPeer<'_>, name: &str) -> ToolSpec {
    let agent = peer
        .state
        .launch
        .as_ref()
        .map(|launch| launch.agent_id.clone());
    let id = format!("{}/{name}", agent.unwrap_or_default());
    let schema = object(r#"{"type":"object"}"#);
    ToolSpec::new(id, name.into(), "a reference tool".into(), schema)
}

pub(super) fn reference_tools(peer: &TestPeer<'_>) -> Vec<ToolSpec> {
    let names = [
        "hello_world",
        "stream_counter",
        "sleep",
        "invalid_input",
        "large_output",
    ];
    names.iter().map(|name| tool(peer, name)).collect()
}

/// Offers tools; gives whether the core answered.
pub(super) fn register(peer: &mut TestPeer<'_>, tools: &[ToolSpec], replace: bool) -> bool {
    let texts = tools.iter().map(ubos_common::json::to_string);
    register_texts(peer, &texts.collect::<Vec<_>>(), replace)
}

pub(super) fn register_texts(peer: &mut TestPeer<'_>, tools: &[String], replace: bool) -> bool {
    let answered = peer.state.registration_replies;
    let payload = object(&format!(
        r#"{{"tools":[{}],"replace":{replace}}}"#,
        tools.join(",")
    ));
    peer.send(&Head::new(MessageType::Register), &payload);
    peer.wait_until(START, move |state| state.registration_replies > answered)
}

/// Handshake and the reference tools.
pub(super) fn handshake_and_register(peer: &mut TestPeer<'_>) -> bool {
    handshake(peer) && {
        let tools = reference_tools(peer);
        register(peer, &tools, false)
    }
}

/// Works until the core has nothing more to be done.
pub(super) fn serve_until_goodbye(peer: &mut TestPeer<'_>) {
    peer.wait_until(START, |state| state.goodbye.is_some());
    peer.wait(ms(300));
}
