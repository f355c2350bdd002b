//! The difference between two states, for stores that keep what changed.

use std::sync::Arc;

use ubos_common::json::{Limits, Members, RawBuf, RawObject, to_string, to_vec};
use upp::{List, Message};

use super::json::members;
use super::{AgentState, PlanStep, PlanSteps, StateId, SubagentExecutionTrace};

ubos_common::wire! {
    /// What makes one state of another. A member is absent where nothing changed.
    pub(crate) struct Delta {
        /// The new state's.
        required id: StateId = "i", "UAP-12-4";
        /// The new state's.
        required step: u64 = "s", "UAP-12-4";
        /// Messages that stay; absent where all do.
        nullable kept: usize = "k", "UAP-12-4";
        /// Messages behind them.
        nullable messages: List<Message> = "m", "UAP-12-4";
        /// Pieces of reasoning that stay; absent where all do.
        nullable reasoning_kept: usize = "rk", "UAP-12-4";
        /// Pieces behind them.
        nullable reasoning: List<Arc<str>> = "r", "UAP-12-4";
        /// Traces that stay; absent where all do.
        nullable traces_kept: usize = "tk", "UAP-12-4";
        /// Traces behind them.
        nullable traces: List<SubagentExecutionTrace> = "t", "UAP-12-4";
        /// The whole plan; null where there is none any more.
        verbatim plan: Option<Vec<PlanStep>> = "p", "UAP-12-4";
        /// Steps of the plan that changed in their places.
        nullable plan_steps: Vec<PlanChange> = "ps", "UAP-12-4";
        /// Entries of the metadata that are new or changed.
        nullable metadata: RawObject = "d", "UAP-12-4";
        /// All entries, where some are gone or elsewhere.
        nullable all_metadata: RawObject = "da", "UAP-12-4";
        /// All members that the state's type does not know.
        nullable unknown: RawObject = "e", "UAP-12-4";
    }
}

ubos_common::wire! {
    /// A step of a plan that changed.
    pub(crate) struct PlanChange {
        /// Its place.
        required n: usize = "n", "UAP-12-4";
        /// What stands there now.
        required step: PlanStep = "step", "UAP-12-4";
    }
}

/// Why a difference cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeltaError {
    /// It keeps more than there is.
    #[error("a difference to a longer state")]
    Longer,
    /// A later version wrote it.
    #[error("a difference with members that are not known")]
    Unknown,
    /// Its metadata cannot be read.
    #[error("a difference with metadata that cannot be read")]
    Metadata,
}

impl Delta {
    /// What makes `next` of `base`. What both share is not looked at.
    // impl: UAP-12-4
    pub(crate) fn between(base: &AgentState, next: &AgentState) -> Self {
        let mut delta = Self::new(next.id, next.step);
        (delta.kept, delta.messages) = grown(&base.messages, &next.messages);
        (delta.reasoning_kept, delta.reasoning) = grown(&base.reasoning, &next.reasoning);
        (delta.traces_kept, delta.traces) = grown(&base.subagent_traces, &next.subagent_traces);
        delta.set_plan(base, next);
        if !Arc::ptr_eq(&base.metadata, &next.metadata) && base.metadata != next.metadata {
            match changed(&base.metadata, &next.metadata) {
                Some(entries) => delta.metadata = Some(entries),
                None => delta.all_metadata = Some(object(&next.metadata)),
            }
        }
        if !Arc::ptr_eq(&base.extra, &next.extra) && base.extra != next.extra {
            delta.unknown = Some(object(&next.extra));
        }
        delta
    }

    fn set_plan(&mut self, base: &AgentState, next: &AgentState) {
        match (&base.plan, &next.plan) {
            (None, None) => {}
            (Some(before), Some(after)) if before.len() == after.len() => {
                let places = before.changed_places(after).into_iter();
                let steps = places.filter_map(|n| Some(PlanChange::new(n, after.get(n)?.clone())));
                self.plan_steps = Some(steps.collect()).filter(|steps: &Vec<_>| !steps.is_empty());
            }
            (_, after) => {
                self.plan = Some(after.as_ref().map(|plan| plan.iter().cloned().collect()))
            }
        }
    }

