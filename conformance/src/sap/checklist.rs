//! The seven points of section 12.

use std::collections::BTreeMap;

use sap::Alignment;
use sap::CacheMode;
use sap::ErrorCode;
use sap::Nack;
use sap::Status;
use sap::Task;
use sap::TaskResult;
use sap::cache::{CacheRecord, Keys, WholePayload, is_read};
use sap::learning::Signal;
use sap::validate::{Options, decode_result, decode_task, findings, ids_of};
use sap::{CorrelationId, TaskId};
use ubos_common::violation::{Level, Report as Findings, Violation};

use super::recording::{Exchange, Line, Recording};
use super::reference as exchanges;
use super::vectors::{lenient, unbounded};
use crate::{Case, Expectations, Judge, Kit, Reach, Recorder, Report, Verdict};

/// Answers the checklist for an exchange.
// impl: SAP-12-1
#[must_use]
pub fn checklist(recording: &Recording) -> Report {
    // A point that the exchange cannot show is no failure of the exchange.
    let expectations = CLAUSES
        .iter()
        .fold(Expectations::new(), |declared, clause| {
            declared.with_out_of_reach(*clause, "the exchange does not show it")
        });
    checklist_kit().run(&expectations, |_| Ok(Box::new(recording.clone())))
}

/// The kit of the checklist: a case for each of its points.
#[must_use]
pub fn checklist_kit() -> Kit<Exchange> {
    let cases = [
        point(
            ("SAP-3-1", "valid ids and timestamps"),
            FirstFinding::<Ids>::default,
            exchanges::braced_id,
        )
        .also_breaks(&["SAP-5-5", "SAP-7-6", "SAP-6-3"]),
        point(
            ("SAP-4.1-1", "required fields present"),
            FirstFinding::<Required>::default,
            exchanges::without_issuer,
        )
        .also_breaks(&["SAP-5-5", "SAP-7-6", "SAP-6-3"]),
        point(
            ("SAP-4.1-5", "constitutional context provided"),
            FirstFinding::<Context>::default,
            exchanges::without_level,
        )
        .also_breaks(&["SAP-6-3"]),
        point(
            ("SAP-4.2-3", "result includes constitutional evidence"),
            FirstFinding::<Evidence>::default,
            exchanges::without_alignment,
        )
        .also_breaks(&["SAP-6-3", "SAP-7-6"]),
        point(
            ("SAP-6-3", "cache policy honored"),
            CacheHonored::default,
            exchanges::stale_hit,
        ),
        point(
            ("SAP-7-6", "learning signals emitted"),
            SignalsEmitted::default,
            exchanges::missing_signal,
        ),
        point(
            ("SAP-5-5", "transport preserves correlation"),
            Correlation::default,
            exchanges::other_correlation,
        ),
    ];
    Kit::new("sap checklist", cases)
}

const CLAUSES: [&str; 7] = [
    "SAP-3-1",
    "SAP-4.1-1",
    "SAP-4.1-5",
    "SAP-4.2-3",
    "SAP-6-3",
    "SAP-7-6",
    "SAP-5-5",
];

fn point<J: Judge<Line> + 'static>(
    clause: (&'static str, &'static str),
    judge: fn() -> J,
    mutant: fn(Recording) -> Recording,
) -> Case<Exchange> {
    Case::new(
        Reach::Trace,
        clause,
        replay,
        judge,
        || Box::new(exchanges::reference()),
        move || Box::new(mutant(exchanges::reference())),
    )
}

fn replay(peer: &mut Recording, recorder: &mut Recorder<Line>) {
    for line in peer.lines() {
        recorder.record(line.clone());
    }
}

/// The findings of a line that is a message.
fn judged(line: &Line) -> Option<Findings> {
    let options = Options::default();
    match line {
        Line::Task(bytes) => Some(findings(&decode_task(bytes, &options))),
        Line::Result(bytes) => Some(findings(&decode_result(bytes, &options))),
        _ => None,
    }
}

