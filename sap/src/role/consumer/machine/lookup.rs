//! What is looked up in the cache, and who computes.

use std::sync::Arc;

use ubos_common::time::Now;

use super::super::message::{Proposed, Request};
use super::{ReceivedTask, Step};
use crate::alignment::Assessment;
use crate::cache::{self, CacheRecord, Decision, Found, Keys};
use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::status::Status;

impl ReceivedTask {
    // impl: SAP-6-3, SAP-6-5, SAP-6-6
    pub(super) fn found(
        &mut self,
        now: Now,
        keys: Option<Keys>,
        record: Option<Arc<CacheRecord>>,
        keeps: bool,
    ) {
        self.write = keys.filter(|_| keeps);
        let found = match (&keys, &record) {
            (None, _) => Found::NoKey,
            (_, None) => Found::Nothing,
            (_, Some(record)) => Found::Record(record),
        };
        let mut rechecks = false;
        let decision = self.decide(now, found, |_| {
            rechecks = true;
            Alignment::Valid
        });
        match (record, keys) {
            (Some(record), Some(keys)) if rechecks => {
                let proposed = Proposed::Record(Arc::clone(&record));
                self.ask(Step::Recheck(record, keys), Request::Assess(proposed));
            }
            (record, keys) => self.decided(now, decision, record.as_deref().zip(keys), None),
        }
    }

    pub(super) fn rechecked(
        &mut self,
        now: Now,
        record: &CacheRecord,
        keys: Keys,
        verdict: Assessment,
    ) {
        let alignment = verdict.alignment.clone();
        let decision = self.decide(now, Found::Record(record), |_| alignment);
        self.decided(now, decision, Some((record, keys)), Some(verdict));
    }

    fn decide(
        &self,
        now: Now,
        found: Found<'_>,
        recheck: impl FnOnce(&CacheRecord) -> Alignment,
    ) -> Decision {
        let policy = &self.results.task.constitutional_context.cache_policy;
        cache::decide(policy.as_ref(), found, now.wall, recheck)
    }

    fn decided(
        &mut self,
        now: Now,
        decision: Decision,
        found: Option<(&CacheRecord, Keys)>,
        rechecked: Option<Assessment>,
    ) {
        self.results.missed();
        match (decision, found) {
            (Decision::Hit { age_sec }, Some((record, keys))) => {
                let result = self.results.hit(now, record, &keys, age_sec, rechecked);
                self.end(now, result);
            }
            (Decision::Refuse { why }, _) => {
                let code = ErrorCode::CacheMiss;
                let result = self.results.failed(now, code, &why.to_string());
                self.end(now, result);
            }
            (Decision::Compute { write, .. }, _) => {
                self.write = self.write.filter(|_| write);
                self.join(now);
            }
            (Decision::Hit { .. }, None) => self.start(now),
        }
    }

    /// Joins those that compute the same outcome at the same time, where one's outcome would answer the other.
    // impl: SAP-6-11
    fn join(&mut self, now: Now) {
        let policy = &self.results.task.constitutional_context.cache_policy;
        let max_age = policy
            .as_ref()
            .and_then(|policy| policy.max_age_sec.as_ref());
        // No record is young enough, so another one's outcome would not answer.
        let never = max_age.is_some_and(|max| max.value() == 0);
        match self.write.filter(|_| !never) {
            Some(keys) => self.ask(Step::Join, Request::Join(keys.key)),
            None => self.start(now),
        }
    }

    /// Says that the handler begins.
    pub(super) fn start(&mut self, now: Now) {
        let running = self.results.interim(now, Status::Running);
        self.record(now, running);
    }
}
