//! Events of the machines have numbers and sizes, and nothing of a payload.

use sacp::role::orchestrator::{Input, Orchestrator, OrchestratorConfig, Output};
use sacp::runner::{self, Cause, Config, Recovery, Rule, Runner};
use sacp::{Act, Message};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::testing::Traces;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::registry::{agent, tool, verb};

/// Stands in every payload.
const CANARY: &str = "canary-5d1f";

fn now() -> Now {
    Now::new(Mono::ZERO, Timestamp::EPOCH)
}

fn message() -> Message {
    let text = format!(
        r#"{{"msg_id":"{CANARY}","g":"{CANARY}","ctx":{{"{CANARY}":"{CANARY}"}},
            "plan":[["get","ONE",{{"{CANARY}":"{CANARY}"}}],["get","ONE",{{}}]]}}"#
    );
    Message::decode(text.as_bytes()).unwrap()
}

fn canary() -> RawBuf {
    RawBuf::from_serialize(&CANARY).unwrap()
}

fn run_plan() {
    let other = Recovery::OtherAct(Act::new("guess", "ONE"));
    let rule = Rule {
        recoveries: vec![other, Recovery::Skip(canary())],
        ..Rule::default()
    };
    let config = Config::default().with_rule(rule);
    let mut runner = Runner::new(&message(), config).unwrap();
    runner.start(now());
    while let Some(output) = runner.poll_output() {
        let runner::Output::Dispatch { ticket, .. } = output else {
            continue;
        };
        let input = match ticket.step {
            1 => runner::Input::Failed {
                ticket,
                cause: Cause::tool(CANARY),
            },
            _ => runner::Input::Succeeded {
                ticket,
                output: canary(),
            },
        };
        runner.handle_input(now(), input).unwrap();
    }
    assert!(runner.is_closed());
}

fn orchestrate() {
    let mut registry = sacp::registry::MemoryRegistry::default();
    use sacp::registry::Registry as _;
    registry.add_verb(verb("get", &[])).unwrap();
    registry.add_tool(tool("ONE", &["get"])).unwrap();
    registry
        .add_agent(agent(CANARY, "get", "ONE", None))
        .unwrap();
    let config = OrchestratorConfig::default();
    let ids = IdSource::seeded(1);
    let mut orchestrator = Orchestrator::new(now(), message(), registry, config, ids).unwrap();
    while let Some(output) = orchestrator.poll_output() {
        let Output::Delegate(delegation) = output else {
            continue;
        };
        let text = format!(r#"{{"g":"G","plan":[],"ctx":{{"result":"{CANARY}"}},"state":"DONE"}}"#);
        let input = Input::Answered {
            ticket: delegation.ticket,
            bytes: text.into_bytes(),
        };
        orchestrator.handle_input(now(), input).unwrap();
    }
    assert!(orchestrator.is_closed());
}

#[test]
fn events_have_nothing_of_a_payload() {
    let traces = Traces::of("sacp");
    run_plan();
    orchestrate();
    let seen = traces.text();
    for wanted in [
        "message=run started",
        "message=attempt dispatched",
        "message=attempt failed",
        "message=attempt succeeded",
        "message=step changed",
        "message=recovery considered",
        "message=run ended",
        "message=act delegated",
        "message=answer received",
        "message=message answered",
        "steps=2",
        "end=Done",
    ] {
        assert!(seen.contains(wanted), "{wanted} in {seen}");
    }
    assert!(!seen.contains(CANARY), "{seen}");
}