/// Which messages a point is about, and which of their MUST findings break it.
trait Point: Default {
    /// What a recording without such a message lacks.
    const SUBJECT: &'static str;

    fn is_about(line: &Line) -> bool;

    fn is_broken_by(finding: &Violation) -> bool;
}

/// The first MUST finding of a point, over all messages.
#[derive(Default)]
struct FirstFinding<P> {
    lines: usize,
    messages: usize,
    found: Option<(usize, Violation)>,
    point: core::marker::PhantomData<P>,
}

impl<P: Point> Judge<Line> for FirstFinding<P> {
    fn see(&mut self, line: &Line) {
        self.lines += 1;
        let Some(report) = judged(line).filter(|_| P::is_about(line)) else {
            return;
        };
        self.messages += 1;
        if self.found.is_some() {
            return;
        }
        let broken =
            |finding: &&Violation| finding.level == Level::Must && P::is_broken_by(finding);
        let finding = report.iter().find(broken);
        self.found = finding.map(|finding| (self.lines, finding.clone()));
    }

    fn verdict(&mut self) -> Verdict {
        match self.found.take() {
            Some((line, finding)) => Verdict::fail(
                format!("line {line}, {}", finding.pointer),
                finding.message.into_owned(),
            ),
            None if self.messages == 0 => Verdict::not_applicable(format!("no {}", P::SUBJECT)),
            None => Verdict::Pass,
        }
    }
}

const IDS_AND_TIMES: [&str; 6] = [
    "/taskId",
    "/parentTaskId",
    "/correlationId",
    "/issuedAt",
    "/reportedAt",
    "/telemetry/deadline",
];

const LEVEL: &str = "/constitutionalContext/pressureLevel";
const EVIDENCE: &str = "/constitutionalEvidence";

/// Valid ids and timestamps.
#[derive(Default)]
struct Ids;

impl Point for Ids {
    const SUBJECT: &'static str = "message";

    fn is_about(_: &Line) -> bool {
        true
    }

    fn is_broken_by(finding: &Violation) -> bool {
        finding.code != "missing" && IDS_AND_TIMES.contains(&finding.pointer.as_str())
    }
}

/// Required fields present, and the message can be read at all.
#[derive(Default)]
struct Required;

impl Point for Required {
    const SUBJECT: &'static str = "message";

    fn is_about(_: &Line) -> bool {
        true
    }

    fn is_broken_by(finding: &Violation) -> bool {
        let is_absent = finding.code == "missing" || finding.clause == "SAP-2-5";
        is_absent && finding.pointer != LEVEL && !finding.pointer.starts_with(EVIDENCE)
    }
}

/// Constitutional context provided.
#[derive(Default)]
struct Context;

impl Point for Context {
    const SUBJECT: &'static str = "task";

    fn is_about(line: &Line) -> bool {
        matches!(line, Line::Task(_))
    }

    fn is_broken_by(finding: &Violation) -> bool {
        finding.pointer.starts_with("/constitutionalContext")
    }
}

/// Result includes constitutional evidence.
#[derive(Default)]
struct Evidence;

impl Point for Evidence {
    const SUBJECT: &'static str = "result";

    fn is_about(line: &Line) -> bool {
        matches!(line, Line::Result(_))
    }

    fn is_broken_by(finding: &Violation) -> bool {
        finding.pointer.starts_with(EVIDENCE)
    }
}

/// Tasks of one recording that a judge remembers.
const MAX_TASKS: usize = 100_000;

/// Cache policy honored.
#[derive(Default)]
struct CacheHonored {
    lines: usize,
    tasks: BTreeMap<TaskId, Task>,
    results: Vec<(usize, TaskResult)>,
    log: Option<Vec<CacheRecord>>,
}