    /// The state that this makes of another.
    ///
    /// # Errors
    ///
    /// It was no difference to that state.
    pub(crate) fn apply(
        self,
        base: &AgentState,
        limits: &Limits,
    ) -> Result<AgentState, DeltaError> {
        if !self.extra.is_empty() {
            return Err(DeltaError::Unknown);
        }
        let mut state = base.clone();
        (state.id, state.step) = (self.id, self.step);
        grow(&mut state.messages, self.kept, self.messages)?;
        grow(&mut state.reasoning, self.reasoning_kept, self.reasoning)?;
        grow(&mut state.subagent_traces, self.traces_kept, self.traces)?;
        if let Some(plan) = self.plan {
            state.plan = plan.map(PlanSteps::from);
        }
        if let Some(changes) = self.plan_steps {
            let mut plan = state.plan.take().unwrap_or_default();
            for change in changes {
                let changed = plan.with(change.n, change.step);
                plan = changed.ok_or(DeltaError::Longer)?;
            }
            state.plan = Some(plan);
        }
        let read = |object| members(&object, limits).map_err(|_| DeltaError::Metadata);
        if let Some(all) = self.all_metadata.map(read).transpose()? {
            state.metadata = Arc::new(all);
        }
        if let Some(entries) = self.metadata.map(read).transpose()? {
            let metadata = Arc::make_mut(&mut state.metadata);
            for (key, value) in entries.iter() {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        if let Some(unknown) = self.unknown.map(read).transpose()? {
            state.extra = Arc::new(unknown);
        }
        Ok(state)
    }

    /// About how many bytes the state has more by it, as JSON.
    pub(crate) fn added_bytes(&self) -> usize {
        let messages = self
            .messages
            .as_ref()
            .map_or(0, |added| to_vec(added).len());
        let reasoning = self
            .reasoning
            .as_ref()
            .map_or(0, |added| to_vec(added).len());
        let traces = self.traces.as_ref().map_or(0, |added| to_vec(added).len());
        messages + reasoning + traces
    }

    /// Whether something of the earlier state is gone from a list.
    pub(crate) const fn drops(&self) -> bool {
        self.kept.is_some() || self.reasoning_kept.is_some() || self.traces_kept.is_some()
    }
}

/// What of a list stays, where not all of it does, and what is new.
fn grown<T: Clone + PartialEq>(
    before: &List<T>,
    after: &List<T>,
) -> (Option<usize>, Option<List<T>>) {
    let kept = after.common_prefix(before);
    let added: List<T> = after.iter_from(kept).cloned().collect();
    (
        Some(kept).filter(|kept| *kept < before.len()),
        Some(added).filter(|added| !added.is_empty()),
    )
}

fn grow<T: Clone>(
    list: &mut List<T>,
    kept: Option<usize>,
    added: Option<List<T>>,
) -> Result<(), DeltaError> {
    if let Some(kept) = kept {
        if kept > list.len() {
            return Err(DeltaError::Longer);
        }
        *list = list.iter().take(kept).cloned().collect();
    }
    if let Some(added) = added {
        list.extend(added.iter().cloned());
    }
    Ok(())
}

/// The entries that are new or changed; none where another entry is gone or has moved.
fn changed(before: &Members<'static>, after: &Members<'static>) -> Option<RawObject> {
    let mut entries = Members::new();
    let mut old = before.iter();
    for (key, value) in after.iter() {
        match old.next() {
            Some((kept, _)) if kept != key => return None,
            Some((_, same)) if same == value => {}
            _ => entries.insert(key.to_owned(), value.to_owned()),
        }
    }
    old.next().is_none().then(|| object(&entries))
}

fn object(members: &Members<'static>) -> RawObject {
    let text = to_string(&super::json::Object(members));
    RawObject::new(RawBuf::assume_sound(text)).unwrap_or_else(RawObject::empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PlanStepStatus;
    use proptest::prelude::*;
    use ubos_common::id::IdSource;
    use ubos_common::json::decode;
    use ubos_common::time::Timestamp;
    use ubos_common::violation::Profile;
    use upp::Stamp;

    /// One of the things that may become of a state.
    fn evolve(ids: &mut IdSource, state: &AgentState, what: u8, n: usize) -> AgentState {
        let message = |ids: &mut IdSource| {
            Message::user(Stamp::new(ids, Timestamp::EPOCH), format!("text {n}"))
        };
        let plan = |status: PlanStepStatus, len: usize| -> Vec<PlanStep> {
            let step = |n: usize| {
                let now = if n == 1 {
                    status.clone()
                } else {
                    PlanStepStatus::Pending
                };
                PlanStep::new(format!("s{n}").into(), "do".into(), vec![], now)
            };
            (0..len).map(step).collect()
        };
        match what {
            0 => {
                let more: Vec<_> = (0..n).map(|_| message(ids)).collect();
                state.with_messages(ids, more)
            }
            1 => {
                let kept: Vec<_> = state.messages.iter().take(n).cloned().collect();
                let added = message(ids);
                state.with_context(ids, kept).with_message(ids, added)
            }
            2 => state.with_metadata(ids, format!("k{}", n % 4), upp::json_text("ü")),
            3 => state.with_reasoning(ids, format!("because {n}")),
            4 => state.with_plan(ids, plan(PlanStepStatus::Completed, n % 5)),
            5 => state.with_plan(ids, plan(PlanStepStatus::Failed, n % 5)),
            6 => {
                let trace = SubagentExecutionTrace::new(
                    "a".into(),
                    "kind".into(),
                    "c".into(),
                    "p".into(),
                    0,
                    1,
                    true,
                );
                state.with_subagent_trace(ids, trace)
            }
            7 => AgentState::initial(ids),
            _ => {
                let mut with = state.to_json();
                with.insert_str(with.len() - 1, r#","x-mine":[1]"#);
                let read = AgentState::from_json(with.as_bytes(), &Limits::default());
                read.unwrap_or_else(|_| state.clone())
            }
        }
    }

    proptest! {
        // spec: UAP-12-4
        #[test]
        #[cfg_attr(miri, ignore = "too slow in an interpreter")]
        fn a_difference_makes_one_state_of_the_other(
            steps in prop::collection::vec((0u8..9, 0usize..70), 1..12),
        ) {
            let ids = &mut IdSource::seeded(5);
            let mut states = vec![AgentState::initial(ids)];
            for (what, n) in steps {
                let next = evolve(ids, &states[states.len() - 1], what, n);
                states.push(next);
            }
            let limits = Limits::default();
            for base in &states {
                for next in &states {
                    let written = to_vec(&Delta::between(base, next));
                    prop_assert!(next.to_json().len() <= base.to_json().len() + written.len());
                    let (read, _) = decode::<Delta>(&written, &limits, Profile::Strict).unwrap();
                    let made = read.apply(base, &limits).unwrap();
                    prop_assert_eq!(&made, next);
                    prop_assert_eq!(made.to_json(), next.to_json());
                }
            }
        }
    }

    #[test]
    fn a_difference_to_another_state_is_refused() {
        let ids = &mut IdSource::seeded(6);
        let state = AgentState::initial(ids);
        let long = evolve(ids, &state, 0, 9);
        let limits = Limits::default();
        let cut = Delta::between(&long, &evolve(ids, &long, 1, 5));
        assert_eq!(cut.apply(&state, &limits), Err(DeltaError::Longer));
        let planned = evolve(ids, &state, 4, 3);
        let moved = Delta::between(&planned, &evolve(ids, &planned, 5, 3));
        assert_eq!(moved.apply(&state, &limits), Err(DeltaError::Longer));
        let mut later = Delta::between(&state, &long);
        later.extra.insert("new", upp::json_text("?"));
        assert_eq!(later.apply(&state, &limits), Err(DeltaError::Unknown));
    }
}
