//! What is filed of what was learned.

use futures::executor::block_on;
use std::sync::Mutex;

use sap::BoxFuture;
use sap::learning::{
    Aggregate, Artifact, ArtifactKind, Feedback, Heuristics, Publisher, Signal, Support,
};
use serde_json::{Value, json};
use ubos_common::canon::{self, Domain};
use ubos_common::json::to_vec;
use ubos_common::time::Timestamp;

use super::{Shelf, decision, decisions, learned, published, signal};

// spec: SAP-7-3
#[test]
fn new_knowledge_is_filed_once_with_digest_and_sources() {
    let (aggregate, mut heuristics) = learned(decisions());
    let threshold = heuristics.thresholds.remove(0);
    let samples: Vec<_> = threshold.evidence.count.samples.iter().copied().collect();
    let threshold = threshold.approved("ada".parse().unwrap());
    heuristics.thresholds.push(threshold);
    let (shelf, mut publisher) = (Shelf::default(), Publisher::default());
    let mut publish = |aggregate: &Aggregate, heuristics: &Heuristics, shelf: &Shelf| {
        block_on(publisher.publish(
            Timestamp::EPOCH,
            aggregate,
            heuristics,
            Support::default(),
            shelf,
        ))
    };
    assert!(publish(&aggregate, &heuristics, &Shelf(Mutex::default(), true)).is_err());
    let filed = publish(&aggregate, &heuristics, &shelf).unwrap();
    let kinds: Vec<&ArtifactKind> = filed.iter().map(|artifact| &artifact.kind).collect();
    assert_eq!(kinds, [&ArtifactKind::Playbook, &ArtifactKind::PunchCard]);
    for artifact in &filed {
        let known: Vec<_> = decisions().map(|signal| signal.id).collect();
        assert_eq!(artifact.sources.len(), 20);
        assert!(artifact.sources.iter().all(|id| known.contains(id)));
        // Where it was filed before an upgrade it is known by this.
        let mut said: Value = serde_json::from_slice(&to_vec(artifact)).unwrap();
        for other in ["at", "digest", "sources"] {
            said.as_object_mut().unwrap().remove(other);
        }
        let digest = canon::digest_slice(&Domain::plain(), said.to_string().as_bytes());
        assert_eq!(artifact.digest.to_string(), digest.unwrap().to_string());
    }
    let body: Value = filed[0].body.deserialize().unwrap();
    assert_eq!(body["signals"], 20);
    let wanted = json!([{
        "principle": "strategic_pause",
        "pressureLevel": "consulted",
        "psi": 41.0,
        "evidence": {
            "signals": 18,
            "weight": 18_000,
            "issuers": 5,
            "against": 2,
            "samples": samples.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "learnedFrom": {"records": 7, "head": "head"},
        },
        "approvedBy": "ada",
    }]);
    assert_eq!(body["thresholds"], wanted);
    // Nothing new: nothing is filed. Something new: the same kinds, with other digests.
    assert!(publish(&aggregate, &heuristics, &shelf).unwrap().is_empty());
    let (more, learned) = learned(decisions().chain([decision(77, 3.0, true)]));
    let renewed = publish(&more, &learned, &shelf).unwrap();
    assert_eq!(renewed.len(), 2);
    assert_ne!(renewed[0].digest, filed[0].digest);
    assert_eq!(shelf.0.lock().unwrap().len(), 4);
}

// spec: SAP-7-3
#[test]
fn a_playbook_says_first_what_most_say() {
    for [often, rare] in [["a", "b"], ["b", "a"]] {
        let said = (0..8).flat_map(|n| {
            let word = if n < 6 { often } else { rare };
            let actions = json!([{"action": word}]);
            let said = signal(n, &[], &[("/nextActions", actions)]);
            let mut feedback = Feedback::new("ada".parse().unwrap());
            feedback.notes = Some(word.into());
            let noted = Signal::of_operator(&said, Timestamp::EPOCH, feedback);
            [said, noted]
        });
        let (aggregate, heuristics) = learned(said);
        let filed = published(&aggregate, &heuristics, &mut Publisher::default());
        let playbook: Value = filed[0].body.deserialize().unwrap();
        let actions = json!([{"action": often}, {"action": rare}]);
        assert_eq!(playbook["nextActions"], actions);
        assert_eq!(playbook["notes"], json!([often, rare]));
    }
}

