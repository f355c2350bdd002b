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
    let messages = messages_of(answered(turn)?);
    let messages = messages.map_err(|_| Verdict::fail("the body", "what is no JSON"))?;
    if messages.is_empty() {
        return Err(Verdict::fail("the body", "no message"));
    }
    let task = serde_json::from_slice(&turn.body).unwrap_or_default();
    Ok((task, messages))
}

/// The JSON values of a body, one behind another: a message need not be one line.
fn messages_of(response: &HttpResponse) -> serde_json::Result<Vec<Value>> {
    serde_json::Deserializer::from_slice(&response.body)
        .into_iter()
        .collect()
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

/// A result, in whatever state. Any other message is a receipt: section 4.3 leaves its shape to the transport.
fn is_result(message: &Value) -> bool {
    let words = ["QUEUED", "RUNNING", "PARTIAL", "SUCCEEDED", "FAILED"];
    let is_status = |word: &str| words.contains(&word) || matches!(word, "CANCELLED" | "ESCALATED");
    is_status(status(message)) || !message["producer"].is_null()
}

fn results_of(messages: &[Value]) -> impl Iterator<Item = &Value> {
    messages.iter().filter(|message| is_result(message))
}

/// The places of the receipts.
fn receipts_of(messages: &[Value]) -> Vec<usize> {
    let places = messages.iter().enumerate();
    let receipts = places.filter(|(_, message)| !is_result(message));
    receipts.map(|(at, _)| at).collect()
}

pub(super) fn acked(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let receipts = receipts_of(messages);
        if receipts.is_empty() && messages.len() == 1 {
            // Section 5: an Ack where the transport supports it, or a Result.
            return Verdict::not_applicable("the endpoint answers with one result");
        }
        let seen = format!("receipts at {receipts:?} of {} messages", messages.len());
        kept(receipts == [0], "the messages", seen)
    })
}

pub(super) fn unacked(turns: &[Posted]) -> Verdict {
    first(turns, |_, messages| {
        let words: Vec<&str> = messages.iter().map(status).collect();
        let is_bare = receipts_of(messages).is_empty();
        kept(is_bare, "the messages", words.join(", "))
    })
}

/// An Ack has the shape that this family gives it.
pub(super) fn ack_of_its_task(turns: &[Posted]) -> Verdict {
    first(turns, |task, messages| {
        let Some(ack) = messages.iter().find(|message| !is_result(message)) else {
            return Verdict::not_applicable("the endpoint sends no Ack");
        };
        let holds = status(ack) == "ACK" && is_of(task, ack);
        kept(holds, "the Ack", ack.to_string())
    })
}

/// Whether a receipt has the ids of its task.
fn is_of(task: &Value, receipt: &Value) -> bool {
    receipt["messageId"] == task["taskId"] && receipt["correlationId"] == task["correlationId"]
}

/// A task under whose header there is another correlation id.
pub(super) fn misdirected(turns: &[Posted]) -> Verdict {
    let verdict = turned_away(turns);
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
        kept(is_end, "the last message", last)
    })
}

/// A task that is refused with a status of the client's fault, or by a message that says so; and no work is told of.
pub(super) fn turned_away(turns: &[Posted]) -> Verdict {
    let Some(turn) = turns.first() else {
        return Verdict::not_applicable("nothing was asked");
    };
    let response = match answered(turn) {
        Ok(response) => response,
        Err(verdict) => return verdict,
    };
    // A refusal may have words, or nothing, for a body.
    let messages = messages_of(response).unwrap_or_default();
    let says_no = |message: &Value| matches!(status(message), "NACK" | "FAILED");
    let goes_on = |message: &Value| is_result(message) || status(message) == "ACK";
    let is_refused = (400..500).contains(&response.status) || messages.first().is_some_and(says_no);
    let works = messages.iter().any(|it| goes_on(it) && !says_no(it));
    let seen = || {
        let words: Vec<&str> = messages.iter().map(status).collect();
        format!("status {} with {words:?}", response.status)
    };
    kept(is_refused && !works, "the answer", seen())
}

/// Tasks that are refused, each with the codes that a Nack may have: a Nack has the shape that this family gives it.
pub(super) fn nacked(turns: &[Posted], codes: &[&[&str]]) -> Verdict {
    let shape = |(turn, codes): (&Posted, &&[&str])| {
        let turn = core::slice::from_ref(turn);
        // What is not turned away breaks another clause.
        if turned_away(turn) != Verdict::Pass {
            return Verdict::not_applicable("the endpoint takes the task");
        }
        first(turn, |task, messages| nack_of(task, messages, codes))
    };
    let verdicts: Vec<Verdict> = turns.iter().zip(codes).map(shape).collect();
    let broken = verdicts.iter().find(|verdict| verdict.is_fail());
    let seen = || verdicts.iter().find(|verdict| **verdict == Verdict::Pass);
    broken
        .or_else(seen)
        .or_else(|| verdicts.first())
        .cloned()
        .unwrap_or_else(|| Verdict::not_applicable("nothing was asked"))
}

fn nack_of(task: &Value, messages: &[Value], codes: &[&str]) -> Verdict {
    let [nack] = messages else {
        return Verdict::fail("the body", format!("{} messages", messages.len()));
    };
    if is_result(nack) {
        return Verdict::not_applicable("the endpoint fails the task");
    }
    let code = nack["code"].as_str().unwrap_or_default();
    let reason = nack["reason"].as_str().unwrap_or_default();
    let is_told = codes.contains(&code) && !reason.trim().is_empty();
    let is_nack = status(nack) == "NACK" && is_told && is_of(task, nack);
    kept(is_nack, "the Nack", nack.to_string())
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
            "the messages",
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
            "the last message",
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
