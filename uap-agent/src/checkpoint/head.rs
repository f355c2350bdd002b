//! The last checkpoint of a session, and what is written for the next one.

use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

use super::{CheckpointError, CheckpointMetadata};
use crate::state::AgentState;
use crate::state::delta::Delta;

/// Bytes of differences that are always borne, however small the state is.
const SLACK: usize = 64 << 10;

/// What is written for a checkpoint, as JSON.
#[derive(Debug)]
pub(super) enum Piece {
    /// The whole state.
    Whole(String),
    /// What makes it of the state before.
    Difference(String),
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Piece {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Whole(text) | Self::Difference(text) => text.len(),
        }
    }
}

/// A whole state as JSON, where it could be read back.
pub(super) fn whole(state: &AgentState) -> Result<String, CheckpointError> {
    match state.breach() {
        Some(why) => Err(CheckpointError::Unreadable(why.into())),
        None => Ok(state.to_json()),
    }
}

/// The state that a difference makes of the one before.
pub(super) fn grown(
    before: &AgentState,
    difference: &[u8],
    limits: &Limits,
) -> Result<AgentState, CheckpointError> {
    let read = json::decode::<Delta>(difference, limits, Profile::Strict);
    let (delta, _) = read.map_err(damaged)?;
    delta.apply(before, limits).map_err(damaged)
}

pub(super) fn damaged(what: impl ToString) -> CheckpointError {
    CheckpointError::Damaged(what.to_string().into())
}

/// The last checkpoint, and what reading it costs.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) metadata: CheckpointMetadata,
    pub(super) state: AgentState,
    /// Records since the last whole state.
    pub(super) back: u64,
    /// Bytes of them and of that state.
    pub(super) cost: usize,
    /// About how many bytes the state itself has, as JSON.
    live: usize,
    /// How many it has at most.
    most: usize,
}

impl Head {
    /// A checkpoint that was read.
    pub(super) fn found(
        metadata: CheckpointMetadata,
        state: AgentState,
        back: u64,
        cost: usize,
    ) -> Self {
        let live = state.to_json().len();
        Self {
            metadata,
            state,
            back,
            cost,
            live,
            most: live,
        }
    }

    /// Whether this is that checkpoint: it is saved again by a run that was killed before it could say that this is done.
    pub(super) fn is(&self, metadata: &CheckpointMetadata, state: &AgentState) -> bool {
        self.metadata == *metadata && self.state == *state
    }

