//! What if: which stored outcomes another context would judge otherwise.

use std::collections::BTreeMap;

use ubos_common::json::{RawBuf, Read};

use super::{Assessment, Policy, Subject};
use crate::cache::CacheRecord;
use crate::context::ConstitutionalContext;
use crate::evidence::Alignment;
use crate::ident::{Capability, TaskId};
use crate::limits::unbounded;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind};

/// An outcome as it was stored.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Stored<'a> {
    /// What was done.
    pub capability: &'a Capability,
    /// The context in which it was judged.
    pub context: &'a ConstitutionalContext,
    /// What was judged; absent where it was not handed out.
    pub output: Option<&'a RawBuf>,
    /// What grounds it.
    pub citations: &'a [String],
    /// The verdict.
    pub alignment: &'a Alignment,
}

impl<'a> Stored<'a> {
    /// The outcome of a task.
    #[must_use]
    pub fn of_result(task: &'a Task, result: &'a TaskResult) -> Self {
        let evidence = &result.constitutional_evidence;
        Self {
            capability: &task.target.capability,
            context: &task.constitutional_context,
            output: result.output.as_ref(),
            citations: evidence.citations.as_deref().unwrap_or_default(),
            alignment: &evidence.alignment,
        }
    }

    /// A record of the cache, for a task of this capability and context.
    #[must_use]
    pub fn of_record(
        capability: &'a Capability,
        context: &'a ConstitutionalContext,
        record: &'a CacheRecord,
    ) -> Self {
        Self {
            capability,
            context,
            output: Some(&record.output),
            citations: &record.citations,
            alignment: &record.alignment,
        }
    }
}

/// What another context makes of a stored outcome.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WhatIf {
    /// The same verdict.
    Same,
    /// Another verdict.
    Flips {
        /// The verdict that was stored.
        from: Alignment,
        /// The other one, with its reasons.
        to: Box<Assessment>,
    },
    /// There is no output to judge.
    Unknown,
}

/// Judges stored outcomes in another context; nothing is run, and nothing changes.
///
/// `other` makes the context that is tried of the one that was.
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::{RawBuf, RawObject}, time::Timestamp};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let mut result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// # result.output = Some(RawBuf::parse("1")?);
/// use sap::alignment::{Rules, Stored, WhatIf, what_if};
///
/// let rules = Rules::default().cite("sources");
/// let deliberated = |context: &ConstitutionalContext| {
///     let mut other = context.clone();
///     other.pressure_level = PressureLevel::Deliberated;
///     other
/// };
/// let outcomes = [Stored::of_result(&task, &result)];
/// let verdicts: Vec<WhatIf> = what_if(&rules, outcomes, deliberated).collect();
/// assert!(matches!(&verdicts[..], [WhatIf::Flips { from: Alignment::Valid, to }] if to.alignment == Alignment::Escalate));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn what_if<'a>(
    policy: &dyn Policy,
    outcomes: impl IntoIterator<Item = Stored<'a>>,
    other: impl Fn(&ConstitutionalContext) -> ConstitutionalContext,
) -> impl Iterator<Item = WhatIf> {
    outcomes.into_iter().map(move |stored| {
        let Some(output) = stored.output else {
            return WhatIf::Unknown;
        };
        let context = other(stored.context);
        let subject = Subject::admission(stored.capability, &context)
            .proposing(Some(output.as_raw()), stored.citations);
        let assessment = policy.assess(&subject);
        if assessment.alignment == *stored.alignment {
            return WhatIf::Same;
        }
        WhatIf::Flips {
            from: stored.alignment.clone(),
            to: Box::new(assessment),
        }
    })
}

/// The tasks of a stretch of a transcript, each with its last result that has a verdict on an output: one that
/// succeeded, escalated, is partial, or failed as not constitutional.
///
/// Tasks whose result lies outside the stretch are left out, and so are entries that this version cannot read.
#[must_use]
pub fn judged(entries: &[Entry]) -> Vec<(Task, TaskResult)> {
    let mut tasks: BTreeMap<TaskId, (Task, Option<TaskResult>)> = BTreeMap::new();
    let mut order = Vec::new();
    for entry in entries {
        match entry.kind {
            EntryKind::Task => {
                if let Some(task) = read::<Task>(entry) {
                    order.push(task.task_id);
                    tasks.insert(task.task_id, (task, None));
                }
            }
            EntryKind::Result => {
                let result = read::<TaskResult>(entry).filter(has_verdict);
                let slot =
                    result.and_then(|result| Some((tasks.get_mut(&result.task_id)?, result)));
                if let Some((slot, result)) = slot {
                    slot.1 = Some(result);
                }
            }
            _ => {}
        }
    }
    let pairs = order.into_iter().filter_map(|id| tasks.remove(&id));
    pairs
        .filter_map(|(task, result)| Some((task, result?)))
        .collect()
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
    let profile = ubos_common::violation::Profile::Lenient;
    let outcome = ubos_common::json::read_raw(entry.body.as_raw(), &unbounded(), profile);
    outcome.ok().map(|(message, _)| message)
}
