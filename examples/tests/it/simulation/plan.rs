//! The plan: a runner of SACP that is saved at every step.

use std::time::Duration;

use sacp::Message;
use sacp::runner::{Config, Output, Runner};
use ubos_common::id::IdSource;
use ubos_common::testing::{Actions, Arrival, CrashPoint, Lab, NodeId, Wiring};
use ubos_common::time::Now;

use super::{DOWN, Event};

const PLAN: &str = r#"{"msg_id":"m","g":"MISSION","plan":[
    ["do","TASK",{}],["do","CALL",{}],["do","JOB",{}],["do","RUN",{}]]}"#;

fn message() -> Message {
    Message::decode(PLAN.as_bytes()).unwrap()
}

fn runner() -> Runner {
    let config = Config::default().with_step_timeout(Duration::from_secs(3_600));
    Runner::new(&message(), config).unwrap()
}

pub(super) fn add(lab: &mut Lab<Event>, crash: &CrashPoint) -> NodeId<Runner> {
    let now = lab.now();
    let mut plan = runner();
    plan.start(now);
    let saved = None;
    let crash = crash.clone();
    lab.add(plan, Disk { saved, crash })
}

/// The last saved state of the plan.
struct Disk {
    saved: Option<Vec<u8>>,
    crash: CrashPoint,
}

impl Wiring<Runner> for Disk {
    type Event = Event;
    type Answer = ();

    fn deliver(&mut self, _: &mut Runner, _: Now, _: Arrival<'_, ()>) {}

    fn perform(
        &mut self,
        plan: &mut Runner,
        now: Now,
        output: Output,
        actions: &mut Actions<Event, ()>,
    ) {
        match output {
            Output::Dispatch { ticket, act, .. } => {
                self.saved = plan.save(now);
                if self.crash.is_now() {
                    return actions.crash(DOWN);
                }
                actions.event(Event::Dispatch(ticket, act.tool.clone()));
            }
            Output::Ended(outcome) => {
                let answer = outcome.answer(now.wall, &message(), &mut IdSource::seeded(2));
                let sacp::Reply::Message(answer) = answer else {
                    panic!("{answer:?}")
                };
                let results = answer.context.unwrap()["results"].as_str().to_owned();
                actions.event(Event::PlanEnded(results));
            }
            _ => {}
        }
    }

    fn restart(&mut self, now: Now, _: &mut Actions<Event, ()>) -> Option<Runner> {
        let mut plan = runner();
        match &self.saved {
            Some(saved) => plan.restore(now, saved).unwrap(),
            None => plan.start(now),
        }
        Some(plan)
    }
}
