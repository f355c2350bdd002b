//! The cases of the kit for agents.

use ubos_common::violation::Level;

use super::reference::ReferenceAgent;
use super::{Agents, call_rules, rules, scenarios};
use crate::osw::common_rules::{self, closes_after, never_sends, no_finding};
use crate::osw::malformed;
use crate::osw::mutation::{
    Mutation, first_frame_only, is, replaced, second_frame_first, with_member,
};
use crate::osw::rule::{Check, Rule};
use crate::osw::test_peer::TestPeer;
use crate::{Case, Reach};
use opensentience_wire::message::{MessageType, Side};

/// One case: the mutation makes the mutant of the reference; `untested` is the reason of a report where the
/// scenario did not test the clause.
fn case(
    clause: (&'static str, &'static str),
    scenario: fn(&mut TestPeer<'_>),
    check: impl Check,
    untested: &'static str,
    mutation: Mutation,
) -> Case<Agents> {
    Case::new(
        Reach::Drive,
        clause,
        move |agent, recorder| {
            let responder = super::test_core::answer_registrations;
            if let Some(mut peer) = TestPeer::launch(agent, recorder, Side::Core, responder) {
                scenario(&mut peer);
            }
        },
        move || Rule::new(Side::Agent, check, untested),
        || ReferenceAgent::boxed(Mutation::default()),
        move || ReferenceAgent::boxed(mutation.clone()),
    )
}

pub(super) fn all() -> Vec<Case<Agents>> {
    [
        // First, for an agent that says nothing is launched once.
        handshake(),
        framing(),
        frame_limits(),
        envelopes(),
        correlation(),
        directions(),
        refused_handshake(),
        registrations(),
        call_inputs(),
        call_outputs(),
        call_ends(),
        cancels_and_health(),
        secrets(),
    ]
    .concat()
}

fn framing() -> Vec<Case<Agents>> {
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
            call_rules::answered,
            "no call was answered",
            Mutation::incoming(first_frame_only),
        )
        .also_breaks(&["OSW-4.3-4"]),
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

fn frame_limits() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-2-6", "one call too many is busy"),
            scenarios::over_limit,
            call_rules::busy,
            "not so many calls were made",
            Mutation::outgoing(|_, text| vec![text.replace("tool.busy", "tool.failed")]),
        ),
        case(
            ("OSW-2-7", "an output over the frame limit becomes an error"),
            scenarios::small_frames,
            call_rules::output_fits,
            "no more output than fits was asked for",
            Mutation::replaces("tool.output_too_large", "tool.failed"),
        )
        .also_breaks(&["OSW-7-3"]),
        case(
            ("OSW-2-8", "messages are taken in their order"),
            scenarios::call_and_cancel,
            call_rules::in_order,
            "no call was cancelled",
            Mutation::incoming(second_frame_first),
        )
        .also_breaks(&["OSW-4.4-1", "OSW-4.4-3"]),
    ]
}

fn envelopes() -> Vec<Case<Agents>> {
    vec![
        case(
            (
                "OSW-3-1",
                "what breaks the rules is dropped, and nothing of it is sent",
            ),
            scenarios::invalid_messages,
            common_rules::envelopes,
            "no message came",
            Mutation::replaces("\"ts\":\"", "\"ts\":\"on "),
        )
        .also_breaks(&[
            "OSW-4.1-1",
            "OSW-4.1-2",
            "OSW-4.1-10",
            "OSW-4.2-3",
            "OSW-7-1",
        ]),
        case(
            ("OSW-3-2", "ids of a call are texts"),
            scenarios::ping,
            no_finding("OSW-3-2", |_| true),
            "no message came",
            Mutation::outgoing(|_, text| {
                if is(text.as_bytes(), "agent.pong") {
                    vec![text.replace("\"payload\"", "\"request_id\":7,\"payload\"")]
                } else {
                    vec![text]
                }
            }),
        ),
        case(
            ("OSW-3-4", "answers echo the ids of their call"),
            scenarios::typical_session,
            call_rules::echoes,
            "no call was answered",
            Mutation::replaces("\"causation_id\":\"", "\"causation_id\":\"not "),
        ),
        case(
            (
                "OSW-3-6",
                "errors are written without what is for developers",
            ),
            scenarios::typical_session,
            common_rules::no_debug,
            "no error came",
            Mutation::replaces("\"where\":\"agent.runtime\"", "\"debug\":{}"),
        ),
    ]
}

