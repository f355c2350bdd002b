//! The kits are proved, and pass the machines of this crate.

use ubos_conformance::hub::{AgentReference, HubReference, agent_kit, hub_kit};
use ubos_conformance::{Expectations, Kit, Protocol};

fn proved<P: Protocol>(kit: &Kit<P>) {
    if let Err(errors) = kit.prove() {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", errors.join("\n"));
    }
}

fn all<P: Protocol>(kit: &Kit<P>) -> Expectations {
    Expectations::new().with_floor(kit.cases().len())
}

// spec: HUB-7-1
#[test]
fn the_kit_for_hubs_is_proved() {
    proved(&hub_kit());
}

// spec: HUB-7-1
#[test]
fn the_kit_for_agents_is_proved() {
    proved(&agent_kit());
}

// spec: HUB-7-1
#[test]
fn our_machines_pass_every_case() {
    let kit = hub_kit();
    let report = kit.run(&all(&kit), |_| Ok(Box::new(HubReference::new())));
    assert!(report.is_conformant(), "{report}");
    let kit = agent_kit();
    let report = kit.run(&all(&kit), |_| Ok(Box::new(AgentReference::new())));
    assert!(report.is_conformant(), "{report}");
}
