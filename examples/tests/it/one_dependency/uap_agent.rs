//! Writes a state and reads it back. The types of `upp` are a dependency of their own, as the specification has it.

use uap_agent::ubos_common::id::IdSource;
use uap_agent::ubos_common::json::Limits;
use uap_agent::AgentState;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut ids = IdSource::seeded(1);
    let state = AgentState::initial(&mut ids).with_step(&mut ids, 3);
    let text = state.to_json();
    let read = AgentState::from_json(text.as_bytes(), &Limits::default())?;
    assert_eq!((read.step(), read.id()), (3, state.id()));
    Ok(())
}
