//! What is asked of an endpoint.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON value is null, and tasks are made here"
)]

use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::time::WholeSecond;
use ubos_common::violation::Level;

use super::judges::{
    ack_of_its_task, acked, bypassed, cache_only, cached_or_computed, cancelled, computed_anew,
    ended, evident, explained, misdirected, nacked, named_record, of_its_task, on_http, ordered,
    realigned, run_over, same_output, same_result, succeeded_or_missed, timed_out, turned_away,
    unacked,
};
use super::reference::{Fault, Honest};
use super::{Endpoint, Posted, Posts};
use crate::{Case, Judge, Kit, Reach, Recorder, Verdict};

/// The kit of a live endpoint: receipts, order, ids, evidence, deadlines, cancelling, cache policies and copies of a task.
#[must_use]
pub fn endpoint_kit() -> Kit<Posts> {
    let ways = receipts().into_iter().chain(results());
    let ways = ways.chain(shapes());
    let cases = ways.chain(modes()).chain(hits()).chain(beyond());
    Kit::new("sap endpoint", cases)
}

fn receipts() -> [Case<Posts>; 6] {
    let no_ack = |task: &mut Value| task["replyTo"] = json!({"expectAck": false});
    [
        case(
            ("SAP-5-9", "an Ack comes before the results of a task"),
            |asked| asked.lines(|_| {}),
            acked,
            Fault::NoAck,
        ),
        case(
            ("SAP-5-9", "no Ack comes where none is wanted"),
            move |asked| asked.lines(no_ack),
            unacked,
            Fault::AlwaysAck,
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
                "what is no valid task is turned away and not run",
            ),
            |asked| asked.lines(without_context),
            turned_away,
            Fault::TakesAnything,
        ),
        case(
            ("SAP-4.1-16", "a task for another agent is turned away and not run"),
            |asked| asked.lines(for_nobody),
            turned_away,
            Fault::TakesForeign,
        ),
        case(
            (
                "SAP-10-2",
                "a task with the correlation id of another in its header is turned away with status 400",
            ),
            |asked| asked.misdirected(),
            misdirected,
            Fault::IgnoresHeader,
        )
        .at_level(Level::Should),
    ]
}

/// The wire shape of receipts is left open, so that another one is no more than advice.
fn shapes() -> [Case<Posts>; 2] {
    let refused = |asked: &mut Driven<'_>| {
        asked.lines(without_context);
        asked.lines(for_nobody);
    };
    [
        case(
            ("SAP-4.3-1", "an Ack has its status and the ids of its task"),
            |asked| asked.lines(|_| {}),
            ack_of_its_task,
            Fault::OwnAck,
        )
        .at_level(Level::Advice),
        case(
            (
                "SAP-4.3-2",
                "a Nack has its status, a code, a reason and the ids of its task",
            ),
            refused,
            |turns| nacked(turns, &[&["INVALID_TASK"], &["NOT_FOUND", "FORBIDDEN"]]),
            Fault::OwnNack,
        )
        .at_level(Level::Advice),
    ]
}

