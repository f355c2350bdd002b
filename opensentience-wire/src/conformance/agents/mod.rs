//! The kit for agents: here we are the core.

mod calls;
mod plays;
mod rules;
mod seat;
mod twin;

use ubos_common::conformance::{Case, Protocol, Reach};

use super::both;
use super::fault::{Fault, is, replaced};
use super::rule::Rule;
use super::{Line, Peer};
use crate::message::{MessageType, Side};
use twin::Twin;

/// Agents, as the kit sees them.
#[derive(Clone, Copy, Debug)]
pub struct Agents;

impl Protocol for Agents {
    type Line = Line;
    type Peer = dyn Peer;
}

macro_rules! agents {
    ($($clause:literal $name:literal, $play:path, $check:expr, $unseen:literal, [$($drags:literal),*], $bad:expr;)*) => {
        /// A case for each clause that an agent can be seen to keep or to break.
        pub const AGENTS: &[Case<Agents>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Drive,
            drags: &[$($drags),*],
            play: $play,
            judge: || Rule::boxed(Side::Agent, $check, $unseen),
            good: || Twin::boxed(Fault::NONE),
            bad: || Twin::boxed($bad),
        }),*];
    };
}

/// A finding of a clause in messages of a type.
macro_rules! findings {
    ($clause:literal, $about:expr) => {
        |_, line, me, tally| both::without_finding($clause, $about, line, me, tally)
    };
}

/// What this side must not do.
macro_rules! avoids {
    ($clause:literal, $kind:ident) => {
        |course, line, me, tally| {
            both::avoids(
                $clause,
                |said| said.kind == MessageType::$kind,
                course,
                line,
                me,
                tally,
            )
        }
    };
}

/// The bad twin says a text another way.
macro_rules! says {
    ($from:literal => $to:literal) => {
        Fault::says(|_, text| vec![text.replace($from, $to)])
    };
}

/// The bad twin does not hear bytes of which something is so.
macro_rules! deaf {
    ($to:expr) => {
        Fault::hears(|_, bytes| if $to(&bytes) { Vec::new() } else { bytes })
    };
}

