//! An exchange that keeps the checklist, and mutants of it that break one point each.

use sap::Task;
use sap::TaskResult;
use sap::Whole;
use sap::cache::{CacheRecord, Keys, WholePayload};
use sap::learning::Signal;
use sap::{Alignment, CacheEvidence};
use ubos_common::json::Read;

use super::recording::{Line, Recording};
use super::vectors::lenient;

const TASK: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z","issuer":{"agentId":"A-prime","agentKind":"agent"},"target":{"capability":"consult.align"},"constitutionalContext":{"pressureLevel":"consulted","territory":"EUFM","cachePolicy":{"mode":"prefer","maxAgeSec":3600}},"payload":{"topic":"report"}}"#;
const RESULT: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","reportedAt":"2025-09-28T10:15:30Z","producer":{"agentId":"A-ml-001","agentKind":"agent"},"status":"SUCCEEDED","output":{"answer":42},"constitutionalEvidence":{"alignment":"VALID","cache":{"hit":false}}}"#;

/// A task that is computed, its record and its signal; and the same task again, answered by the cache.
pub(super) fn reference() -> Recording {
    let mut task: Task = parsed(TASK);
    let mut result: TaskResult = parsed(RESULT);
    let mut recording = Recording::new()
        .task(&task.encode())
        .result(&result.encode());
    let (mut records, mut signals) = (Vec::new(), Vec::new());
    if let (Ok(keys), Some(output)) = (Keys::of(&task, &WholePayload), result.output.clone()) {
        signals.extend(Signal::of_result(&task, Some(keys.fingerprint), &result));
        records.push(CacheRecord::new(
            keys.key,
            result.reported_at,
            result.producer.agent_id.clone(),
            Alignment::Valid,
            output,
            Vec::new(),
            keys.fingerprint,
            sap::Version::V2.to_string(),
        ));
        let mut hit = CacheEvidence::new();
        hit.hit = Some(true);
        hit.cache_key = Some(keys.key.to_string());
        hit.age_sec = Whole::try_from(0).ok();
        result.constitutional_evidence.cache = Some(hit);
        task.task_id = parsed("\"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0b\"");
        result.task_id = task.task_id;
        signals.extend(Signal::of_result(&task, Some(keys.fingerprint), &result));
    }
    recording = recording.task(&task.encode()).result(&result.encode());
    recording.cache_log(&records).signal_log(&signals)
}

#[expect(clippy::expect_used, reason = "the texts are part of this file")]
fn parsed<T: for<'a> Read<'a>>(text: &str) -> T {
    lenient(text.as_bytes()).expect("a message of this file")
}

/// Replaces a text in the lines that `of` picks.
fn changed(recording: Recording, of: fn(&Line) -> bool, from: &str, to: &str) -> Recording {
    let change = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .replace(from, to)
            .into_bytes()
    };
    let lines = recording.lines().iter().map(|line| match line {
        line if !of(line) => line.clone(),
        Line::Task(bytes) => Line::Task(change(bytes)),
        Line::Result(bytes) => Line::Result(change(bytes)),
        other => other.clone(),
    });
    lines.fold(Recording::new(), Recording::with)
}

const fn is_task(line: &Line) -> bool {
    matches!(line, Line::Task(_))
}

const fn is_result(line: &Line) -> bool {
    matches!(line, Line::Result(_))
}

pub(super) fn braced_id(reference: Recording) -> Recording {
    changed(
        reference,
        |_| true,
        "\"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11\"",
        "\"{a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11}\"",
    )
}

pub(super) fn without_issuer(reference: Recording) -> Recording {
    changed(
        reference,
        is_task,
        "\"issuer\":{\"agentId\":\"A-prime\",\"agentKind\":\"agent\"},",
        "",
    )
}

pub(super) fn without_level(reference: Recording) -> Recording {
    changed(reference, is_task, "\"pressureLevel\":\"consulted\",", "")
}

pub(super) fn without_alignment(reference: Recording) -> Recording {
    changed(reference, is_result, "\"alignment\":\"VALID\",", "")
}

pub(super) fn stale_hit(reference: Recording) -> Recording {
    changed(reference, is_result, "\"ageSec\":0", "\"ageSec\":3600")
}

pub(super) fn missing_signal(reference: Recording) -> Recording {
    let is_signal = |line: &&Line| matches!(line, Line::Signal(_));
    let mut signals = reference.lines().iter().filter(is_signal);
    let first = signals.next().cloned();
    let rest = reference
        .lines()
        .iter()
        .filter(|line| Some(*line) != first.as_ref());
    rest.cloned().fold(Recording::new(), Recording::with)
}

pub(super) fn other_correlation(reference: Recording) -> Recording {
    changed(
        reference,
        is_result,
        "a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11",
        "00000000-0000-0000-0000-000000000000",
    )
}
