//! What if, over a whole transcript: a table.

use core::fmt;
use std::collections::BTreeMap;

use ubos_common::json::Read;
use ubos_common::violation::Profile;

use super::what_if::{WhatIf, judge};
use super::{Alignment, Policy};
use crate::context::ConstitutionalContext;
use crate::ident::{Capability, TaskId};
use crate::limits::unbounded;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, Transcript, TranscriptError};

/// What another context, or another policy, makes of the outcomes of a whole transcript.
///
/// It shows itself as a table with a line for each capability and territory.
///
/// | bound | value | at the bound |
/// |---|---|---|
/// | tasks whose end is not read yet | 100,000; 64 MiB | further ones are left out, and counted |
/// | rows | 10,000 | further outcomes are left out, and counted |
/// | samples of a flip | 8 | the first are named |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhatIfTable {
    /// By capability and territory.
    pub rows: BTreeMap<(Capability, Option<String>), WhatIfRow>,
    /// Tasks and outcomes for which there was no room.
    pub left_out: u64,
    /// Entries that this version cannot read, and results whose task is not in the transcript any more.
    pub passed_over: u64,
}

/// The outcomes of one capability in one territory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhatIfRow {
    /// Outcomes with the same verdict.
    pub same: u64,
    /// Outcomes whose output was not handed out, so that nothing is there to judge.
    pub unknown: u64,
    /// Outcomes with another verdict: from which to which.
    pub flips: BTreeMap<(Alignment, Alignment), Flips>,
}

/// Outcomes whose verdict changes in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flips {
    /// How many.
    pub outcomes: u64,
    /// The entries of the first results, at most 8.
    pub samples: Vec<u64>,
}

impl WhatIfTable {
    /// Outcomes with another verdict.
    #[must_use]
    pub fn flips(&self) -> u64 {
        let flips = self.rows.values().flat_map(|row| row.flips.values());
        flips.map(|flips| flips.outcomes).sum()
    }

    /// Judges the last outcome of each task of a transcript that has a verdict: of those that succeeded, escalated, are
    /// partial, or failed as not constitutional. Nothing is run, and nothing changes. `other` makes the context to
    /// try out of the one in which the task was judged.
    ///
    /// It reads page by page, and gives way where an output is long.
    ///
    /// ```
    /// # use sap::{ConstitutionalContext, PressureLevel};
    /// use sap::alignment::{Rules, WhatIfTable};
    /// use sap::store::MemoryTranscript;
    ///
    /// let (transcript, rules) = (MemoryTranscript::default(), Rules::default().cite("sources"));
    /// let deliberated = |context: &ConstitutionalContext| {
    ///     let mut other = context.clone();
    ///     other.pressure_level = PressureLevel::Deliberated;
    ///     other
    /// };
    /// let table = futures::executor::block_on(WhatIfTable::of(&transcript, &rules, deliberated))?;
    /// assert_eq!(table.flips(), 0);
    /// println!("{table}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The transcript cannot be read. What was archived is left out.
    pub async fn of(
        transcript: &dyn Transcript,
        policy: &dyn Policy,
        other: impl Fn(&ConstitutionalContext) -> ConstitutionalContext,
    ) -> Result<Self, TranscriptError> {
        let mut reading = Reading::default();
        let mut next = 0;
        loop {
            let page = match transcript.read(next, PAGE).await {
                Err(TranscriptError::Archived { first }) if first > next => {
                    next = first;
                    continue;
                }
                page => page?,
            };
            if page.is_empty() {
                return Ok(reading.end());
            }
            for entry in page {
                reading.take(next, &entry, policy, &other).await;
                next += 1;
            }
        }
    }

    fn count(&mut self, asked: Asked) {
        let Some((entry, verdict)) = asked.verdict else {
            return;
        };
        let key = (asked.capability, asked.context.territory);
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let row = self.rows.entry(key).or_default();
        match verdict {
            Verdict::Same => row.same += 1,
            Verdict::Unknown => row.unknown += 1,
            Verdict::Flips(from, to) => {
                let flips = row.flips.entry((from, to)).or_default();
                flips.outcomes += 1;
                if flips.samples.len() < MAX_SAMPLES {
                    flips.samples.push(entry);
                }
            }
        }
    }
}

/// A table that is being made.
#[derive(Default)]
struct Reading {
    table: WhatIfTable,
    /// By the entry of the task: ids are an issuer's own.
    open: BTreeMap<u64, Asked>,
    latest: BTreeMap<TaskId, u64>,
    bytes: usize,
}

/// A task that has no end yet.
struct Asked {
    id: TaskId,
    capability: Capability,
    context: ConstitutionalContext,
    bytes: usize,
    /// The entry of the last result that has a verdict, and what becomes of that.
    verdict: Option<(u64, Verdict)>,
}

enum Verdict {
    Same,
    Unknown,
    Flips(Alignment, Alignment),
}

impl Reading {
    async fn take(
        &mut self,
        number: u64,
        entry: &Entry,
        policy: &dyn Policy,
        other: impl Fn(&ConstitutionalContext) -> ConstitutionalContext,
    ) {
        match entry.kind {
            EntryKind::Task => match read::<Task>(entry) {
                Some(task) => self.asked(number, task, entry.body.as_str().len()),
                None => self.table.passed_over += 1,
            },
            EntryKind::Result => match read::<TaskResult>(entry) {
                Some(result) => self.reported(number, entry, &result, policy, other).await,
                None => self.table.passed_over += 1,
            },
            _ => {}
        }
    }

