//! What if: which stored outcomes another context would judge otherwise.

use std::collections::BTreeMap;

use ubos_common::json::Read;

use super::{Assessment, Policy, Subject};
use crate::context::ConstitutionalContext;
use crate::evidence::Alignment;
use crate::ident::TaskId;
use crate::limits::unbounded;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind};

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
/// An outcome is a task and its result, as [`judged`] reads them from a transcript; `other` makes the context to
/// try out of the one in which the task was judged.
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::{RawBuf, RawObject}, time::Timestamp};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let mut result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// # result.output = Some(RawBuf::parse("1")?);
/// use sap::alignment::{Rules, WhatIf, what_if};
///
/// let rules = Rules::default().cite("sources");
/// let deliberated = |context: &ConstitutionalContext| {
///     let mut other = context.clone();
///     other.pressure_level = PressureLevel::Deliberated;
///     other
/// };
/// let outcomes = [(&task, &result)];
/// let verdicts: Vec<WhatIf> = what_if(&rules, outcomes, deliberated).collect();
/// assert!(matches!(&verdicts[..], [WhatIf::Flips { from: Alignment::Valid, to }] if to.alignment == Alignment::Escalate));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn what_if<'a>(
    policy: &dyn Policy,
    outcomes: impl IntoIterator<Item = (&'a Task, &'a TaskResult)>,
    other: impl Fn(&ConstitutionalContext) -> ConstitutionalContext,
) -> impl Iterator<Item = WhatIf> {
    outcomes.into_iter().map(move |(task, result)| {
        let Some(output) = &result.output else {
            return WhatIf::Unknown;
        };
        let evidence = &result.constitutional_evidence;
        let citations = evidence.citations.as_deref().unwrap_or_default();
        let context = other(&task.constitutional_context);
        let subject = Subject::admission(&task.target.capability, &context)
            .proposing(Some(output.as_raw()), citations);
        let assessment = policy.assess(&subject);
        if assessment.alignment == evidence.alignment {
            return WhatIf::Same;
        }
        WhatIf::Flips {
            from: evidence.alignment.clone(),
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
