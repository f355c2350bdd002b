//! Judging agents: the kit acts as a hub.

mod judges;
mod peer;
mod reference;
mod scenarios;
mod test_hub;

use uap_hub_proto::wire::AgentRegistration;

use super::Reads;
use crate::{Case, Kit, Protocol, Reach, Verdict};
pub use peer::{AgentAction, AgentLine, AgentPeer, LineKind};
pub use reference::AgentReference;
use reference::Mutation;
use scenarios::Driver;
pub use test_hub::TestHub;

/// The protocol of driving an agent.
#[derive(Clone, Copy, Debug)]
pub struct Agents;

impl Protocol for Agents {
    type Line = AgentLine;
    type Peer = dyn AgentPeer;
}

/// The kit for agents. Cases that need a capability are not applicable to an agent without one.
// impl: HUB-7-1
#[must_use]
pub fn agent_kit() -> Kit<Agents> {
    let cases = registration_cases()
        .into_iter()
        .chain(proposal_cases())
        .chain(session_cases())
        .chain(retry_cases());
    let single = "an agent may run one session at a time";
    Kit::new("hub-agent", cases).out_of_reach(&[("HUB-4-5", single)])
}

/// Cases of registration and the control stream.
fn registration_cases() -> Vec<Case<Agents>> {
    vec![
        case(
            ("HUB-2-1", "registers valid capabilities"),
            scenarios::listens,
            judges::good_registration,
            Mutation::EmptyCapability,
        ),
        case(
            ("HUB-2-7", "sends ready first"),
            scenarios::listens,
            judges::ready_first,
            Mutation::SkipsReady,
        ),
        case(
            ("HUB-2-8", "sends its client id on Listen"),
            scenarios::listens,
            judges::own_name,
            Mutation::OtherClientId,
        ),
        case(
            ("HUB-2-8", "sends the session id on its stream"),
            scenarios::one_session,
            judges::session_named,
            Mutation::OtherSessionId,
        ),
        case(
            ("HUB-3-5", "opens no stream before ready"),
            scenarios::hesitate,
            judges::no_stream_yet,
            Mutation::OpensAtOnce,
        )
        .also_breaks(&[
            "HUB-4-7", "HUB-2-8", "HUB-4-1", "HUB-4-2", "HUB-4-6", "HUB-4-8", "HUB-4-5",
        ]),
    ]
}

/// Cases of proposals.
fn proposal_cases() -> Vec<Case<Agents>> {
    vec![
        case(
            ("HUB-3-7", "answers a proposal once"),
            scenarios::hesitate,
            judges::one_answer,
            Mutation::AnswersTwice,
        ),
        case(
            ("HUB-3-7", "refuses what it cannot do"),
            scenarios::propose_oddly,
            judges::refuses,
            Mutation::AcceptsAll,
        ),
        case(
            (
                "HUB-3-7",
                "ignores ready for a session that it did not accept",
            ),
            scenarios::ready_for_nobody,
            judges::opens_nothing,
            Mutation::OpensUnaccepted,
        ),
    ]
}

/// Cases of sessions.
fn session_cases() -> Vec<Case<Agents>> {
    vec![
        case(
            ("HUB-4-1", "acknowledges before the job arrives"),
            scenarios::silent_hub,
            judges::acknowledges,
            Mutation::WaitsForJob,
        ),
        case(
            ("HUB-4-2", "reports states in order"),
            scenarios::one_session,
            judges::forward,
            Mutation::GoesBack,
        )
        .also_breaks(&["HUB-4-8", "HUB-4-7"]),
        case(
            ("HUB-4-5", "runs two sessions at the same time"),
            scenarios::two_sessions,
            judges::two_streams,
            Mutation::OneAtATime,
        ),
        case(
            ("HUB-4-6", "accepts messages of 6 MiB"),
            scenarios::large_job,
            judges::ends_well,
            Mutation::SmallMessages,
        )
        .also_breaks(&["HUB-4-8"]),
        case(
            ("HUB-4-7", "sends a result with a terminal state"),
            scenarios::one_session,
            judges::terminal_result,
            Mutation::ResultWithoutStatus,
        )
        .also_breaks(&["HUB-4-8", "HUB-4-2", "HUB-4-6"]),
        case(
            ("HUB-4-8", "half-closes after its result"),
            scenarios::one_session,
            judges::half_closes,
            Mutation::NeverHalfCloses,
        )
        .also_breaks(&["HUB-4-5", "HUB-4-6"]),
        case(
            ("HUB-4-8", "keeps the call open until the hub ends it"),
            scenarios::slow_end,
            judges::call_kept,
            Mutation::DropsCall,
        ),
    ]
}

/// Cases of coming back.
fn retry_cases() -> Vec<Case<Agents>> {
    vec![
        case(
            ("HUB-5-2", "registers again after 1, 2 and 4 s"),
            scenarios::refuse_thrice,
            judges::pauses_grow,
            Mutation::RetriesAtOnce,
        ),
        case(
            ("HUB-5-2", "registers again after a Listen that ended OK"),
            scenarios::end_ok,
            judges::pause_of_a_second,
            Mutation::RetriesAfterOk,
        ),
    ]
}

fn case(
    name: (&'static str, &'static str),
    scenario: fn(&mut Driver<'_>) -> Option<()>,
    judge: fn(&[AgentLine]) -> Verdict,
    mutation: Mutation,
) -> Case<Agents> {
    Case::new(
        Reach::Drive,
        name,
        move |peer: &mut (dyn AgentPeer + 'static), lines| {
            let registration = AgentRegistration::default();
            // A scenario that cannot go on ends: its judge sees how far it came.
            let _: Option<()> = scenario(&mut Driver {
                peer,
                lines,
                registration,
            });
        },
        move || Reads::new(judge),
        || -> Box<dyn AgentPeer> { Box::new(AgentReference::new()) },
        move || -> Box<dyn AgentPeer> { Box::new(AgentReference::mutated(mutation)) },
    )
}
