//! Jobs for agents that are not there.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::super::jobs::Read;

/// Jobs that wait for agents that are not there.
const MAX_HELD: usize = 1000;

/// A job for an agent that is not there.
pub(super) struct HeldJob {
    pub(super) read: Read,
    pub(super) until: Option<Instant>,
}

/// All of them, in the order in which they came. They are looked at when an agent begins to listen, and when one is due.
#[derive(Default)]
pub(super) struct Held {
    jobs: VecDeque<HeldJob>,
    due: Option<Instant>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() >= MAX_HELD
    }

    pub(super) fn add(&mut self, read: Read) {
        let until = read.job.time_limit.map(|limit| Instant::now() + limit);
        self.due = [self.due, until].into_iter().flatten().min();
        self.jobs.push_back(HeldJob { read, until });
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
        self.due = left.iter().filter_map(|job| job.until).min();
        self.jobs = left;
        taken.into()
    }

    /// Ready when the time of one is over; never where none has a time.
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
        assert!(held.due.is_some_and(|due| due > later), "the next one");
        assert_eq!(agents(held.take_for(|name| name == "a")), ["a", "a"]);
        assert_eq!(held.due, None, "what is left has no time");
        assert_eq!(agents(held.take_for(|_| true)), ["c"]);
        assert!(held.is_empty());
    }
}
