//! The seven states of 1.0 and their transitions.

use std::collections::BTreeMap;

use ubos_common::json::RawObject;

ubos_common::words! {
    /// The state of a message.
    ///
    /// ```text
    /// PENDING -> ACCEPTED -> IN_PROGRESS -> DONE
    ///                          |     ^
    ///                          v     |
    ///                          WAITING
    /// ```
    ///
    /// Each of the first three and WAITING may also become FAILED or CANCELLED.
    ///
    /// Spec: SACP 1.0, 5
    // impl: SACP1-4-1
    closed pub enum State {
        /// No agent has started on it.
        Pending = "PENDING",
        /// An agent has accepted it.
        Accepted = "ACCEPTED",
        /// An agent works on it.
        InProgress = "IN_PROGRESS",
        /// It waits for an external event.
        Waiting = "WAITING",
        /// It succeeded.
        Done = "DONE",
        /// It failed.
        Failed = "FAILED",
        /// It was cancelled.
        Cancelled = "CANCELLED",
    }
}

impl State {
    /// Whether this state may change to another. Staying in the same state is not a transition.
    const fn may_become(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (
                Self::Pending,
                Self::Accepted | Self::Failed | Self::Cancelled
            ) | (
                Self::Accepted,
                Self::InProgress | Self::Failed | Self::Cancelled
            ) | (
                Self::InProgress,
                Self::Waiting | Self::Done | Self::Failed | Self::Cancelled
            ) | (
                Self::Waiting,
                Self::InProgress | Self::Failed | Self::Cancelled
            )
        )
    }

    /// Whether no further state follows.
    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether the lifecycle leads from here to another state, perhaps by way of others.
    pub(crate) fn reaches(&self, next: &Self) -> bool {
        /// States in the order in which a message goes through them.
        const WAY: [State; 4] = [
            State::Pending,
            State::Accepted,
            State::InProgress,
            State::Waiting,
        ];
        let place = |state: &Self| WAY.iter().position(|other| other == state);
        match (place(self), place(next)) {
            _ if self.may_become(next) => true,
            (Some(from), Some(to)) => from <= to,
            (Some(_), None) => true,
            (None, _) => self == next,
        }
    }

    /// Changes to another state; staying is allowed.
    ///
    /// ```
    /// use sacp::v1::State;
    ///
    /// let mut state = State::Pending;
    /// state.advance(State::Accepted)?;
    /// let refused = state.advance(State::Done).unwrap_err();
    /// assert_eq!(refused.to_string(), "a message does not go from ACCEPTED to DONE");
    /// assert_eq!(state, State::Accepted);
    /// # Ok::<(), sacp::v1::TransitionError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The lifecycle has no such transition. The state is unchanged.
    ///
    /// Spec: SACP 1.0, 5
    // impl: SACP1-5-1
    pub fn advance(&mut self, next: Self) -> Result<(), TransitionError> {
        if *self != next && !self.may_become(&next) {
            let from = self.clone();
            return Err(TransitionError { from, to: next });
        }
        *self = next;
        Ok(())
    }
}

/// A transition that the lifecycle does not have: `INVALID_STATE_TRANSITION`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message does not go from {from} to {to}")]
#[non_exhaustive]
pub struct TransitionError {
    /// The current state.
    pub from: State,
    /// The requested state.
    pub to: State,
}

impl From<&TransitionError> for super::Failure {
    /// The error for the wire, with both states in `details`.
    fn from(refused: &TransitionError) -> Self {
        let code = super::Code::InvalidStateTransition;
        let states = BTreeMap::from([
            ("from".to_owned(), refused.from.as_str().to_owned()),
            ("to".to_owned(), refused.to.as_str().to_owned()),
        ]);
        let failure = Self::of(code, &refused.to_string());
        match RawObject::from_serialize(&states) {
            Ok(Some(details)) => failure.with_details(details),
            _ => failure,
        }
    }
}
