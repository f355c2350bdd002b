//! The core that tests agents: how most scenarios begin and end, and what it sends in between.

use ubos_common::json::RawObject;

use crate::osw::agents::rules::DRAIN;
use crate::osw::observed::ObservedState;
use crate::osw::recording::{Line, PATIENCE, START};
use crate::osw::test_peer::{TestPeer, ids, ms, object};
use crate::osw::writer::{Head, head};
use opensentience_wire::Correlation;
use opensentience_wire::MAX_FRAME_BYTES;
use opensentience_wire::message::{
    Goodbye, Message, MessageType, Registered, Server, Side, ToolCall, ToolCancel, Welcome,
};

/// Milliseconds between heartbeats in most scenarios.
pub(super) const BEAT: u64 = 2_000;
/// The same where they are looked at.
pub(super) const SHORT_BEAT: u64 = 1_500;

/// Accepts all tools.
pub(super) fn answer_registrations(peer: &mut TestPeer<'_>, line: &Line) {
    let Some(message) = line.message_from(Side::Agent) else {
        return;
    };
    let Some(Message::Register(_)) = &message.content else {
        return;
    };
    let Some((id, offer)) = peer.state.answered_registration(message) else {
        return;
    };
    let accepted = offer.tools.iter().filter(|tool| tool.spec.is_some());
    let reply = Registered::new(accepted.map(|tool| tool.id.clone()).collect());
    let id = id.clone();
    peer.send(
        &head(MessageType::Registered, |head| head.in_reply_to = Some(&id)),
        &reply,
    );
}

pub(super) fn welcome(heartbeat_ms: u64, max_frame_bytes: usize) -> Welcome {
    let server = Server::new("1.0.0".into(), "conformance".into());
    let peer = "5e551017-0000-4000-8000-000000000001".into();
    Welcome::new(1, peer, heartbeat_ms, max_frame_bytes as u64, server)
}

pub(super) fn hello_received(peer: &mut TestPeer<'_>) -> bool {
    peer.wait_until(START.saturating_add(ms(50)), |state| {
        state.hello.is_some() || state.before_hello.is_some()
    })
}

pub(super) fn send_welcome(peer: &mut TestPeer<'_>, welcome: &Welcome) {
    let ids = peer.state.ids.get(1).map(|ids| ids.keys().next().cloned());
    let hello = ids.flatten();
    let head = head(MessageType::Welcome, |head| {
        head.in_reply_to = hello.as_deref()
    });
    peer.send(&head, welcome);
}

/// Handshake and registration with a cadence and a frame limit; gives whether there are tools.
pub(super) fn open_with(
    peer: &mut TestPeer<'_>,
    heartbeat_ms: u64,
    max_frame_bytes: usize,
) -> bool {
    if !hello_received(peer) || peer.state.hello.is_none() {
        return false;
    }
    send_welcome(peer, &welcome(heartbeat_ms, max_frame_bytes));
    peer.wait_until(START, |state| !state.tools.is_empty())
}

pub(super) fn open(peer: &mut TestPeer<'_>) -> bool {
    open_with(peer, BEAT, MAX_FRAME_BYTES)
}

/// What a call says besides its tool and input.
#[derive(Default)]
pub(super) struct CallOptions {
    pub(super) ids: Correlation,
    pub(super) timeout_ms: Option<u64>,
    pub(super) key: Option<&'static str>,
}

pub(super) fn options(request: &str) -> CallOptions {
    CallOptions {
        ids: ids(request, None, None),
        timeout_ms: Some(5_000),
        key: None,
    }
}

/// A call's frame; the tool is a name of the agent's or a full id.
pub(super) fn call_frame(
    peer: &mut TestPeer<'_>,
    id: &str,
    tool: &str,
    input: RawObject,
    options: &CallOptions,
) -> Vec<u8> {
    let known = peer.state.tool(tool).map(|spec| spec.tool_id.clone());
    let agent = peer
        .state
        .launch
        .as_ref()
        .map(|launch| launch.agent_id.clone());
    let tool = known.unwrap_or_else(|| format!("{}/{tool}", agent.unwrap_or_default()));
    let mut call = ToolCall::new(id.into(), tool, input);
    call.timeout_ms = options.timeout_ms;
    call.idempotency_key = options.key.map(str::to_owned);
    peer.encode(
        &head(MessageType::ToolCall, |head| {
            head.correlation = Some(&options.ids)
        }),
        &call,
    )
}

pub(super) fn call(
    peer: &mut TestPeer<'_>,
    id: &str,
    tool: &str,
    input: &str,
    options: &CallOptions,
) {
    let frame = call_frame(peer, id, tool, object(input), options);
    peer.send_bytes(&frame);
}

/// Calls a reference tool, if the agent has it.
pub(super) fn call_known(
    peer: &mut TestPeer<'_>,
    id: &str,
    tool: &str,
    input: &str,
    options: &CallOptions,
) -> bool {
    let there = peer.state.tool(tool).is_some();
    if there {
        call(peer, id, tool, input, options);
    }
    there
}

pub(super) fn cancel(peer: &mut TestPeer<'_>, id: &str, deadline_ms: Option<u64>) {
    let mut cancel = ToolCancel::new(id.into());
    cancel.deadline_ms = deadline_ms;
    let ids = peer.state.calls.get(id).map(|call| call.ids.clone());
    let ids = ids.unwrap_or_default();
    peer.send(
        &head(MessageType::ToolCancel, |head| {
            head.correlation = Some(&ids)
        }),
        &cancel,
    );
}

pub(super) fn all_ended(peer: &mut TestPeer<'_>) -> bool {
    peer.wait_until(START, |state| state.running() == 0)
}

/// Waits until heartbeats have come for some seconds, or none any more; a judge sees which.
pub(super) fn beats(peer: &mut TestPeer<'_>) {
    let Some((welcomed, _)) = &peer.state.welcome else {
        return;
    };
    let end = welcomed.saturating_add(ms(3 * SHORT_BEAT));
    let last = |state: &ObservedState| state.heartbeat.as_ref().map(|(at, _)| *at);
    peer.wait_until(PATIENCE, |state| last(state) >= Some(end));
    peer.wait(ms(0));
}

/// Sends a goodbye and waits for the end.
pub(super) fn goodbye(peer: &mut TestPeer<'_>) {
    peer.wait(ms(200));
    let goodbye = Goodbye::new("the test is over".into());
    peer.send(&Head::new(MessageType::Goodbye), &goodbye);
    peer.wait(DRAIN.saturating_add(ms(100)));
}
