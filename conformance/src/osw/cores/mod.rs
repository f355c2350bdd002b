//! The kit for cores: the kit is the agent.

mod cases;
mod reference;
mod rules;
mod scenarios;
mod test_agent;
mod tool_rules;

use super::{Line, OUT_OF_REACH, Peer};
use crate::{Kit, Protocol};

/// The protocol of driving a core.
#[derive(Clone, Copy, Debug)]
pub struct Cores;

impl Protocol for Cores {
    type Line = Line;
    type Peer = dyn Peer;

    fn describe(line: &Line) -> String {
        line.to_string()
    }
}

/// The kit for cores, with a case for each clause that a core can be seen to keep or to break.
///
/// Calls are judged where the core makes them: it should call `hello_world` and `stream_counter`, and
/// `sleep` once with a timeout and once with a cancel.
// impl: OSW-9-1
#[must_use]
pub fn core_kit() -> Kit<Cores> {
    Kit::new("osw-core", cases::all()).out_of_reach(OUT_OF_REACH)
}
