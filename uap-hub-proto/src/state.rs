//! The states of a session, for tests and translations alike.

use crate::{
    capability::Kind,
    wire::{TestState, TranslationState},
};

/// The state of a session.
///
/// ```text
/// Acknowledged -> Running -> Completed | Failed | Invalid
/// ```
///
/// Steps may be skipped, never taken back; the last three are terminal.
///
/// Spec: UAP hub 4
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The agent has the session.
    Acknowledged,
    /// The agent is at work (`RUNNING` of tests, `PROCESSING` of translations).
    Running,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// The job is invalid for the agent.
    Invalid,
}

impl State {
    /// Reads the number of a `TestState` or `TranslationState`; `None` for unspecified and unknown ones.
    #[must_use]
    pub fn from_wire(kind: Kind, number: i32) -> Option<Self> {
        match kind {
            Kind::Test => match TestState::try_from(number).ok()? {
                TestState::Unspecified => None,
                TestState::Acknowledged => Some(Self::Acknowledged),
                TestState::Invalid => Some(Self::Invalid),
                TestState::Running => Some(Self::Running),
                TestState::Completed => Some(Self::Completed),
                TestState::Failed => Some(Self::Failed),
            },
            Kind::Translation => match TranslationState::try_from(number).ok()? {
                TranslationState::Unspecified => None,
                TranslationState::Acknowledged => Some(Self::Acknowledged),
                TranslationState::Invalid => Some(Self::Invalid),
                TranslationState::Processing => Some(Self::Running),
                TranslationState::Completed => Some(Self::Completed),
                TranslationState::Failed => Some(Self::Failed),
            },
        }
    }

    /// The number on the wire.
    #[must_use]
    pub fn to_wire(self, kind: Kind) -> i32 {
        match kind {
            Kind::Test => i32::from(match self {
                Self::Acknowledged => TestState::Acknowledged,
                Self::Running => TestState::Running,
                Self::Completed => TestState::Completed,
                Self::Failed => TestState::Failed,
                Self::Invalid => TestState::Invalid,
            }),
            Kind::Translation => i32::from(match self {
                Self::Acknowledged => TranslationState::Acknowledged,
                Self::Running => TranslationState::Processing,
                Self::Completed => TranslationState::Completed,
                Self::Failed => TranslationState::Failed,
                Self::Invalid => TranslationState::Invalid,
            }),
        }
    }

    /// Whether the session is at its end.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Invalid)
    }

    /// Whether a session in this state may report `next`: the same or a later state.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        !self.is_terminal() && next.rank() >= self.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Acknowledged => 1,
            Self::Running => 2,
            Self::Completed | Self::Failed | Self::Invalid => 3,
        }
    }
}
