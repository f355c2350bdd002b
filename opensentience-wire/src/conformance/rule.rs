//! A judge is a rule over the course of a connection.

use ubos_common::conformance::{Judge, Verdict};

use super::course::Course;
use super::line::{Line, Said, What};
use crate::message::Side;

/// Looks at a line; the course is as it was before it.
pub(super) type Check = fn(&Course, &Line, Side, &mut Tally);

/// What a rule came to so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    tested: bool,
    broken: Option<(String, String)>,
    line: usize,
}

impl Tally {
    /// The rule was put to the test and held.
    pub(super) const fn held(&mut self) {
        self.tested = true;
    }

    /// The rule was broken; the first breach counts.
    pub(super) fn broken(&mut self, place: &str, seen: impl Into<String>) {
        let place = format!("line {}, {place}", self.line);
        self.broken.get_or_insert_with(|| (place, seen.into()));
    }

    /// Held where `good`, else broken.
    pub(super) fn is(&mut self, good: bool, place: &str, seen: impl FnOnce() -> String) {
        if good {
            self.held();
        } else {
            self.broken(place, seen());
        }
    }
}

/// A rule, and the side that it is about.
pub(super) struct Rule {
    side: Side,
    check: Check,
    unseen: &'static str,
    course: Course,
    tally: Tally,
}

impl Rule {
    /// `unseen` says why the rule was not put to the test, where it was not.
    pub(super) fn boxed(side: Side, check: Check, unseen: &'static str) -> Box<dyn Judge<Line>> {
        Box::new(Self {
            side,
            check,
            unseen,
            course: Course::default(),
            tally: Tally::default(),
        })
    }
}

impl Judge<Line> for Rule {
    fn see(&mut self, line: &Line) {
        self.tally.line += 1;
        (self.check)(&self.course, line, self.side, &mut self.tally);
        self.course.follow(line);
    }

    fn verdict(&mut self) -> Verdict {
        match self.tally.broken.take() {
            Some((place, seen)) => Verdict::fail(place, seen),
            None if self.tally.tested => Verdict::Pass,
            None => Verdict::not_applicable(self.unseen),
        }
    }
}

impl Line {
    /// The message that a side sent with this line.
    pub(super) fn said_by(&self, side: Side) -> Option<&Said> {
        match &self.what {
            What::Message(said) if self.from == side => Some(said),
            _ => None,
        }
    }

    pub(super) fn is_end_of(&self, side: Side) -> bool {
        self.from == side && matches!(self.what, What::End { .. })
    }
}
