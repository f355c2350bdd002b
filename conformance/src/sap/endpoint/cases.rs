//! What is asked of an endpoint, and what its answers must be like.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON value is null, and tasks are made here"
)]

use serde_json::{Value, json};
use ubos_common::id::IdSource;
use ubos_common::violation::Level;

use super::reference::{Fault, Honest};
use super::{Endpoint, HttpResponse, Posted, Posts};
use crate::{Case, Judge, Kit, Reach, Recorder, Verdict};

/// The kit of a live endpoint: receipts, order, ids, evidence, deadline, cache modes and copies of a task.
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
        ),
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

fn beyond() -> [Case<Posts>; 4] {
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

/// The task of a turn and the messages that it was answered with, or the verdict where there are none.
fn said(turn: Option<&Posted>) -> Result<(Value, Vec<Value>), Verdict> {
    let turn = turn.ok_or_else(|| Verdict::not_applicable("nothing was asked"))?;
    let response = answered(turn)?;
    let text = String::from_utf8_lossy(&response.body);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let messages = lines
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>();
    let messages = messages.map_err(|_| Verdict::fail("the body", "a line that is no JSON"))?;
    if messages.is_empty() {
        return Err(Verdict::fail("the body", "no message"));
    }
    let task = serde_json::from_slice(&turn.body).unwrap_or_default();
    Ok((task, messages))
}

fn answered(turn: &Posted) -> Result<&HttpResponse, Verdict> {
    let none = |why: &String| Verdict::fail("the answer", why.as_str());
    turn.response.as_ref().map_err(none)
}

/// Judges the messages of the first turn.
fn first(turns: &[Posted], judge: impl FnOnce(&Value, &[Value]) -> Verdict) -> Verdict {
    match said(turns.first()) {
        Ok((task, messages)) => judge(&task, &messages),
        Err(verdict) => verdict,
    }
}

fn kept(holds: bool, place: &str, seen: impl Into<String>) -> Verdict {
    if holds {
        Verdict::Pass
    } else {
        Verdict::fail(place, seen)
    }
}

fn status(message: &Value) -> &str {
    message["status"].as_str().unwrap_or_default()
}

fn results_of(messages: &[Value]) -> impl Iterator<Item = &Value> {
    let is_result = |message: &&Value| !matches!(status(message), "ACK" | "NACK");
    messages.iter().filter(is_result)
}

fn acked(turns: &[Posted]) -> Verdict {
    first(turns, |task, messages| {
        let acks: Vec<usize> = (0..messages.len())
            .filter(|at| {
                messages
                    .get(*at)
                    .is_some_and(|message| status(message) == "ACK")
            })
            .collect();
        let ack = messages.first().unwrap_or(&Value::Null);
        let of_task =
            ack["messageId"] == task["taskId"] && ack["correlationId"] == task["correlationId"];
        kept(
            acks == [0] && of_task,
            "the first line",
            format!("Acks at {acks:?}: {ack}"),
        )
    })
}

fn ended(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().map(status).unwrap_or_default();
        let is_end = matches!(last, "SUCCEEDED" | "FAILED" | "CANCELLED" | "ESCALATED");
        kept(is_end, "the last line", last)
    })
}

fn turned_away(turns: &[Posted], codes: &[&str]) -> Verdict {
    let refused = turns.first().and_then(|turn| turn.response.as_ref().ok());
    let is_refused = refused.is_some_and(|response| (400..500).contains(&response.status));
    first(turns, |_, messages| {
        let [nack] = messages else {
            return Verdict::fail("the body", format!("{} messages", messages.len()));
        };
        let code = nack["code"].as_str().unwrap_or_default();
        let has_reason = nack["reason"]
            .as_str()
            .is_some_and(|reason| !reason.trim().is_empty());
        let is_nack = status(nack) == "NACK" && codes.contains(&code) && has_reason;
        kept(is_nack && is_refused, "the answer", nack.to_string())
    })
}

fn ordered(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let rank = |message: &Value| match status(message) {
            "QUEUED" => 0,
            "RUNNING" | "PARTIAL" => 1,
            _ => 2,
        };
        let ranks: Vec<u8> = results_of(messages).map(rank).collect();
        let ends = ranks.iter().filter(|rank| **rank == 2).count();
        let words: Vec<&str> = messages.iter().map(status).collect();
        kept(
            ranks.is_sorted() && ends <= 1,
            "the lines",
            words.join(", "),
        )
    })
}

fn of_its_task(turns: &[Posted]) -> Verdict {
    first(turns, |task, messages| {
        let is_other = |message: &&Value| {
            message["taskId"] != task["taskId"] || message["correlationId"] != task["correlationId"]
        };
        let other = results_of(messages).find(is_other);
        kept(
            other.is_none(),
            "a result",
            other.map(Value::to_string).unwrap_or_default(),
        )
    })
}

fn evident(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let has_none = |message: &&Value| {
            let word = message["constitutionalEvidence"]["alignment"].as_str();
            !matches!(word, Some("VALID" | "NON_CONSTITUTIONAL" | "ESCALATE"))
        };
        let bare = results_of(messages).find(has_none);
        kept(
            bare.is_none(),
            "a result",
            bare.map(Value::to_string).unwrap_or_default(),
        )
    })
}

fn is_hit(message: &Value) -> bool {
    message["constitutionalEvidence"]["cache"]["hit"] == true
}

fn cache_only(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        let is_miss = status(last) == "FAILED" && last["error"]["code"] == "CACHE_MISS";
        kept(is_miss || is_hit(last), "the result", last.to_string())
    })
}

fn bypassed(turns: &[Posted]) -> Verdict {
    first(turns.get(1..).unwrap_or_default(), |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        kept(!is_hit(last), "the result", last.to_string())
    })
}

fn on_http(turns: &[Posted]) -> Verdict {
    let response = match turns.first().map(answered) {
        Some(Ok(response)) => response.clone(),
        Some(Err(verdict)) => return verdict,
        None => return Verdict::not_applicable("nothing was asked"),
    };
    first(turns, |task, _| {
        let wanted = task["correlationId"].as_str().unwrap_or_default();
        let echoed = response.correlation.as_deref().unwrap_or_default();
        let holds = response.status == 200 && echoed.eq_ignore_ascii_case(wanted);
        kept(
            holds,
            "the head",
            format!("{} with {echoed:?}", response.status),
        )
    })
}

fn timed_out(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        let holds = status(last) == "FAILED" && last["error"]["code"] == "TIMEOUT";
        kept(holds, "the result", last.to_string())
    })
}

fn explained(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        if status(last) != "FAILED" {
            return Verdict::not_applicable("the endpoint did not fail the task");
        }
        let message = last["error"]["message"].as_str().unwrap_or_default();
        kept(!message.trim().is_empty(), "the error", last.to_string())
    })
}

fn same_result(turns: &[Posted]) -> Verdict {
    match (said(turns.first()), said(turns.get(1))) {
        (Ok((_, one)), Ok((_, other))) => kept(
            one.last() == other.last(),
            "the second result",
            format!("{other:?}"),
        ),
        (Err(verdict), _) | (_, Err(verdict)) => verdict,
    }
}
