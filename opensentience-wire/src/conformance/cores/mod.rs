//! The kit for cores: here we are the agent.

mod plays;
mod rules;
mod seat;
mod tools;
mod twin;

use ubos_common::conformance::{Case, Protocol, Reach};

use super::both;
use super::fault::{Fault, is, replaced};
use super::junk;
use super::rule::Rule;
use super::{Line, Peer};
use crate::limits::Limits;
use crate::message::Side;
use crate::role::core::Config;
use twin::Twin;

/// Cores, as the kit sees them.
#[derive(Clone, Copy, Debug)]
pub struct Cores;

impl Protocol for Cores {
    type Line = Line;
    type Peer = dyn Peer;
}

macro_rules! cores {
    ($($clause:literal $name:literal, $play:path, $check:expr, $unseen:literal, [$($drags:literal),*], $bad:expr;)*) => {
        /// A case for each clause that a core can be seen to keep or to break.
        ///
        /// Calls are judged where the core makes any: it should call `hello_world` and `stream_counter`, and `sleep`
        /// with a timeout and with a cancel.
        pub const CORES: &[Case<Cores>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Drive,
            drags: &[$($drags),*],
            play: $play,
            judge: || Rule::boxed(Side::Core, $check, $unseen),
            good: || Twin::boxed(Fault::NONE),
            bad: || $bad,
        }),*];
    };
}

/// A core that breaks frames of a clause must end.
macro_rules! ends_after {
    ($clause:literal) => {
        |course, line, me, tally| both::ends_after($clause, course, line, me, tally)
    };
}

/// A core survives what an agent does wrong.
macro_rules! survives {
    ($clause:literal) => {
        |course, line, me, tally| both::survives($clause, course, line, me, tally)
    };
}

/// The bad twin says a text another way.
macro_rules! says {
    ($from:literal => $to:literal) => {
        Twin::boxed(Fault::says(|_, text| vec![text.replace($from, $to)]))
    };
}

/// The bad twin hears a text another way.
macro_rules! hears {
    ($from:literal => $to:literal) => {
        Twin::boxed(Fault::hears(|_, bytes| replaced(&bytes, $from, $to)))
    };
}

/// The bad twin does not hear bytes of which something is so.
macro_rules! deaf {
    ($to:expr) => {
        Twin::boxed(Fault::hears(
            |_, bytes| if $to(&bytes) { Vec::new() } else { bytes },
        ))
    };
}

/// The bad twin takes for a broken frame what it should survive.
macro_rules! breaks_at {
    ($to:expr) => {
        Twin::boxed(Fault::hears(
            |_, bytes| if $to(&bytes) { vec![0; 4] } else { bytes },
        ))
    };
}

