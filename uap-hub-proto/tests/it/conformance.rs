//! The kits hold: our machines pass them, and each breach is found by its case.

use uap_hub_proto::conformance::{agent, hub};
use ubos_common::conformance::{prove, run};

fn words(errors: Vec<ubos_common::conformance::ProofError>) -> String {
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    errors.join("\n")
}

// spec: HUB-7-1
#[test]
fn the_kit_for_hubs_holds() {
    prove(hub::CASES)
        .map_err(words)
        .unwrap_or_else(|errors| panic!("{errors}"));
}

// spec: HUB-7-1
#[test]
fn the_kit_for_agents_holds() {
    prove(agent::CASES)
        .map_err(words)
        .unwrap_or_else(|errors| panic!("{errors}"));
}

// spec: HUB-7-1
#[test]
fn our_machines_are_judged_in_every_case() {
    let report = run(hub::CASES, hub::CASES.len(), |_| {
        Ok(Box::new(hub::Reference::new()))
    });
    assert!(report.is_conformant(), "{report}");
    let report = run(agent::CASES, agent::CASES.len(), |_| {
        Ok(Box::new(agent::Reference::new()))
    });
    assert!(report.is_conformant(), "{report}");
}
