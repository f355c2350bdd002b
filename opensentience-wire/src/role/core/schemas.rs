//! Schemas of tools that wait for a verdict before their registration goes on.

use std::sync::Arc;

use crate::ledger::Charge;
use crate::limits::MAX_SCHEMA_BYTES;
use crate::message::{Rejected, ToolSpec};
use crate::schema::check_schemas;

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

    /// Compiles all of them. Without the feature `schema` their lengths alone are checked.
    #[must_use]
    pub fn run(&self) -> SchemaVerdicts {
        SchemaVerdicts(self.tools.iter().map(|tool| verdict(tool)).collect())
    }

    /// The tools, one verdict each.
    #[cfg(feature = "tokio")]
    pub(crate) fn tools(&self) -> &[Arc<ToolSpec>] {
        &self.tools
    }
}

/// Why the schemas of one tool cannot be used; `None` where they can.
pub(crate) type Verdict = Option<String>;

pub(crate) fn verdict(tool: &ToolSpec) -> Verdict {
    check_schemas(tool, MAX_SCHEMA_BYTES).err()
}

/// What a [`SchemaCheck`] came to. A tool without a verdict is rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaVerdicts(pub(crate) Vec<Verdict>);
