//! Judging hubs: the kit acts as a fleet of agents.

mod judges;
mod peer;
mod reference;
mod scenarios;
mod test_fleet;

use ubos_common::violation::Level;

use super::Reads;
use crate::{Case, Kit, Protocol, Reach, Verdict};
pub use peer::{HubAction, HubLine, HubPeer};
pub use reference::HubReference;
use reference::Mutation;
use scenarios::Driver;
pub use test_fleet::TestFleet;

/// The protocol of driving a hub.
#[derive(Clone, Copy, Debug)]
pub struct Hubs;

impl Protocol for Hubs {
    type Line = HubLine;
    type Peer = dyn HubPeer;
}

/// The kit for hubs. Its sessions are of the kind of the hub's jobs: tests, or translations. Cases that need a job are not
/// applicable to a hub without jobs.
// impl: HUB-7-1
#[must_use]
pub fn hub_kit() -> Kit<Hubs> {
    let cases = registration_cases()
        .into_iter()
        .chain(call_cases())
        .chain(proposal_cases())
        .chain(session_cases());
    Kit::new("hub", cases)
}

/// Cases of registration.
fn registration_cases() -> Vec<Case<Hubs>> {
    vec![
        case(
            ("HUB-2-1", "gives each registration a new id"),
            scenarios::register_twice,
            judges::fresh_ids,
            Mutation::OneIdForAll,
        )
        .also_breaks(&["HUB-2-5", "HUB-2-6", "HUB-3-1", "HUB-3-2", "HUB-3-3"]),
        case(
            ("HUB-2-1", "accepts an empty registration"),
            scenarios::register_empty,
            judges::taken,
            Mutation::RefusesEmpty,
        )
        .also_breaks(&["HUB-3-3"]),
        case(
            ("HUB-2-1", "refuses an empty capability"),
            scenarios::register_nothing,
            judges::invalid_field,
            Mutation::TakesAnything,
        ),
    ]
}

/// Cases of calls.
fn call_cases() -> Vec<Case<Hubs>> {
    vec![
        case(
            ("HUB-2-2", "refuses Listen with an unknown client id"),
            scenarios::listen_as_nobody,
            judges::not_found,
            Mutation::ListensToAll,
        ),
        case(
            ("HUB-2-2", "refuses streams with an unknown session id"),
            scenarios::open_nothing,
            judges::no_session,
            Mutation::WrongRefusal,
        ),
        case(
            ("HUB-2-2", "refuses the other kind of stream"),
            scenarios::other_kind,
            judges::precondition_then_job,
            Mutation::AnyKind,
        ),
        case(
            ("HUB-2-2", "refuses a second stream of a session"),
            scenarios::second_stream,
            judges::precondition_beside_job,
            Mutation::SecondStream,
        ),
        case(
            ("HUB-2-5", "replaces a Listen by the second one"),
            scenarios::listen_twice,
            judges::aborted_for_the_second,
            Mutation::EndsReplacedUnknown,
        )
        .at_level(Level::Advice),
        case(
            ("HUB-2-6", "ends no open Listen with OK"),
            scenarios::listen_twice,
            judges::not_ok,
            Mutation::EndsReplacedOk,
        )
        .also_breaks(&["HUB-2-5"]),
        case(
            ("HUB-3-2", "does not wait for ready"),
            scenarios::never_ready,
            judges::proposed_without_ready,
            Mutation::WaitsForReady,
        )
        .also_breaks(&[
            "HUB-3-1", "HUB-3-3", "HUB-3-5", "HUB-4-1", "HUB-2-2", "HUB-4-2", "HUB-4-3", "HUB-4-6",
            "HUB-4-8", "HUB-4-9",
        ]),
        case(
            ("HUB-4-1", "sends the job as the stream opens"),
            scenarios::silent_stream,
            judges::job_at_once,
            Mutation::WaitsForFirst,
        )
        .also_breaks(&["HUB-2-2", "HUB-3-5", "HUB-4-9"]),
    ]
}

