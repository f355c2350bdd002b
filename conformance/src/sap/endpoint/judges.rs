//! What the answers of an endpoint must be like.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON value is null"
)]

use serde_json::Value;

use super::{HttpResponse, Posted};
use crate::Verdict;

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

pub(super) fn acked(turns: &[Posted]) -> Verdict {
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

pub(super) fn unacked(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let words: Vec<&str> = messages.iter().map(status).collect();
        let is_receipt = |word: &&str| matches!(*word, "ACK" | "NACK");
        kept(!words.iter().any(is_receipt), "the lines", words.join(", "))
    })
}

/// A task under whose header there is another correlation id.
pub(super) fn misdirected(turns: &[Posted]) -> Verdict {
    let verdict = turned_away(turns, &["INVALID_TASK"]);
    match turns.first().map(answered) {
        Some(Ok(response)) if verdict == Verdict::Pass => kept(
            response.status == 400,
            "the status",
            response.status.to_string(),
        ),
        _ => verdict,
    }
}

pub(super) fn ended(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().map(status).unwrap_or_default();
        let is_end = matches!(last, "SUCCEEDED" | "FAILED" | "CANCELLED" | "ESCALATED");
        kept(is_end, "the last line", last)
    })
}

pub(super) fn turned_away(turns: &[Posted], codes: &[&str]) -> Verdict {
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

pub(super) fn ordered(turns: &[Posted]) -> Verdict {
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

pub(super) fn of_its_task(turns: &[Posted]) -> Verdict {
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

pub(super) fn evident(turns: &[Posted]) -> Verdict {
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

/// Judges the last message of the second turn, for which the first has filled the cache.
fn then(turns: &[Posted], judge: impl FnOnce(&Value) -> Verdict) -> Verdict {
    first(turns.get(1..).unwrap_or_default(), |_, messages| {
        judge(messages.last().unwrap_or(&Value::Null))
    })
}

/// Judges the second turn where the cache answered it.
fn hit(turns: &[Posted], judge: impl FnOnce(&Value) -> Verdict) -> Verdict {
    then(turns, |last| match is_hit(last) {
        true => judge(last),
        false => Verdict::not_applicable("the cache did not answer"),
    })
}

pub(super) fn cache_only(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        let is_miss = status(last) == "FAILED" && last["error"]["code"] == "CACHE_MISS";
        let is_cached = status(last) == "SUCCEEDED" && is_hit(last);
        kept(is_miss || is_cached, "the result", last.to_string())
    })
}

/// The same of a cache that may have a record.
pub(super) fn succeeded_or_missed(turns: &[Posted]) -> Verdict {
    cache_only(turns.get(1..).unwrap_or_default())
}

pub(super) fn bypassed(turns: &[Posted]) -> Verdict {
    then(turns, |last| {
        kept(!is_hit(last), "the result", last.to_string())
    })
}

pub(super) fn cached_or_computed(turns: &[Posted]) -> Verdict {
    let each = |turn| {
        first(core::slice::from_ref(turn), |_, messages| {
            let last = messages.last().unwrap_or(&Value::Null);
            kept(status(last) == "SUCCEEDED", "the result", last.to_string())
        })
    };
    let mut verdicts = turns.iter().map(each);
    let broken = verdicts.find(|verdict| *verdict != Verdict::Pass);
    broken.unwrap_or(Verdict::Pass)
}

pub(super) fn computed_anew(turns: &[Posted]) -> Verdict {
    then(turns, |last| {
        let is_computed = status(last) == "SUCCEEDED" && !is_hit(last);
        kept(is_computed, "the result", last.to_string())
    })
}

pub(super) fn realigned(turns: &[Posted]) -> Verdict {
    then(turns, |last| {
        let word = &last["constitutionalEvidence"]["alignment"];
        // A result without a verdict breaks another clause.
        let is_other = word == "NON_CONSTITUTIONAL" || word == "ESCALATE";
        let holds = status(last) == "SUCCEEDED" && !(is_hit(last) && is_other);
        kept(holds, "the result", last.to_string())
    })
}

pub(super) fn named_record(turns: &[Posted]) -> Verdict {
    hit(turns, |last| {
        let cache = &last["constitutionalEvidence"]["cache"];
        let is_named = cache["cacheKey"]
            .as_str()
            .is_some_and(|key| !key.is_empty());
        let age = cache["ageSec"].as_f64();
        let is_age = age.is_some_and(|age| age >= 0.0 && age.fract() == 0.0);
        kept(is_named && is_age, "the evidence", cache.to_string())
    })
}

pub(super) fn same_output(turns: &[Posted]) -> Verdict {
    let Ok((_, before)) = said(turns.first()) else {
        return Verdict::not_applicable("nothing was kept");
    };
    let before = before.last().unwrap_or(&Value::Null);
    if status(before) != "SUCCEEDED" {
        return Verdict::not_applicable("nothing was kept");
    }
    hit(turns, |last| {
        let is_same = last["output"] == before["output"];
        kept(is_same, "the output", last["output"].to_string())
    })
}

pub(super) fn on_http(turns: &[Posted]) -> Verdict {
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

pub(super) fn timed_out(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        let holds = status(last) == "FAILED" && last["error"]["code"] == "TIMEOUT";
        kept(holds, "the result", last.to_string())
    })
}

/// A task of slow work, with a deadline, behind one that told the time.
pub(super) fn run_over(turns: &[Posted]) -> Verdict {
    if turns.len() == 1 {
        return Verdict::not_applicable("the endpoint does not tell the time");
    }
    let slow = turns.get(1..).unwrap_or_default();
    let late = timed_out(slow);
    first(slow, |task, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        let deadline = task["telemetry"]["deadline"].as_str();
        // Both are of one form, whose order is that of the times.
        let ended = last["reportedAt"].as_str();
        let is_within = ended.zip(deadline).is_some_and(|(end, by)| end <= by);
        match status(last) == "SUCCEEDED" && is_within {
            true => Verdict::not_applicable("the work ended before its deadline"),
            false => late,
        }
    })
}

pub(super) fn explained(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        if status(last) != "FAILED" {
            return Verdict::not_applicable("the endpoint did not fail the task");
        }
        let message = last["error"]["message"].as_str().unwrap_or_default();
        kept(!message.trim().is_empty(), "the error", last.to_string())
    })
}

pub(super) fn cancelled(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let last = messages.last().unwrap_or(&Value::Null);
        kept(
            status(last) == "CANCELLED",
            "the last line",
            last.to_string(),
        )
    })
}

pub(super) fn same_result(turns: &[Posted]) -> Verdict {
    match (said(turns.first()), said(turns.get(1))) {
        (Ok((_, one)), Ok((_, other))) => kept(
            one.last() == other.last(),
            "the second result",
            format!("{other:?}"),
        ),
        (Err(verdict), _) | (_, Err(verdict)) => verdict,
    }
}
