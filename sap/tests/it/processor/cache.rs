//! What the cache answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sap::alignment::Rules;
use sap::store::MemoryCache;
use sap::{ErrorCode, Status, TaskResult};
use ubos_common::driver::Sleep;

use super::{Jumping, Log, answering, cached, consult, result, run, whole};

// spec: SAP-6-3, SAP-6-6, SAP-6-7, SAP-8-1
#[test]
fn the_cache_answers_as_the_policy_says() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let cache = Arc::new(MemoryCache::default());
    let processor = answering(&log, "{\"n\":1e3}", &calls)
        .cache(cache.clone())
        .cached(consult(), whole());
    let evidence = |result: &TaskResult| {
        result
            .constitutional_evidence
            .cache
            .clone()
            .map(|c| (c.hit, c.age_sec.as_ref().map(u64::from)))
    };
    let only = result(run(&processor, &clock, &cached(1, "only")).1);
    assert_eq!(only.error_code(), Some(&ErrorCode::CacheMiss));
    let bypassed = result(run(&processor, &clock, &cached(2, "bypass")).1);
    assert_eq!(evidence(&bypassed), None);
    assert!(
        result(run(&processor, &clock, &cached(3, "only")).1)
            .error_code()
            .is_some(),
        "a bypass writes nothing"
    );
    let computed = result(run(&processor, &clock, &cached(4, "prefer")).1);
    assert_eq!(evidence(&computed), Some((Some(false), None)));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    clock.go_on(Duration::from_secs(59));
    for (id, mode) in [(5, "prefer"), (6, "only")] {
        let (told, answer) = run(&processor, &clock, &cached(id, mode));
        let hit = result(answer);
        assert_eq!(
            (told, &hit.status),
            (vec!["ACK".to_owned()], &Status::Succeeded)
        );
        assert_eq!(evidence(&hit), Some((Some(true), Some(59))));
        assert_eq!(
            hit.constitutional_evidence
                .cache
                .as_ref()
                .unwrap()
                .cache_key
                .as_ref()
                .unwrap()
                .len(),
            64
        );
        assert_eq!(hit.output.unwrap().as_str(), "{\"n\":1e3}");
        assert_eq!(
            hit.constitutional_evidence.citations,
            Some(vec!["ubos://a".to_owned()])
        );
        assert_eq!(hit.reported_at, clock.now().wall.into());
    }
    clock.go_on(Duration::from_secs(1));
    assert!(
        result(run(&processor, &clock, &cached(7, "only")).1)
            .error_code()
            .is_some(),
        "as old as maxAgeSec is stale"
    );
    run(&processor, &clock, &cached(8, "prefer"));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(
        result(run(&processor, &clock, &cached(9, "only")).1).status,
        Status::Succeeded
    );
    // The same record under rules that it breaks is a miss.
    let strict = answering(&log, "{\"n\":1}", &calls)
        .cache(cache)
        .cached(consult(), whole())
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "1e3")));
    assert_eq!(
        result(run(&strict, &clock, &cached(10, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
}
