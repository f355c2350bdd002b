//! Plays for cores: here we are the agent.

use core::time::Duration;

use ubos_common::conformance::Recorder;
use ubos_common::json::RawObject;

use crate::conformance::Peer;
use crate::conformance::junk::{self, Junk, unsound};
use crate::conformance::line::{Line, SLACK};
use crate::conformance::session::{Manners, Session, ids, ms, object};
use crate::envelope::{Correlation, Head};
use crate::error::{ErrorCode, ErrorObject};
use crate::message::{
    CancelAck, Channel, ChunkData, Health, Heartbeat, Hello, Message, MessageType, ProtocolOffer,
    SemVer, Side, Status, ToolCall, ToolOutcome, ToolSpec, ToolStream, Unregister,
};
use crate::token::SessionToken;

type Record<'a> = &'a mut Recorder<Line>;
type Core<'a> = &'a mut (dyn Peer + 'static);

/// How long a judge waits for what must come, before it says that it did not.
const PATIENCE: Duration = SLACK.saturating_add(Duration::from_millis(100));

/// How long a core may take to make its calls and say goodbye.
const WORK: Duration = Duration::from_secs(9);

fn session<'a>(core: Core<'a>, recorder: Record<'a>) -> Option<Session<'a>> {
    Session::launch(core, recorder, Side::Agent, serve)
}

/// An agent that does what it is asked.
fn serve(session: &mut Session<'_>, line: &Line) {
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
fn serve_slowly(session: &mut Session<'_>, line: &Line) {
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
fn beat(session: &mut Session<'_>, health: Health) {
    let Some((_, welcome)) = session.course.welcome.clone() else {
        return;
    };
    let running = session.course.running() as u64;
    let beat = Heartbeat::new(welcome.session_id, 1, running, health.clone());
    session.say(&Head::new(MessageType::Heartbeat), &beat);
    let half = Duration::from_millis(welcome.heartbeat_interval_ms / 2).max(ms(5));
    session.later(half, Box::new(move |session| beat_again(session, health)));
}

fn beat_again(session: &mut Session<'_>, health: Health) {
    if session.open && session.course.goodbye.is_none() {
        beat(session, health);
    }
}

fn run(session: &mut Session<'_>, call: &ToolCall) {
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

fn wake(session: &mut Session<'_>, id: &str, late: bool) {
    result(session, id, late.then_some(ErrorCode::ToolTimeout));
}

fn stop(session: &mut Session<'_>, message: &str, id: &str) {
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

fn correlation(session: &Session<'_>, id: &str) -> Correlation {
    let call = session.course.calls.get(id);
    call.map(|call| call.ids.clone()).unwrap_or_default()
}

/// Ends a call, unless it has ended.
fn result(session: &mut Session<'_>, id: &str, code: Option<ErrorCode>) {
    if session
        .course
        .calls
        .get(id)
        .is_some_and(|call| call.end.is_none())
    {
        say_result(session, id, code);
    }
}

fn say_result(session: &mut Session<'_>, id: &str, code: Option<ErrorCode>) {
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

fn chunk(session: &mut Session<'_>, id: &str, seq: u64, done: bool) {
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
fn hello(session: &Session<'_>) -> Option<Hello> {
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

fn say_hello(session: &mut Session<'_>, change: impl FnOnce(&mut Hello)) {
    if let Some(mut hello) = hello(session) {
        change(&mut hello);
        session.say(&Head::new(MessageType::Hello), &hello);
    }
}

/// Handshake; gives whether we are taken in.
fn enter(session: &mut Session<'_>) -> bool {
    say_hello(session, |_| {});
    session.until(ms(5_000), |course| course.welcome.is_some())
}

fn tool(session: &Session<'_>, name: &str) -> ToolSpec {
    let agent = session
        .course
        .launch
        .as_ref()
        .map(|launch| launch.agent_id.clone());
    let id = format!("{}/{name}", agent.unwrap_or_default());
    let schema = object(r#"{"type":"object"}"#);
    ToolSpec::new(id, name.into(), "a reference tool".into(), schema)
}

fn reference(session: &Session<'_>) -> Vec<ToolSpec> {
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
fn offer(session: &mut Session<'_>, tools: &[ToolSpec], replace: bool) -> bool {
    let texts = tools.iter().map(ubos_common::json::to_string);
    offer_texts(session, &texts.collect::<Vec<_>>(), replace)
}

fn offer_texts(session: &mut Session<'_>, tools: &[String], replace: bool) -> bool {
    let answered = session.course.answered;
    let payload = object(&format!(
        r#"{{"tools":[{}],"replace":{replace}}}"#,
        tools.join(",")
    ));
    session.say(&Head::new(MessageType::Register), &payload);
    session.until(PATIENCE, move |course| course.answered > answered)
}

/// Handshake and the reference tools.
fn join(session: &mut Session<'_>) -> bool {
    enter(session) && {
        let tools = reference(session);
        offer(session, &tools, false)
    }
}

/// Works until the core has nothing more to be done.
fn work_on(session: &mut Session<'_>) {
    session.until(WORK, |course| course.goodbye.is_some());
    session.rest(ms(300));
}

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