cores! {
    "OSW-5-3" "an agent's environment has its variables", plays::work, rules::environment,
        "no agent was launched, or nobody looked", [], Twin::launching(|launch| drop(launch.variables.as_mut().map(Vec::pop)));
    "OSW-2-1" "a frame that is no JSON object ends the connection", plays::no_objects, ends_after!("OSW-2-1"),
        "no such frame was sent", [], deaf!(|bytes: &[u8]| junk::no_objects().iter().any(|junk| junk == bytes));
    "OSW-2-2" "however the stream is cut, the messages are the same", plays::pieces, tools::lists_all,
        "no tool was offered", [], Twin::boxed(Fault::hears(super::agents::first_of_many));
    "OSW-2-3" "a frame over the limit ends the connection", plays::too_large, ends_after!("OSW-2-3"),
        "no such frame was sent", [], deaf!(|bytes: &[u8]| junk::too_large().iter().any(|junk| junk == bytes));
    "OSW-2-4" "a frame of no bytes ends the connection", plays::empty, ends_after!("OSW-2-4"),
        "no such frame was sent", [], deaf!(|bytes: &[u8]| bytes == [0; 4]);
    "OSW-2-6" "no more calls run at once than may", plays::work, rules::inflight,
        "no call was made", [],
        Twin::with(Fault::NONE, || Config::default().with_limits(Limits::default().with_max_inflight_requests(300)), 257);
    "OSW-3-1" "what breaks the rules is dropped, and nothing of it is sent", plays::unsound_messages,
        |course, line, me, tally| {
            both::survives("OSW-3-1", course, line, me, tally);
            both::without_finding("OSW-3-1", |_| true, line, me, tally);
        },
        "no message came", [], breaks_at!(|bytes: &[u8]| bytes.ends_with(b"{\"session_id\":5}}"));
    "OSW-3-3" "a call names its chain of requests", plays::work, rules::request_ids,
        "no call was made", [], says!("\"request_id\":" => "\"request\":");
    "OSW-3-6" "errors are written without what is for developers", plays::tokens, both::no_debug,
        "no error came", [], says!("\"where\":\"core.session\"" => "\"debug\":{}");
    "OSW-3-7" "an unknown type is answered where somebody waits", plays::unknown, both::unknown_types,
        "nobody waited for an answer", [], deaf!(|bytes: &[u8]| is(bytes, "agent.later"));
    "OSW-3-9" "no id is used twice", plays::work, both::fresh_ids,
        "no message came", [],
        Twin::boxed(Fault::says(|_, text| vec![super::agents::with_text(&text, "id", "always the same")]));
    "OSW-3-10" "answers name what they answer", plays::tools, both::names_what_it_answers,
        "nothing was answered, or nothing was named", ["OSW-3-7"], says!("\"in_reply_to\":\"" => "\"in_reply_to\":\"not ");
    "OSW-3-11" "an error has a code and a message", plays::tokens,
        |_, line, me, tally| both::without_finding("OSW-3-11", both::has_error, line, me, tally),
        "no error came", ["OSW-4.1-1", "OSW-4.1-2", "OSW-4.1-3", "OSW-4.1-4", "OSW-4.1-6", "OSW-3-7", "OSW-4.2-1", "OSW-4.2-2", "OSW-4.2-3", "OSW-4.2-4", "OSW-2-2"],
        says!("\"message\":" => "\"text\":");
    "OSW-4-1" "each side sends what is its own, and survives what is not", plays::misdirected, both::own_messages,
        "no message came", [], breaks_at!(|bytes: &[u8]| is(bytes, "core.goodbye"));
    "OSW-4.1-1" "anything before the hello is refused", plays::stranger, rules::hello_first,
        "nothing came before the hello", [], says!("protocol.handshake_required" => "protocol.unauthorized");
    "OSW-4.1-2" "a hello that lacks a member is refused", plays::half_hello, rules::hello_members,
        "every hello had its members", [], hears!("\"protocols\"" => "\"protocol\"");
    "OSW-4.1-3" "a token opens one connection, of its agent", plays::tokens, rules::token,
        "no token was wrong", [], hears!("com.example.somebody.else" => "com.example.twin");
    "OSW-4.1-4" "before a valid hello nothing has an effect", plays::stranger, rules::nothing_before,
        "nothing was sent before a welcome", ["OSW-3-9"],
        Twin::boxed(Fault::says(|_, text| if text.contains("handshake_required") { vec![EARLY.to_owned(), text] } else { vec![text] }));
    "OSW-4.1-5" "a welcome has its members", plays::work, rules::welcome,
        "no welcome came", ["OSW-4.5-2"], says!("\"session_id\":\"" => "\"session_id\":\"\",\"before\":\"");
    "OSW-4.1-6" "sides without a version in common part", plays::versions, rules::versions,
        "no hello came", [], says!("protocol.unsupported_version" => "protocol.unauthorized");
    "OSW-4.1-7" "after its goodbye a core calls nothing", plays::work, rules::goodbye,
        "no goodbye came", ["OSW-3-9", "OSW-3-3", "OSW-4.3-4", "OSW-4.3-1"],
        Twin::boxed(Fault::says(|memo, text| {
            if is(text.as_bytes(), "core.tool.call") {
                memo.text = super::agents::with_text(&super::agents::with_text(&text, "id", "late"), "call_id", "late");
            }
            let more = is(text.as_bytes(), "core.goodbye").then(|| ::core::mem::take(&mut memo.text));
            ::core::iter::once(text).chain(more).collect()
        }));
    "OSW-4.2-1" "a tool of a wrong id is rejected alone", plays::tools, tools::tool_ids,
        "no tool had a wrong id", [], says!("tool.invalid_id" => "tool.failed");
    "OSW-4.2-2" "the answer to a registration lists every tool", plays::tools, tools::lists_all,
        "no tool was offered", ["OSW-2-2", "OSW-4.2-1", "OSW-4.2-3", "OSW-4.2-4"], says!("\"rejected\":" => "\"others\":");
    "OSW-4.2-3" "a tool that lacks something, or whose name is taken, is rejected alone", plays::tools, tools::tool_members,
        "no tool was offered", [], says!("tool.invalid_schema" => "tool.failed");
    "OSW-4.2-4" "a registration that replaces drops the tools before it", plays::tools, tools::replaces,
        "no tool was offered twice", ["OSW-4.2-3", "OSW-4.2-5"], hears!("\"replace\":true" => "\"replace\":false");
    "OSW-4.2-5" "a withdrawn tool is gone", plays::tools, tools::unregisters,
        "no tool was withdrawn, or nothing was answered", ["OSW-4.2-4"], says!("\"tool_ids\":[" => "\"tool_ids\":[\"com.example.twin/never_there\",");
    "OSW-4.3-1" "calls have their members, and ids of their own", plays::work, rules::calls,
        "no call was made", ["OSW-3-3", "OSW-4.3-4"], says!("\"input\":{}" => "\"input\":[]");
    "OSW-4.3-4" "only tools that are registered are called", plays::work, rules::known_tools,
        "no call was made", [], says!("twin/stream_counter\",\"input" => "twin/no_such_tool\",\"input");
    "OSW-4.3-5" "output out of order is dropped, and the call goes on", plays::bad_numbers, survives!("OSW-4.3-5"),
        "no output was out of order", [], breaks_at!(|bytes: &[u8]| contains(bytes, "\"seq\":7,"));
    "OSW-4.3-6" "output behind the last piece is dropped", plays::behind_the_last, survives!("OSW-4.3-6"),
        "no output came behind the last piece", [],
        Twin::boxed(Fault::hears(|memo, bytes| {
            let behind = memo.count > 0 && is(&bytes, "agent.tool.stream");
            memo.count += usize::from(contains(&bytes, "\"done\":true"));
            if behind { vec![0; 4] } else { bytes }
        }));
    "OSW-4.3-7" "a second result is dropped", plays::second_results, survives!("OSW-4.3-7"),
        "no result came twice", [],
        Twin::boxed(Fault::hears(|memo, bytes| {
            let result = is(&bytes, "agent.tool.result");
            let again = result && memo.count > 0 && contains(&bytes, &memo.text);
            if result && memo.count == 0 {
                memo.count = 1;
                let text = String::from_utf8_lossy(&bytes);
                let id = text.split_once("\"call_id\":\"").map(|(_, rest)| rest.chars().take(36).collect());
                memo.text = id.unwrap_or_default();
            }
            if again { vec![0; 4] } else { bytes }
        }));
    "OSW-4.3-9" "a call that is not answered in its time is cancelled", plays::slow_work, rules::timeouts,
        "no call had a timeout, or it was answered", [],
        Twin::boxed(Fault::says(|_, text| if contains(text.as_bytes(), "\"reason\":\"timeout\"") { Vec::new() } else { vec![text] }));
    "OSW-4.3-12" "answers to calls that never were are dropped", plays::strange_calls, survives!("OSW-4.3-12"),
        "no such answer was sent", [], breaks_at!(|bytes: &[u8]| contains(bytes, "\"call_id\":\"never\""));
    "OSW-4.4-1" "a cancel is for a call that was made", plays::work, rules::cancels,
        "no call was cancelled", ["OSW-4.3-9"],
        Twin::boxed(Fault::says(|_, text| {
            let cancel = is(text.as_bytes(), "core.tool.cancel");
            vec![if cancel { super::agents::with_text(&text, "call_id", "another") } else { text }]
        }));
    "OSW-4.5-1" "a heartbeat of another session does not count", plays::strange_beat, survives!("OSW-4.5-1"),
        "no such heartbeat was sent", [], breaks_at!(|bytes: &[u8]| contains(bytes, "\"session_id\":\"another\""));
    "OSW-4.5-2" "an agent that is unhealthy gets no calls", plays::unwell, rules::health,
        "the agent was well", [], hears!("\"status\":\"unhealthy\"" => "\"status\":\"ok\"");
    "OSW-5-1" "tokens are long, and fresh for each launch", plays::tokens, rules::fresh_tokens,
        "nothing was launched", ["OSW-4.1-3", "OSW-4.1-6"], Twin::launching(|launch| launch.token = String::from("short").into());
    "OSW-5-2" "the socket is the user's alone", plays::work, rules::modes,
        "nobody looked", [], Twin::launching(|launch| launch.modes = Some((0o755, 0o666)));
    "OSW-7-1" "the token is in the hello alone", plays::work, both::token_kept,
        "no message came", [],
        Twin::boxed(Fault {
            hears: |memo, bytes| {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((_, rest)) = text.split_once("\"session_token\":\"") {
                    memo.text = rest.chars().take(43).collect();
                }
                bytes
            },
            says: |memo, text| vec![text.replace("all is done", &memo.text)],
        });
}

/// An answer that comes too early.
const EARLY: &str = r#"{"v":1,"type":"core.tools.registered","id":"early","ts":"2026-01-16T12:00:00Z","payload":{"registered":[]}}"#;

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}