fn correlation() -> Vec<Case<Agents>> {
    vec![
        case(
            (
                "OSW-3-7",
                "an unknown type is answered where somebody waits",
            ),
            scenarios::unknown_types,
            common_rules::unknown_types,
            "nobody waited for an answer",
            Mutation::ignores(|bytes: &[u8]| is(bytes, "core.later")),
        ),
        case(
            ("OSW-3-9", "no id is used twice"),
            scenarios::minimal_session,
            common_rules::fresh_ids,
            "no message came",
            Mutation::outgoing(|_, text| vec![with_member(&text, "id", "always the same")]),
        ),
        case(
            ("OSW-3-10", "answers name what they answer"),
            scenarios::typical_session,
            common_rules::names_what_it_answers,
            "nothing was answered, or nothing was named",
            Mutation::replaces("\"in_reply_to\":\"", "\"in_reply_to\":\"not "),
        )
        .also_breaks(&["OSW-3-7", "OSW-4.3-4", "OSW-4.5-4"]),
        case(
            ("OSW-3-11", "an error has a code and a message"),
            scenarios::typical_session,
            no_finding("OSW-3-11", common_rules::has_error),
            "no error came",
            Mutation::replaces("\"message\":", "\"text\":"),
        )
        .also_breaks(&[
            "OSW-4.3-8",
            "OSW-4.3-3",
            "OSW-4.3-1",
            "OSW-4.3-4",
            "OSW-4.3-9",
            "OSW-4.3-10",
            "OSW-4.4-3",
            "OSW-2-6",
            "OSW-2-7",
            "OSW-7-3",
            "OSW-3-7",
        ]),
    ]
}

fn directions() -> Vec<Case<Agents>> {
    vec![
        case(
            (
                "OSW-4-1",
                "each side sends what is its own, and tolerates what is not",
            ),
            scenarios::wrong_direction,
            common_rules::own_messages,
            "no message came",
            Mutation::replaces("agent.heartbeat", "core.heartbeat"),
        )
        .also_breaks(&["OSW-4.5-1"]),
    ]
}

fn handshake() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-4.1-1", "a hello comes first"),
            scenarios::minimal_session,
            rules::hello_first,
            "the agent was not launched",
            Mutation::outgoing(|memory, text| {
                let first = core::mem::take(&mut memory.count) == 0 && memory.text.is_empty();
                memory.text = "message".to_owned();
                if first {
                    vec![EARLY.to_owned(), text]
                } else {
                    vec![text]
                }
            }),
        )
        .also_breaks(&["OSW-4.1-10"]),
        case(
            (
                "OSW-4.1-2",
                "a hello has its members, and the token and id of the launch",
            ),
            scenarios::minimal_session,
            rules::hello_members,
            "no hello came",
            Mutation::replaces("\"agent_id\":\"com", "\"agent_id\":\"org"),
        ),
        case(
            (
                "OSW-4.1-5",
                "the frame limit that the welcome tells is in force",
            ),
            scenarios::small_frames,
            rules::told_limit,
            "no frame over a limit told was sent",
            Mutation::incoming(|_, bytes| {
                replaced(
                    &bytes,
                    "\"max_frame_bytes\":8192",
                    "\"max_frame_bytes\":4194304",
                )
            }),
        )
        .also_breaks(&["OSW-2-3", "OSW-2-7"]),
        case(
            (
                "OSW-4.1-7",
                "after a goodbye the agent ends its calls and closes",
            ),
            scenarios::early_goodbye,
            rules::goodbye,
            "no goodbye was message, or the core closed first",
            Mutation::ignores(|bytes: &[u8]| is(bytes, "core.goodbye")),
        )
        .at_level(Level::Should),
    ]
}

