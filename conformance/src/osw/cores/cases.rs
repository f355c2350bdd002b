//! The cases of the kit for cores.

use ubos_common::violation::Level;

use super::reference::{ReferenceCore, Variant};
use super::{Cores, rules, scenarios, tool_rules};
use crate::osw::common_rules::{self, closes_after, no_finding, tolerates};
use crate::osw::malformed;
use crate::osw::mutation::{Mutation, contains, first_frame_only, is, with_member};
use crate::osw::rule::{Check, Rule};
use crate::osw::test_peer::TestPeer;
use crate::{Case, Reach};
use opensentience_wire::Limits;
use opensentience_wire::message::Side;
use opensentience_wire::role::core::Config;

/// One case: `mutant` says how the mutant differs from the reference; `untested` is the reason of a report
/// where the scenario did not test the clause.
fn case(
    clause: (&'static str, &'static str),
    scenario: fn(&mut TestPeer<'_>),
    check: impl Check,
    untested: &'static str,
    mutant: impl Into<Variant>,
) -> Case<Cores> {
    let mutant = mutant.into();
    Case::new(
        Reach::Drive,
        clause,
        move |core, recorder| {
            let responder = super::test_agent::serve;
            if let Some(mut peer) = TestPeer::launch(core, recorder, Side::Agent, responder) {
                scenario(&mut peer);
            }
        },
        move || Rule::new(Side::Core, check, untested),
        || ReferenceCore::boxed(Variant::default()),
        move || ReferenceCore::boxed(mutant.clone()),
    )
}

pub(super) fn all() -> Vec<Case<Cores>> {
    [
        framing(),
        call_limit(),
        envelopes(),
        directions(),
        first_message(),
        handshake(),
        rejected_tools(),
        replaced_tools(),
        calls(),
        call_ends(),
        cancels_and_health(),
        secrets(),
    ]
    .concat()
}

fn framing() -> Vec<Case<Cores>> {
    vec![
        case(
            (
                "OSW-2-1",
                "a frame that is no JSON object ends the connection",
            ),
            scenarios::frames_without_object,
            closes_after("OSW-2-1"),
            "no such frame was sent",
            Mutation::ignores(|bytes: &[u8]| {
                malformed::not_objects().iter().any(|frame| frame == bytes)
            }),
        ),
        case(
            (
                "OSW-2-2",
                "however the stream is cut, the messages are the same",
            ),
            scenarios::fragmented,
            tool_rules::lists_all,
            "no tool was offered",
            Mutation::incoming(first_frame_only),
        ),
        case(
            ("OSW-2-3", "a frame over the limit ends the connection"),
            scenarios::frames_too_large,
            closes_after("OSW-2-3"),
            "no such frame was sent",
            Mutation::ignores(|bytes: &[u8]| {
                malformed::too_large().iter().any(|frame| frame == bytes)
            }),
        ),
        case(
            ("OSW-2-4", "a frame of no bytes ends the connection"),
            scenarios::empty_frames,
            closes_after("OSW-2-4"),
            "no such frame was sent",
            Mutation::ignores(|bytes: &[u8]| bytes == [0; 4]),
        ),
    ]
}

fn call_limit() -> Vec<Case<Cores>> {
    vec![case(
        ("OSW-2-6", "no more calls run at once than may"),
        scenarios::typical_session,
        rules::inflight,
        "no call was made",
        Variant::with_config(
            || Config::default().with_limits(Limits::default().with_max_inflight_requests(300)),
            257,
        ),
    )]
}

fn envelopes() -> Vec<Case<Cores>> {
    vec![
        case(
            (
                "OSW-3-1",
                "what breaks the rules is dropped, and nothing of it is sent",
            ),
            scenarios::invalid_messages,
            common_rules::envelopes,
            "no message came",
            Mutation::rejects(|bytes: &[u8]| bytes.ends_with(b"{\"session_id\":5}}")),
        ),
        case(
            ("OSW-3-3", "a call names its chain of requests"),
            scenarios::typical_session,
            rules::request_ids,
            "no call was made",
            Mutation::replaces("\"request_id\":", "\"request\":"),
        ),
        case(
            (
                "OSW-3-6",
                "errors are written without what is for developers",
            ),
            scenarios::tokens,
            common_rules::no_debug,
            "no error came",
            Mutation::replaces("\"where\":\"core.session\"", "\"debug\":{}"),
        ),
        case(
            (
                "OSW-3-7",
                "an unknown type is answered where somebody waits",
            ),
            scenarios::unknown_types,
            common_rules::unknown_types,
            "nobody waited for an answer",
            Mutation::ignores(|bytes: &[u8]| is(bytes, "agent.later")),
        ),
    ]
}

fn directions() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-3-9", "no id is used twice"),
            scenarios::typical_session,
            common_rules::fresh_ids,
            "no message came",
            Mutation::outgoing(|_, text| vec![with_member(&text, "id", "always the same")]),
        ),
        case(
            ("OSW-3-10", "answers name what they answer"),
            scenarios::registrations,
            common_rules::names_what_it_answers,
            "nothing was answered, or nothing was named",
            Mutation::replaces("\"in_reply_to\":\"", "\"in_reply_to\":\"not "),
        )
        .also_breaks(&["OSW-3-7"]),
        case(
            ("OSW-3-11", "an error has a code and a message"),
            scenarios::tokens,
            no_finding("OSW-3-11", common_rules::has_error),
            "no error came",
            Mutation::replaces("\"message\":", "\"text\":"),
        )
        .also_breaks(&[
            "OSW-4.1-1",
            "OSW-4.1-2",
            "OSW-4.1-3",
            "OSW-4.1-4",
            "OSW-4.1-6",
            "OSW-3-7",
            "OSW-4.2-1",
            "OSW-4.2-2",
            "OSW-4.2-3",
            "OSW-4.2-4",
            "OSW-2-2",
        ]),
        case(
            (
                "OSW-4-1",
                "each side sends what is its own, and tolerates what is not",
            ),
            scenarios::wrong_direction,
            common_rules::own_messages,
            "no message came",
            Mutation::rejects(|bytes: &[u8]| is(bytes, "core.goodbye")),
        ),
    ]
}

