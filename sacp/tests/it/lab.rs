//! The machines in the lab: lost, doubled and late messages, and crashes at every save.

use core::time::Duration;

use sacp::Retry;
use sacp::role::Answer;
use sacp::role::orchestrator::{Input, Orchestrator, OrchestratorConfig, Output};
use sacp::runner::{self, Config, End, Outcome, Recovery, Rule, Runner, Ticket};
use sacp::{Message, Reply};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::testing::{Actions, Arrival, CrashPoint, Faults, Lab, LinkId, LinkKind, Wiring};
use ubos_common::time::{Mono, Now, Timestamp};

use crate::orchestrator::library;

const LINK: LinkId = LinkId::new(0);

const PLAN: &str = r#"{"msg_id":"m","g":"G","plan":[
    {"parallel":[["get","ONE",{}],["get","TWO",{}]]},["join","MERGE",{}],["get","ONE",{}]]}"#;

fn message() -> Message {
    Message::decode(PLAN.as_bytes()).unwrap()
}

/// Frames an act or its answer: `step.attempt.epoch` on the first line, then JSON.
fn frame(ticket: Ticket, json: &[u8]) -> Vec<u8> {
    let mut frame = format!("{}.{}.{}\n", ticket.step, ticket.attempt, ticket.epoch).into_bytes();
    frame.extend_from_slice(json);
    frame
}

fn unframe(frame: &[u8]) -> (Ticket, &[u8]) {
    let end = frame.iter().position(|byte| *byte == b'\n').unwrap();
    let line = core::str::from_utf8(&frame[..end]).unwrap();
    let mut numbers = line.split('.');
    let ticket = Ticket {
        step: numbers.next().unwrap().parse().unwrap(),
        attempt: numbers.next().unwrap().parse().unwrap(),
        epoch: numbers.next().unwrap().parse().unwrap(),
    };
    (ticket, &frame[end + 1..])
}

/// Answers every act with the number of its step.
struct Agent(Outbox<Vec<u8>>);

impl Machine for Agent {
    type Input<'a> = &'a [u8];
    type Output = Vec<u8>;
    type Error = core::convert::Infallible;

