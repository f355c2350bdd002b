//! Whether and when an agent is launched again.

use core::time::Duration;

use ubos_common::machine::Backoff;
use ubos_common::time::Mono;

/// Whether an agent is launched again when it has ended.
///
/// Spec: OpenSentience 4.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It is not.
    #[default]
    Never,
    /// When it failed: an exit with another code than 0, a signal, or because it was unhealthy. One that is unhealthy is ended
    /// once none of its calls runs: health alone ends no call. Where an agent may stand still for ever, each of its calls needs
    /// a time, by [`AgentPolicy::with_call_timeout`](super::AgentPolicy::with_call_timeout) or its own.
    OnFailure,
    /// However it ended.
    Always,
}

/// How an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The process exited with 0, or the connection was closed in good order.
    Well,
    /// It exited with another code, died of a signal, or the connection broke.
    Failed,
    /// The core asked it to end for good.
    Asked,
}

/// What is known of an agent's launches.
#[derive(Debug)]
pub(super) struct Supervision {
    policy: RestartPolicy,
    backoff: Backoff,
    up_since: Option<Mono>,
}

impl Supervision {
    pub(super) fn new(policy: RestartPolicy) -> Self {
        Self {
            policy,
            backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
            up_since: None,
        }
    }

    pub(super) const fn set_policy(&mut self, policy: RestartPolicy) {
        self.policy = policy;
    }

    pub(super) const fn came_up(&mut self, now: Mono) {
        self.up_since = Some(now);
    }

    /// Whether it is ever launched again.
    pub(super) fn restarts(&self) -> bool {
        self.policy != RestartPolicy::Never
    }

    /// The delay before the next launch, if there is one.
    pub(super) fn went_down(
        &mut self,
        now: Mono,
        ended: Ended,
        was_unwell: bool,
    ) -> Option<Duration> {
        let again = match (self.policy, ended) {
            (_, Ended::Asked) if !was_unwell => false,
            (RestartPolicy::Never, _) => false,
            (RestartPolicy::OnFailure, Ended::Well) => was_unwell,
            _ => true,
        };
        // One that was well for longer than the longest delay begins anew.
        let lasted = self
            .up_since
            .take()
            .map(|since| now.saturating_since(since));
        if lasted.is_some_and(|lasted| lasted > LONGEST_DELAY) {
            self.backoff.reset();
        }
        again.then(|| self.backoff.next_delay())
    }

    /// Launches since it last was well for a while.
    pub(super) const fn attempt(&self) -> u32 {
        self.backoff.attempts()
    }
}

/// The delay before the first launch; each further one is twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_well_for_longer_than_the_longest_delay_begins_anew() {
        for (lasted, begins_anew) in [(Duration::ZERO, false), (Duration::from_millis(1), true)] {
            let mut supervision = Supervision::new(RestartPolicy::Always);
            let failed = |supervision: &mut Supervision, now| {
                let delay = supervision.went_down(now, Ended::Failed, false);
                delay.unwrap()
            };
            let first = failed(&mut supervision, Mono::ZERO);
            supervision.came_up(Mono::ZERO);
            let end = Mono::ZERO.saturating_add(LONGEST_DELAY + lasted);
            let next = failed(&mut supervision, end);
            assert_eq!(
                next <= first,
                begins_anew,
                "{lasted:?}: {next:?} after {first:?}"
            );
        }
    }
}
