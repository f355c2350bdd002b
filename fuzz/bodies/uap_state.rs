//! States of agents: whatever is read is written as 1.1.0 and read as the same.

use arbitrary::{Arbitrary as _, Unstructured};
use uap_agent::AgentState;
use ubos_common::id::IdSource;
use ubos_common::json::Limits;

/// The first byte chooses what the rest is: a state, or what states are drawn from.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 2 {
        0 => read(rest),
        _ => drawn(rest),
    }
}

fn read(text: &[u8]) {
    match AgentState::from_json(text, &Limits::default()) {
        Ok(state) => same_again(&state),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn same_again(state: &AgentState) {
    let written = state.to_json();
    assert!(written.starts_with(r#"{"version":"1.1.0","#));
    let again = AgentState::from_json(written.as_bytes(), &Limits::default());
    let again = again.expect("what is written is read");
    assert_eq!(&again, state);
    assert_eq!(again.to_json(), written);
}

fn drawn(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    let Ok(state) = AgentState::arbitrary(&mut source) else {
        return;
    };
    same_again(&state);
    // Another seed than the one that the state's own id comes of.
    let (_, seed) = state.id().as_uuid().as_u64_pair();
    let mut ids = IdSource::seeded(seed);
    let kept = state.to_json();
    let next = state
        .with_step(&mut ids, 1)
        .with_reasoning(&mut ids, "more");
    assert_ne!(next.id(), state.id());
    assert_eq!(state.to_json(), kept);
    same_again(&next);
}
