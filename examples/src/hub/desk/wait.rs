//! Why a job waits, told when it does and when the reason is another.

use std::time::Duration;

use tokio::time::Instant;
use uap_hub_proto::role::hub::JobEvent;

/// A job that is placed sooner has not waited.
const FIRST: Duration = Duration::from_secs(1);
/// The longest time between two looks, each of which is twice as far from the one before.
const LONGEST: Duration = Duration::from_secs(64);

/// When to look at why a job waits, and what was told.
pub(in crate::hub) struct Wait {
    /// `None` while it does not wait.
    next: Option<Instant>,
    pause: Duration,
    told: Option<String>,
}

impl Default for Wait {
    fn default() -> Self {
        Self {
            next: Some(Instant::now() + FIRST),
            pause: FIRST,
            told: None,
        }
    }
}

impl Wait {
    /// Ready when it is time to look.
    pub(in crate::hub) async fn look(&self) {
        match self.next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    /// When to look; `None` while the job does not wait.
    pub(in crate::hub) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether it is time to look.
    pub(in crate::hub) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Takes note of an event of the job: an offer that was refused, or a session that was lost, makes it wait again.
    pub(in crate::hub) fn heard(&mut self, event: &JobEvent) {
        let waits = matches!(
            event,
            JobEvent::Stored | JobEvent::Declined { .. } | JobEvent::Requeued { .. }
        );
        self.next = None;
        self.set_waiting(waits);
    }

    /// Takes note of whether the job waits.
    pub(in crate::hub) fn set_waiting(&mut self, waits: bool) {
        let next = || Instant::now() + self.pause;
        self.next = waits.then(|| self.next.unwrap_or_else(next));
    }

    /// The reason, if it is another than the one that was told.
    pub(in crate::hub) fn changed(&mut self, why: Option<String>) -> Option<String> {
        self.pause = (self.pause * 2).min(LONGEST);
        self.next = why.is_some().then(|| Instant::now() + self.pause);
        let why = why.filter(|why| self.told.as_ref() != Some(why))?;
        self.told = Some(why.clone());
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_and_the_looks_get_rare() {
        let mut wait = Wait::default();
        let mut told = |why: &str| wait.changed(Some(why.to_owned())).is_some();
        let all = ["a", "a", "b", "b", "a"].map(&mut told);
        assert_eq!(all, [true, false, true, false, true]);
        for _ in 0..9 {
            told("a");
        }
        assert_eq!(wait.pause, LONGEST);
        assert!(wait.next.is_some());
        assert_eq!(wait.changed(None), None);
        assert_eq!(wait.next, None, "it does not wait");
        let declined = JobEvent::Declined {
            session: "s".into(),
            reason: String::new(),
        };
        wait.heard(&declined);
        assert!(wait.next.is_some());
    }
}
