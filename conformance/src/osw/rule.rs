//! A judge is a rule over what was observed of a connection.

use super::observed::ObservedState;
use super::recording::{Line, LineKind, RecordedMessage};
use crate::{Judge, Verdict};
use opensentience_wire::message::Side;

/// Looks at a line that the named side is judged for; the state is as it was before the line.
pub(super) trait Check:
    Fn(&ObservedState, &Line, Side, &mut RuleVerdict) + Copy + Send + Sync + 'static
{
}

impl<F> Check for F where
    F: Fn(&ObservedState, &Line, Side, &mut RuleVerdict) + Copy + Send + Sync + 'static
{
}

/// The verdict of a rule so far.
#[derive(Debug, Default)]
pub(super) struct RuleVerdict {
    tested: bool,
    broken: Option<(String, String)>,
    line: usize,
}

impl RuleVerdict {
    /// The rule was tested and kept.
    pub(super) const fn kept(&mut self) {
        self.tested = true;
    }

    /// The rule was broken; the first breach counts.
    pub(super) fn broken(&mut self, place: &str, seen: impl Into<String>) {
        let place = format!("line {}, {place}", self.line);
        self.broken.get_or_insert_with(|| (place, seen.into()));
    }

    /// Kept where `good`, else broken.
    pub(super) fn check(&mut self, good: bool, place: &str, seen: impl FnOnce() -> String) {
        if good {
            self.kept();
        } else {
            self.broken(place, seen());
        }
    }
}

/// A rule, and the side that it judges.
pub(super) struct Rule<C> {
    side: Side,
    check: C,
    untested: &'static str,
    state: ObservedState,
    verdict: RuleVerdict,
}

impl<C: Check> Rule<C> {
    /// `untested` is the reason that a report gives where the rule was not tested.
    pub(super) fn new(side: Side, check: C, untested: &'static str) -> Self {
        Self {
            side,
            check,
            untested,
            state: ObservedState::default(),
            verdict: RuleVerdict::default(),
        }
    }
}

impl<C: Check> Judge<Line> for Rule<C> {
    fn see(&mut self, line: &Line) {
        self.verdict.line += 1;
        (self.check)(&self.state, line, self.side, &mut self.verdict);
        self.state.observe(line);
    }

    fn verdict(&mut self) -> Verdict {
        match self.verdict.broken.take() {
            Some((place, seen)) => Verdict::fail(place, seen),
            None if self.verdict.tested => Verdict::Pass,
            None => Verdict::not_applicable(self.untested),
        }
    }
}

impl Line {
    /// The message that a side sent with this line.
    pub(super) fn message_from(&self, side: Side) -> Option<&RecordedMessage> {
        match &self.kind {
            LineKind::Message(message) if self.from == side => Some(message),
            _ => None,
        }
    }

    pub(super) fn is_end_of(&self, side: Side) -> bool {
        self.from == side && matches!(self.kind, LineKind::End { .. })
    }
}
