//! How far a task is, and which moves there are.
//!
//! ```text
//! (nothing) --> any
//! QUEUED    --> RUNNING, PARTIAL, terminal
//! RUNNING   --> RUNNING, PARTIAL, terminal
//! PARTIAL   --> RUNNING, PARTIAL, terminal
//! terminal  --> nothing              SUCCEEDED, FAILED, CANCELLED, ESCALATED
//! ```

ubos_common::words! {
    /// How far a task is. Spec: SAP 4.2
    // impl: SAP-4.2-2, SAP-4-3
    closed pub enum Status {
        /// Taken, not begun.
        Queued = "QUEUED",
        /// Under way.
        Running = "RUNNING",
        /// Done.
        Succeeded = "SUCCEEDED",
        /// Not done; the error says why.
        Failed = "FAILED",
        /// Stopped on request.
        Cancelled = "CANCELLED",
        /// Handed on to somebody who decides.
        Escalated = "ESCALATED",
        /// Partly fulfilled; more may follow.
        Partial = "PARTIAL",
    }
}

impl Status {
    /// Whether nothing follows.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Escalated
        )
    }

    /// Whether a result of this status may follow one of `from`; `None` is before the first.
    ///
    /// ```
    /// use sap::Status;
    ///
    /// assert!(Status::Succeeded.may_follow(Some(&Status::Queued)));
    /// assert!(!Status::Queued.may_follow(Some(&Status::Running)));
    /// ```
    // impl: SAP-5-3, SAP-5-4
    #[must_use]
    pub const fn may_follow(&self, from: Option<&Self>) -> bool {
        match from {
            None => true,
            Some(Self::Queued | Self::Running | Self::Partial) => {
                matches!(self, Self::Running | Self::Partial) || self.is_terminal()
            }
            // A word that the list does not have says nothing about what may follow.
            Some(Self::Other(_)) => !matches!(self, Self::Queued),
            Some(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SAP-5-3, SAP-5-4
    #[test]
    fn every_pair_of_the_table() {
        let words = Status::WORDS.iter().map(|word| Status::from(*word));
        let all: Vec<Status> = words.collect();
        for from in &all {
            for to in &all {
                let wanted = !from.is_terminal() && *to != Status::Queued;
                assert_eq!(to.may_follow(Some(from)), wanted, "{from} to {to}");
            }
            assert!(from.may_follow(None));
        }
        assert_eq!(all.iter().filter(|status| status.is_terminal()).count(), 4);
    }
}
