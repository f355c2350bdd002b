//! The kits over sockets, against our own hub and agent.

use std::time::Duration;

use tokio::runtime::Runtime;
use uap_hub_proto::{
    capability::Skill,
    conformance::{agent, hub},
    role::hub::Job,
    transport::{
        client::{AgentBuilder, probe::HubProbe},
        server::{HubHandle, ServerConfig, serve, stage::AgentStage},
    },
    wire::{Payload, TestResult},
};
use ubos_common::conformance::run;

fn a_hub(runtime: &Runtime) -> HubHandle {
    let serving = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    runtime.block_on(serving).unwrap()
}

// spec: HUB-7-1, HUB-4-6
#[test]
fn our_hub_conforms_over_sockets() {
    let runtime = Runtime::new().unwrap();
    let served = a_hub(&runtime);
    let report = run(hub::CASES, hub::CASES.len(), |_| {
        let fed = served.clone();
        let feed = move |skill: &Skill| {
            // What is left of a case is done by the next.
            drop(fed.submit(Job::test(skill.name(), vec![Payload::new("text")])));
        };
        let probe = HubProbe::connect(&served.url(), Skill::test("echo"), feed);
        probe
            .map(|probe| Box::new(probe) as Box<dyn hub::HubPeer>)
            .map_err(|error| error.to_string())
    });
    assert!(report.is_conformant(), "{report}");
}

// spec: HUB-7-1, HUB-2-7, HUB-4-6, HUB-5-2
#[test]
fn our_agent_conforms_over_sockets() {
    let stage = AgentStage::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let agent = AgentBuilder::new("judged")
        .on_test("echo", |_, _| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(TestResult::completed("done"))
        })
        .start(&stage.url())
        .unwrap();
    let report = run(agent::CASES, agent::CASES.len(), |_| Ok(stage.peer()));
    drop(agent);
    assert!(report.is_conformant(), "{report}");
}
