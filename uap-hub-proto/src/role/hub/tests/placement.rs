//! What placing a job costs: requirements that are held against it.

use super::*;
use crate::{
    capability::checks::CHECKS,
    wire::{Payload, PayloadRequirement, TestCapability, capability::Format},
};

/// A capability for tests `t` whose file is plain text, or of a type of its own.
fn takes(n: usize) -> Capability {
    let script = PayloadRequirement {
        r#type: "script".into(),
        is_required: true,
        is_repeatable: false,
        accepted_mime_types: vec![format!("application/x-{n}"), "Text/Plain; q=1".into()],
    };
    let format = Some(Format::Test(TestCapability {
        r#type: "t".into(),
        payloads: vec![script],
    }));
    Capability { format }
}

fn script() -> Vec<Payload> {
    vec![Payload::file("script", "s", "text/plain", "x")]
}

fn checks_of(rig: &mut Rig, payloads: Vec<Payload>) -> usize {
    let before = CHECKS.get();
    rig.hub.submit(rig.now, Job::test("t", payloads)).unwrap();
    rig.drain();
    CHECKS.get() - before
}

// spec: HUB-3-6
#[test]
fn different_agents_are_checked_once_a_kind_of_job() {
    let mut rig = Rig::new();
    for n in 0..100 {
        let agent = rig.register(vec![takes(n)]);
        rig.open(Rpc::Listen, Some(&agent));
    }
    assert_eq!(checks_of(&mut rig, script()), 100);
    assert_eq!(checks_of(&mut rig, script()), 0, "they are ranked");
    assert_eq!(checks_of(&mut rig, vec![]), 100, "another kind of job");
    assert_eq!(checks_of(&mut rig, script()), 0);
    assert_eq!(
        rig.hub
            .view()
            .agents()
            .filter(|agent| agent.load == 1)
            .count(),
        3
    );
}

#[test]
fn an_agent_that_never_listened_costs_nothing() {
    let mut rig = Rig::new();
    for n in 0..100 {
        rig.register(vec![takes(n)]);
    }
    assert_eq!(checks_of(&mut rig, script()), 0);
    let before = CHECKS.get();
    let agent = rig.register(vec![takes(100)]);
    assert_eq!(CHECKS.get() - before, 0);
    rig.open(Rpc::Listen, Some(&agent));
    assert_eq!(
        rig.hub.view().counts().waiting_jobs,
        0,
        "it is offered the job"
    );
}
