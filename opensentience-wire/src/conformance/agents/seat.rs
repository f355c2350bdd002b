//! The core's seat: what most plays for agents begin and end with.

use core::time::Duration;

use ubos_common::conformance::Recorder;
use ubos_common::json::RawObject;

use crate::conformance::Peer;
use crate::conformance::agents::rules::DRAIN;
use crate::conformance::line::{Line, SLACK};
use crate::conformance::session::{Session, ids, ms, object};
use crate::envelope::{Correlation, Head};
use crate::limits::MAX_FRAME_BYTES;
use crate::message::{
    Goodbye, Message, MessageType, Registered, Server, Side, ToolCall, ToolCancel, Welcome,
};

pub(super) type Record<'a> = &'a mut Recorder<Line>;
pub(super) type Agent<'a> = &'a mut (dyn Peer + 'static);

/// How long a judge waits for what must come, before it says that it did not.
pub(super) const PATIENCE: Duration = SLACK.saturating_add(Duration::from_millis(100));

/// The cadence of most plays.
pub(super) const BEAT: u64 = 2_000;

pub(super) fn session<'a>(agent: Agent<'a>, recorder: Record<'a>) -> Option<Session<'a>> {
    Session::launch(agent, recorder, Side::Core, answer_registrations)
}

/// A core takes all tools.
pub(super) fn answer_registrations(session: &mut Session<'_>, line: &Line) {
    let Some(said) = line.said_by(Side::Agent) else {
        return;
    };
    let Some(Message::Register(_)) = &said.content else {
        return;
    };
    let Some((id, offer)) = session.course.answered_offer(said) else {
        return;
    };
    let taken = offer.tools.iter().filter(|tool| tool.spec.is_some());
    let reply = Registered::new(taken.map(|tool| tool.id.clone()).collect());
    let id = id.clone();
    session.say(
        &Head::new(MessageType::Registered).in_reply_to(Some(&id)),
        &reply,
    );
}

pub(super) fn welcome(heartbeat_ms: u64, max_frame_bytes: usize) -> Welcome {
    let server = Server::new("1.0.0".into(), "conformance".into());
    let session = "5e551017-0000-4000-8000-000000000001".into();
    Welcome::new(1, session, heartbeat_ms, max_frame_bytes as u64, server)
}

pub(super) fn hello_came(session: &mut Session<'_>) -> bool {
    session.until(ms(10_050), |course| {
        course.hello.is_some() || course.stranger.is_some()
    })
}

pub(super) fn greet(session: &mut Session<'_>, welcome: &Welcome) {
    let ids = session
        .course
        .ids
        .get(1)
        .map(|ids| ids.keys().next().cloned());
    let hello = ids.flatten();
    let head = Head::new(MessageType::Welcome).in_reply_to(hello.as_deref());
    session.say(&head, welcome);
}

/// Handshake and registration with a cadence and a frame limit; gives whether there are tools.
pub(super) fn open_with(
    session: &mut Session<'_>,
    heartbeat_ms: u64,
    max_frame_bytes: usize,
) -> bool {
    if !hello_came(session) || session.course.hello.is_none() {
        return false;
    }
    greet(session, &welcome(heartbeat_ms, max_frame_bytes));
    session.until(ms(5_000), |course| !course.tools.is_empty())
}

pub(super) fn open(session: &mut Session<'_>) -> bool {
    open_with(session, BEAT, MAX_FRAME_BYTES)
}

/// What a call says besides its tool and input.
#[derive(Default)]
pub(super) struct Ask {
    pub(super) ids: Correlation,
    pub(super) timeout_ms: Option<u64>,
    pub(super) key: Option<&'static str>,
}

pub(super) fn ask(request: &str) -> Ask {
    Ask {
        ids: ids(request, None, None),
        timeout_ms: Some(5_000),
        key: None,
    }
}

/// A call's frame; the tool is a name of the agent's or a full id.
pub(super) fn call_frame(
    session: &mut Session<'_>,
    id: &str,
    tool: &str,
    input: RawObject,
    ask: &Ask,
) -> Vec<u8> {
    let known = session.course.tool(tool).map(|spec| spec.tool_id.clone());
    let agent = session
        .course
        .launch
        .as_ref()
        .map(|launch| launch.agent_id.clone());
    let tool = known.unwrap_or_else(|| format!("{}/{tool}", agent.unwrap_or_default()));
    let mut call = ToolCall::new(id.into(), tool, input);
    call.timeout_ms = ask.timeout_ms;
    call.idempotency_key = ask.key.map(str::to_owned);
    session.written(
        &Head::new(MessageType::ToolCall).correlation(&ask.ids),
        &call,
    )
}

pub(super) fn call(session: &mut Session<'_>, id: &str, tool: &str, input: &str, ask: &Ask) {
    let frame = call_frame(session, id, tool, object(input), ask);
    session.raw(&frame);
}

/// Calls a reference tool, if the agent has it.
pub(super) fn call_if(
    session: &mut Session<'_>,
    id: &str,
    tool: &str,
    input: &str,
    ask: &Ask,
) -> bool {
    let there = session.course.tool(tool).is_some();
    if there {
        call(session, id, tool, input, ask);
    }
    there
}

pub(super) fn cancel(session: &mut Session<'_>, id: &str, deadline_ms: Option<u64>) {
    let mut cancel = ToolCancel::new(id.into());
    cancel.deadline_ms = deadline_ms;
    let ids = session.course.calls.get(id).map(|call| call.ids.clone());
    let ids = ids.unwrap_or_default();
    session.say(
        &Head::new(MessageType::ToolCancel).correlation(&ids),
        &cancel,
    );
}

pub(super) fn all_ended(session: &mut Session<'_>) -> bool {
    session.until(ms(9_000), |course| course.running() == 0)
}

/// Says goodbye and waits for the end.
pub(super) fn part(session: &mut Session<'_>) {
    session.rest(ms(200));
    let goodbye = Goodbye::new("the test is over".into());
    session.say(&Head::new(MessageType::Goodbye), &goodbye);
    session.rest(DRAIN.saturating_add(ms(100)));
}