impl Judge<Line> for CacheHonored {
    fn see(&mut self, line: &Line) {
        self.lines += 1;
        match line {
            Line::Task(bytes) if self.tasks.len() < MAX_TASKS => {
                let task = lenient::<Task>(bytes);
                self.tasks.extend(task.map(|task| (task.task_id, task)));
            }
            Line::Result(bytes) => {
                let result = lenient::<TaskResult>(bytes);
                self.results
                    .extend(result.map(|result| (self.lines, result)));
            }
            Line::CacheLog => drop(self.log.get_or_insert_default()),
            Line::Record(bytes) => {
                self.log
                    .get_or_insert_default()
                    .extend(lenient::<CacheRecord>(bytes));
            }
            _ => {}
        }
    }

    fn verdict(&mut self) -> Verdict {
        let mut judged = 0;
        for (line, result) in &self.results {
            let Some(task) = self.tasks.get(&result.task_id) else {
                continue;
            };
            judged += 1;
            if let Err(seen) = honors(task, result, self.log.as_deref()) {
                return Verdict::fail(format!("line {line}"), seen);
            }
        }
        if judged == 0 {
            return Verdict::not_applicable("no task with its result");
        }
        Verdict::Pass
    }
}

/// Whether a result keeps what its task says of the cache; the log says more, where it is at hand.
fn honors(task: &Task, result: &TaskResult, log: Option<&[CacheRecord]>) -> Result<(), String> {
    let policy = task.constitutional_context.cache_policy.as_ref();
    let cache = result.constitutional_evidence.cache.as_ref();
    let is_hit = cache.and_then(|cache| cache.hit) == Some(true);
    if let (true, Some(cache)) = (is_hit, cache) {
        if !is_read(policy) {
            return Err("a hit where the cache is not used".into());
        }
        let (Some(key), Some(age)) = (&cache.cache_key, &cache.age_sec) else {
            return Err("a hit without its key or its age".into());
        };
        let max_age = policy.and_then(|policy| policy.max_age_sec.as_ref());
        if let Some(max) = max_age.filter(|max| u64::from(age) >= u64::from(*max)) {
            let (age, max) = (u64::from(age), u64::from(max));
            return Err(format!(
                "a hit {age} s old where less than {max} s is wanted"
            ));
        }
        if result.status != Status::Succeeded {
            return Err(format!("a hit that is {}", result.status));
        }
        return log.map_or(Ok(()), |log| answered(key, result, log));
    }
    let is_only = policy.is_some_and(|policy| policy.mode == Some(CacheMode::Only));
    let is_done = matches!(result.status, Status::Succeeded | Status::Partial);
    if is_only && is_done {
        return Err("computed where only the cache may answer".into());
    }
    if !is_only && result.error_code() == Some(&ErrorCode::CacheMiss) {
        return Err("CACHE_MISS where the task may be computed".into());
    }
    let is_kept = result.status == Status::Succeeded
        && result.constitutional_evidence.alignment == Alignment::Valid
        && result.output.is_some();
    // Without an exact canonical form there is no key to write under.
    let has_key = Keys::of(task, &WholePayload).is_ok();
    match log {
        Some(log) if is_kept && is_read(policy) && has_key => kept(result, log),
        _ => Ok(()),
    }
}

fn answered(key: &str, result: &TaskResult, log: &[CacheRecord]) -> Result<(), String> {
    let mut records = log
        .iter()
        .filter(|record| record.cache_key.to_string() == key);
    let holds = |record: &CacheRecord| {
        record.alignment == Alignment::Valid
            && record.sap_version == sap::Version::V2.to_string()
            && Some(&record.output) == result.output.as_ref()
            && record.stored_at <= result.reported_at
    };
    if records.any(holds) {
        return Ok(());
    }
    Err("a hit that no record in the cache's log accounts for".into())
}

fn kept(result: &TaskResult, log: &[CacheRecord]) -> Result<(), String> {
    let is_its = |record: &CacheRecord| {
        record.producer == result.producer.agent_id
            && Some(&record.output) == result.output.as_ref()
    };
    if log.iter().any(is_its) {
        return Ok(());
    }
    Err("an outcome that the cache's log lacks".into())
}

