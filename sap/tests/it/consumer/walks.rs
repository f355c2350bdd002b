//! Random walks keep the order of results.

use std::time::Duration;

use sap::role::consumer::{End, Input, Message, Progress, Record, Reply, Request};
use sap::{Accepted, Lifecycle, TaskResult};
use ubos_common::id::IdSource;
use ubos_common::time::Now;
use ubos_common::violation::Profile;

use super::table::TABLE;
use super::{Play, at, replies, text, whole};

/// What is recorded, in order.
struct Recorded {
    lifecycle: Lifecycle,
    results: Vec<TaskResult>,
}

impl Recorded {
    /// Gives one input, and looks at what it does.
    fn watch(&mut self, play: &mut Play, now: Now, input: Input) {
        let recording = match &play.open {
            Some((_, Request::Record(Record::Result(written)))) => Some(written.result.clone()),
            _ => None,
        };
        let is_recorded = matches!(
            &input,
            Input::Reply {
                reply: Reply::Recorded,
                ..
            }
        );
        let was_closed = play.machine.is_closed();
        let outcome = play.input(now, input);
        assert!(
            !was_closed || outcome.is_err(),
            "nothing comes after the end"
        );
        if let Some(result) = recording.filter(|_| is_recorded && outcome.is_ok()) {
            assert_eq!(self.lifecycle.accept(&result), Ok(Accepted::Moved));
            self.results.push(result);
        }
        let ((Some((_, Request::Deliver(Message::Result(told)))), _)
        | (_, Some(End::Answer(told)))) = (&play.open, &play.end)
        else {
            return;
        };
        assert!(
            self.results.contains(&told.result),
            "told before it is recorded"
        );
    }
}

fn drawn(play: &Play, chance: &mut IdSource) -> Input {
    let all = replies(play);
    let id = play
        .open
        .as_ref()
        .map(|open| open.0)
        .or(play.run)
        .unwrap_or(7);
    let reply = |name: &str| {
        let reply = all.iter().find(|reply| reply.0 == name).unwrap();
        let reply = reply.1.clone();
        Input::Reply { id, reply }
    };
    match chance.bits() % 40 {
        0 => Input::Cancel,
        1 => Input::Shutdown,
        2..=10 => Input::Report(Progress::running(Some(text("1")))),
        // One that fits the step, where there is one.
        11..=36 => match TABLE.iter().find(|row| row.0 == play.step()) {
            Some((_, ways, ..)) if !ways.is_empty() => {
                let way = usize::try_from(chance.bits()).unwrap_or(0) % (ways.len() + 2);
                reply(ways.get(way).unwrap_or(&ways[0]).0)
            }
            _ => reply("recorded"),
        },
        _ => {
            let any = usize::try_from(chance.bits()).unwrap_or(0) % all.len();
            reply(all[any].0)
        }
    }
}

// spec: SAP-5-3, SAP-5-5, SAP-10-1
#[test]
fn random_walks_keep_the_order_of_results() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut chance = IdSource::seeded(seed);
        let mut play = Play::new(&whole());
        let mut recorded = Recorded {
            lifecycle: Lifecycle::new(&play.task, Profile::Strict),
            results: Vec::new(),
        };
        let mut now = at(0);
        for _ in 0..60 {
            let input = drawn(&play, &mut chance);
            recorded.watch(&mut play, now, input);
            if chance.bits().is_multiple_of(12) {
                now = now.plus(Duration::from_secs(chance.bits() % 3_000));
            }
        }
        ends.insert(play.step());
    }
    for wanted in [
        "answer SUCCEEDED",
        "answer CANCELLED",
        "answer FAILED TIMEOUT",
        "lost",
    ] {
        assert!(ends.contains(wanted), "{wanted} in {ends:?}");
    }
}
