//! A hub that is played against an agent.
//!
//! ```text
//! peer    what an agent is driven through
//! plays   what is done to it
//! judges  what it must have done
//! twin    agents in memory: one that keeps every clause, and one for each breach
//! ```

mod judges;
mod peer;
mod plays;
mod twin;

use ubos_common::conformance::{Case, Protocol, Reach};

pub use self::{
    peer::{AgentPeer, Did, Line, What},
    twin::Reference,
};
use super::Reads;
use twin::Breach;

/// Agents, as the kit sees them.
#[derive(Clone, Copy, Debug)]
pub struct Agents;

impl Protocol for Agents {
    type Line = Line;
    type Peer = dyn AgentPeer;
}

macro_rules! cases {
    ($($clause:literal $name:literal: $play:ident, $judge:ident, $breach:ident $(, drags $($drags:literal)+)?;)*) => {
        /// The kit. Cases that need a capability are not applicable to an agent without one.
        pub const CASES: &[Case<Agents>] = &[$(Case {
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
    "HUB-2-1" "registers capabilities that hold": listens, good_registration, RegistersNothing;
    "HUB-2-7" "says ready first": listens, ready_first, SaysNothing;
    "HUB-2-8" "names itself on Listen": listens, own_name, OtherClientId;
    "HUB-2-8" "names the session on its stream": one_session, session_named, OtherSessionId;
    "HUB-3-5" "opens no stream before ready": hesitate, no_stream_yet, OpensAtOnce, drags "HUB-4-7" "HUB-2-8" "HUB-4-1" "HUB-4-2" "HUB-4-6" "HUB-4-8" "HUB-4-5";
    "HUB-3-7" "answers a proposal once": hesitate, one_answer, AnswersTwice;
    "HUB-3-7" "refuses what it cannot do": propose_oddly, refuses, AcceptsAll;
    "HUB-3-7" "ignores ready for what it did not accept": ready_for_nobody, opens_nothing, OpensForNobody;
    "HUB-4-1" "acknowledges before the job comes": silent_hub, acknowledges, WaitsForJob;
    "HUB-4-2" "its states go forward": one_session, forward, GoesBack, drags "HUB-4-8" "HUB-4-7";
    "HUB-4-5" "runs two sessions side by side": two_sessions, two_streams, OneAtATime;
    "HUB-4-6" "takes messages of 6 MiB": large_job, ends_well, SmallMessages, drags "HUB-4-8";
    "HUB-4-7" "its result says how it ended": one_session, terminal_result, ResultOfNothing, drags "HUB-4-8" "HUB-4-2" "HUB-4-6";
    "HUB-4-8" "half-closes after its end": one_session, half_closes, NeverHalfCloses, drags "HUB-4-5" "HUB-4-6";
    "HUB-4-8" "keeps the call until the hub ends it": slow_end, call_kept, DropsCall;
    "HUB-5-2" "comes back after 1, 2 and 4 s": refuse_thrice, pauses_grow, RetriesAtOnce;
    "HUB-5-2" "comes back after a Listen that ended OK": end_ok, pause_of_a_second, RetriesAfterOk;
}
