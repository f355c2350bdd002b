//! The kits hold what they say.

use opensentience_wire::conformance::{AGENTS, CORES};
use ubos_common::conformance::{Case, Protocol, prove};

fn proved<P: Protocol>(cases: &[Case<P>]) {
    let faults = prove(cases).err().unwrap_or_default();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// spec: OSW-9-1
#[test]
fn the_kit_for_agents_holds() {
    proved(AGENTS);
}

// spec: OSW-9-1
#[test]
fn the_kit_for_cores_holds() {
    proved(CORES);
}
