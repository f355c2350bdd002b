//! The tool call: a core and an agent of OpenSentience over a stream that splits and joins.

use std::time::Duration;

use opensentience_wire::message::{SemVer, ToolSpec};
use opensentience_wire::role::agent::{self, AgentConnection};
use opensentience_wire::role::core::{self, CallRequest, CoreConnection};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Grant, SessionToken};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, NodeId, Wiring};
use ubos_common::time::Now;

use super::{Event, Ledger};

const AGENT: &str = "com.example.tools";

pub(super) struct Ends {
    core: NodeId<CoreConnection>,
    called: bool,
}

fn object(text: &str) -> RawObject {
    RawObject::new(RawBuf::parse(text).unwrap()).unwrap()
}

pub(super) fn add(lab: &mut Lab<Event>, ledger: &Ledger) -> Ends {
    let now = lab.now();
    let token = || SessionToken::from_random([9; 32]);
    let grant = Grant::new(now.mono, token(), AGENT);
    let config = core::Config::default();
    let core = CoreConnection::new(now, config, IdSource::seeded(1), Some(grant)).unwrap();
    let version = "1.0.0".parse::<SemVer>().unwrap();
    let config = agent::Config::new(AGENT, version, token());
    let agent = AgentConnection::new(now, config, IdSource::seeded(2)).unwrap();
    let link = lab.next_link();
    let core = lab.add(core, CoreWire { link });
    let ledger = ledger.clone();
    let agent = lab.add(agent, AgentWire { link, ledger });
    lab.connect(core, agent, LinkKind::Stream, Faults::rough());
    Ends {
        core,
        called: false,
    }
}

/// Calls the tool, once: a plan that asks again waits for the same call.
pub(super) fn call(lab: &mut Lab<Event>, ends: &mut Ends) {
    if std::mem::replace(&mut ends.called, true) {
        return;
    }
    // The handshake takes some steps; the plan's first step takes longer.
    for _ in 0..1_000 {
        if lab.machine(ends.core).tools().next().is_some() {
            break;
        }
        lab.step();
    }
    lab.with(ends.core, |core, now| {
        let request = CallRequest::new(format!("{AGENT}/call"), object("{}"))
            .with_timeout(Duration::from_secs(60));
        core.call_tool(now, request).unwrap()
    });
}

struct CoreWire {
    link: LinkId,
}

impl Wiring<CoreConnection> for CoreWire {
    type Event = Event;
    type Answer = ();

    fn deliver(&mut self, core: &mut CoreConnection, now: Now, arrival: Arrival<'_, ()>) {
        let input = match arrival {
            Arrival::Bytes(_, bytes) => Input::Bytes(bytes),
            _ => Input::Eof,
        };
        core.handle_input(now, input).unwrap();
    }

    fn perform(
        &mut self,
        _: &mut CoreConnection,
        _: Now,
        output: core::Output,
        actions: &mut Actions<Event, ()>,
    ) {
        match output {
            core::Output::Transmit(bytes) => actions.send(self.link, bytes),
            core::Output::Event(core::Event::Ended(_, outcome)) => {
                let result = outcome.into_result().unwrap();
                actions.event(Event::Done("CALL", result.as_str().to_owned()));
            }
            core::Output::Close(reason) => panic!("the core has ended: {reason:?}"),
            _ => {}
        }
    }
}

struct AgentWire {
    link: LinkId,
    ledger: Ledger,
}

impl Wiring<AgentConnection> for AgentWire {
    type Event = Event;
    type Answer = CallId;

    fn deliver(&mut self, agent: &mut AgentConnection, now: Now, arrival: Arrival<'_, CallId>) {
        match arrival {
            Arrival::Bytes(_, bytes) => agent.handle_input(now, Input::Bytes(bytes)).unwrap(),
            Arrival::Answer(call) => {
                let output = object(r#"{"called":true}"#);
                agent.finish(now, &call, Ok(output)).unwrap();
            }
            _ => drop(agent.handle_input(now, Input::Eof)),
        }
    }

    fn perform(
        &mut self,
        agent: &mut AgentConnection,
        now: Now,
        output: agent::Output,
        actions: &mut Actions<Event, CallId>,
    ) {
        match output {
            agent::Output::Transmit(bytes) => actions.send(self.link, bytes),
            agent::Output::Call(call) => {
                self.ledger.borrow_mut().tool_runs += 1;
                actions.answer(Duration::from_millis(120), call.call_id);
            }
            agent::Output::Event(agent::Event::Welcomed { .. }) => {
                let tool = ToolSpec::local("call", "a tool", object(r#"{"type":"object"}"#));
                agent.register(now, vec![tool], false).unwrap();
            }
            _ => {}
        }
    }
}
