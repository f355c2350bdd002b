//! The kit for agents: the kit is the core.

mod call_rules;
mod cases;
mod reference;
mod rules;
mod scenarios;
mod test_core;

use super::{Line, OUT_OF_REACH, Peer};
use crate::{Kit, Protocol};

/// The protocol of driving an agent.
#[derive(Clone, Copy, Debug)]
pub struct Agents;

impl Protocol for Agents {
    type Line = Line;
    type Peer = dyn Peer;

    fn describe(line: &Line) -> String {
        line.to_string()
    }
}

/// The kit for agents, with a case for each clause that an agent can be seen to keep or to break.
///
/// Calls are judged where the agent has the reference tools `hello_world`, `stream_counter`, `sleep`,
/// `invalid_input` and `large_output`.
// impl: OSW-9-1
#[must_use]
pub fn agent_kit() -> Kit<Agents> {
    let optional = [("OSW-4.3-6", "an agent need not end its streams with done")];
    Kit::new("osw-agent", cases::all())
        .out_of_reach(OUT_OF_REACH)
        .out_of_reach(&optional)
}
