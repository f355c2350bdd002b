//! The words of a message of 0.1: its state, and the format of its answer.

ubos_common::words! {
    /// The format of an answer.
    ///
    /// Spec: SACP 3
    // impl: SACP-2-5
    closed pub enum OutFmt {
        /// Prose for a person.
        Human = "human",
        /// Structured and complete: the default.
        Raw = "raw",
        /// Structured and short.
        Summary = "summary",
    }
}

ubos_common::words! {
    /// The state of a message.
    ///
    /// ```text
    /// PENDING -> IN_PROGRESS -> DONE
    ///    |            |
    ///    +------------+-------> FAILED
    /// ```
    ///
    /// Spec: SACP 1
    // impl: SACP-2-6
    closed pub enum State {
        /// No agent has started on it.
        Pending = "PENDING",
        /// An agent works on it.
        InProgress = "IN_PROGRESS",
        /// It succeeded.
        Done = "DONE",
        /// It failed.
        Failed = "FAILED",
    }
}

impl State {
    /// Whether this state may change to another.
    ///
    /// Spec: SACP 1
    // impl: SACP-2-6
    #[must_use]
    pub const fn may_become(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (Self::Pending, Self::InProgress | Self::Failed)
                | (Self::InProgress, Self::Done | Self::Failed)
        )
    }
}