    fn asked(&mut self, number: u64, task: Task, bytes: usize) {
        if self.open.len() >= MAX_OPEN || self.bytes.saturating_add(bytes) > MAX_OPEN_BYTES {
            self.table.left_out += 1;
            return;
        }
        self.bytes += bytes;
        self.latest.insert(task.task_id, number);
        let asked = Asked {
            id: task.task_id,
            capability: task.target.capability,
            context: task.constitutional_context,
            bytes,
            verdict: None,
        };
        self.open.insert(number, asked);
    }

    async fn reported(
        &mut self,
        number: u64,
        entry: &Entry,
        result: &TaskResult,
        policy: &dyn Policy,
        other: impl Fn(&ConstitutionalContext) -> ConstitutionalContext,
    ) {
        let named = entry.task.as_ref().map(u64::from);
        let task = named.or_else(|| self.latest.get(&result.task_id).copied());
        let open = task.and_then(|task| Some((task, self.open.get_mut(&task)?)));
        let Some((task, asked)) = open.filter(|(_, asked)| asked.id == result.task_id) else {
            self.table.passed_over += 1;
            return;
        };
        if has_verdict(result) {
            let context = other(&asked.context);
            let verdict = match judge(policy, &asked.capability, &context, result).await {
                WhatIf::Same => Verdict::Same,
                WhatIf::Unknown => Verdict::Unknown,
                WhatIf::Flips { from, to } => Verdict::Flips(from, to.alignment),
            };
            asked.verdict = Some((number, verdict));
        }
        if result.status.is_terminal()
            && let Some(asked) = self.open.remove(&task)
        {
            self.bytes -= asked.bytes;
            if self.latest.get(&asked.id) == Some(&task) {
                self.latest.remove(&asked.id);
            }
            self.table.count(asked);
        }
    }

    /// Those that have no end are counted by what they have.
    fn end(mut self) -> WhatIfTable {
        for (_, asked) in core::mem::take(&mut self.open) {
            self.table.count(asked);
        }
        self.table
    }
}

fn has_verdict(result: &TaskResult) -> bool {
    match result.status {
        Status::Succeeded | Status::Partial | Status::Escalated => true,
        Status::Failed => result.constitutional_evidence.alignment != Alignment::Valid,
        _ => false,
    }
}

fn read<T: for<'a> Read<'a>>(entry: &Entry) -> Option<T> {
    // Whatever was taken is judged, what the lenient profile took too.
    let outcome = ubos_common::json::read_raw(entry.body.as_raw(), &unbounded(), Profile::Lenient);
    outcome.ok().map(|(message, _)| message)
}

impl fmt::Display for WhatIfTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["capability", "territory", "same", "unknown", "flips"].map(str::to_owned);
        let rows = self.rows.iter().map(|((capability, territory), row)| {
            let territory = territory.as_deref().unwrap_or("-");
            let flips = row.flips.iter().map(|((from, to), flips)| {
                let samples: Vec<String> = flips.samples.iter().map(u64::to_string).collect();
                let more = flips.outcomes > flips.samples.len() as u64;
                let more = if more { ", ..." } else { "" };
                let count = flips.outcomes;
                format!(
                    "{count} {from} to {to} (entries {}{more})",
                    samples.join(", ")
                )
            });
            let flips: Vec<String> = flips.collect();
            let flips = if flips.is_empty() {
                "-".to_owned()
            } else {
                flips.join("; ")
            };
            let text = [capability.as_str(), territory].map(|text| text.escape_debug().to_string());
            let [capability, territory] = text;
            let counts = [row.same, row.unknown].map(|count| count.to_string());
            let [same, unknown] = counts;
            [capability, territory, same, unknown, flips]
        });
        let lines: Vec<[String; 5]> = core::iter::once(head).chain(rows).collect();
        let mut widths = [0; 5];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let [a, b, c, d, _] = widths;
        for [capability, territory, same, unknown, flips] in &lines {
            writeln!(
                f,
                "{capability:a$}  {territory:b$}  {same:>c$}  {unknown:>d$}  {flips}"
            )?;
        }
        if self.left_out + self.passed_over > 0 {
            let (left_out, passed_over) = (self.left_out, self.passed_over);
            writeln!(f, "left out: {left_out}, passed over: {passed_over}")?;
        }
        Ok(())
    }
}

/// Entries that are read at once.
const PAGE: usize = 256;
const MAX_OPEN: usize = 100_000;
const MAX_OPEN_BYTES: usize = 64 << 20;
const MAX_ROWS: usize = 10_000;
const MAX_SAMPLES: usize = 8;

#[cfg(all(test, feature = "driver"))]
mod tests {
    use futures::executor::block_on;
    use ubos_common::time::Timestamp;

    use super::super::Rules;
    use super::*;
    use crate::samples;

    #[test]
    fn nothing_is_kept_of_a_task_that_has_its_end() {
        let (mut reading, task) = (Reading::default(), samples::task());
        let result = samples::result(&task, Status::Succeeded);
        let entries = [
            Entry::of(EntryKind::Task, Timestamp::EPOCH, &task).unwrap(),
            Entry::of(EntryKind::Result, Timestamp::EPOCH, &result).unwrap(),
        ];
        for (number, entry) in (0..).zip(&entries) {
            block_on(reading.take(number, entry, &Rules::default(), Clone::clone));
        }
        assert_eq!((reading.open.len(), reading.latest.len()), (0, 0));
        assert_eq!((reading.bytes, reading.table.rows.len()), (0, 1));
    }
}
