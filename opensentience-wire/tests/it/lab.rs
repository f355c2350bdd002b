//! Both roles in the lab: hundreds of runs over streams that are split, joined and severed.

use std::collections::BTreeMap;
use std::time::Duration;

use opensentience_wire::error::{ErrorCode, ErrorObject};
use opensentience_wire::limits::Limits;
use opensentience_wire::message::Channel;
use opensentience_wire::role::agent::{AgentConnection, Chunk};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use opensentience_wire::role::{CallId, Input, agent, core};
use serde_json::json;
use ubos_common::id::IdSource;
use ubos_common::testing::legacy::{Action, Lab, Node};
use ubos_common::testing::{Faults, LinkId, LinkKind};
use ubos_common::time::{Mono, Now};

use crate::kit::{AGENT, at, new_agent, new_core, object, spec};

const LINK: LinkId = LinkId::new(0);

enum Peer {
    Core(Box<CoreConnection>),
    Agent(Box<AgentConnection>, Tools),
}

/// What an agent's tools do: pieces of output at moments drawn by chance, then an end.
struct Tools {
    chance: IdSource,
    due: Vec<(Mono, CallId, u64)>,
    now: Mono,
}

impl Tools {
    fn start(&mut self, id: CallId) {
        let steps = self.chance.bits() % 4;
        self.later(id, steps);
    }

    fn later(&mut self, id: CallId, steps: u64) {
        let span = Duration::from_millis(self.chance.bits() % 700);
        self.due.push((self.now.saturating_add(span), id, steps));
    }

    fn run(&mut self, now: Now, conn: &mut AgentConnection) {
        self.now = now.mono;
        let (ready, rest) = self.due.drain(..).partition(|(at, ..)| *at <= now.mono);
        self.due = rest;
        let ready: Vec<(Mono, CallId, u64)> = ready;
        for (_, id, steps) in ready {
            if steps > 0 {
                let _ = conn.stream(now, &id, Chunk::text(Channel::Stdout, "tick"));
                self.later(id, steps - 1);
            } else {
                let failed = self.chance.bits().is_multiple_of(3);
                let error = ErrorObject::of(ErrorCode::ToolFailed, "no luck");
                let _ = conn.finish(
                    now,
                    &id,
                    if failed {
                        Err(error)
                    } else {
                        Ok(object(&json!({})))
                    },
                );
            }
        }
    }
}

impl Node for Peer {
    type Event = Event;

    fn receive(&mut self, now: Now, _: LinkId, bytes: &[u8]) {
        match self {
            Self::Core(conn) => conn.handle_input(now, Input::Bytes(bytes)).unwrap(),
            Self::Agent(conn, _) => drop(conn.handle_input(now, Input::Bytes(bytes))),
        }
    }

    fn broken(&mut self, now: Now, _: LinkId) {
        let _ = match self {
            Self::Core(conn) => conn.handle_input(now, Input::Eof),
            Self::Agent(conn, _) => conn.handle_input(now, Input::Eof),
        };
    }

    fn timeout(&mut self, now: Now) {
        match self {
            Self::Core(conn) => conn.handle_timeout(now),
            Self::Agent(conn, tools) => {
                conn.handle_timeout(now);
                tools.run(now, conn);
            }
        }
    }

    fn next_timeout(&self) -> Option<Mono> {
        match self {
            Self::Core(conn) => conn.poll_timeout(),
            Self::Agent(conn, tools) => conn
                .poll_timeout()
                .into_iter()
                .chain(tools.due.iter().map(|(at, ..)| *at))
                .min(),
        }
    }

    fn poll(&mut self) -> Option<Action<Event>> {
        loop {
            match self {
                Self::Core(conn) => match conn.poll_output()? {
                    core::Output::Transmit(bytes) => return Some(Action::Send(LINK, bytes)),
                    core::Output::Event(event) => return Some(Action::Event(event)),
                    _ => return Some(Action::Close(LINK)),
                },
                Self::Agent(conn, tools) => match conn.poll_output()? {
                    agent::Output::Transmit(bytes) => return Some(Action::Send(LINK, bytes)),
                    agent::Output::Call(call) => tools.start(call.call_id),
                    agent::Output::Close(_) => return Some(Action::Close(LINK)),
                    agent::Output::Event(agent::Event::Welcomed { .. }) => {
                        let now = Now::new(tools.now, at(0).wall);
                        conn.register(now, vec![spec("echo")], false).unwrap();
                    }
                    _ => {}
                },
            }
        }
    }
}

fn call(lab: &mut Lab<Peer>, timeout: Duration) -> Option<CallId> {
    lab.with(0, |peer, now| match peer {
        Peer::Core(conn) => {
            let request =
                CallRequest::new(format!("{AGENT}/echo"), object(&json!({}))).with_timeout(timeout);
            conn.call_tool(now, request.with_correlation_id("run")).ok()
        }
        Peer::Agent(..) => None,
    })
}

fn cancel(lab: &mut Lab<Peer>, id: &CallId) {
    lab.with(0, |peer, now| {
        if let Peer::Core(conn) = peer {
            let _ = conn.cancel(now, id, None);
        }
    });
}

/// One run; gives how many calls were made and how many succeeded.
fn run(seed: u64, faults: Faults) -> (usize, usize) {
    let limits = Limits::default().with_max_inflight_requests(3);
    let core = new_core(Config::default().with_limits(limits.clone()));
    let tools = Tools {
        chance: IdSource::seeded(seed ^ 7),
        due: Vec::new(),
        now: Mono::ZERO,
    };
    let mut lab = Lab::new(
        seed,
        [
            Peer::Core(Box::new(core)),
            Peer::Agent(Box::new(new_agent(Limits::default())), tools),
        ],
    );
    lab.connect(0, 1, LinkKind::Stream, faults);
    lab.with(1, |_, _| ());
    lab.run_for(Duration::from_secs(1), 10_000);
    let mut chance = IdSource::seeded(seed);
    let mut made = Vec::new();
    for _ in 0..12 {
        made.extend(call(
            &mut lab,
            Duration::from_millis(200 + chance.bits() % 3_000),
        ));
        lab.run_for(Duration::from_millis(chance.bits() % 300), 10_000);
        if chance.bits().is_multiple_of(4)
            && let Some(id) = made.last()
        {
            cancel(&mut lab, id);
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

fn check(lab: &Lab<Peer>, made: &[CallId]) {
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
