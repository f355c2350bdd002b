//! When a task's time is over.

use core::time::Duration;

use ubos_common::time::{Mono, Now, Timestamp};

use crate::number::Amount;
use crate::role::until;
use crate::task::Task;

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    deadline: Option<Timestamp>,
    /// The end of a task that names no deadline.
    default: Option<Mono>,
    /// The same of one that an earlier process began, whose time goes on.
    default_end: Option<Timestamp>,
    seconds: Option<Duration>,
    last: Option<Mono>,
}

// impl: SAP-5-8
impl TimeLimits {
    /// The limits of a task that has just come. `default` is the time of one without a deadline.
    pub(super) fn of(task: &Task, now: Now, default: Duration) -> Self {
        let seconds = task.budget().and_then(|budget| budget.seconds.as_ref());
        let seconds = seconds.map(|seconds| {
            Duration::try_from_secs_f64(Amount::value(seconds)).unwrap_or(Duration::MAX)
        });
        let deadline = task.deadline();
        let default = deadline.is_none().then(|| now.mono.saturating_add(default));
        let limits = Self {
            deadline,
            default,
            default_end: None,
            seconds,
            last: None,
        };
        limits.beginning(now)
    }

    /// The same limits with the budget of seconds counted from now.
    pub(super) fn beginning(mut self, now: Now) -> Self {
        let last = |seconds| now.mono.saturating_add(seconds);
        self.last = self.seconds.map(last);
        self
    }

    /// The same limits, where the time of a task without a deadline ends with this second.
    pub(super) fn ending(mut self, ends: Timestamp) -> Self {
        self.default_end = self.deadline.is_none().then_some(ends);
        self
    }

    /// Why the time is over; equal is within.
    pub(super) fn over(&self, now: Now) -> Option<&'static str> {
        let is_behind = |end: Timestamp| now.wall.truncated_to_second() > end;
        if self.deadline.is_some_and(is_behind) {
            return Some("the deadline is over");
        }
        if self.default.is_some_and(|end| now.mono > end) || self.default_end.is_some_and(is_behind)
        {
            return Some("the time of a task without a deadline is over");
        }
        let is_over = self.last.is_some_and(|last| now.mono > last);
        is_over.then_some("the budget of seconds is used up")
    }

    /// When to look again: soon where there is a deadline, for a calendar that jumps wakes nobody.
    pub(super) fn next(&self, now: Now) -> Option<Mono> {
        let by_calendar = self.deadline.or(self.default_end);
        let deadline = by_calendar.map(|deadline| until(deadline, now));
        let behind = |last: Mono| last.saturating_add(Duration::from_nanos(1));
        let ends = [deadline, self.default.map(behind), self.last.map(behind)];
        ends.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::task::{Budget, Telemetry};

    // spec: SAP-5-8
    #[test]
    fn the_last_moment_of_each_limit_is_within_it() {
        let mut task = samples::task();
        let at = |nanos| Now::new(Mono::from_nanos(nanos), Timestamp::EPOCH);
        let default = Duration::from_secs(7);
        for (budget, wanted) in [(None, 7), (Some(3.0_f64), 3)] {
            let budget = budget.map(|seconds| {
                let mut budget = Budget::new();
                budget.seconds = Some(seconds.try_into().unwrap());
                let mut telemetry = Telemetry::new();
                telemetry.budget = Some(budget);
                telemetry
            });
            task.telemetry = budget;
            let limits = TimeLimits::of(&task, at(0), default);
            assert_eq!(limits.over(at(wanted * 1_000_000_000)), None);
            let next = Mono::from_nanos(wanted * 1_000_000_000 + 1);
            assert_eq!(limits.next(at(0)), Some(next));
            assert!(limits.over(at(next.as_nanos())).is_some());
        }
        // No clock that is monotonic shows that the calendar was set, or that the machine slept.
        let deadline = Timestamp::EPOCH.saturating_add(Duration::from_secs(3_600));
        let mut telemetry = Telemetry::new();
        telemetry.deadline = Some(deadline.into());
        task.telemetry = Some(telemetry);
        let limits = TimeLimits::of(&task, at(0), default);
        assert_eq!(limits.next(at(0)), Some(Mono::from_millis(10_000)));
        let near = Now::new(Mono::ZERO, deadline);
        assert_eq!(limits.next(near), Some(Mono::from_millis(1_000)));
    }
}