fn refused_handshake() -> Vec<Case<Agents>> {
    vec![case(
        (
            "OSW-4.1-10",
            "nothing stands between hello and welcome, and a refusal ends it",
        ),
        scenarios::refusals,
        rules::waits_for_welcome,
        "no hello came",
        Mutation::outgoing(|_, text| {
            if is(text.as_bytes(), "agent.hello") {
                vec![text, EARLY.to_owned()]
            } else {
                vec![text]
            }
        }),
    )]
}

fn registrations() -> Vec<Case<Agents>> {
    vec![
        case(
            (
                "OSW-4.2-1",
                "a tool's id is the agent's, a slash and its name",
            ),
            scenarios::minimal_session,
            rules::tool_ids,
            "no tool was offered",
            Mutation::replaces("\"name\":\"sleep\"", "\"name\":\"rest\""),
        ),
        case(
            (
                "OSW-4.2-3",
                "a tool has its members, a usable schema and an id of its own",
            ),
            scenarios::minimal_session,
            rules::tool_members,
            "no tool was offered",
            Mutation::replaces(
                "\"input_schema\":{\"type\":\"object\"",
                "\"input_schema\":{\"type\":7",
            ),
        ),
    ]
}

fn call_inputs() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-4.3-1", "an input that is no object ends the call"),
            scenarios::input_not_an_object,
            call_rules::input_is_object,
            "every input was an object",
            Mutation::incoming(|_, bytes| {
                replaced(
                    &replaced(
                        &replaced(&bytes, "\"input\":[1]", "\"input\":{}"),
                        "\"input\":null",
                        "\"input\":{}",
                    ),
                    "\"input\":\"text\"",
                    "\"input\":{}",
                )
            }),
        ),
        case(
            ("OSW-4.3-3", "an input that breaks the schema ends the call"),
            scenarios::typical_session,
            call_rules::input_fits,
            "every input fitted its schema",
            Mutation::incoming(|_, bytes| {
                replaced(
                    &replaced(&bytes, "\"seven\"", "7"),
                    "\"input\":{}",
                    "\"input\":{\"count\":0,\"ms\":0,\"value\":0,\"bytes\":0}",
                )
            }),
        )
        .also_breaks(&["OSW-4.3-1", "OSW-4.3-10"]),
        case(
            ("OSW-4.3-4", "a tool that is not there ends the call"),
            scenarios::typical_session,
            call_rules::not_found,
            "no such call was made",
            Mutation::replaces("tool.not_found", "tool.failed"),
        ),
        case(
            (
                "OSW-4.3-5",
                "pieces of output are numbered, and fit their channel",
            ),
            scenarios::typical_session,
            never_sends("OSW-4.3-5", |message| {
                message.kind == MessageType::ToolStream
            }),
            "no call had output",
            Mutation::replaces("\"seq\":2", "\"seq\":1"),
        ),
    ]
}

