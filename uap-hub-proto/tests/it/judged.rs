//! The kits over sockets, against our own hub and agent.

use std::time::Duration;

use tokio::runtime::Runtime;
use uap_hub_proto::{
    capability::Skill,
    role::hub::Job,
    transport::{
        client::AgentBuilder,
        server::{HubHandle, ServerConfig, serve},
    },
    wire::{Payload, TestResult, TranslationResult},
};
use ubos_conformance::hub::{TestFleet, TestHub, agent_kit, hub_kit};
use ubos_conformance::{ConnectError, Expectations};

fn a_hub(runtime: &Runtime) -> HubHandle {
    let serving = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    runtime.block_on(serving).unwrap()
}

// spec: HUB-7-1, HUB-4-6
#[test]
fn our_hub_conforms_over_sockets() {
    conforms(&Skill::test("echo"));
}

// spec: HUB-7-1, HUB-4-6
#[test]
fn our_hub_conforms_with_translations_over_sockets() {
    conforms(&Skill::translation("upper"));
}

fn conforms(skill: &Skill) {
    let runtime = Runtime::new().unwrap();
    let served = a_hub(&runtime);
    let kit = hub_kit();
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| {
        let fed = served.clone();
        let submit = move |skill: &Skill| {
            // The next case runs what this one leaves.
            drop(fed.submit(Job::new(skill.clone(), vec![Payload::new("text")])));
        };
        match TestFleet::connect(&served.url(), skill.clone(), submit) {
            Ok(fleet) => Ok(Box::new(fleet)),
            Err(error) => Err(ConnectError::Unreachable(error.to_string())),
        }
    });
    assert!(report.is_conformant(), "{report}");
}

/// As long as a kit's agent takes.
const WORK: Duration = Duration::from_millis(10);

// spec: HUB-7-1, HUB-2-7, HUB-4-6, HUB-5-2
#[test]
fn our_agent_conforms_over_sockets() {
    agent_conforms(AgentBuilder::new("judged").on_test("echo", |_, _| async {
        tokio::time::sleep(WORK).await;
        Ok(TestResult::completed("done"))
    }));
}

// spec: HUB-7-1
#[test]
fn our_agent_conforms_with_translations_over_sockets() {
    agent_conforms(
        AgentBuilder::new("judged").on_translation("upper", |_, _| async {
            tokio::time::sleep(WORK).await;
            Ok(TranslationResult::completed(vec![Payload::new("DONE")]))
        }),
    );
}

fn agent_conforms(agent: AgentBuilder) {
    let hub = TestHub::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let agent = agent.start(&hub.url()).unwrap();
    let kit = agent_kit();
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| Ok(hub.peer()));
    drop(agent);
    assert!(report.is_conformant(), "{report}");
}
