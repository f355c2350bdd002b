//! Both roles in the lab: hundreds of runs over streams that are split, joined and severed.

use std::collections::BTreeMap;
use std::time::Duration;

use opensentience_wire::Limits;
use opensentience_wire::message::Channel;
use opensentience_wire::role::agent::{AgentConnection, Chunk};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use opensentience_wire::role::{CallId, Input, agent, core};
use opensentience_wire::{ErrorCode, ErrorObject};
use serde_json::json;
use ubos_common::id::IdSource;
use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, NodeId, Wiring};
use ubos_common::time::Now;

use crate::kit::{AGENT, RequestExt as _, new_agent, new_core, object, spec};

struct CoreWire(LinkId);

impl Wiring<CoreConnection> for CoreWire {
    type Event = Event;
    type Answer = ();

    fn deliver(&mut self, core: &mut CoreConnection, now: Now, arrival: Arrival<'_, ()>) {
        if let Arrival::Bytes(_, bytes) = arrival {
            core.handle_input(now, Input::Bytes(bytes)).unwrap();
        } else {
            drop(core.handle_input(now, Input::Eof));
        }
    }

    fn perform(
        &mut self,
        _: &mut CoreConnection,
        _: Now,
        output: core::Output,
        actions: &mut Actions<Event, ()>,
    ) {
        match output {
            core::Output::Transmit(bytes) => actions.send(self.0, bytes),
            core::Output::Event(event) => actions.event(event),
            _ => actions.close(self.0),
        }
    }
}

/// What a tool does next.
enum ToolStep {
    Stream(CallId),
    Finish { call: CallId, fails: bool },
}

/// An agent whose tool gives up to three pieces of output at moments drawn by chance, then an end.
struct AgentWire {
    link: LinkId,
    chance: IdSource,
}

impl AgentWire {
    fn run_tool(&mut self, call: &CallId, actions: &mut Actions<Event, ToolStep>) {
        let mut after = Duration::ZERO;
        for left in (0..=self.chance.bits() % 4).rev() {
            after += Duration::from_millis(self.chance.bits() % 700);
            let call = call.clone();
            let step = if left > 0 {
                ToolStep::Stream(call)
            } else {
                let fails = self.chance.bits().is_multiple_of(3);
                ToolStep::Finish { call, fails }
            };
            actions.answer(after, step);
        }
    }
}

impl Wiring<AgentConnection> for AgentWire {
    type Event = Event;
    type Answer = ToolStep;

    fn deliver(&mut self, agent: &mut AgentConnection, now: Now, arrival: Arrival<'_, ToolStep>) {
        // The connection or the call may have ended before: then the agent refuses.
        match arrival {
            Arrival::Bytes(_, bytes) => drop(agent.handle_input(now, Input::Bytes(bytes))),
            Arrival::Answer(ToolStep::Stream(call)) => {
                drop(agent.stream(now, &call, Chunk::text(Channel::Stdout, "tick")));
            }
            Arrival::Answer(ToolStep::Finish { call, fails }) => {
                let result = if fails {
                    Err(ErrorObject::of(ErrorCode::ToolFailed, "no luck"))
                } else {
                    Ok(object(&json!({})))
                };
                drop(agent.finish(now, &call, result));
            }
            _ => drop(agent.handle_input(now, Input::Eof)),
        }
    }

    fn perform(
        &mut self,
        agent: &mut AgentConnection,
        now: Now,
        output: agent::Output,
        actions: &mut Actions<Event, ToolStep>,
    ) {
        match output {
            agent::Output::Transmit(bytes) => actions.send(self.link, bytes),
            agent::Output::Call(call) => self.run_tool(&call.call_id, actions),
            agent::Output::Close(_) => actions.close(self.link),
            agent::Output::Event(agent::Event::Welcomed { .. }) => {
                agent.register(now, vec![spec("echo")], false).unwrap();
            }
            _ => {}
        }
    }
}

fn call(lab: &mut Lab<Event>, core: NodeId<CoreConnection>, timeout: Duration) -> Option<CallId> {
    lab.with(core, |core, now| {
        let request =
            CallRequest::new(format!("{AGENT}/echo"), object(&json!({}))).with_timeout(timeout);
        core.call_tool(now, request.with_correlation_id("run")).ok()
    })
}

/// One run; gives how many calls were made and how many succeeded.
fn run(seed: u64, faults: Faults) -> (usize, usize) {
    let limits = Limits::default().with_max_inflight_requests(3);
    let mut lab = Lab::new(seed);
    let link = lab.next_link();
    let core = new_core(Config::default().with_limits(limits));
    let core = lab.add(core, CoreWire(link));
    let wire = AgentWire {
        link,
        chance: IdSource::seeded(seed ^ 7),
    };
    let agent = lab.add(new_agent(Limits::default()), wire);
    lab.connect(core, agent, LinkKind::Stream, faults);
    lab.run_for(Duration::from_secs(1), 10_000);
    let mut chance = IdSource::seeded(seed);
    let mut made = Vec::new();
    for _ in 0..12 {
        let timeout = Duration::from_millis(200 + chance.bits() % 3_000);
        made.extend(call(&mut lab, core, timeout));
        lab.run_for(Duration::from_millis(chance.bits() % 300), 10_000);
        if chance.bits().is_multiple_of(4)
            && let Some(id) = made.last()
        {
            lab.with(core, |core, now| drop(core.cancel(now, id, None)));
        }
    }
    lab.run_for(Duration::from_secs(30), 100_000);
    check(&lab, &made);
    let succeeded = lab
        .events()
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Ended(_, o) if o.error.is_none()));
    (made.len(), succeeded.count())
}

fn check(lab: &Lab<Event>, made: &[CallId]) {
    let mut ends: BTreeMap<&CallId, usize> = BTreeMap::new();
    let mut seqs: BTreeMap<&CallId, u64> = BTreeMap::new();
    for (_, _, event) in lab.events() {
        match event {
            Event::Ended(id, outcome) => {
                assert_eq!(
                    outcome.error.is_none(),
                    outcome.status.as_str() == "succeeded"
                );
                *ends.entry(id).or_default() += 1;
            }
            Event::Stream(id, chunk) => {
                assert!(!ends.contains_key(id), "output behind the end");
                let last = seqs.entry(id).or_default();
                assert_eq!(chunk.seq, *last + 1);
                *last = chunk.seq;
            }
            Event::Audit(audit) if audit.name.as_str() == "tool.call_completed" => {
                assert_eq!(audit.correlation_id.as_deref(), Some("run"));
            }
            _ => {}
        }
    }
    assert_eq!(ends.len(), made.len(), "every call ends");
    assert!(ends.values().all(|n| *n == 1), "and ends once");
}

// spec: OSW-4.3-7
// spec: OSW-2-8
#[test]
fn every_call_ends_once_on_a_bad_day() {
    let (mut made, mut succeeded) = (0, 0);
    for seed in 0..300 {
        let (calls, good) = run(seed, Faults::rough());
        made += calls;
        succeeded += good;
    }
    assert_eq!(made, 300 * 12);
    assert!(
        succeeded > made / 4 && succeeded < made,
        "{succeeded} of {made}"
    );
}

// spec: OSW-4.5-5
#[test]
fn every_call_ends_once_when_the_stream_breaks() {
    let made: usize = (0..300)
        .map(|seed| run(seed, Faults::rough().with_sever(20)).0)
        .sum();
    assert!(made > 300 && made < 300 * 12, "{made}");
}