fn first_message() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.1-1", "anything before the hello is refused"),
            scenarios::message_before_hello,
            rules::hello_first,
            "nothing came before the hello",
            Mutation::replaces("protocol.handshake_required", "protocol.unauthorized"),
        ),
        case(
            ("OSW-4.1-2", "a hello that lacks a member is refused"),
            scenarios::incomplete_hello,
            rules::hello_members,
            "every hello had its members",
            Mutation::misreads("\"protocols\"", "\"protocol\""),
        ),
        case(
            ("OSW-4.1-3", "a token opens one connection, of its agent"),
            scenarios::tokens,
            rules::token,
            "no token was wrong",
            Mutation::misreads("com.example.somebody.else", "com.example.reference"),
        ),
        case(
            ("OSW-4.1-4", "before a valid hello nothing has an effect"),
            scenarios::message_before_hello,
            rules::nothing_before,
            "nothing was sent before a welcome",
            Mutation::outgoing(|_, text| {
                if text.contains("handshake_required") {
                    vec![EARLY.to_owned(), text]
                } else {
                    vec![text]
                }
            }),
        )
        .also_breaks(&["OSW-3-9"]),
    ]
}

fn handshake() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.1-5", "a welcome has its members"),
            scenarios::typical_session,
            rules::welcome,
            "no welcome came",
            Mutation::replaces("\"session_id\":\"", "\"session_id\":\"\",\"before\":\""),
        )
        .also_breaks(&["OSW-4.5-2"]),
        case(
            ("OSW-4.1-6", "sides without a version in common part"),
            scenarios::versions,
            rules::versions,
            "no hello came",
            Mutation::replaces("protocol.unsupported_version", "protocol.unauthorized"),
        ),
        case(
            ("OSW-4.1-7", "after its goodbye a core calls nothing"),
            scenarios::typical_session,
            rules::goodbye,
            "no goodbye came",
            Mutation::outgoing(|memory, text| {
                if is(text.as_bytes(), "core.tool.call") {
                    memory.text = with_member(&with_member(&text, "id", "late"), "call_id", "late");
                }
                let more =
                    is(text.as_bytes(), "core.goodbye").then(|| core::mem::take(&mut memory.text));
                core::iter::once(text).chain(more).collect()
            }),
        )
        .also_breaks(&["OSW-3-9", "OSW-3-3", "OSW-4.3-4", "OSW-4.3-1"])
        .at_level(Level::Should),
    ]
}