// spec: SAP-7-3
#[test]
fn of_two_subjects_that_say_the_same_each_has_its_pieces() {
    let payload = |n: u64| ("/payload", json!({"n": n}));
    let said = (0..24).map(|n| {
        let mut said = signal(n, &[payload(n / 12)], &[]);
        said.policy_checks = None;
        if n % 2 == 0 {
            said.capability = "consult.other".parse().unwrap();
        }
        said
    });
    let (aggregate, heuristics) = learned(said);
    let filed = published(&aggregate, &heuristics, &mut Publisher::default());
    let is_card = |artifact: &&Artifact| artifact.kind == ArtifactKind::PunchCard;
    let cards: Vec<_> = filed.iter().filter(is_card).collect();
    assert_eq!((cards.len(), filed.len()), (4, 6));
    assert!(cards.iter().all(|card| card.body == cards[0].body));
}

// spec: SAP-7-3, SAP-7-5
#[test]
fn as_many_pieces_are_remembered_as_may_be() {
    let (aggregate, heuristics) = learned(decisions());
    // The greatest digests: what is forgotten first is what was filed last.
    for (known, renewed) in [(99_998, 0), (100_000, 2)] {
        let before = (0..known).map(|n| format!("{}{n:08x}", "f".repeat(56)).parse().unwrap());
        let mut publisher: Publisher = before.collect();
        let mut again = || published(&aggregate, &heuristics, &mut publisher).len();
        assert_eq!((again(), again()), (2, renewed));
    }
}

// spec: SAP-7-3
#[test]
fn an_artifact_says_what_is_known_of_its_own_subject() {
    let of = |territory: &'static str, n: u64| {
        let place = "/constitutionalContext/territory";
        signal(n, &[(place, json!(territory))], &[])
    };
    let mut signals: Vec<Signal> = (0..6).map(|n| of("here", n)).collect();
    signals.extend((10..16).map(|n| of("there", n)));
    let mut other = of("here", 20);
    other.capability = "consult.other".parse().unwrap();
    signals.push(other);
    let feedback = |approved: bool| {
        let mut feedback = Feedback::new("ada".parse().unwrap());
        feedback.approved = Some(approved);
        Signal::of_operator(&signals[0], Timestamp::EPOCH, feedback)
    };
    let spoken = [feedback(true), feedback(false)];
    let mut hit = of("here", 30);
    hit.cache_hit = Some(true);
    let all = signals.iter().chain(&spoken).chain([&hit]).cloned();
    let (aggregate, heuristics) = learned(all);
    let (shelf, mut publisher) = (Shelf::default(), Publisher::default());
    let publish = publisher.publish(
        Timestamp::EPOCH,
        &aggregate,
        &heuristics,
        Support::default(),
        &shelf,
    );
    // There may be much to publish, so that it gives way.
    let mut publish: BoxFuture<'_, _> = Box::pin(publish);
    let mut waking = core::task::Context::from_waker(core::task::Waker::noop());
    assert!(publish.as_mut().poll(&mut waking).is_pending());
    let filed = block_on(publish).unwrap();
    let about = |kind: ArtifactKind, territory: &str| {
        let of = |artifact: &&Artifact| {
            artifact.kind == kind && artifact.territory.as_deref() == Some(territory)
        };
        filed.iter().find(of).unwrap()
    };
    assert_eq!(filed.len(), 4);
    // What another capability or territory says is no source.
    assert_eq!(
        about(ArtifactKind::Playbook, "here").sources.len(),
        6 + 2 + 1
    );
    assert_eq!(about(ArtifactKind::Playbook, "there").sources.len(), 6);
    let card: Value = about(ArtifactKind::PunchCard, "here")
        .body
        .deserialize()
        .unwrap();
    let wanted = json!({
        "signals": 9,
        "cacheHits": 1,
        "statuses": {"SUCCEEDED": 7},
        "alignments": {"VALID": 7},
        "violations": {},
        "metrics": {"latencyMs": 842.0, "tokensIn": 2100.0, "tokensOut": 600.0},
        "praise": 1,
        "blame": 1,
    });
    assert_eq!(card, wanted);
}