    fn handle_input(&mut self, _: Now, bytes: &[u8]) -> Result<(), Self::Error> {
        let (ticket, _) = unframe(bytes);
        let answer = format!(
            r#"{{"g":"G","plan":[],"ctx":{{"result":{}}},"state":"DONE"}}"#,
            ticket.step
        );
        self.0.push(frame(ticket, answer.as_bytes()));
        Ok(())
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.0.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// The link between an orchestrator and its agents.
struct Wire;

impl Wiring<Agent> for Wire {
    type Event = Answer;
    type Answer = ();

    fn deliver(&mut self, agent: &mut Agent, now: Now, arrival: Arrival<'_, ()>) {
        if let Arrival::Bytes(_, bytes) = arrival {
            agent.handle_input(now, bytes).unwrap();
        }
    }

    fn perform(
        &mut self,
        _: &mut Agent,
        _: Now,
        bytes: Vec<u8>,
        actions: &mut Actions<Answer, ()>,
    ) {
        actions.send(LINK, bytes);
    }
}

impl<R: sacp::registry::Registry> Wiring<Orchestrator<R>> for Wire {
    type Event = Answer;
    type Answer = ();

    fn deliver(&mut self, machine: &mut Orchestrator<R>, now: Now, arrival: Arrival<'_, ()>) {
        if let Arrival::Bytes(_, bytes) = arrival {
            let (ticket, json) = unframe(bytes);
            let bytes = json.to_vec();
            // A doubled or late answer is refused, and changes nothing.
            let _ = machine.handle_input(now, Input::Answered { ticket, bytes });
        }
    }

    fn perform(
        &mut self,
        _: &mut Orchestrator<R>,
        _: Now,
        output: Output,
        actions: &mut Actions<Answer, ()>,
    ) {
        match output {
            Output::Delegate(delegation) => {
                actions.send(LINK, frame(delegation.ticket, &delegation.message.encode()));
            }
            Output::Answer(answer) => actions.event(*answer),
            _ => {}
        }
    }
}

// spec: SACP-3-2, SACP-3-3
#[test]
fn a_message_is_answered_once_over_a_bad_network() {
    let mut faults = Faults::rough();
    (faults.drop, faults.duplicate, faults.reorder) = (300, 300, 300);
    for seed in 0..40 {
        let retry = Recovery::Retry(Retry::fixed(40, Duration::from_millis(10)));
        let run = Config::default()
            .with_step_timeout(Duration::from_millis(200))
            .with_rule(Rule {
                recoveries: vec![retry],
                ..Rule::default()
            });
        let config = OrchestratorConfig::default().with_run(run);
        let mut lab = Lab::new(seed);
        let agent = lab.add(Agent(Outbox::new(64)), Wire);
        // It delegates as soon as it is made, so the first attempt is lost before the link is there.
        let start = lab.now();
        let ids = IdSource::seeded(seed);
        let machine = Orchestrator::new(start, message(), library(), config, ids).unwrap();
        let orchestrator = lab.add(machine, Wire);
        lab.connect(orchestrator, agent, LinkKind::Messages, faults.clone());
        lab.run(20_000);
        let answers: Vec<Answer> = lab.take_events().into_iter().map(|(.., it)| it).collect();
        let [Answer::Reply(Reply::Message(reply))] = &answers[..] else {
            panic!("seed {seed}: {answers:?}")
        };
        let ctx = reply.context.as_ref().unwrap();
        assert_eq!(
            ctx["results"].as_str(),
            r#"{"1":1,"2":2,"3":[1,2],"4":4}"#,
            "seed {seed}"
        );
        assert!(lab.machine(orchestrator).is_closed(), "seed {seed}");
    }
}

/// Saves the run at every dispatch, and may crash behind a save.
struct Store {
    saved: Vec<u8>,
    crash: CrashPoint,
}

impl Wiring<Runner> for Store {
    type Event = Box<Outcome>;
    type Answer = Ticket;

    fn deliver(&mut self, runner: &mut Runner, now: Now, arrival: Arrival<'_, Ticket>) {
        let Arrival::Answer(ticket) = arrival else {
            return;
        };
        let output = RawBuf::from_serialize(&ticket.step).unwrap();
        let input = runner::Input::Succeeded { ticket, output };
        runner.handle_input(now, input).unwrap();
    }

    fn perform(
        &mut self,
        runner: &mut Runner,
        now: Now,
        output: runner::Output,
        actions: &mut Actions<Box<Outcome>, Ticket>,
    ) {
        match output {
            runner::Output::Dispatch { ticket, .. } => {
                self.saved = runner.save(now).unwrap();
                if self.crash.is_now() {
                    return actions.crash(Duration::from_secs(1));
                }
                actions.answer(Duration::from_millis(20), ticket);
            }
            runner::Output::Ended(outcome) => actions.event(outcome),
            _ => {}
        }
    }

    fn restart(&mut self, now: Now, _: &mut Actions<Box<Outcome>, Ticket>) -> Option<Runner> {
        let mut runner = Runner::new(&message(), Config::default()).unwrap();
        runner.restore(now, &self.saved).unwrap();
        Some(runner)
    }
}

// spec: SACP-3-1
#[test]
fn a_run_survives_a_crash_at_every_save() {
    let mut runs = 0;
    CrashPoint::at_each(|crash| {
        let mut lab = Lab::new(7);
        let mut runner = Runner::new(&message(), Config::default()).unwrap();
        runner.start(Now::new(Mono::ZERO, Timestamp::EPOCH));
        let store = Store {
            saved: Vec::new(),
            crash: crash.clone(),
        };
        lab.add(runner, store);
        lab.run(1_000);
        let ends = lab.take_events();
        let [(_, _, outcome)] = &ends[..] else {
            panic!("{ends:?}")
        };
        assert_eq!(outcome.end, End::Done);
        let outputs: Vec<_> = outcome
            .steps
            .iter()
            .map(|step| step.output.as_ref().unwrap().as_str().to_owned())
            .collect();
        assert_eq!(outputs, ["1", "2", "3", "4"]);
        runs += 1;
    });
    assert!(runs > 4, "{runs}");
}