fn rejected_tools() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.2-1", "a tool of a wrong id is rejected alone"),
            scenarios::registrations,
            tool_rules::tool_ids,
            "no tool had a wrong id",
            Mutation::replaces("tool.invalid_id", "tool.failed"),
        ),
        case(
            ("OSW-4.2-2", "the answer to a registration lists every tool"),
            scenarios::registrations,
            tool_rules::lists_all,
            "no tool was offered",
            Mutation::replaces("\"rejected\":", "\"others\":"),
        )
        .also_breaks(&["OSW-2-2", "OSW-4.2-1", "OSW-4.2-3", "OSW-4.2-4"]),
        case(
            (
                "OSW-4.2-3",
                "a tool that lacks something, or whose name is taken, is rejected alone",
            ),
            scenarios::registrations,
            tool_rules::tool_members,
            "no tool was offered",
            Mutation::replaces("tool.invalid_schema", "tool.failed"),
        ),
        case(
            (
                "OSW-4.2-4",
                "a registration that replaces drops the tools before it",
            ),
            scenarios::registrations,
            tool_rules::replaces,
            "no tool was offered twice",
            Mutation::misreads("\"replace\":true", "\"replace\":false"),
        )
        .also_breaks(&["OSW-4.2-3", "OSW-4.2-5"]),
    ]
}

fn replaced_tools() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.2-5", "a withdrawn tool is gone"),
            scenarios::registrations,
            tool_rules::unregisters,
            "no tool was withdrawn, or nothing was answered",
            Mutation::replaces(
                "\"tool_ids\":[",
                "\"tool_ids\":[\"com.example.reference/never_there\",",
            ),
        )
        .also_breaks(&["OSW-4.2-4"])
        .at_level(Level::Should),
    ]
}

fn calls() -> Vec<Case<Cores>> {
    vec![
        case(
            (
                "OSW-4.3-1",
                "calls have their members, and ids of their own",
            ),
            scenarios::typical_session,
            rules::calls,
            "no call was made",
            Mutation::replaces("\"input\":{}", "\"input\":[]"),
        )
        .also_breaks(&["OSW-3-3", "OSW-4.3-4"]),
        case(
            ("OSW-4.3-4", "only tools that are registered are called"),
            scenarios::typical_session,
            rules::known_tools,
            "no call was made",
            Mutation::replaces(
                "reference/stream_counter\",\"input",
                "reference/no_such_tool\",\"input",
            ),
        ),
        case(
            (
                "OSW-4.3-5",
                "output out of order is dropped, and the call goes on",
            ),
            scenarios::unordered_output,
            tolerates("OSW-4.3-5"),
            "no output was out of order",
            Mutation::rejects(|bytes: &[u8]| contains(bytes, "\"seq\":7,")),
        ),
        case(
            ("OSW-4.3-6", "output behind the last piece is dropped"),
            scenarios::output_after_done,
            tolerates("OSW-4.3-6"),
            "no output came behind the last piece",
            Mutation::incoming(|memory, bytes| {
                let behind = memory.count > 0 && is(&bytes, "agent.tool.stream");
                memory.count += usize::from(contains(&bytes, "\"done\":true"));
                if behind { vec![0; 4] } else { bytes }
            }),
        ),
    ]
}

