//! What is asked of an endpoint.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON value is null, and tasks are made here"
)]

use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::violation::Level;

use super::judges::{
    acked, bypassed, cache_only, cancelled, ended, evident, explained, of_its_task, on_http,
    ordered, same_result, timed_out, turned_away,
};
use super::reference::{Fault, Honest};
use super::{Endpoint, Posted, Posts};
use crate::{Case, Judge, Kit, Reach, Recorder, Verdict};

/// The kit of a live endpoint: receipts, order, ids, evidence, deadline, cancelling, cache modes and copies of a task.
#[must_use]
pub fn endpoint_kit() -> Kit<Posts> {
    let cases = receipts().into_iter().chain(results()).chain(beyond());
    Kit::new("sap endpoint", cases)
}

fn receipts() -> [Case<Posts>; 4] {
    [
        case(
            ("SAP-5-9", "an Ack comes before the results of a task"),
            |asked| asked.lines(|_| {}),
            acked,
            Fault::NoAck,
        ),
        case(
            ("SAP-5-2", "a task ends in a result"),
            |asked| asked.lines(|_| {}),
            ended,
            Fault::NoEnd,
        )
        .also_breaks(&["SAP-5-8"]),
        case(
            (
                "SAP-4.3-2",
                "what is no valid task is a Nack and nothing else",
            ),
            |asked| asked.lines(|task| drop(task["constitutionalContext"].take())),
            |turns| turned_away(turns, &["INVALID_TASK"]),
            Fault::TakesAnything,
        ),
        case(
            ("SAP-4.1-16", "a task for another agent is a Nack"),
            |asked| asked.lines(|task| task["target"]["agentId"] = json!("A-conformance-nobody")),
            |turns| turned_away(turns, &["NOT_FOUND", "FORBIDDEN"]),
            Fault::TakesForeign,
        ),
    ]
}

fn results() -> [Case<Posts>; 6] {
    [
        case(
            ("SAP-5-3", "statuses follow one another"),
            |asked| asked.lines(|_| {}),
            ordered,
            Fault::Disorder,
        )
        .at_level(Level::Should),
        case(
            ("SAP-5-5", "each message has the ids of its task"),
            |asked| asked.lines(|_| {}),
            of_its_task,
            Fault::OtherIds,
        ),
        case(
            ("SAP-4.2-3", "each result has its evidence"),
            |asked| asked.lines(|_| {}),
            evident,
            Fault::NoEvidence,
        ),
        case(
            ("SAP-6-3", "only the cache answers where the mode is only"),
            |asked| asked.whole(|task| mode(task, "only")),
            cache_only,
            Fault::IgnoresOnly,
        ),
        case(
            (
                "SAP-6-3",
                "the cache answers nothing where the mode is bypass",
            ),
            |asked| {
                asked.whole(|task| mode(task, "prefer"));
                asked.whole(|task| mode(task, "bypass"));
            },
            bypassed,
            Fault::IgnoresBypass,
        ),
        case(
            (
                "SAP-10-2",
                "a result is status 200, with the correlation id in its header",
            ),
            |asked| asked.whole(|_| {}),
            on_http,
            Fault::NoHeader,
        )
        .at_level(Level::Should),
    ]
}

fn beyond() -> [Case<Posts>; 5] {
    let advice = |case: Case<Posts>| case.at_level(Level::Advice);
    let late = |task: &mut Value| task["telemetry"] = json!({"deadline": "2001-01-01T00:00:00Z"});
    [
        advice(case(
            ("SAP-5-8", "a task whose deadline is over fails as TIMEOUT"),
            move |asked| asked.whole(late),
            timed_out,
            Fault::IgnoresDeadline,
        )),
        case(
            ("SAP-5-6", "a failed result has a message"),
            move |asked| asked.whole(late),
            explained,
            Fault::NoMessage,
        ),
        advice(case(
            ("SAP-5-10", "a task that comes again has the same result"),
            |asked| asked.twice(|_| {}),
            same_result,
            Fault::RunsAgain,
        )),
        advice(case(
            ("SAP-5-10", "another task of the same id is a Nack"),
            |asked| asked.twice(|task| task["tags"] = json!(["another"])),
            |turns| turned_away(turns.get(1..).unwrap_or_default(), &["INVALID_TASK"]),
            Fault::MixesTasks,
        )),
        advice(case(
            ("SAP-5-8", "a task that is cancelled ends as CANCELLED"),
            |asked| asked.cancelled(),
            cancelled,
            Fault::IgnoresCancel,
        )),
    ]
}

