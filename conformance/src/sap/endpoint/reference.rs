//! An endpoint that keeps the clauses of the kit, and mutants of it that break one each.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON value is null, and results are made here"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Endpoint, HttpResponse, Work};

/// What a mutant does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NoAck,
    AlwaysAck,
    NoEnd,
    TakesAnything,
    TakesForeign,
    Disorder,
    OtherIds,
    NoEvidence,
    MissesPreferred,
    IgnoresOnly,
    FailsHits,
    IgnoresBypass,
    IgnoresAge,
    IgnoresAlignment,
    NamesNoRecord,
    OtherOutput,
    NoHeader,
    IgnoresHeader,
    IgnoresDeadline,
    RunsOver,
    NoMessage,
    RunsAgain,
    MixesTasks,
    IgnoresCancel,
    OwnAck,
    OwnNack,
}

/// An agent that says yes to whatever it may, and keeps what it has said.
#[derive(Debug)]
pub(super) struct Honest {
    work: Work,
    fault: Option<Fault>,
    /// Whether it answers each task with one message, over several lines.
    is_plain: bool,
    /// The body and the result of each task.
    known: BTreeMap<String, (Vec<u8>, Value)>,
    is_cached: bool,
    /// Seconds since the first task. Each result takes one.
    seconds: u32,
}

impl Default for Honest {
    fn default() -> Self {
        Self {
            work: Work::new("test.echo", json!({"a": 1}), "A-prime", 1)
                .with_slow("test.wait", json!({})),
            fault: None,
            is_plain: false,
            known: BTreeMap::new(),
            is_cached: false,
            seconds: 0,
        }
    }
}

impl Endpoint for Honest {
    fn post(&mut self, body: &[u8], wants_lines: bool) -> Result<HttpResponse, String> {
        let task: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut response = self.answer(&task, body, wants_lines);
        if !self.has(Fault::NoHeader) {
            response.correlation = task["correlationId"].as_str().map(str::to_owned);
        }
        Ok(response)
    }

    fn post_correlated(
        &mut self,
        body: &[u8],
        correlation: &str,
    ) -> Result<Option<HttpResponse>, String> {
        let task: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if task["correlationId"] != correlation && !self.has(Fault::IgnoresHeader) {
            return Ok(Some(self.nack(&task, 400, "INVALID_TASK")));
        }
        self.post(body, false).map(Some)
    }

    fn post_and_cancel(&mut self, body: &[u8]) -> Result<Option<HttpResponse>, String> {
        let task: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let end = match self.has(Fault::IgnoresCancel) {
            true => self.result(&task, "SUCCEEDED"),
            false => self.result(&task, "CANCELLED"),
        };
        let body = self.lines(&task, end);
        Ok(Some(HttpResponse::new(200, body.into_bytes())))
    }

    fn work(&self) -> &Work {
        &self.work
    }
}