/// Cases of proposals.
fn proposal_cases() -> Vec<Case<Hubs>> {
    vec![
        case(
            ("HUB-3-1", "sends a proposal, then one ready"),
            scenarios::unhurried,
            judges::proposal_before_ready,
            Mutation::ReadyUnasked,
        )
        .also_breaks(&["HUB-3-3", "HUB-3-5"]),
        case(
            ("HUB-3-1", "offers a refused job to another agent"),
            scenarios::refuse_one,
            judges::offered_anew,
            Mutation::KeepsRefused,
        )
        .also_breaks(&["HUB-3-3"]),
        case(
            ("HUB-3-2", "proposes only to agents with the skill"),
            scenarios::ask_the_incapable,
            judges::incapable_unasked,
            Mutation::AsksAnybody,
        )
        .also_breaks(&["HUB-3-5", "HUB-3-1", "HUB-3-3"]),
        case(
            ("HUB-3-3", "ignores a stray answer"),
            scenarios::stray_answer,
            judges::listen_goes_on,
            Mutation::EndsOnStray,
        ),
        case(
            ("HUB-3-3", "ignores an answer of another agent"),
            scenarios::foreign_answer,
            judges::not_ready_for_a_stranger,
            Mutation::TakesForeign,
        ),
        case(
            ("HUB-3-3", "offers the job of a lost agent again"),
            scenarios::leave_one,
            judges::offered_anew,
            Mutation::ForgetsLost,
        )
        .also_breaks(&["HUB-3-1"]),
        case(
            ("HUB-3-5", "refuses a stream before ready"),
            scenarios::too_early,
            judges::precondition_then_job,
            Mutation::OpensEarly,
        ),
    ]
}

/// Cases of sessions.
fn session_cases() -> Vec<Case<Hubs>> {
    vec![
        case(
            ("HUB-4-1", "sends the job once"),
            scenarios::one_session,
            judges::one_job,
            Mutation::SendsTwice,
        ),
        case(
            ("HUB-4-2", "accepts messages without event or time"),
            scenarios::empty_messages,
            judges::ends_ok,
            Mutation::EndsOnEmpty,
        ),
        case(
            ("HUB-4-3", "accepts messages after the end"),
            scenarios::late_messages,
            judges::ends_ok,
            Mutation::EndsOnLate,
        ),
        case(
            ("HUB-4-6", "accepts messages of 6 MiB"),
            scenarios::large_result,
            judges::ends_ok,
            Mutation::SmallMessages,
        ),
        case(
            ("HUB-4-8", "ends its side OK after the half-close"),
            scenarios::one_session,
            judges::ends_ok,
            Mutation::NeverEnds,
        )
        .also_breaks(&["HUB-4-2", "HUB-4-3", "HUB-4-6"]),
        case(
            ("HUB-4-9", "sends the job that it proposed"),
            scenarios::one_session,
            judges::job_as_proposed,
            Mutation::OtherType,
        ),
    ]
}

fn case(
    name: (&'static str, &'static str),
    scenario: fn(&mut Driver<'_>) -> Option<()>,
    judge: fn(&[HubLine]) -> Verdict,
    mutation: Mutation,
) -> Case<Hubs> {
    Case::new(
        Reach::Drive,
        name,
        move |hub: &mut (dyn HubPeer + 'static), lines| {
            // A scenario that cannot go on ends: its judge sees how far it came.
            let _: Option<()> = scenario(&mut Driver { hub, lines });
        },
        move || Reads::new(judge),
        || -> Box<dyn HubPeer> { Box::new(HubReference::new()) },
        move || -> Box<dyn HubPeer> { Box::new(HubReference::mutated(mutation)) },
    )
}

#[cfg(test)]
mod tests {
    use uap_hub_proto::capability::Skill;

    use super::*;
    use crate::Expectations;

    // spec: HUB-7-1
    #[test]
    fn mutants_are_found_by_translations_as_well() {
        let kit = hub_kit();
        let expectations = Expectations::new().with_floor(kit.cases().len());
        let is_conformant = |hub: &dyn Fn() -> HubReference| {
            let connect = |_: &_| -> Result<Box<dyn HubPeer>, _> {
                Ok(Box::new(hub().with_skill(Skill::translation("upper"))))
            };
            kit.run(&expectations, connect).is_conformant()
        };
        assert!(is_conformant(&HubReference::new));
        for mutation in [
            Mutation::AnyKind,
            Mutation::SecondStream,
            Mutation::OpensEarly,
            Mutation::WaitsForFirst,
            Mutation::SendsTwice,
            Mutation::EndsOnEmpty,
            Mutation::EndsOnLate,
            Mutation::SmallMessages,
            Mutation::NeverEnds,
            Mutation::OtherType,
        ] {
            let mutant = || HubReference::mutated(mutation);
            assert!(!is_conformant(&mutant), "{mutation:?}");
        }
    }
}
