//! Tests of anybody's UAP-1.1 implementation: files with known verdicts, and what a run left behind.
//!
//! [`FILES`] asks a validator for its verdict on states and thread trees. [`RUNS`] reads a [`Recording`]: the events of
//! an agent's streams, the states that it saved, its thread trees, the lines of its logging middleware, whatever of
//! these is at hand, in the order in which it came about. Reports of both are summed up in the four [`levels`] of
//! section 14.
//!
//! What no file and no recording can show is proven by who builds the agent: that no limit stands by default, that
//! streams equal generating, that an abort ends everything. For agents of this crate see [`testing`](crate::testing).
//!
//! ```
//! use uap_agent::conformance::{FILES, Kind, Level, Recording, levels, runs};
//! use uap_agent::{AgentState, ThreadTree};
//! use ubos_common::conformance::run;
//! use ubos_common::json::Limits;
//!
//! // A validator, judged clause by clause: here our own.
//! let limits = Limits::default();
//! let files = run(FILES, FILES.len(), |_| Ok(Box::new(move |kind: Kind, text: &[u8]| match kind {
//!     Kind::State => AgentState::from_json(text, &limits).is_ok(),
//!     _ => ThreadTree::from_json(text, &limits).is_ok(),
//! })));
//! assert!(files.is_conformant(), "{files}");
//!
//! // A run that begins with its second step.
//! let event = br#"{"source":"uap","uap":{"type":"step_start","step":2,"agentId":"a","data":{}}}"#;
//! let run = runs(&Recording::new().event(event), 1);
//! assert!(run.to_string().contains("line 1: step 2 where 1 is next"), "{run}");
//!
//! let levels = levels([&files, &run]);
//! assert_eq!(levels[0].level, Level::Core);
//! assert!(levels[0].failed > 0 && levels[2].is_conformant());
//! ```
//!
//! Spec: UAP-1.1 14

mod event;
mod events;
mod files;
mod first;
mod level;
mod recording;
mod states;
mod trees;
mod twins;

use ubos_common::conformance::{Case, ConformanceReport, Reach, run};

pub use event::{AgentEvent, Event, Told};
pub use files::{FILES, FileVector, Files, Kind, vectors};
pub use level::{Level, LevelReport, levels};
pub use recording::{Line, Recording, RecordingError, Runs, Seen};

/// Judges a recording, of which at least `floor` cases must have something to judge.
#[must_use]
pub fn runs(recording: &Recording, floor: usize) -> ConformanceReport {
    run(RUNS, floor, |_| Ok(Box::new(recording.clone())))
}

macro_rules! cases {
    ($($clause:literal $name:literal $judge:ty, $drags:expr, $bad:expr;)*) => {
        /// A case for each thing that a recording can show.
        pub const RUNS: &[Case<Runs>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Trace,
            drags: $drags,
            play: recording::replay,
            judge: || Box::<$judge>::default(),
            good: || Box::new(twins::good()),
            bad: || Box::new($bad()),
        }),*];
    };
}

cases! {
    "UAP-11-3" "an event has a source and what that brings, and nothing beside it" events::Form, &["UAP-5-1"], twins::two_sources;
    "UAP-11-3" "the types of events are those of the specification" events::Types, &["UAP-8-4"], twins::other_type;
    "UAP-11-3" "events of a step stand in their order" events::Order, &["UPP-7"], twins::early_tools;
    "UAP-5-1" "steps count from 1 in each run, and each ends" events::Steps, &["UAP-12-2"], twins::lost_step;
    "UAP-3-1" "an agent is named by one UUIDv4" events::Agents, &[], twins::other_agent;
    "UPP-7" "a tool that begins ends, once" events::Tools, &[], twins::lost_end;
    "UAP-8-4" "calls are observed each and in their order" events::Observed, &[], twins::swapped;
    "UAP-5-3" "react reasons before it acts" events::Reasons, &[], twins::thoughtless;
    "UAP-8-3" "an agent that is called begins, tells and ends" events::Subagents, &[], twins::unannounced;
    "UAP-12-6" "states are valid" states::Valid, &["UAP-12-2", "UAP-8-5"], twins::no_state;
    "UAP-12-1" "states are written as version 1.1.0" states::Version, &[], twins::other_version;
    "UAP-12-2" "a state is saved after each step" states::Saved, &[], twins::unsaved;
    "UAP-6-1" "each state has an id of its own" states::Ids, &[], twins::same_id;
    "UAP-2-2" "the history grows, and nothing in it changes" states::Grows, &[], twins::rewritten;
    "UAP-8-4" "each call in a state has its result" states::Answered, &["UAP-2-2"], twins::unanswered;
    "UAP-5-6" "steps of a plan go forward, one at a time, after those they wait for" states::Plans, &[], twins::impatient;
    "UAP-8-5" "an agent that was called leaves its trace" states::Traces, &[], twins::traceless;
    "UAP-7-2" "thread trees are valid" trees::Valid, &[], twins::no_tree;
    "UAP-7-1" "branches stay where they are" trees::Stays, &[], twins::pruned;
    "UAP-9-3" "the log says how each run began and ended" level::Logging, &[], twins::silent_end;
}