/// Learning signals emitted: one for each partial or last result, and none besides.
#[derive(Default)]
struct SignalsEmitted {
    has_log: bool,
    /// By task, status and time: results, and signals that say the same.
    counts: BTreeMap<(TaskId, Status, i64), (usize, usize)>,
}

impl Judge<Line> for SignalsEmitted {
    fn see(&mut self, line: &Line) {
        match line {
            Line::Result(bytes) => {
                let Some(result) = lenient::<TaskResult>(bytes) else {
                    return;
                };
                if result.status.is_terminal() || result.status == Status::Partial {
                    let at = result.reported_at.timestamp().unix();
                    self.slot((result.task_id, result.status, at), |slot| slot.0 += 1);
                }
            }
            Line::SignalLog => self.has_log = true,
            Line::Signal(bytes) => {
                self.has_log = true;
                let Some(signal) = lenient::<Signal>(bytes) else {
                    return;
                };
                if let Some(status) = signal.status {
                    let key = (signal.task_id, status, signal.at.timestamp().unix());
                    self.slot(key, |slot| slot.1 += 1);
                }
            }
            _ => {}
        }
    }

    fn verdict(&mut self) -> Verdict {
        if !self.has_log {
            return Verdict::not_applicable("no log of signals");
        }
        let wrong = self
            .counts
            .iter()
            .find(|(_, (results, signals))| results != signals);
        match wrong {
            Some(((task_id, status, _), (results, signals))) => Verdict::fail(
                format!("task {task_id}, {status}"),
                format!("{signals} signals for {results} results"),
            ),
            None if self.counts.is_empty() => Verdict::not_applicable("no result"),
            None => Verdict::Pass,
        }
    }
}

impl SignalsEmitted {
    fn slot(&mut self, key: (TaskId, Status, i64), count: impl FnOnce(&mut (usize, usize))) {
        if self.counts.len() < MAX_TASKS || self.counts.contains_key(&key) {
            count(self.counts.entry(key).or_default());
        }
    }
}

/// Transport preserves correlation: each result and Nack belongs to a task that came before it.
#[derive(Default)]
struct Correlation {
    lines: usize,
    answers: usize,
    tasks: BTreeMap<TaskId, CorrelationId>,
    wrong: Option<(usize, String)>,
}

impl Judge<Line> for Correlation {
    fn see(&mut self, line: &Line) {
        self.lines += 1;
        match line {
            Line::Task(bytes) if self.tasks.len() < MAX_TASKS => {
                let task = lenient::<Task>(bytes);
                let ids = task.map(|task| (task.task_id, task.correlation_id));
                self.tasks.extend(ids);
            }
            Line::Result(bytes) => {
                let (task_id, seen) = ids_of(bytes, &unbounded());
                self.answers += 1;
                let known = task_id.and_then(|id| self.tasks.get(&id));
                let wrong = match (known, seen) {
                    (None, _) => Some("a result of no task that came before it".to_owned()),
                    (Some(wanted), Some(seen)) if *wanted == seen => None,
                    (Some(wanted), _) => Some(format!("another correlation id than {wanted}")),
                };
                self.note(wrong);
            }
            // A task that was turned away need not have been written down.
            Line::Nack(bytes) => {
                let Some(nack) = lenient::<Nack>(bytes) else {
                    return;
                };
                let wanted = nack.message_id.and_then(|id| self.tasks.get(&id));
                let differs = wanted.zip(nack.correlation_id).filter(|(a, b)| *a != b);
                let wrong =
                    differs.map(|(wanted, _)| format!("another correlation id than {wanted}"));
                self.note(wrong);
            }
            _ => {}
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.wrong.take() {
            Some((line, seen)) => Verdict::fail(format!("line {line}"), seen),
            None if self.answers == 0 => Verdict::not_applicable("no result"),
            None => Verdict::Pass,
        }
    }
}

impl Correlation {
    fn note(&mut self, wrong: Option<String>) {
        if self.wrong.is_none() {
            self.wrong = wrong.map(|seen| (self.lines, seen));
        }
    }
}