impl Honest {
    pub(super) fn with(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::default()
        }
    }

    /// One that has no Ack: section 5 allows a result instead.
    #[cfg(test)]
    fn plain() -> Self {
        Self {
            is_plain: true,
            ..Self::default()
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn answer(&mut self, task: &Value, body: &[u8], wants_lines: bool) -> HttpResponse {
        let level = &task["constitutionalContext"]["pressureLevel"];
        if level.is_null() && !self.has(Fault::TakesAnything) {
            return self.nack(task, 400, "INVALID_TASK");
        }
        if !task["target"]["agentId"].is_null() && !self.has(Fault::TakesForeign) {
            return self.nack(task, 404, "NOT_FOUND");
        }
        let id = task["taskId"].to_string();
        if let Some((before, result)) = self.known.get(&id) {
            if before != body && !self.has(Fault::MixesTasks) {
                return self.nack(task, 400, "INVALID_TASK");
            }
            if !self.has(Fault::RunsAgain) || before != body {
                return HttpResponse::new(200, self.text(result).into_bytes());
            }
        }
        let end = self.end(task);
        self.known.insert(id, (body.to_vec(), end.clone()));
        let text = match wants_lines {
            true => self.lines(task, end),
            false => self.text(&end),
        };
        HttpResponse::new(200, text.into_bytes())
    }

    fn text(&self, message: &Value) -> String {
        match self.is_plain {
            true => format!("{message:#}\n"),
            false => message.to_string(),
        }
    }

    fn lines(&mut self, task: &Value, end: Value) -> String {
        if self.is_plain {
            return self.text(&end);
        }
        let messages = self.messages(task, end);
        let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
        lines.join("\n")
    }

    fn messages(&mut self, task: &Value, end: Value) -> Vec<Value> {
        let ids = (&task["taskId"], &task["correlationId"]);
        let mut messages = Vec::new();
        let wants_ack = task["replyTo"]["expectAck"] != false;
        if wants_ack && !self.has(Fault::NoAck) || self.has(Fault::AlwaysAck) {
            messages.push(match self.has(Fault::OwnAck) {
                true => json!({"accepted": true}),
                false => json!({"status": "ACK", "messageId": ids.0, "correlationId": ids.1}),
            });
        }
        messages.push(self.result(task, "RUNNING"));
        if self.has(Fault::Disorder) {
            messages.push(self.result(task, "QUEUED"));
        }
        if !self.has(Fault::NoEnd) {
            messages.push(end);
        }
        messages
    }

    /// The last result.
    fn end(&mut self, task: &Value) -> Value {
        let mode = task["constitutionalContext"]["cachePolicy"]["mode"].as_str();
        let deadline = task["telemetry"]["deadline"].as_str();
        let is_over = |now: String| deadline.is_some_and(|deadline| *deadline < *now);
        let is_late = is_over(self.now());
        if is_late && !self.has(Fault::IgnoresDeadline) {
            return self.failed(task, "TIMEOUT");
        }
        if task["target"]["capability"] == "test.wait" {
            self.seconds += WAIT;
            if !is_late && is_over(self.now()) && !self.has(Fault::RunsOver) {
                return self.failed(task, "TIMEOUT");
            }
        }
        if mode == Some("only") && !self.is_cached && !self.has(Fault::IgnoresOnly) {
            return self.failed(task, "CACHE_MISS");
        }
        if mode == Some("prefer") && !self.is_cached && self.has(Fault::MissesPreferred) {
            self.is_cached = true;
            return self.failed(task, "CACHE_MISS");
        }
        let mut result = match mode == Some("only") && self.is_cached && self.has(Fault::FailsHits)
        {
            true => self.failed(task, "INTERNAL"),
            false => self.result(task, "SUCCEEDED"),
        };
        result["output"] = task["payload"].clone();
        if let Some(mode) = mode {
            let hit = self.is_cached && self.reads(task, mode);
            self.answer_from_cache(task, &mut result, hit);
        }
        self.is_cached |= mode == Some("prefer");
        result
    }

    /// Whether the cache may answer.
    fn reads(&self, task: &Value, mode: &str) -> bool {
        let is_too_old = task["constitutionalContext"]["cachePolicy"]["maxAgeSec"] == 0;
        match mode {
            "bypass" => self.has(Fault::IgnoresBypass),
            _ => !is_too_old || self.has(Fault::IgnoresAge),
        }
    }

    /// Says whether a result is of the cache, and makes it so.
    fn answer_from_cache(&self, task: &Value, result: &mut Value, hit: bool) {
        let evidence = &mut result["constitutionalEvidence"];
        evidence["cache"] = json!({"hit": hit});
        if !hit {
            return;
        }
        if !self.has(Fault::NamesNoRecord) {
            evidence["cache"] = json!({"hit": true, "cacheKey": "00", "ageSec": 1});
        }
        let must_align = &task["constitutionalContext"]["cachePolicy"]["mustAlign"];
        if must_align == true && self.has(Fault::IgnoresAlignment) {
            evidence["alignment"] = json!("NON_CONSTITUTIONAL");
        }
        if self.has(Fault::OtherOutput) {
            result["output"] = json!("another");
        }
    }

    fn now(&self) -> String {
        let (minutes, seconds) = (self.seconds / 60 % 60, self.seconds % 60);
        format!("2025-09-28T10:{minutes:02}:{seconds:02}Z")
    }

    fn failed(&mut self, task: &Value, code: &str) -> Value {
        let mut result = self.result(task, "FAILED");
        let message = if self.has(Fault::NoMessage) {
            ""
        } else {
            "it is as the code says"
        };
        result["error"] = json!({"code": code, "message": message});
        result
    }

    fn result(&mut self, task: &Value, status: &str) -> Value {
        self.seconds += 1;
        let mut result = json!({
            "protocolVersion": "2.0",
            "taskId": task["taskId"],
            "correlationId": task["correlationId"],
            "reportedAt": self.now(),
            "producer": {"agentId": "A-honest", "agentKind": "agent"},
            "status": status,
            "constitutionalEvidence": {"alignment": "VALID"},
        });
        if self.has(Fault::OtherIds) {
            result["taskId"] = json!("00000000-0000-0000-0000-000000000000");
        }
        if self.has(Fault::NoEvidence) {
            result["constitutionalEvidence"] = json!({});
        }
        result
    }

    fn nack(&self, task: &Value, status: u16, code: &str) -> HttpResponse {
        let nack = json!({
            "status": "NACK",
            "code": code,
            "reason": "it is as the code says",
            "messageId": task["taskId"],
            "correlationId": task["correlationId"],
        });
        let text = match self.has(Fault::OwnNack) {
            true => "no".to_owned(),
            false => self.text(&nack),
        };
        HttpResponse::new(status, text.into_bytes())
    }
}

/// Seconds that the slow work takes.
const WAIT: u32 = 5;

#[cfg(test)]
mod tests {
    use super::super::endpoint_kit;
    use super::*;
    use crate::{Expectations, Verdict};

    // spec: SAP-5-9
    #[test]
    fn one_result_over_several_lines_is_an_answer() {
        let kit = endpoint_kit();
        let report = kit.run(&Expectations::new(), |_| Ok(Box::new(Honest::plain())));
        let others = report.outcomes().iter();
        let others = others.filter(|outcome| outcome.verdict != Verdict::Pass);
        let others: Vec<_> = others
            .map(|outcome| (outcome.name, &outcome.verdict))
            .collect();
        let without_ack = [
            (
                "an Ack comes before the results of a task",
                &Verdict::not_applicable("the endpoint answers with one result"),
            ),
            (
                "an Ack has its status and the ids of its task",
                &Verdict::not_applicable("the endpoint sends no Ack"),
            ),
        ];
        assert_eq!(others, without_ack);
        assert!(report.is_conformant());
    }
}
