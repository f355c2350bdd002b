//! Cancelling.

ubos_common::wire! {
    /// The core cancels a call.
    ///
    /// Spec: OpenSentience 4.4.1
    pub struct ToolCancel {
        /// The call.
        required call_id: String = "call_id", "OSW-4.4-1";
        /// Why, for people.
        nullable reason: String = "reason", "OSW-4.4-1";
        /// Milliseconds from receipt until the core gives the call up.
        nullable deadline_ms: u64 = "deadline_ms", "OSW-4.4-2";
    }
}

ubos_common::wire! {
    /// The agent acknowledges that a call is cancelled.
    ///
    /// Spec: OpenSentience 4.4.2
    pub struct CancelAck {
        /// The call.
        required call_id: String = "call_id", "OSW-4.4-1";
        /// Whether there was something to stop.
        required accepted: bool = "accepted", "OSW-4.4-1";
        /// A remark.
        nullable note: String = "note", "OSW-4.4-1";
    }
}
