//! The ledgers against what a router holds, counted again from the beginning after whatever happens.

use core::time::Duration;

use serde_json::json;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

use super::*;
use crate::ledger::{Ledger, Share};
use crate::message::ToolSpec;

const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A router that is driven at random, and what those around it hold.
struct Play {
    router: Router,
    dice: IdSource,
    now: Now,
    sent: Vec<(RouteId, Arc<str>, Box<CallRequest>)>,
    results: Vec<Outcome>,
    /// Calls that found no room.
    refused: usize,
}

fn object(text: &str) -> RawObject {
    RawObject::new(RawBuf::parse(&json!({"text": text}).to_string()).unwrap()).unwrap()
}

impl Play {
    fn new(seed: u64) -> Self {
        let config = Config::default()
            .with_restart(RestartPolicy::OnFailure)
            .with_max_agent_bytes(1 << 20);
        let mut play = Self {
            router: Router::new(config).unwrap(),
            dice: IdSource::seeded(seed),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            sent: Vec::new(),
            results: Vec::new(),
            refused: 0,
        };
        AGENTS.iter().for_each(|agent| play.up(agent));
        play
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.dice.bits() % bound as u64).unwrap()
    }

    fn up(&mut self, agent: &str) {
        let tool = |name| {
            let mut tool = ToolSpec::local(name, "d", RawObject::empty());
            tool.tool_id = format!("{agent}/{name}");
            Arc::new(tool)
        };
        let tools = ["s", "t"].map(tool).to_vec();
        let agent = agent.to_owned();
        self.router
            .handle_input(self.now, Input::AgentUp { agent, tools });
    }

    fn step(&mut self) {
        let agent = AGENTS[self.below(3)].to_owned();
        match self.below(12) {
            0 => self.up(&agent),
            1 => {
                let ended = [Ended::Failed, Ended::Well][self.below(2)];
                self.router
                    .handle_input(self.now, Input::AgentDown { agent, ended });
            }
            2..=6 => self.call(&agent),
            7 => {
                let routes: Vec<_> = self.router.routes.keys().copied().collect();
                if !routes.is_empty() {
                    let route = routes[self.below(routes.len())];
                    let _ = self.router.cancel(self.now, route);
                }
            }
            8..=10 => self.end(),
            _ => {
                let left = self.below(12);
                self.results.truncate(left);
                self.now = self
                    .now
                    .plus(Duration::from_millis(self.dice.bits() % 2_000));
                self.router.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    fn call(&mut self, agent: &str) {
        let tool = ["s", "t"][self.below(2)];
        let input = object(&"x".repeat(self.below(3) * 20_000));
        let mut request = CallRequest::new(format!("{agent}/{tool}"), input);
        if self.below(3) > 0 {
            request.idempotency_key = Some(format!("key-{}", self.below(30)));
        }
        request.timeout = (self.below(2) == 0).then_some(Duration::from_secs(1));
        let refused = self.router.call(self.now, request).err();
        self.refused += usize::from(refused == Some(Refused::Busy));
    }

    fn end(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let at = self.below(self.sent.len());
        let (route, agent, request) = self.sent.swap_remove(at);
        drop(request);
        let mut outcome = Outcome::canceled("gone");
        if self.below(4) > 0 {
            let output = object(&"y".repeat(self.below(40_000)));
            (outcome.status, outcome.error) = (Status::Succeeded, None);
            (outcome.output, outcome.by_agent) = (Some(output), true);
            outcome.enter(&self.router.ledger(&agent));
        }
        let outcome = Box::new(outcome);
        self.router
            .handle_input(self.now, Input::Ended { route, outcome });
    }

    fn drain(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                Output::Send {
                    route,
                    agent,
                    request,
                } => self.sent.push((route, agent, request)),
                Output::Ended { outcome, .. } => self.results.push(*outcome),
                _ => {}
            }
        }
    }

    /// The bytes of a share, of all agents together.
    fn entered(&mut self, share: Share) -> usize {
        let ledgers = AGENTS.map(|agent| self.router.ledger(agent));
        let held = |ledger: &Ledger| {
            let bytes = ledger.held_bytes_of(share);
            assert!(bytes <= ledger.max_bytes_of(share), "{share:?}");
            bytes
        };
        ledgers.iter().map(held).sum()
    }

    fn check(&mut self) {
        let routes = self.router.routes.values();
        // The requests of this play have no ids and no callers.
        let bytes = |route: &Route| {
            let request = CallRequest::new(&*route.tool, RawObject::empty());
            Route::bytes(&request, route.key.as_ref())
        };
        let routes = routes.map(bytes);
        let sent = self.sent.iter().map(|(.., request)| request.weight());
        let (mut inputs, mut remembered) = (0, 0);
        for (key, input, end) in self.router.memory.entries() {
            match end {
                Some(end) => remembered += self.router.memory.bytes_with(key, end.weight()),
                None => inputs += input,
            }
        }
        let calls = routes.sum::<usize>() + sent.sum::<usize>() + inputs;
        let results: usize = self
            .results
            .iter()
            .map(|outcome| outcome.charge.bytes())
            .sum();
        assert_eq!(self.entered(Share::Calls), calls);
        assert_eq!(self.entered(Share::Remembered), remembered);
        assert_eq!(self.entered(Share::Results), results);
        for outcome in &self.results {
            assert!(!outcome.by_agent || outcome.charge.bytes() > outcome.weight());
        }
    }

    /// Results that found no room.
    fn too_large(&self) -> usize {
        let code = |outcome: &&Outcome| outcome.error.as_ref().map(|error| error.code.clone());
        let is_ours = |outcome: &&Outcome| code(outcome) == Some(ErrorCode::ToolOutputTooLarge);
        self.results.iter().filter(is_ours).count()
    }

    fn remembered(&self) -> usize {
        let entries = self.router.memory.entries();
        entries.filter(|(.., end)| end.is_some()).count()
    }

    /// Ends all agents, and the calls of those that were replaced.
    fn end_all(&mut self) {
        for agent in AGENTS.map(str::to_owned) {
            let stopping = Input::AgentStopping {
                agent: agent.clone(),
            };
            self.router.handle_input(self.now, stopping);
            let ended = Ended::Asked;
            let down = Input::AgentDown { agent, ended };
            self.router.handle_input(self.now, down);
        }
        self.drain();
        self.check();
        while let Some((route, ..)) = self.sent.pop() {
            let outcome = Box::new(Outcome::canceled("gone"));
            let ended = Input::Ended { route, outcome };
            self.router.handle_input(self.now, ended);
        }
        self.drain();
        self.results.clear();
        self.check();
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn the_ledgers_say_what_is_held_whatever_happens() {
    let (mut refused, mut too_large, mut remembered) = (0, 0, 0);
    for seed in 0..24 {
        let mut play = Play::new(seed);
        for _ in 0..600 {
            play.step();
            play.check();
            too_large += play.too_large();
        }
        refused += play.refused;
        remembered += play.remembered();
        play.end_all();
        assert_eq!(play.entered(Share::Calls), 0);
        assert_eq!(play.entered(Share::Tools), 0);
        // What is remembered outlives its agent, and goes with the router.
        let ledgers = AGENTS.map(|agent| play.router.ledger(agent));
        drop(play);
        assert!(ledgers.iter().all(|ledger| ledger.held_bytes() == 0));
    }
    let seen = [refused, too_large, remembered];
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}
