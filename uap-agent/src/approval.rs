//! Which tool calls need the approval of a person.

use core::time::Duration;

use upp::ToolCall;

/// Decides which tool calls need the approval of a person.
///
/// The question stands in the journal of a recorded run. The run goes on with what else it has to do, and pauses when it
/// can do nothing but wait. A run that is not recorded cannot pause: such a call gets an error result.
///
/// The policy is asked as well for the calls inside of a `SubagentTool` (feature `driver`), by the names
/// of that agent's tools. They cannot wait: one that needs an approval gets an error result, also where a person has approved
/// the call of the `SubagentTool`. A policy that wants no more than that approval returns `None` for them. An agent that runs
/// inside of any other tool has its own policy alone.
///
/// The hooks of tools run after the approval. One that changes the arguments changes what was approved.
///
/// ```
/// use uap_agent::{ApprovalPolicy, ApprovalRequest};
/// use upp::ToolCall;
///
/// /// Payments wait a day for the accountants.
/// struct Payments;
///
/// impl ApprovalPolicy for Payments {
///     fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
///         let day = std::time::Duration::from_secs(24 * 60 * 60);
///         let request = ApprovalRequest::default().with_expiry(day).with_persons(["ann", "bob"]);
///         (&*call.tool_name == "pay").then_some(request)
///     }
/// }
/// ```
pub trait ApprovalPolicy: Send + Sync {
    /// What approval a call needs; `None` where it needs none. It must depend on the call only.
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest>;
}

/// The approval that a call needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRequest {
    pub(crate) within: Option<Duration>,
    pub(crate) may_answer: Vec<String>,
}

impl ApprovalRequest {
    /// Sets how long the question may be answered. Then the call counts as rejected. Default: for ever.
    #[must_use]
    pub const fn with_expiry(mut self, span: Duration) -> Self {
        self.within = Some(span);
        self
    }

    /// Sets who may answer. Default: everybody.
    #[must_use]
    pub fn with_persons(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.may_answer = names.into_iter().map(Into::into).collect();
        self
    }
}