fn results() -> [Case<Posts>; 4] {
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

fn modes() -> [Case<Posts>; 4] {
    [
        case(
            (
                "SAP-6-3",
                "the cache answers where the mode is prefer, or the task is computed",
            ),
            |asked| asked.cached(json!({"mode": "prefer"})),
            cached_or_computed,
            Fault::MissesPreferred,
        ),
        case(
            ("SAP-6-3", "only the cache answers where the mode is only"),
            |asked| asked.whole(|task| policy(task, json!({"mode": "only"}))),
            cache_only,
            Fault::IgnoresOnly,
        ),
        case(
            (
                "SAP-6-3",
                "what the cache answers where the mode is only has succeeded",
            ),
            |asked| asked.cached(json!({"mode": "only"})),
            succeeded_or_missed,
            Fault::FailsHits,
        ),
        case(
            (
                "SAP-6-3",
                "the cache answers nothing where the mode is bypass",
            ),
            |asked| asked.cached(json!({"mode": "bypass"})),
            bypassed,
            Fault::IgnoresBypass,
        ),
    ]
}

fn hits() -> [Case<Posts>; 4] {
    [
        case(
            ("SAP-6-4", "no record is younger than no time"),
            |asked| asked.cached(json!({"mode": "prefer", "maxAgeSec": 0})),
            computed_anew,
            Fault::IgnoresAge,
        ),
        case(
            (
                "SAP-6-5",
                "a hit is aligned where that is wanted, or the task is computed",
            ),
            |asked| asked.cached(json!({"mode": "prefer", "mustAlign": true})),
            realigned,
            Fault::IgnoresAlignment,
        ),
        case(
            ("SAP-6-6", "a hit names its record and the record's age"),
            |asked| asked.cached(json!({"mode": "prefer"})),
            named_record,
            Fault::NamesNoRecord,
        )
        .at_level(Level::Should),
        case(
            ("SAP-6-6", "a hit has the output that was kept"),
            |asked| asked.cached(json!({"mode": "prefer"})),
            same_output,
            Fault::OtherOutput,
        )
        .at_level(Level::Should),
    ]
}

fn beyond() -> [Case<Posts>; 6] {
    let advice = |case: Case<Posts>| case.at_level(Level::Advice);
    let late = |task: &mut Value| task["telemetry"] = json!({"deadline": "2001-01-01T00:00:00Z"});
    [
        advice(case(
            ("SAP-5-8", "a task whose deadline is over fails as TIMEOUT"),
            move |asked| asked.whole(late),
            timed_out,
            Fault::IgnoresDeadline,
        )),
        advice(case(
            (
                "SAP-5-8",
                "a task whose deadline passes while it runs fails as TIMEOUT",
            ),
            |asked| asked.overrun(),
            run_over,
            Fault::RunsOver,
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
            ("SAP-5-10", "another task of the same id is turned away"),
            |asked| asked.twice(|task| task["tags"] = json!(["another"])),
            |turns| turned_away(turns.get(1..).unwrap_or_default()),
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

fn without_context(task: &mut Value) {
    task["constitutionalContext"].take();
}

fn for_nobody(task: &mut Value) {
    task["target"]["agentId"] = json!("A-conformance-nobody");
}

fn policy(task: &mut Value, policy: Value) {
    task["constitutionalContext"]["cachePolicy"] = policy;
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

    /// A task whose outcome the cache may keep, and the same under another cache policy.
    fn cached(&mut self, other: Value) {
        self.whole(|task| policy(task, json!({"mode": "prefer"})));
        self.whole(|task| policy(task, other));
    }

    /// A task, with the correlation id of another in the header.
    fn misdirected(&mut self) {
        let (task, other) = (self.task(), self.ids.uuid().to_string());
        let body = task.to_string().into_bytes();
        match self.peer.post_correlated(&body, &other).transpose() {
            Some(response) => self.recorder.record(Posted { body, response }),
            None => self.recorder.peer_does_not_know("another header"),
        }
    }

    /// A task of slow work.
    fn slow_task(&mut self) -> Option<Value> {
        let (capability, payload) = self.peer.work().slow.clone()?;
        let mut task = self.task();
        task["target"]["capability"] = json!(capability);
        task["payload"] = payload;
        Some(task)
    }

    /// A task that tells the time of the endpoint, and one of slow work with a deadline soon after that.
    fn overrun(&mut self) {
        let Some(mut task) = self.slow_task() else {
            return self.recorder.peer_does_not_know("slow work");
        };
        self.whole(|_| {});
        let now = self.recorder.lines().last().and_then(reported_at);
        // Without a time there is nothing more to ask.
        let Some(now) = now else { return };
        let soon = now
            .timestamp()
            .saturating_add(core::time::Duration::from_secs(1));
        let deadline = WholeSecond::from(soon).to_string();
        task["telemetry"] = json!({"deadline": deadline});
        self.post(&task, true);
    }

    /// A task of slow work, which is cancelled.
    fn cancelled(&mut self) {
        let Some(task) = self.slow_task() else {
            return self.recorder.peer_does_not_know("slow work");
        };
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

/// The time that the result of a turn tells.
fn reported_at(turn: &Posted) -> Option<WholeSecond> {
    let response = turn.response.as_ref().ok()?;
    let result: Value = serde_json::from_slice(&response.body).ok()?;
    result["reportedAt"].as_str()?.parse().ok()
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
