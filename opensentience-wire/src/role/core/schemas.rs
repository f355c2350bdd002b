//! Schemas of tools that wait for a verdict before their registration goes on, and what that costs.

use std::sync::Arc;

use crate::ledger::Charge;
use crate::limits::MAX_SCHEMA_BYTES;
use crate::message::{Rejected, ToolSpec};
use crate::schema::check_priced;

/// A registration whose schemas are checked.
#[derive(Debug)]
pub(super) struct Registration {
    /// The id of its message.
    pub(super) id: Box<str>,
    pub(super) replace: bool,
    pub(super) tools: Vec<Candidate>,
    /// What these hold.
    pub(super) charge: Charge,
}

/// A tool that is to be registered, unless it was rejected before.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) tool: Result<Arc<ToolSpec>, Box<Rejected>>,
    /// Its schemas are not those of a tool that stands there already.
    pub(super) is_new: bool,
}

/// Schemas to compile, of tools that are to be registered. Compiling may take long, and may be done on any thread.
///
/// [`CoreConnection::take_verdicts`](super::CoreConnection::take_verdicts) takes what [`run`](Self::run) gives.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaCheck {
    pub(super) tools: Vec<Arc<ToolSpec>>,
}

impl SchemaCheck {
    pub(crate) const fn of(tools: Vec<Arc<ToolSpec>>) -> Self {
        Self { tools }
    }

    /// Compiles them, until they have cost what those of one registration may; the others cannot be used. Without the feature
    /// `schema` their lengths alone are checked.
    #[must_use]
    pub fn run(&self) -> SchemaVerdicts {
        let mut budget = Budget::default();
        let verdict = |tool: &Arc<ToolSpec>| budget.spend(|| verdict(tool));
        SchemaVerdicts(self.tools.iter().map(verdict).collect())
    }

    /// The tools, one verdict each.
    #[cfg(feature = "tokio")]
    pub(crate) fn tools(&self) -> &[Arc<ToolSpec>] {
        &self.tools
    }
}

/// What came of the schemas of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Why they cannot be used.
    pub(crate) unusable: Option<String>,
    /// What compiling them cost, in bytes of a message that is only read.
    pub(crate) cost: usize,
}

impl Verdict {
    /// Of a tool whose schemas nobody looked at.
    pub(crate) fn unchecked(why: &str) -> Self {
        Self {
            unusable: Some(why.to_owned()),
            cost: 0,
        }
    }

    /// Of a tool whose registration may have no more compiled.
    pub(crate) fn too_dear() -> Self {
        Self::unchecked("the schemas before these cost as much as those of one registration may")
    }
}

pub(crate) fn verdict(tool: &ToolSpec) -> Verdict {
    let (checked, cost) = check_priced(tool, MAX_SCHEMA_BYTES);
    Verdict {
        unusable: checked.err(),
        // Texts that are no patterns are counted as if they were: the agent is not muted for hours by what took no time.
        cost: cost.min(MOST),
    }
}

/// What the schemas of one registration may still cost.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MOST)
    }
}

impl Budget {
    #[cfg(feature = "tokio")]
    pub(crate) const fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// Spends what a verdict costs, where anything is left.
    pub(crate) fn spend(&mut self, verdict: impl FnOnce() -> Verdict) -> Verdict {
        if self.0 == 0 {
            return Verdict::too_dear();
        }
        let verdict = verdict();
        self.0 = self.0.saturating_sub(verdict.cost);
        verdict
    }
}

/// What the schemas of one registration may cost: twice what an agent may send at once.
const MOST: usize = 16 << 20;

/// What a [`SchemaCheck`] came to. A tool without a verdict is rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaVerdicts(pub(crate) Vec<Verdict>);

#[cfg(test)]
#[cfg(feature = "schema")]
mod tests {
    use super::*;
    use ubos_common::json::RawObject;

    // It would not be read for hours, and neither would the version that takes its place.
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_schema_costs_no_more_than_all_of_a_registration_may() {
        let described = format!(
            r#"{{"type":"object","description":"{}"}}"#,
            r"\\w".repeat(20_000)
        );
        let schema = RawObject::parse(&described).unwrap();
        let tool = ToolSpec::local("t", "d", schema);
        assert!(check_priced(&tool, MAX_SCHEMA_BYTES).1 > 100 * MOST);
        let verdict = verdict(&tool);
        assert_eq!((verdict.unusable, verdict.cost), (None, MOST));
    }
}
