//! What if: which stored outcomes another context would judge otherwise.

use super::{Assessment, Policy, Subject};
use crate::context::ConstitutionalContext;
use crate::evidence::Alignment;
use crate::ident::Capability;
use crate::result::TaskResult;
use crate::task::Task;

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
/// An outcome is a task and its result; `other` makes the context to try out of the one in which the task was judged.
/// [`WhatIfTable`](super::WhatIfTable) does so with a whole transcript.
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
        let context = other(&task.constitutional_context);
        let capability = &task.target.capability;
        let subject = subject(capability, &context, result);
        subject.map_or(WhatIf::Unknown, |subject| {
            compare(policy.assess(&subject), result)
        })
    })
}

/// What a context makes of a stored outcome, made apart where that takes its time.
pub(super) async fn judge(
    policy: &dyn Policy,
    capability: &Capability,
    context: &ConstitutionalContext,
    result: &TaskResult,
) -> WhatIf {
    match subject(capability, context, result) {
        Some(subject) => compare(policy.assess_apart(subject).await, result),
        None => WhatIf::Unknown,
    }
}

fn subject<'a>(
    capability: &'a Capability,
    context: &'a ConstitutionalContext,
    result: &'a TaskResult,
) -> Option<Subject<'a>> {
    let output = result.output.as_ref()?.as_raw();
    let citations = result.constitutional_evidence.citations.as_deref();
    let subject = Subject::admission(capability, context);
    Some(subject.proposing(Some(output), citations.unwrap_or_default()))
}

fn compare(assessment: Assessment, result: &TaskResult) -> WhatIf {
    let evidence = &result.constitutional_evidence;
    if assessment.alignment == evidence.alignment {
        return WhatIf::Same;
    }
    WhatIf::Flips {
        from: evidence.alignment.clone(),
        to: Box::new(assessment),
    }
}
