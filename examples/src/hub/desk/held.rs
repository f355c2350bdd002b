//! Jobs for agents that are not there.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::super::jobs::Read;
use super::wait::Wait;

/// Jobs that wait for agents that are not there.
const MAX_HELD: usize = 1000;
/// Bytes of their lines and data, one job more at most.
const MAX_HELD_BYTES: usize = 256 << 20;

/// A job for an agent that is not there.
pub(super) struct HeldJob {
    pub(super) read: Read,
    pub(super) until: Option<Instant>,
    wait: Wait,
}

impl HeldJob {
    /// When its time is over, or it is to be said why it waits.
    fn due(&self) -> Option<Instant> {
        [self.until, self.wait.next()].into_iter().flatten().min()
    }
}

/// All of them, in the order in which they came. They are looked at when an agent begins to listen, and when one is due.
#[derive(Default)]
pub(super) struct Held {
    jobs: VecDeque<HeldJob>,
    due: Option<Instant>,
    bytes: usize,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() >= MAX_HELD || self.bytes >= MAX_HELD_BYTES
    }

    pub(super) fn add(&mut self, read: Read) {
        let until = read.job.time_limit.map(|limit| Instant::now() + limit);
        self.bytes += read.bytes;
        let wait = Wait::default();
        let job = HeldJob { read, until, wait };
        self.due = [self.due, job.due()].into_iter().flatten().min();
        self.jobs.push_back(job);
    }

    /// Looks at those that it is time to look at; gives those of which there is something new to say, with the reason, which is
    /// made of the agent's name.
    pub(super) fn look(
        &mut self,
        now: Instant,
        why: impl Fn(&str) -> String,
    ) -> Vec<(&Read, String)> {
        let mut news = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job.wait.is_due(now)) {
            let why = why(job.read.agent.as_deref().unwrap_or_default());
            if let Some(why) = job.wait.changed(Some(why)) {
                news.push((&job.read, why));
            }
        }
        news
    }

    /// Takes out those for agents of these names or client ids.
    pub(super) fn take_for(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<HeldJob> {
        self.take(|job| job.read.agent.as_deref().is_some_and(&is_there))
    }

    /// Takes out those whose time is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<HeldJob> {
        self.take(|job| job.until.is_some_and(|until| until <= now))
    }

    fn take(&mut self, is_taken: impl Fn(&HeldJob) -> bool) -> Vec<HeldJob> {
        let all = std::mem::take(&mut self.jobs).into_iter();
        let (taken, left): (VecDeque<_>, VecDeque<_>) = all.partition(is_taken);
        self.due = left.iter().filter_map(HeldJob::due).min();
        self.bytes = left.iter().map(|job| job.read.bytes).sum();
        self.jobs = left;
        taken.into()
    }

    /// Ready when the time of one is over, or it is time to say why it waits; never where there is none.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::jobs;
    use super::*;

    fn job(agent: &str, millis: Option<u64>) -> Read {
        let limit = millis.map_or(String::new(), |millis| format!(r#","timeout_ms":{millis}"#));
        let line = format!(r#"{{"kind":"test","type":"t","agent":"{agent}"{limit}}}"#);
        jobs::read(&line).unwrap().unwrap()
    }

    fn agents(jobs: Vec<HeldJob>) -> Vec<String> {
        let names = jobs.into_iter().map(|job| job.read.agent.unwrap());
        names.collect()
    }

    #[test]
    fn those_of_an_agent_and_those_whose_time_is_over_are_taken_in_their_order() {
        let mut held = Held::default();
        for (agent, millis) in [
            ("a", None),
            ("b", Some(0)),
            ("a", Some(3_600_000)),
            ("c", None),
        ] {
            held.add(job(agent, millis));
        }
        assert!(held.due.is_some_and(|due| due <= Instant::now()));
        assert_eq!(agents(held.take_due(Instant::now())), ["b"]);
        let later = Instant::now() + Duration::from_secs(60);
        let over = |held: &Held| held.jobs.iter().filter_map(|job| job.until).min();
        assert!(over(&held).is_some_and(|due| due > later), "the next one");
        assert_eq!(agents(held.take_for(|name| name == "a")), ["a", "a"]);
        assert_eq!(over(&held), None, "what is left has no time");
        assert_eq!(agents(held.take_for(|_| true)), ["c"]);
        assert!(held.is_empty());
        assert_eq!(held.due, None);
    }

    #[test]
    fn the_bytes_of_all_that_wait_are_bounded() {
        let mut held = Held::default();
        for agent in ["a", "b"] {
            assert!(!held.is_full());
            let bytes = MAX_HELD_BYTES / 2;
            let read = job(agent, None);
            held.add(Read { bytes, ..read });
        }
        assert!(held.is_full());
        drop(held.take_for(|name| name == "a"));
        assert!(!held.is_full(), "half of it is used");
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_said_why_one_waits_when_it_does_and_when_the_reason_is_another() {
        let mut held = Held::default();
        held.add(job("a", None));
        let said = |held: &mut Held, why: &str| {
            let news = held.look(Instant::now(), |name| format!("{why} {name}"));
            let news = news.into_iter().map(|(_, why)| why);
            let news = news.collect::<Vec<_>>();
            drop(held.take(|_| false));
            news
        };
        assert_eq!(said(&mut held, "no"), [""; 0], "it has not waited");
        for (why, wanted) in [
            ("no", &["no a"][..]),
            ("no", &[]),
            ("still no", &["still no a"]),
        ] {
            held.due().await;
            assert_eq!(said(&mut held, why), wanted);
        }
    }
}
