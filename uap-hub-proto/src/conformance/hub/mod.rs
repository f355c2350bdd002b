//! A fleet that is played against a hub.
//!
//! ```text
//! peer    what a hub is driven through
//! plays   what is done to it
//! judges  what it must have done
//! twin    hubs in memory: one that keeps every clause, and one for each breach
//! ```

mod judges;
mod peer;
mod plays;
mod twin;

use ubos_common::conformance::{Case, Protocol, Reach};

pub use self::{
    peer::{HubPeer, Line, Said},
    twin::Reference,
};
use super::Reads;
use twin::Breach;

/// Hubs, as the kit sees them.
#[derive(Clone, Copy, Debug)]
pub struct Hubs;

impl Protocol for Hubs {
    type Line = Line;
    type Peer = dyn HubPeer;
}

macro_rules! cases {
    ($($clause:literal $name:literal: $play:ident, $judge:ident, $breach:ident $(, drags $($drags:literal)+)?;)*) => {
        /// The kit. Cases that need a job are not applicable where the hub has none to offer.
        pub const CASES: &[Case<Hubs>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Drive,
            drags: &[$($($drags),+)?],
            play: plays::$play,
            judge: || Box::new(Reads::new(judges::$judge)),
            good: || Box::new(Reference::new()),
            bad: || Box::new(Reference::breaking(Breach::$breach)),
        }),*];
    };
}

cases! {
    "HUB-2-1" "registers under fresh ids": register_twice, fresh_ids, OneIdForAll, drags "HUB-2-5" "HUB-2-6" "HUB-3-1" "HUB-3-2" "HUB-3-3";
    "HUB-2-1" "takes no name and no capability": register_empty, taken, RefusesEmpty, drags "HUB-3-3";
    "HUB-2-1" "refuses a capability of nothing": register_nothing, invalid_field, TakesAnything;
    "HUB-2-2" "refuses Listen of nobody": listen_as_nobody, not_found, ListensToAll;
    "HUB-2-2" "refuses sessions of nobody": open_nothing, no_session, WrongRefusal;
    "HUB-2-2" "refuses the other kind of call": other_kind, precondition_then_job, AnyKind;
    "HUB-2-2" "refuses a second stream of a session": second_stream, precondition_beside_job, SecondStream;
    "HUB-2-5" "a second Listen replaces the first": listen_twice, aborted_for_the_second, EndsReplacedUnknown;
    "HUB-2-6" "ends no Listen OK that the agent did not close": listen_twice, not_ok, EndsReplacedOk, drags "HUB-2-5";
    "HUB-3-1" "proposes, then says ready once": unhurried, proposal_before_ready, ReadyUnasked, drags "HUB-3-3" "HUB-3-5";
    "HUB-3-1" "offers a refused job to another": refuse_one, offered_anew, KeepsRefused, drags "HUB-3-3";
    "HUB-3-2" "does not wait for ready": never_ready, proposed_without_ready, WaitsForReady, drags "HUB-3-1" "HUB-3-3" "HUB-3-5" "HUB-4-1" "HUB-2-2" "HUB-4-2" "HUB-4-3" "HUB-4-6" "HUB-4-8" "HUB-4-9";
    "HUB-3-2" "asks only who can": ask_the_incapable, incapable_unasked, AsksAnybody, drags "HUB-3-5" "HUB-3-1" "HUB-3-3";
    "HUB-3-3" "a stray answer harms nothing": stray_answer, listen_goes_on, EndsOnStray;
    "HUB-3-3" "an answer of another agent is void": foreign_answer, not_ready_for_a_stranger, TakesForeign;
    "HUB-3-3" "frees the job of an agent that left": leave_one, offered_anew, ForgetsLost, drags "HUB-3-1";
    "HUB-3-5" "no stream before ready": too_early, precondition_then_job, OpensEarly;
    "HUB-4-1" "sends the job as the stream opens": silent_stream, job_at_once, WaitsForFirst, drags "HUB-2-2" "HUB-3-5" "HUB-4-9";
    "HUB-4-1" "sends the job once": one_session, one_job, SendsTwice;
    "HUB-4-2" "messages without event or time harm nothing": empty_messages, ends_ok, EndsOnEmpty;
    "HUB-4-3" "takes what comes after the end": late_messages, ends_ok, EndsOnLate;
    "HUB-4-6" "takes messages of 6 MiB": large_result, ends_ok, SmallMessages;
    "HUB-4-8" "ends its side OK after the half-close": one_session, ends_ok, NeverEnds, drags "HUB-4-2" "HUB-4-3" "HUB-4-6";
    "HUB-4-9" "sends the job that it proposed": one_session, job_as_proposed, OtherType;
}
