//! Alignment: the verdict on a proposed output in its context, and what led to it.
//!
//! ```text
//! rules      the policy of rules: words, predicates, citations, pressure, constraints
//! predicate  what an output must be like
//! what_if    which stored outcomes another context would judge otherwise
//! table      the same over a whole transcript
//! ```

mod constraints;
mod dear;
mod output;
mod predicate;
mod reading;
mod rules;
mod severity;
mod table;
mod texts;
mod what_if;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{Raw, RawObject};

use crate::context::ConstitutionalContext;
use crate::evidence::{Alignment, ConstitutionalEvidence, PolicyCheck, PolicyViolation};
use crate::future::{BoxFuture, ready};
use crate::ident::Capability;
use crate::number::Number;

pub(crate) use constraints::{Prepared, all_unchecked};
pub use predicate::{Predicate, PredicateError};
pub use rules::Rules;
pub use severity::Severity;
pub use table::{Flips, WhatIfRow, WhatIfTable};
pub use what_if::{WhatIf, what_if};

/// What is judged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// What is done.
    pub capability: &'a Capability,
    /// The alignment inputs of the task.
    pub context: &'a ConstitutionalContext,
    /// What is proposed; absent at admission, before anything is computed.
    pub output: Option<Raw<'a>>,
    /// What grounds it.
    pub citations: &'a [String],
    /// The constraints of the task, read once for all its verdicts.
    pub(crate) prepared: Option<&'a Arc<Prepared>>,
}

impl<'a> Subject<'a> {
    /// A task before anything is computed.
    #[must_use]
    pub const fn admission(capability: &'a Capability, context: &'a ConstitutionalContext) -> Self {
        Self {
            capability,
            context,
            output: None,
            citations: &[],
            prepared: None,
        }
    }

    /// The same with what was read of the task's constraints.
    pub(crate) const fn prepared_by(mut self, prepared: &'a Arc<Prepared>) -> Self {
        self.prepared = Some(prepared);
        self
    }

    /// The same task with a proposed output.
    pub(crate) const fn proposing(
        mut self,
        output: Option<Raw<'a>>,
        citations: &'a [String],
    ) -> Self {
        self.output = output;
        self.citations = citations;
        self
    }
}

/// A verdict that explains itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Assessment {
    /// The verdict.
    pub alignment: Alignment,
    /// Pressure by principle, as it was when the verdict was made.
    pub readings: BTreeMap<String, Number>,
    /// What was found, principle by principle.
    pub checks: Vec<PolicyCheck>,
    /// What is wrong.
    pub violations: Vec<PolicyViolation>,
    /// What is proposed to be done next, where the verdict is ESCALATE.
    pub next_actions: Vec<RawObject>,
}

impl Assessment {
    /// VALID, with the pressure of the context as readings and nothing checked.
    #[must_use]
    pub fn valid(context: &ConstitutionalContext) -> Self {
        let pressure = context.pressure.iter().flatten();
        Self {
            alignment: Alignment::Valid,
            readings: pressure
                .map(|(name, psi)| (name.clone(), Number::from(psi)))
                .collect(),
            checks: Vec::new(),
            violations: Vec::new(),
            next_actions: Vec::new(),
        }
    }
}

/// The evidence of a result, without citations and cache. The next actions are no part of it.
impl From<Assessment> for ConstitutionalEvidence {
    fn from(assessment: Assessment) -> Self {
        let mut evidence = Self::new(assessment.alignment);
        evidence.pressure_readings = Some(assessment.readings);
        evidence.policy_checks = Some(assessment.checks);
        evidence.violations = (!assessment.violations.is_empty()).then_some(assessment.violations);
        evidence
    }
}

/// Gives verdicts: a pure function of its subject.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The verdict.
    fn assess(&self, subject: &Subject<'_>) -> Assessment;

    /// The same verdict, made where it holds up nobody else if it takes its time: what a processor asks for.
    fn assess_apart<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        ready(self.assess(&subject))
    }
}

/// Takes everything for aligned: what holds where no checker is set.
#[cfg(feature = "driver")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AlwaysValid;

#[cfg(feature = "driver")]
impl Policy for AlwaysValid {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        Assessment::valid(subject.context)
    }
}