fn mode(task: &mut Value, mode: &str) {
    task["constitutionalContext"]["cachePolicy"] = json!({"mode": mode});
}

fn case(
    clause: (&'static str, &'static str),
    scenario: impl Fn(&mut Driven<'_>) + Send + Sync + 'static,
    judge: fn(&[Posted]) -> Verdict,
    fault: Fault,
) -> Case<Posts> {
    let play = move |peer: &mut (dyn Endpoint + 'static), recorder: &mut Recorder<Posted>| {
        // Each case has tasks of its own, and none of an earlier run.
        let salt = clause.1.bytes().fold(peer.work().seed, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(byte.into())
        });
        scenario(&mut Driven {
            ids: IdSource::seeded(salt),
            peer,
            recorder,
        });
    };
    let judge = move || Whole {
        judge,
        turns: Vec::new(),
    };
    let reference = || Box::new(Honest::default()) as Box<dyn Endpoint>;
    let mutant = move || Box::new(Honest::with(fault)) as Box<dyn Endpoint>;
    Case::new(Reach::Drive, clause, play, judge, reference, mutant)
}

/// An endpoint that is asked.
struct Driven<'a> {
    ids: IdSource,
    peer: &'a mut dyn Endpoint,
    recorder: &'a mut Recorder<Posted>,
}

impl Driven<'_> {
    fn task(&mut self) -> Value {
        let work = self.peer.work();
        json!({
            "protocolVersion": "2.0",
            "taskId": self.ids.uuid().to_string(),
            "correlationId": self.ids.uuid().to_string(),
            "issuedAt": "2025-09-28T10:15:23Z",
            "issuer": {"agentId": work.issuer, "agentKind": "agent"},
            "target": {"capability": work.capability},
            "constitutionalContext": {"pressureLevel": "instant"},
            "payload": work.payload,
        })
    }

    fn post(&mut self, task: &Value, wants_lines: bool) {
        let body = task.to_string().into_bytes();
        let response = self.peer.post(&body, wants_lines);
        self.recorder.record(Posted { body, response });
    }

    fn lines(&mut self, change: impl FnOnce(&mut Value)) {
        let mut task = self.task();
        change(&mut task);
        self.post(&task, true);
    }

    fn whole(&mut self, change: impl FnOnce(&mut Value)) {
        let mut task = self.task();
        change(&mut task);
        self.post(&task, false);
    }

    /// A task of slow work, which is cancelled.
    fn cancelled(&mut self) {
        let Some((capability, payload)) = self.peer.work().slow.clone() else {
            return self.recorder.peer_does_not_know("slow work");
        };
        let mut task = self.task();
        task["target"]["capability"] = json!(capability);
        task["payload"] = payload;
        let body = task.to_string().into_bytes();
        match self.peer.post_and_cancel(&body).transpose() {
            Some(response) => self.recorder.record(Posted { body, response }),
            None => self.recorder.peer_does_not_know("cancelling a task"),
        }
    }

    /// A task, and the same with a change.
    fn twice(&mut self, change: impl FnOnce(&mut Value)) {
        let mut task = self.task();
        self.post(&task, false);
        change(&mut task);
        self.post(&task, false);
    }
}

/// A judge of the whole exchange.
struct Whole {
    judge: fn(&[Posted]) -> Verdict,
    turns: Vec<Posted>,
}

impl Judge<Posted> for Whole {
    fn see(&mut self, line: &Posted) {
        self.turns.push(line.clone());
    }

    fn verdict(&mut self) -> Verdict {
        (self.judge)(&self.turns)
    }
}