fn call_ends() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.3-7", "a second result is dropped"),
            scenarios::duplicate_results,
            tolerates("OSW-4.3-7"),
            "no result came twice",
            Mutation::incoming(|memory, bytes| {
                let result = is(&bytes, "agent.tool.result");
                let again = result && memory.count > 0 && contains(&bytes, &memory.text);
                if result && memory.count == 0 {
                    memory.count = 1;
                    let text = String::from_utf8_lossy(&bytes);
                    let id = text
                        .split_once("\"call_id\":\"")
                        .map(|(_, rest)| rest.chars().take(36).collect());
                    memory.text = id.unwrap_or_default();
                }
                if again { vec![0; 4] } else { bytes }
            }),
        ),
        case(
            (
                "OSW-4.3-9",
                "a call that is not answered in its time is cancelled",
            ),
            scenarios::slow_session,
            rules::timeouts,
            "no call had a timeout, or it was answered",
            Mutation::outgoing(|_, text| {
                if contains(text.as_bytes(), "\"reason\":\"timeout\"") {
                    Vec::new()
                } else {
                    vec![text]
                }
            }),
        ),
        case(
            ("OSW-4.3-12", "answers to calls that never were are dropped"),
            scenarios::unknown_calls,
            tolerates("OSW-4.3-12"),
            "no such answer was sent",
            Mutation::rejects(|bytes: &[u8]| contains(bytes, "\"call_id\":\"never\"")),
        ),
    ]
}

fn cancels_and_health() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-4.4-1", "a cancel is for a call that was made"),
            scenarios::typical_session,
            rules::cancels,
            "no call was cancelled",
            Mutation::outgoing(|_, text| {
                let cancel = is(text.as_bytes(), "core.tool.cancel");
                vec![if cancel {
                    with_member(&text, "call_id", "another")
                } else {
                    text
                }]
            }),
        )
        .also_breaks(&["OSW-4.3-9"])
        .at_level(Level::Should),
        case(
            ("OSW-4.5-1", "a heartbeat of another session does not count"),
            scenarios::foreign_heartbeat,
            tolerates("OSW-4.5-1"),
            "no such heartbeat was sent",
            Mutation::rejects(|bytes: &[u8]| contains(bytes, "\"session_id\":\"another\"")),
        ),
        case(
            ("OSW-4.5-2", "an agent that is unhealthy gets no calls"),
            scenarios::unhealthy,
            rules::health,
            "the agent was well",
            Mutation::misreads("\"status\":\"unhealthy\"", "\"status\":\"ok\""),
        ),
    ]
}

fn secrets() -> Vec<Case<Cores>> {
    vec![
        case(
            ("OSW-5-3", "an agent's environment has its variables"),
            scenarios::typical_session,
            rules::environment,
            "no agent was launched, or nobody looked",
            Variant::launching(|launch| drop(launch.variables.as_mut().map(Vec::pop))),
        ),
        case(
            ("OSW-5-1", "tokens are long, and fresh for each launch"),
            scenarios::tokens,
            rules::fresh_tokens,
            "nothing was launched",
            Variant::launching(|launch| launch.token = String::from("short").into()),
        )
        .also_breaks(&["OSW-4.1-3", "OSW-4.1-6"]),
        case(
            ("OSW-5-2", "the socket is the user's alone"),
            scenarios::typical_session,
            rules::modes,
            "nobody looked",
            Variant::launching(|launch| launch.modes = Some((0o755, 0o666))),
        ),
        case(
            ("OSW-7-1", "the token is in the hello alone"),
            scenarios::typical_session,
            common_rules::token_kept,
            "no message came",
            Mutation::incoming(|memory, bytes| {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((_, rest)) = text.split_once("\"session_token\":\"") {
                    memory.text = rest.chars().take(43).collect();
                }
                bytes
            })
            .and_outgoing(|memory, text| vec![text.replace("all is done", &memory.text)]),
        ),
    ]
}

/// A message that comes too early.
const EARLY: &str = r#"{"v":1,"type":"core.tools.registered","id":"early","ts":"2026-01-16T12:00:00Z","payload":{"registered":[]}}"#;