agents! {
    "OSW-4.1-1" "a hello comes first", plays::visit, rules::hello_first,
        "the agent was not launched", ["OSW-4.1-10"],
        Fault::says(|memo, text| {
            let first = core::mem::take(&mut memo.count) == 0 && memo.text.is_empty();
            memo.text = "said".to_owned();
            if first { vec![EARLY.to_owned(), text] } else { vec![text] }
        });
    "OSW-2-1" "a frame that is no JSON object ends the connection", plays::no_objects,
        |course, line, me, tally| both::ends_after("OSW-2-1", course, line, me, tally),
        "no such frame was sent", [],
        deaf!(|bytes: &[u8]| super::junk::no_objects().iter().any(|junk| junk == bytes));
    "OSW-2-2" "however the stream is cut, the messages are the same", plays::pieces, calls::answered,
        "no call was answered", ["OSW-4.3-4"], Fault::hears(first_of_many);
    "OSW-2-3" "a frame over the limit ends the connection", plays::too_large,
        |course, line, me, tally| both::ends_after("OSW-2-3", course, line, me, tally),
        "no such frame was sent", [],
        deaf!(|bytes: &[u8]| super::junk::too_large().iter().any(|junk| junk == bytes));
    "OSW-2-4" "a frame of no bytes ends the connection", plays::empty,
        |course, line, me, tally| both::ends_after("OSW-2-4", course, line, me, tally),
        "no such frame was sent", [], deaf!(|bytes: &[u8]| bytes == [0; 4]);
    "OSW-2-6" "one call too many is busy", plays::crowd, calls::busy,
        "not so many calls were made", [],
        Fault::says(|_, text| vec![text.replace("tool.busy", "tool.failed")]);
    "OSW-2-7" "an output over the frame limit becomes an error", plays::small_frames, calls::output_fits,
        "no more output than fits was asked for", ["OSW-7-3"],
        says!("tool.output_too_large" => "tool.failed");
    "OSW-2-8" "messages are taken in their order", plays::at_once, calls::in_order,
        "no call was cancelled", ["OSW-4.4-1", "OSW-4.4-3"], Fault::hears(swapped);
    "OSW-3-1" "what breaks the rules is dropped, and nothing of it is sent", plays::unsound_messages,
        |course, line, me, tally| {
            both::survives("OSW-3-1", course, line, me, tally);
            both::without_finding("OSW-3-1", |_| true, line, me, tally);
        },
        "no message came", ["OSW-4.1-1", "OSW-4.1-2", "OSW-4.1-10", "OSW-4.2-3", "OSW-7-1"],
        says!("\"ts\":\"" => "\"ts\":\"on ");
    "OSW-3-2" "ids of a call are texts", plays::ping, findings!("OSW-3-2", |_| true),
        "no message came", [],
        Fault::says(|_, text| if is(text.as_bytes(), "agent.pong") { vec![text.replace("\"payload\"", "\"request_id\":7,\"payload\"")] } else { vec![text] });
    "OSW-3-4" "answers echo the ids of their call", plays::work, calls::echoes,
        "no call was answered", [], says!("\"causation_id\":\"" => "\"causation_id\":\"not ");
    "OSW-3-6" "errors are written without what is for developers", plays::work, both::no_debug,
        "no error came", [], says!("\"where\":\"agent.runtime\"" => "\"debug\":{}");
    "OSW-3-7" "an unknown type is answered where somebody waits", plays::unknown, both::unknown_types,
        "nobody waited for an answer", [], deaf!(|bytes: &[u8]| is(bytes, "core.later"));
    "OSW-3-9" "no id is used twice", plays::visit, both::fresh_ids,
        "no message came", [],
        Fault::says(|_, text| vec![with_text(&text, "id", "always the same")]);
    "OSW-3-10" "answers name what they answer", plays::work, both::names_what_it_answers,
        "nothing was answered, or nothing was named", ["OSW-3-7", "OSW-4.3-4", "OSW-4.5-4"],
        says!("\"in_reply_to\":\"" => "\"in_reply_to\":\"not ");
    "OSW-3-11" "an error has a code and a message", plays::work,
        findings!("OSW-3-11", both::has_error), "no error came",
        ["OSW-4.3-8", "OSW-4.3-3", "OSW-4.3-1", "OSW-4.3-4", "OSW-4.3-9", "OSW-4.3-10", "OSW-4.4-3", "OSW-2-6", "OSW-2-7", "OSW-7-3", "OSW-3-7"],
        says!("\"message\":" => "\"text\":");
    "OSW-4-1" "each side sends what is its own, and survives what is not", plays::misdirected, both::own_messages,
        "no message came", ["OSW-4.5-1"], says!("agent.heartbeat" => "core.heartbeat");
    "OSW-4.1-2" "a hello has its members, and the token and id of the launch", plays::visit, rules::hello_members,
        "no hello came", [], says!("\"agent_id\":\"com" => "\"agent_id\":\"org");
    "OSW-4.1-5" "the frame limit that the welcome tells is in force", plays::small_frames, rules::told_limit,
        "no frame over a limit told was sent", ["OSW-2-3", "OSW-2-7"],
        Fault::hears(|_, bytes| replaced(&bytes, "\"max_frame_bytes\":8192", "\"max_frame_bytes\":4194304"));
    "OSW-4.1-7" "after a goodbye the agent ends its calls and closes", plays::early_goodbye, rules::goodbye,
        "no goodbye was said, or the core closed first", [], deaf!(|bytes: &[u8]| is(bytes, "core.goodbye"));
    "OSW-4.1-10" "nothing stands between hello and welcome, and a refusal ends it", plays::refusals, rules::waits_for_welcome,
        "no hello came", [],
        Fault::says(|_, text| if is(text.as_bytes(), "agent.hello") { vec![text, EARLY.to_owned()] } else { vec![text] });
    "OSW-4.2-1" "a tool's id is the agent's, a slash and its name", plays::visit, rules::tool_ids,
        "no tool was offered", [], says!("\"name\":\"sleep\"" => "\"name\":\"rest\"");
    "OSW-4.2-3" "a tool has its members, a usable schema and an id of its own", plays::visit, rules::tool_members,
        "no tool was offered", [], says!("\"input_schema\":{\"type\":\"object\"" => "\"input_schema\":{\"type\":7");
    "OSW-4.3-1" "an input that is no object ends the call", plays::no_object_input, calls::input_is_object,
        "every input was an object", [],
        Fault::hears(|_, bytes| replaced(&replaced(&replaced(&bytes, "\"input\":[1]", "\"input\":{}"), "\"input\":null", "\"input\":{}"), "\"input\":\"text\"", "\"input\":{}"));
    "OSW-4.3-3" "an input that breaks the schema ends the call", plays::work, calls::input_fits,
        "every input fitted its schema", ["OSW-4.3-1", "OSW-4.3-10"],
        Fault::hears(|_, bytes| replaced(&replaced(&bytes, "\"seven\"", "7"), "\"input\":{}", "\"input\":{\"count\":0,\"ms\":0,\"value\":0,\"bytes\":0}"));
    "OSW-4.3-4" "a tool that is not there ends the call", plays::work, calls::not_found,
        "no such call was made", [], says!("tool.not_found" => "tool.failed");
    "OSW-4.3-5" "pieces of output are numbered, and fit their channel", plays::work,
        avoids!("OSW-4.3-5", ToolStream), "no call had output", [], says!("\"seq\":2" => "\"seq\":1");
    "OSW-4.3-6" "nothing stands behind the last piece", plays::work,
        |course, line, me, tally| {
            if course.calls.values().any(|call| call.done) {
                both::avoids("OSW-4.3-6", |_| true, course, line, me, tally);
            }
        },
        "no stream was ended with done", [], says!("\"text\":\"3\"}" => "\"text\":\"3\"},\"done\":true");
    "OSW-4.3-7" "a call has one result", plays::work, calls::one_result,
        "no result came", ["OSW-3-9"],
        Fault::says(|_, text| {
            let again = is(text.as_bytes(), "agent.tool.result").then(|| with_text(&text, "id", "another"));
            core::iter::once(text).chain(again).collect()
        });
    "OSW-4.3-8" "status, output, error and times of a result agree", plays::work, calls::consistent,
        "no result came", ["OSW-4.3-3", "OSW-4.3-4", "OSW-4.3-1", "OSW-4.4-3", "OSW-4.3-9", "OSW-2-6", "OSW-2-7", "OSW-7-3"],
        says!("\"status\":\"failed\"" => "\"status\":\"succeeded\"");
    "OSW-4.3-9" "a call that takes too long ends in time", plays::slow, calls::timeouts,
        "no call took longer than it may", ["OSW-2-2"],
        Fault::hears(|_, bytes| replaced(&bytes, "\"timeout_ms\":200", "\"timeout_ms\":60000"));
    "OSW-4.3-10" "calls with one key have one effect", plays::keys, calls::idempotent,
        "no call with a key was answered", [],
        Fault::hears(|memo, bytes| {
            memo.count += 1;
            replaced(&bytes, "\"key-1\"", &format!("\"key-{}\"", memo.count))
        });
    "OSW-4.4-1" "an acknowledged cancel says whether there was something to stop", plays::work, calls::acknowledges,
        "no cancel was acknowledged", ["OSW-2-8", "OSW-4.4-3"],
        says!("\"accepted\":" => "\"accepted\":true,\"before\":");
    "OSW-4.4-3" "a cancelled tool that can stop ends canceled", plays::work, calls::cancels,
        "no call that takes its time was cancelled", ["OSW-4.1-7"], deaf!(|bytes: &[u8]| is(bytes, "core.tool.cancel"));
    "OSW-4.5-1" "heartbeats come at the cadence told", plays::beats, rules::heartbeats,
        "no heartbeat came", [], says!("\"inflight_calls\":" => "\"inflight_calls\":1");
    "OSW-4.5-4" "a ping is answered with a pong", plays::ping, rules::pongs,
        "no pong came: an agent may know no ping", ["OSW-3-10"],
        Fault::says(|_, text| if is(text.as_bytes(), "agent.pong") { vec![with_text(&text, "in_reply_to", "none")] } else { vec![text] });
    "OSW-7-1" "the token is in the hello alone", plays::visit, both::token_kept,
        "no message came", [],
        Fault::says(|memo, text| {
            if let Some((_, rest)) = text.split_once("\"session_token\":\"") {
                memo.text = rest.chars().take(43).collect();
            }
            vec![text.replace("a reference tool", &memo.text)]
        });
    "OSW-7-3" "however much is asked for, an output has a bound", plays::huge_output, calls::output_bounded,
        "no endless output was asked for", ["OSW-2-7"], says!("tool.output_too_large" => "tool.internal");
}