    /// What is written for the next checkpoint, and the head after it, the bytes of its own piece not counted yet.
    ///
    /// The whole state is written where reading the differences would cost more than twice as much. What that takes was
    /// written in differences before, so all that is ever written stays within a multiple of what steps have added.
    pub(super) fn next(
        before: Option<&Self>,
        metadata: &CheckpointMetadata,
        state: AgentState,
        limit: usize,
    ) -> Result<(Piece, Self), CheckpointError> {
        let head = |state, back, cost, (live, most)| Self {
            metadata: metadata.clone(),
            state,
            back,
            cost,
            live,
            most,
        };
        if let Some(before) = before {
            let delta = Delta::between(&before.state, &state);
            let text = json::to_string(&delta);
            let (bytes, back) = (text.len(), before.back + 1);
            // No state grows by more than the difference that is written for it.
            let most = before.most.saturating_add(bytes);
            let (live, most) = if delta.drops() || most > limit {
                let exact = state.to_json().len();
                (exact, exact)
            } else {
                (before.live.saturating_add(delta.added_bytes()), most)
            };
            let bearable = live.saturating_mul(2).saturating_add(SLACK);
            if most <= limit && bytes <= limit && before.cost.saturating_add(bytes) <= bearable {
                return Ok((
                    Piece::Difference(text),
                    head(state, back, before.cost, (live, most)),
                ));
            }
        }
        let text = whole(&state)?;
        let bytes = text.len();
        if bytes > limit {
            return Err(CheckpointError::TooLarge { bytes, limit });
        }
        Ok((Piece::Whole(text), head(state, 0, 0, (bytes, bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{PlanStep, PlanStepStatus};
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;
    use upp::{Message, Stamp};

    // spec: UAP-12-4
    #[test]
    fn a_difference_is_written_up_to_each_limit() {
        let ids = &mut IdSource::seeded(1);
        let metadata =
            CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, 0, "a".into());
        let base = AgentState::initial(ids);
        let before = Head::found(metadata.clone(), base.clone(), 0, 0);
        let is_difference = |before: &Head, state: &AgentState, limit| {
            let next = Head::next(Some(before), &metadata, state.clone(), limit);
            matches!(next, Ok((Piece::Difference(_), _)))
        };
        // The state has just the size that is allowed.
        let stamp = Stamp::new(ids, Timestamp::EPOCH);
        let longer = base.with_message(ids, Message::user(stamp, "x".repeat(300)));
        let delta = Delta::between(&base, &longer);
        let bytes = longer.to_json().len();
        assert!(is_difference(&before, &longer, bytes));
        assert!(!is_difference(&before, &longer, bytes - 1));
        // So has the difference, which is longer than the state.
        let plan = |status: PlanStepStatus| -> Vec<PlanStep> {
            let step =
                |n: u32| PlanStep::new(n.to_string().into(), "".into(), vec![], status.clone());
            (0..50).map(step).collect()
        };
        let planned = base.with_plan(ids, plan(PlanStepStatus::Completed));
        let replanned = planned.with_plan(ids, plan(PlanStepStatus::Failed));
        let bytes = json::to_string(&Delta::between(&planned, &replanned)).len();
        assert!(bytes > replanned.to_json().len());
        let planned = Head::found(metadata.clone(), planned, 0, 0);
        assert!(is_difference(&planned, &replanned, bytes));
        assert!(!is_difference(&planned, &replanned, bytes - 1));
        // So have all differences since the last whole state.
        let bytes = json::to_string(&delta).len();
        let live = before.live + delta.added_bytes();
        let mut before = before;
        before.cost = 2 * live + SLACK - bytes;
        assert!(is_difference(&before, &longer, usize::MAX));
        before.cost += 1;
        assert!(!is_difference(&before, &longer, usize::MAX));
        // And a whole state.
        let limit = longer.to_json().len();
        assert!(Head::next(None, &metadata, longer.clone(), limit).is_ok());
        let refused = Head::next(None, &metadata, longer, limit - 1).map(drop);
        let (bytes, limit) = (limit, limit - 1);
        assert_eq!(refused, Err(CheckpointError::TooLarge { bytes, limit }));
    }

    // spec: UAP-12-4
    #[test]
    fn a_state_that_has_lost_messages_is_counted_anew() {
        let ids = &mut IdSource::seeded(1);
        let metadata =
            CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, 0, "a".into());
        let message = Message::user(Stamp::new(ids, Timestamp::EPOCH), "x".repeat(3000));
        let long = AgentState::initial(ids).with_message(ids, message);
        let short = long.with_context(ids, Vec::new());
        let before = Head::found(metadata.clone(), long, 0, 0);
        let next = Head::next(Some(&before), &metadata, short.clone(), usize::MAX);
        let (piece, head) = next.unwrap();
        assert!(matches!(piece, Piece::Difference(_)));
        assert_eq!(head.live, short.to_json().len());
    }

    // spec: UAP-12-4
    #[test]
    fn no_state_grows_beyond_its_limit_by_differences() {
        let ids = &mut IdSource::seeded(1);
        let metadata =
            CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, 0, "a".into());
        let mut state = AgentState::initial(ids);
        let (limit, mut before) = (20_000, None);
        let refused = (0..100).find_map(|n| {
            let note = upp::json_text(&"x".repeat(1000));
            state = state.with_metadata(ids, format!("note {n}"), note);
            let next = Head::next(before.as_ref(), &metadata, state.clone(), limit);
            let (piece, mut head) = match next {
                Ok(next) => next,
                Err(error) => return Some(error),
            };
            let (Piece::Whole(text) | Piece::Difference(text)) = piece;
            head.cost += text.len();
            before = Some(head);
            None
        });
        let bytes = state.to_json().len();
        assert_eq!(refused, Some(CheckpointError::TooLarge { bytes, limit }));
        assert!(bytes - 1100 <= limit, "{bytes}");
    }
}
