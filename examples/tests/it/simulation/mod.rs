//! All five protocols in one seeded simulation.
//!
//! A plan of four steps runs: a governed task, a tool call, a job of the fleet, a run of an agent. Every role is its
//! own process on virtual time; plan, hub and agent run store what they do, and each may die at any write. The test
//! is the application between the machines: it starts what a step asks for and gives the result back.
//!
//! Set `UBOS_SEED` to run one seed again, and `UBOS_CRASH` to crash at one durable effect of it; `UBOS_SEEDS` for as many seeds.

mod agent_run;
mod fleet;
mod plan;
mod task;
mod tool;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use sacp::runner::{self, Runner, Ticket};
use ubos_common::json::RawBuf;
use ubos_common::testing::{CrashPoint, Lab, NodeId};

/// What a machine tells the application.
#[derive(Debug)]
enum Event {
    /// The plan asks for a step.
    Dispatch(Ticket, String),
    /// The plan has ended.
    PlanEnded(String),
    /// A step has its result, as JSON.
    Done(&'static str, String),
    /// The hub is up again after a crash.
    HubStarted,
}

/// How long a crashed process stays down.
const DOWN: Duration = Duration::from_millis(700);

/// Events of the lab in one run; more means that something goes round in circles.
const MAX_STEPS: usize = 50_000;

/// The application: what it started, and which results it has.
struct Mission {
    lab: Lab<Event>,
    plan: NodeId<Runner>,
    task: task::Ends,
    tool: tool::Ends,
    fleet: fleet::Ends,
    agent_run: agent_run::Process,
    /// The attempt that waits for each tool.
    waiting: BTreeMap<String, Ticket>,
    results: BTreeMap<&'static str, String>,
    ended: Vec<String>,
    ledger: Ledger,
}

/// What really happened outside, for the invariants.
type Ledger = Rc<RefCell<Outside>>;

#[derive(Debug, Default)]
struct Outside {
    /// How often the handler of the task ran.
    task_runs: usize,
    /// How often the tool ran.
    tool_runs: usize,
    /// Sessions that the fleet agent worked on.
    sessions: usize,
    /// Ends of the job that were reported.
    job_ends: usize,
    /// How often the agent's own tool ran, and how often after its result was recorded.
    lookups: usize,
    repeated_lookups: usize,
}

impl Mission {
    fn new(seed: u64, crash: &CrashPoint) -> Self {
        let ledger = Ledger::default();
        let mut lab = Lab::new(seed);
        let task = task::add(&mut lab, &ledger);
        let tool = tool::add(&mut lab, &ledger);
        let fleet = fleet::add(&mut lab, seed, crash, &ledger);
        let plan = plan::add(&mut lab, crash);
        Self {
            lab,
            plan,
            task,
            tool,
            fleet,
            agent_run: agent_run::Process::new(crash, &ledger),
            waiting: BTreeMap::new(),
            results: BTreeMap::new(),
            ended: Vec::new(),
            ledger,
        }
    }

    /// Runs to the end of the plan.
    fn run(&mut self) {
        for _ in 0..MAX_STEPS {
            self.handle_events();
            if !self.ended.is_empty() || self.lab.step().is_none() {
                return;
            }
        }
    }

    fn handle_events(&mut self) {
        loop {
            let events = self.lab.take_events();
            if events.is_empty() {
                return;
            }
            for (_, _, event) in events {
                self.handle_event(event);
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Dispatch(ticket, tool) => {
                self.waiting.insert(tool.clone(), ticket);
                self.start(&tool);
            }
            Event::Done(tool, result) => {
                // A second result for a step is the same result.
                let kept = self.results.entry(tool).or_insert_with(|| result.clone());
                assert_eq!(*kept, result, "{tool} has two results");
                self.answer(tool);
            }
            Event::HubStarted => fleet::reconnect(&mut self.lab, &self.fleet),
            Event::PlanEnded(answer) => self.ended.push(answer),
        }
    }

    /// Starts what a step asks for, or gives its result where it is there already: the plan may have crashed and
    /// ask again.
    fn start(&mut self, tool: &str) {
        if self.results.contains_key(tool) {
            return self.answer(tool);
        }
        match tool {
            "TASK" => task::send(&mut self.lab, &self.task),
            "CALL" => tool::call(&mut self.lab, &mut self.tool),
            "JOB" => fleet::submit(&mut self.lab, &mut self.fleet),
            "RUN" => self.agent_run.start(&mut self.lab),
            other => panic!("the plan has no tool {other}"),
        }
    }

    fn answer(&mut self, tool: &str) {
        let Some(result) = self.results.get(tool) else {
            return;
        };
        let output = RawBuf::parse(result).unwrap();
        if let Some(ticket) = self.waiting.remove(tool)
            && self.lab.is_up(self.plan)
        {
            self.lab.with(self.plan, |plan, now| {
                // The plan that asked may have crashed since; its successor asks again.
                let _ = plan.handle_input(now, runner::Input::Succeeded { ticket, output });
            });
        }
    }
}

const ANSWER: &str =
    r#"{"1":{"governed":true},"2":{"called":true},"3":"done by the fleet","4":"It will rain."}"#;

/// One mission, and what must hold of it.
fn check(seed: u64, crash: &CrashPoint, crashed_at: Option<usize>) {
    let again = || match crashed_at {
        None => format!("UBOS_SEED={seed} cargo test -p examples --test it simulation"),
        Some(n) => {
            format!("UBOS_SEED={seed} UBOS_CRASH={n} cargo test -p examples --test it simulation")
        }
    };
    let mut mission = Mission::new(seed, crash);
    mission.run();
    let outside = mission.ledger.borrow();
    assert_eq!(mission.ended, [ANSWER], "{outside:?}; again: {}", again());
    // SAP: lost and doubled messages do not run a handler twice.
    assert_eq!(outside.task_runs, 1, "again: {}", again());
    // OpenSentience: one call, one run.
    assert_eq!(outside.tool_runs, 1, "again: {}", again());
    // UAP hub: every job has one end, and without a crash one session.
    assert_eq!(outside.job_ends, 1, "again: {}", again());
    let crashes = usize::from(crashed_at.is_some_and(|n| crash.seen() > n));
    assert!(
        (1..=1 + crashes).contains(&outside.sessions),
        "{outside:?}; again: {}",
        again()
    );
    // UAP: what was recorded is not done again; what was asked and not recorded may be.
    assert_eq!(outside.repeated_lookups, 0, "again: {}", again());
    assert!(
        (1..=1 + crashes).contains(&outside.lookups),
        "{outside:?}; again: {}",
        again()
    );
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

// spec: SACP-3-3, SAP-5-9, OSW-4.3-7, HUB-6-1, UAP-12-5
#[test]
fn five_protocols_survive_crashes() {
    let many = number("UBOS_SEEDS").unwrap_or(6);
    let seeds = number("UBOS_SEED").map_or(0..many, |seed| seed..seed + 1);
    for seed in seeds {
        if let Some(crash) = number("UBOS_CRASH") {
            let crash = usize::try_from(crash).unwrap();
            check(seed, &CrashPoint::at(crash), Some(crash));
            continue;
        }
        let calm = CrashPoint::never();
        check(seed, &calm, None);
        assert!(calm.seen() >= 10, "{} durable effects", calm.seen());
        let mut crashed_at = 0;
        CrashPoint::at_each(|crash| {
            check(seed, crash, Some(crashed_at));
            crashed_at += 1;
        });
    }
}
