//! Records of one cache that extractors of several versions have written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sap::cache::{Caching, DropMembers, WholePayload};
use sap::store::MemoryCache;
use sap::{ErrorCode, Status};
use serde_json::{Value, json};

use crate::processor::{Jumping, Log, answering, cached, consult, result, run};
use crate::samples::with;

/// A processor of `consult.align` on this cache, and how often it ran.
struct Desk(sap::processor::Processor, Arc<AtomicUsize>, Jumping);

impl Desk {
    fn on(cache: &Arc<MemoryCache>, says: &'static str, caching: Caching) -> Self {
        let runs = Arc::default();
        let processor = answering(&Log::default(), says, &runs)
            .cache(cache.clone())
            .cached(consult(), caching);
        Self(processor, runs, Jumping::new())
    }

    /// What it says about a payload.
    fn ask(&self, number: u8, mode: &str, payload: Value) -> sap::TaskResult {
        let task = with(cached(number, mode), "/payload", Some(payload));
        result(run(&self.0, &self.2, &task).1)
    }

    fn runs(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

// spec: SAP-6-1, SAP-6-13
#[test]
fn what_an_extractor_of_another_version_wrote_answers_nothing() {
    let cache = Arc::new(MemoryCache::default());
    let dropping = || Caching::shared(DropMembers::approved("ada".parse().unwrap(), ["x"]));
    let before = Desk::on(&cache, "1", dropping());
    let said = before.ask(1, "prefer", json!({"q": 1, "x": 2}));
    assert_eq!(said.output.unwrap().as_str(), "1");

    // The key of {q} is that of {q,x} without x, and what was said about x is no answer.
    let after = Desk::on(&cache, "2", Caching::shared(WholePayload));
    let refused = after.ask(2, "only", json!({"q": 1}));
    assert_eq!(refused.error.unwrap().code, Some(ErrorCode::CacheMiss));
    let said = after.ask(3, "prefer", json!({"q": 1}));
    assert_eq!((said.output.unwrap().as_str(), after.runs()), ("2", 1));
    // Its own it finds again, and so does the one before after its next outcome.
    let said = after.ask(4, "only", json!({"q": 1}));
    assert_eq!((said.status, after.runs()), (Status::Succeeded, 1));
    let again = Desk::on(&cache, "3", dropping());
    let said = again.ask(5, "prefer", json!({"q": 1, "x": 3}));
    assert_eq!((said.output.unwrap().as_str(), again.runs()), ("3", 1));
}

#[test]
fn an_issuer_finds_the_record_of_each_payload() {
    let desk = Desk::on(&Arc::default(), "1", Caching::by_issuer(WholePayload));
    for (number, q) in [(1, 1), (2, 2), (3, 1)] {
        desk.ask(number, "prefer", json!({"q": q}));
    }
    assert_eq!(desk.runs(), 2);
}

// spec: SAP-6-1, SAP-11-2
#[test]
fn a_payload_that_looks_like_the_essence_of_an_issuer_does_not_find_its_record() {
    let cache = Arc::new(MemoryCache::default());
    let payload = json!({"q": "mine"});
    let before = Desk::on(&cache, "1", Caching::by_issuer(WholePayload));
    let task = with(cached(1, "prefer"), "/payload", Some(payload.clone()));
    let issuer = task["issuer"]["agentId"].clone();
    result(run(&before.0, &before.2, &task).1);
    // The operator lets all issuers share from now on.
    let after = Desk::on(&cache, "2", Caching::shared(WholePayload));
    let forged = json!({"essence": payload, "issuer": issuer});
    let said = after.ask(2, "prefer", forged);
    assert_eq!((said.output.unwrap().as_str(), after.runs()), ("2", 1));
}
