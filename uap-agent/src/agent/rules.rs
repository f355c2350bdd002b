//! What is decided about calls by the name of their tool.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use upp::ToolCall;

use crate::approval::ApprovalPolicy;
#[cfg(feature = "canon")]
use crate::journal::{Ownership, UnknownOutcome};

/// The policies of a run for tool calls, and those of the runs that it is a part of.
#[derive(Clone, Default)]
pub(super) struct CallRules {
    approvals: Option<Arc<dyn ApprovalPolicy>>,
    #[cfg(feature = "canon")]
    owner: Arc<Ownership>,
    outer: Option<Arc<Self>>,
}

impl CallRules {
    pub(super) fn new(
        approvals: Option<Arc<dyn ApprovalPolicy>>,
        #[cfg(feature = "canon")] owner: Ownership,
    ) -> Self {
        Self {
            approvals,
            #[cfg(feature = "canon")]
            owner: Arc::new(owner),
            outer: None,
        }
    }

    /// The rules of a run inside of a call of another.
    pub(super) fn within(&self, outer: &Self) -> Self {
        Self {
            outer: Some(Arc::new(outer.clone())),
            ..self.clone()
        }
    }

    /// Why a call is refused in a run that cannot wait for a person; `None` where it runs. A call is repeated where nobody knows
    /// whether it has run.
    pub(super) fn refuses(&self, call: &ToolCall, is_repeated: bool) -> Option<&'static str> {
        if self.all().any(|rules| rules.needs_approval(call)) {
            return Some(match self.outer {
                Some(_) => {
                    "the call needs a person's approval, and an agent that is called as a tool cannot wait for one"
                }
                None => "the call needs a person's approval, and this run is not recorded",
            });
        }
        is_repeated.then(|| self.refuses_again(call)).flatten()
    }

    #[cfg(feature = "canon")]
    fn refuses_again(&self, call: &ToolCall) -> Option<&'static str> {
        let own = self.owner.unknown_of(&call.tool_name);
        // What an outer run does with other tools, it has done with the call within which this one is made.
        let outer = self.all().skip(1);
        let named = outer.filter_map(|rules| rules.owner.unknown_by_name(&call.tool_name));
        let decided: Vec<_> = named.chain([own]).collect();
        if decided.contains(&UnknownOutcome::Fail) {
            Some("the outcome of this call is unknown: it may have run in a process that has ended")
        } else if decided.contains(&UnknownOutcome::Wait) {
            Some(
                "a person has to decide about this call, which may have run in a process that has ended, and an agent that is called as a tool cannot wait for one",
            )
        } else {
            None
        }
    }

    /// No call is repeated that is not recorded.
    #[cfg(not(feature = "canon"))]
    fn refuses_again(&self, _: &ToolCall) -> Option<&'static str> {
        None
    }

    /// These rules, and then those of the outer runs.
    fn all(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |rules| rules.outer.as_deref())
    }

    fn needs_approval(&self, call: &ToolCall) -> bool {
        self.approvals.as_ref().is_some_and(|policy| {
            let asked = catch_unwind(AssertUnwindSafe(|| policy.request(call)));
            // A policy that panics has not said that the call needs no approval.
            asked.map_or(true, |request| request.is_some())
        })
    }
}