/// A message that comes too early.
const EARLY: &str =
    r#"{"v":1,"type":"agent.later","id":"early","ts":"2026-01-16T12:00:00Z","payload":{}}"#;

/// Of many frames in one piece only the first.
pub(super) fn first_of_many(_: &mut super::fault::Memo, bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes
        .first_chunk()
        .map(|prefix| u32::from_be_bytes(*prefix) as usize);
    let first = length.and_then(|length| bytes.get(..length + 4));
    first.map_or_else(|| bytes.clone(), <[u8]>::to_vec)
}

/// Of two frames in one piece the second before the first.
fn swapped(_: &mut super::fault::Memo, bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes
        .first_chunk()
        .map(|prefix| u32::from_be_bytes(*prefix) as usize);
    match length.and_then(|length| bytes.split_at_checked(length + 4)) {
        Some((first, second)) => [second, first].concat(),
        None => bytes,
    }
}

/// A message with another text in a member of its envelope.
pub(super) fn with_text(text: &str, name: &str, value: &str) -> String {
    let before = format!("\"{name}\":\"");
    match text
        .split_once(&before)
        .and_then(|(head, rest)| Some((head, rest.split_once('"')?.1)))
    {
        Some((head, tail)) => format!("{head}{before}{value}\"{tail}"),
        None => text.to_owned(),
    }
}
