//! The kit of recorded runs.

use super::event_judges::{self as events, EventJudge};
use super::level::Logging;
use super::mutants;
use super::recording::{RecordedLine, Recording, Runs, replay};
use super::state_judges::{self as states, StateJudge};
use super::tree_judges as trees;
use crate::{Case, Judge, Kit, Reach};
use ubos_common::violation::Level;

fn case<J: Judge<RecordedLine> + Default + 'static>(
    clause: &'static str,
    name: &'static str,
    mutant: fn() -> Recording,
) -> Case<Runs> {
    Case::new(
        Reach::Trace,
        (clause, name),
        replay,
        J::default,
        || Box::new(mutants::reference()),
        move || Box::new(mutant()),
    )
}

/// A case for each clause that a recording can show.
#[must_use]
pub fn run_kit() -> Kit<Runs> {
    let cases = event_cases().into_iter().chain(state_cases());
    Kit::new("uap-run", cases.chain(other_cases()))
}

fn event_cases() -> Vec<Case<Runs>> {
    vec![
        case::<events::Form>(
            "UAP-11-3",
            "an event has a source and what that brings, and nothing beside it",
            mutants::two_sources,
        )
        .also_breaks(&["UAP-5-1"]),
        case::<EventJudge<events::Types>>(
            "UAP-11-3",
            "the types of events are those of the specification",
            mutants::other_type,
        )
        .also_breaks(&["UAP-8-4"]),
        case::<EventJudge<events::Order>>(
            "UAP-11-3",
            "events of a step stand in their order",
            mutants::early_tools,
        )
        .also_breaks(&["UPP-7"]),
        case::<EventJudge<events::Steps>>(
            "UAP-5-1",
            "steps count from 1 in each run, and each ends",
            mutants::lost_step,
        )
        .also_breaks(&["UAP-12-2"]),
        case::<EventJudge<events::SingleAgent>>(
            "UAP-3-1",
            "an agent is named by one UUIDv4",
            mutants::other_agent,
        ),
        case::<EventJudge<events::Tools>>(
            "UPP-7",
            "a tool that begins ends, once",
            mutants::lost_end,
        ),
        case::<EventJudge<events::Observed>>(
            "UAP-8-4",
            "calls are observed each and in their order",
            mutants::swapped,
        ),
        case::<EventJudge<events::Reasons>>(
            "UAP-5-3",
            "react reasons before it acts",
            mutants::thoughtless,
        ),
        case::<EventJudge<events::Subagents>>(
            "UAP-8-3",
            "an agent that is called begins, tells and ends",
            mutants::unannounced,
        )
        .at_level(Level::Should),
    ]
}

fn state_cases() -> Vec<Case<Runs>> {
    vec![
        case::<states::Valid>("UAP-12-6", "states are valid", mutants::no_state)
            .also_breaks(&["UAP-12-2", "UAP-8-5"]),
        case::<StateJudge<states::Version>>(
            "UAP-12-1",
            "states are written as version 1.1.0",
            mutants::other_version,
        ),
        case::<StateJudge<states::Saved>>(
            "UAP-12-2",
            "a state is saved after each step",
            mutants::unsaved,
        ),
        case::<StateJudge<states::Ids>>(
            "UAP-6-1",
            "each state has an id of its own",
            mutants::same_id,
        ),
        case::<StateJudge<states::Grows>>(
            "UAP-2-2",
            "the history grows, and nothing in it changes",
            mutants::rewritten,
        ),
        case::<StateJudge<states::Answered>>(
            "UAP-8-4",
            "each call in a state has its result",
            mutants::unanswered,
        )
        .also_breaks(&["UAP-2-2"]),
        case::<StateJudge<states::Plans>>(
            "UAP-5-6",
            "steps of a plan go forward, one at a time, after those they wait for",
            mutants::impatient,
        ),
        case::<StateJudge<states::Traces>>(
            "UAP-8-5",
            "an agent that was called leaves its trace",
            mutants::traceless,
        ),
    ]
}

fn other_cases() -> Vec<Case<Runs>> {
    vec![
        case::<trees::Valid>("UAP-7-2", "thread trees are valid", mutants::no_tree),
        case::<trees::Stays>("UAP-7-1", "branches stay where they are", mutants::pruned),
        case::<Logging>(
            "UAP-9-3",
            "the log says how each run began and ended",
            mutants::silent_end,
        ),
    ]
}
