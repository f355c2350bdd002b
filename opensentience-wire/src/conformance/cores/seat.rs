//! The agent's seat: an agent that does what it is asked, for plays that have it do something else.

use core::time::Duration;

use ubos_common::conformance::Recorder;
use ubos_common::json::RawObject;

use crate::conformance::Peer;
use crate::conformance::line::{Line, SLACK};
use crate::conformance::session::{Session, ms, object};
use crate::envelope::{Correlation, Head};
use crate::error::{ErrorCode, ErrorObject};
use crate::message::{
    CancelAck, Channel, ChunkData, Health, Heartbeat, Hello, Message, MessageType, ProtocolOffer,
    SemVer, Side, Status, ToolCall, ToolOutcome, ToolSpec, ToolStream,
};

pub(super) type Record<'a> = &'a mut Recorder<Line>;
pub(super) type Core<'a> = &'a mut (dyn Peer + 'static);

/// How long a judge waits for what must come, before it says that it did not.
pub(super) const PATIENCE: Duration = SLACK.saturating_add(Duration::from_millis(100));

/// How long a core may take to make its calls and say goodbye.
pub(super) const WORK: Duration = Duration::from_secs(9);

pub(super) fn session<'a>(core: Core<'a>, recorder: Record<'a>) -> Option<Session<'a>> {
    Session::launch(core, recorder, Side::Agent, serve)
}

/// An agent that does what it is asked.
pub(super) fn serve(session: &mut Session<'_>, line: &Line) {
    let Some(said) = line.said_by(Side::Core) else {
        return;
    };
    match &said.content {
        Some(Message::Welcome(_)) => beat(session, Health::Ok),
        Some(Message::ToolCall(call)) => run(session, call),
        Some(Message::ToolCancel(cancel)) => stop(session, &said.id, &cancel.call_id),
        Some(Message::Plain(MessageType::Ping, _)) => {
            let head = Head::new(MessageType::Pong).in_reply_to(Some(&said.id));
            session.say(&head, &RawObject::empty());
        }
        Some(Message::Goodbye(_)) => session.close(),
        _ => {}
    }
}

/// An agent that never ends a call that takes its time, whatever it is told.
pub(super) fn serve_slowly(session: &mut Session<'_>, line: &Line) {
    let content = line
        .said_by(Side::Core)
        .and_then(|said| said.content.as_ref());
    match content {
        Some(Message::ToolCall(call)) if call.timeout_ms.is_some() => {}
        Some(Message::ToolCancel(_)) => {}
        _ => serve(session, line),
    }
}

/// Sends a heartbeat now, and the next ones at the cadence told.
pub(super) fn beat(session: &mut Session<'_>, health: Health) {
    let Some((_, welcome)) = session.course.welcome.clone() else {
        return;
    };
    let running = session.course.running() as u64;
    let beat = Heartbeat::new(welcome.session_id, 1, running, health.clone());
    session.say(&Head::new(MessageType::Heartbeat), &beat);
    let half = Duration::from_millis(welcome.heartbeat_interval_ms / 2).max(ms(5));
    session.later(half, Box::new(move |session| beat_again(session, health)));
}

pub(super) fn beat_again(session: &mut Session<'_>, health: Health) {
    if session.open && session.course.goodbye.is_none() {
        beat(session, health);
    }
}

pub(super) fn run(session: &mut Session<'_>, call: &ToolCall) {
    let id = call.call_id.clone();
    let number = |name| {
        session
            .course
            .calls
            .get(&id)
            .and_then(|call| call.number(name))
    };
    let name = call.tool_id.rsplit('/').next().unwrap_or_default();
    let (count, millis) = (number("count").unwrap_or(0), number("ms").unwrap_or(0));
    match name {
        "sleep" => {
            let span = Duration::from_millis(call.timeout_ms.unwrap_or(millis).min(millis));
            let late = call.timeout_ms.is_some_and(|most| most < millis);
            session.later(span, Box::new(move |session| wake(session, &id, late)));
        }
        "stream_counter" => {
            for seq in 1..=count.min(100) {
                chunk(session, &id, seq, false);
            }
            result(session, &id, None);
        }
        _ => result(session, &id, None),
    }
}

pub(super) fn wake(session: &mut Session<'_>, id: &str, late: bool) {
    result(session, id, late.then_some(ErrorCode::ToolTimeout));
}

pub(super) fn stop(session: &mut Session<'_>, message: &str, id: &str) {
    let runs = session
        .course
        .calls
        .get(id)
        .is_some_and(|call| call.end.is_none());
    let ids = correlation(session, id);
    let head = Head::new(MessageType::CancelAck)
        .correlation(&ids)
        .in_reply_to(Some(message));
    session.say(&head, &CancelAck::new(id.into(), runs));
    result(session, id, Some(ErrorCode::ToolCanceled));
}

pub(super) fn correlation(session: &Session<'_>, id: &str) -> Correlation {
    let call = session.course.calls.get(id);
    call.map(|call| call.ids.clone()).unwrap_or_default()
}

/// Ends a call, unless it has ended.
pub(super) fn result(session: &mut Session<'_>, id: &str, code: Option<ErrorCode>) {
    if session
        .course
        .calls
        .get(id)
        .is_some_and(|call| call.end.is_none())
    {
        say_result(session, id, code);
    }
}

pub(super) fn say_result(session: &mut Session<'_>, id: &str, code: Option<ErrorCode>) {
    let status = match &code {
        None => Status::Succeeded,
        Some(ErrorCode::ToolCanceled) => Status::Canceled,
        Some(_) => Status::Failed,
    };
    let mut outcome = ToolOutcome::new(id.into(), status);
    outcome.output = code.is_none().then(RawObject::empty);
    outcome.error = code.map(|code| ErrorObject::of(code, "as was asked"));
    let ids = correlation(session, id);
    session.say(
        &Head::new(MessageType::ToolResult).correlation(&ids),
        &outcome,
    );
}

pub(super) fn chunk(session: &mut Session<'_>, id: &str, seq: u64, done: bool) {
    let mut data = ChunkData::new();
    data.text = Some(seq.to_string());
    let mut chunk = ToolStream::new(id.into(), seq, Channel::Stdout, data);
    chunk.done = done.then_some(true);
    let ids = correlation(session, id);
    session.say(
        &Head::new(MessageType::ToolStream).correlation(&ids),
        &chunk,
    );
}

/// The hello of the launch.
pub(super) fn hello(session: &Session<'_>) -> Option<Hello> {
    let launch = session.course.launch.as_ref()?;
    let words = ["tools", "streaming", "cancellation"].map(str::to_owned);
    let offer = ProtocolOffer::new(vec![1], words.into());
    let version = SemVer::parse("1.0.0")?;
    Some(Hello::new(
        launch.token.clone(),
        launch.agent_id.clone(),
        version,
        offer,
    ))
}

pub(super) fn say_hello(session: &mut Session<'_>, change: impl FnOnce(&mut Hello)) {
    if let Some(mut hello) = hello(session) {
        change(&mut hello);
        session.say(&Head::new(MessageType::Hello), &hello);
    }
}

/// Handshake; gives whether we are taken in.
pub(super) fn enter(session: &mut Session<'_>) -> bool {
    say_hello(session, |_| {});
    session.until(ms(5_000), |course| course.welcome.is_some())
}

pub(super) fn tool(session: &Session<'_>, name: &str) -> ToolSpec {
    let agent = session
        .course
        .launch
        .as_ref()
        .map(|launch| launch.agent_id.clone());
    let id = format!("{}/{name}", agent.unwrap_or_default());
    let schema = object(r#"{"type":"object"}"#);
    ToolSpec::new(id, name.into(), "a reference tool".into(), schema)
}

pub(super) fn reference(session: &Session<'_>) -> Vec<ToolSpec> {
    let names = [
        "hello_world",
        "stream_counter",
        "sleep",
        "invalid_input",
        "large_output",
    ];
    names.iter().map(|name| tool(session, name)).collect()
}

/// Offers tools; gives whether the core answered.
pub(super) fn offer(session: &mut Session<'_>, tools: &[ToolSpec], replace: bool) -> bool {
    let texts = tools.iter().map(ubos_common::json::to_string);
    offer_texts(session, &texts.collect::<Vec<_>>(), replace)
}

pub(super) fn offer_texts(session: &mut Session<'_>, tools: &[String], replace: bool) -> bool {
    let answered = session.course.answered;
    let payload = object(&format!(
        r#"{{"tools":[{}],"replace":{replace}}}"#,
        tools.join(",")
    ));
    session.say(&Head::new(MessageType::Register), &payload);
    session.until(PATIENCE, move |course| course.answered > answered)
}

/// Handshake and the reference tools.
pub(super) fn join(session: &mut Session<'_>) -> bool {
    enter(session) && {
        let tools = reference(session);
        offer(session, &tools, false)
    }
}

/// Works until the core has nothing more to be done.
pub(super) fn work_on(session: &mut Session<'_>) {
    session.until(WORK, |course| course.goodbye.is_some());
    session.rest(ms(300));
}