fn call_outputs() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-4.3-6", "nothing stands behind the last piece"),
            scenarios::typical_session,
            call_rules::nothing_after_done,
            "no stream was ended with done",
            Mutation::replaces("\"text\":\"3\"}", "\"text\":\"3\"},\"done\":true"),
        ),
        case(
            ("OSW-4.3-7", "a call has one result"),
            scenarios::typical_session,
            call_rules::one_result,
            "no result came",
            Mutation::outgoing(|_, text| {
                let again = is(text.as_bytes(), "agent.tool.result")
                    .then(|| with_member(&text, "id", "another"));
                core::iter::once(text).chain(again).collect()
            }),
        )
        .also_breaks(&["OSW-3-9"]),
        case(
            (
                "OSW-4.3-8",
                "status, output, error and times of a result agree",
            ),
            scenarios::typical_session,
            call_rules::consistent,
            "no result came",
            Mutation::replaces("\"status\":\"failed\"", "\"status\":\"succeeded\""),
        )
        .also_breaks(&[
            "OSW-4.3-3",
            "OSW-4.3-4",
            "OSW-4.3-1",
            "OSW-4.4-3",
            "OSW-4.3-9",
            "OSW-2-6",
            "OSW-2-7",
            "OSW-7-3",
        ]),
        case(
            ("OSW-4.3-9", "a call that takes too long ends in time"),
            scenarios::timeout,
            call_rules::timeouts,
            "no call took longer than it may",
            Mutation::incoming(|_, bytes| {
                replaced(&bytes, "\"timeout_ms\":200", "\"timeout_ms\":60000")
            }),
        )
        .also_breaks(&["OSW-2-2"]),
    ]
}

fn call_ends() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-4.3-10", "calls with one key have one effect"),
            scenarios::idempotency_keys,
            call_rules::idempotent,
            "no call with a key was answered",
            Mutation::incoming(|memory, bytes| {
                memory.count += 1;
                replaced(&bytes, "\"key-1\"", &format!("\"key-{}\"", memory.count))
            }),
        )
        .at_level(Level::Should),
    ]
}

fn cancels_and_health() -> Vec<Case<Agents>> {
    vec![
        case(
            (
                "OSW-4.4-1",
                "an acknowledged cancel says whether there was something to stop",
            ),
            scenarios::typical_session,
            call_rules::acknowledges,
            "no cancel was acknowledged",
            Mutation::replaces("\"accepted\":", "\"accepted\":true,\"before\":"),
        )
        .also_breaks(&["OSW-2-8", "OSW-4.4-3"])
        .at_level(Level::Should),
        case(
            ("OSW-4.4-3", "a cancelled tool that can stop ends canceled"),
            scenarios::typical_session,
            call_rules::cancels,
            "no call that takes its time was cancelled",
            Mutation::ignores(|bytes: &[u8]| is(bytes, "core.tool.cancel")),
        )
        .also_breaks(&["OSW-4.1-7"])
        .at_level(Level::Should),
        case(
            ("OSW-4.5-1", "heartbeats come at the cadence told"),
            scenarios::heartbeats,
            rules::heartbeats,
            "no heartbeat came",
            Mutation::replaces("\"inflight_calls\":", "\"inflight_calls\":1"),
        ),
        case(
            ("OSW-4.5-4", "a ping is answered with a pong"),
            scenarios::ping,
            rules::pongs,
            "no pong came: an agent may know no ping",
            Mutation::outgoing(|_, text| {
                if is(text.as_bytes(), "agent.pong") {
                    vec![with_member(&text, "in_reply_to", "none")]
                } else {
                    vec![text]
                }
            }),
        )
        .also_breaks(&["OSW-3-10"])
        .at_level(Level::Should),
    ]
}

fn secrets() -> Vec<Case<Agents>> {
    vec![
        case(
            ("OSW-7-1", "the token is in the hello alone"),
            scenarios::minimal_session,
            common_rules::token_kept,
            "no message came",
            Mutation::outgoing(|memory, text| {
                if let Some((_, rest)) = text.split_once("\"session_token\":\"") {
                    memory.text = rest.chars().take(43).collect();
                }
                vec![text.replace("a reference tool", &memory.text)]
            }),
        ),
        case(
            (
                "OSW-7-3",
                "however much is asked for, an output has a bound",
            ),
            scenarios::huge_output,
            call_rules::output_bounded,
            "no endless output was asked for",
            Mutation::replaces("tool.output_too_large", "tool.internal"),
        )
        .also_breaks(&["OSW-2-7"]),
    ]
}

/// A message that comes too early.
const EARLY: &str =
    r#"{"v":1,"type":"agent.later","id":"early","ts":"2026-01-16T12:00:00Z","payload":{}}"#;
