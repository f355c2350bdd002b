//! Keys, decisions, stores.

use futures::executor::block_on;
use sap::Whole;
use sap::cache::{
    CacheRecord, CacheStore, Decision, DropMembers, Essence, Found, KeyError, Keys, MissReason,
    WholePayload, decide, is_read,
};
use sap::store::MemoryCache;
use sap::validate::{Options, decode_task};
use sap::{Alignment, CacheMode, CachePolicy, Task};
use serde_json::{Value, json};
use ubos_common::canon::{Digest, Domain};
use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::time::Timestamp;

use crate::samples::{read_task, task, with};

fn typed(value: &Value) -> Task {
    read_task(value, &Options::default()).unwrap().0
}

fn key(value: &Value) -> String {
    Keys::of(&typed(value), &WholePayload)
        .unwrap()
        .key
        .to_string()
}

pub(crate) fn record(task: &Task, stored_at: Timestamp, output: &str) -> CacheRecord {
    let keys = Keys::of(task, &WholePayload).unwrap();
    CacheRecord::new(
        keys.key,
        stored_at.into(),
        "A-ml-001".parse().unwrap(),
        Alignment::Valid,
        RawBuf::parse(output).unwrap(),
        vec!["ubos://a".into()],
        keys.fingerprint,
        "2.0".into(),
    )
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix(seconds).unwrap()
}

// spec: SAP-6-1, SAP-6-2
#[test]
fn the_key_is_of_six_parts_and_nothing_else() {
    let base = key(&task());
    // The definition, spelt out.
    let parts = json!({
        "capability": "consult.align",
        "essence": task()["payload"],
        "territory": "EUFM",
        "principles": ["blueprint_thinking", "strategic_pause", "systems_over_willpower"],
        "outputContract": task()["outputContract"],
        "sapVersion": "2.0",
    });
    let canonical = ubos_common::canon::value_to_vec(&parts).unwrap();
    assert_eq!(base, Digest::of(&Domain::plain(), &canonical).to_string());
    for (pointer, value) in [
        ("/target/capability", json!("consult.other")),
        ("/payload/depth", json!("brief")),
        ("/payload/more", json!(null)),
        ("/constitutionalContext/territory", json!("")),
        ("/constitutionalContext/principles", json!([])),
        ("/outputContract/format", json!("text")),
        ("/outputContract/x-new", json!(1)),
    ] {
        assert_ne!(key(&with(task(), pointer, Some(value))), base, "{pointer}");
    }
    for pointer in [
        "/constitutionalContext/territory",
        "/constitutionalContext/principles",
        "/outputContract",
    ] {
        let absent = key(&with(task(), pointer, None));
        assert_ne!(absent, base, "{pointer}");
        let empty = if pointer == "/outputContract" {
            json!({})
        } else if pointer.ends_with("territory") {
            json!("")
        } else {
            json!([])
        };
        assert_ne!(
            absent,
            key(&with(task(), pointer, Some(empty))),
            "{pointer}"
        );
    }
    for (pointer, value) in [
        ("/taskId", json!("00000000-0000-0000-0000-000000000000")),
        (
            "/correlationId",
            json!("00000000-0000-0000-0000-000000000000"),
        ),
        ("/issuedAt", json!("2026-01-01T00:00:00Z")),
        ("/issuer/agentId", json!("other")),
        ("/target/agentId", json!("other")),
        ("/constitutionalContext/pressure", json!({})),
        ("/constitutionalContext/pressureLevel", json!("instant")),
        ("/constitutionalContext/constraints", json!([])),
        ("/constitutionalContext/cachePolicy", json!({})),
        ("/telemetry", json!({})),
        ("/tags", json!([])),
        ("/meta", json!({})),
        (
            "/constitutionalContext/principles",
            json!([
                "strategic_pause",
                "systems_over_willpower",
                "blueprint_thinking",
                "strategic_pause"
            ]),
        ),
    ] {
        assert_eq!(key(&with(task(), pointer, Some(value))), base, "{pointer}");
    }
    let spelt = |payload: &str| {
        let text = with(task(), "/payload", Some(json!({}))).to_string();
        let text = text.replace("\"payload\":{}", &format!("\"payload\":{payload}"));
        let (task, _) = decode_task(text.as_bytes(), &Options::default()).unwrap();
        Keys::of(&task, &WholePayload)
    };
    assert_eq!(
        spelt(r#"{"a":1000,"b":"é"}"#),
        spelt("{ \"b\": \"\\u00e9\",\n \"a\": 1e3 }")
    );
    for number in ["9007199254740993", "1e400"] {
        assert!(matches!(
            spelt(&format!("{{\"n\":{number}}}")),
            Err(KeyError::Inexact(_))
        ));
    }
}

// spec: SAP-6-12
#[test]
fn a_number_without_exact_form_gives_no_key() {
    let text = task()
        .to_string()
        .replace("\"detailed\"", "9007199254740993");
    let (task, _) = decode_task(text.as_bytes(), &Options::default()).unwrap();
    assert!(Keys::of(&task, &WholePayload).is_err());
    let policy = policy(Some(CacheMode::Prefer), None, None);
    let decided = decide(Some(&policy), Found::NoKey, at(0), |_| Alignment::Valid);
    assert_eq!(
        decided,
        Decision::Compute {
            why: MissReason::NoKey,
            write: false
        }
    );
}

fn dropping(names: &[&str]) -> DropMembers {
    DropMembers::approved("ada".parse().unwrap(), names.iter().copied())
}

// spec: SAP-6-13
#[test]
fn equal_essences_share_key_and_fingerprint() {
    let asked = |time: i64| typed(&with(task(), "/payload/askedAt", Some(json!(time))));
    let essence = dropping(&["askedAt"]);
    let (one, two) = (
        Keys::of(&asked(1), &essence).unwrap(),
        Keys::of(&asked(2), &essence).unwrap(),
    );
    assert_eq!(one, two);
    assert_ne!(
        Keys::of(&asked(1), &WholePayload).unwrap(),
        Keys::of(&asked(2), &WholePayload).unwrap()
    );
    // Another extractor is another fingerprint, even of an equal essence; another capability is not.
    let plain = typed(&task());
    let whole = Keys::of(&plain, &WholePayload).unwrap();
    assert_ne!(
        Keys::of(&plain, &essence).unwrap().fingerprint,
        whole.fingerprint
    );
    let elsewhere = typed(&with(task(), "/target/capability", Some(json!("a.b"))));
    assert_eq!(
        Keys::of(&elsewhere, &WholePayload).unwrap().fingerprint,
        whole.fingerprint
    );
    assert_ne!(
        dropping(&["a,b"]).version(),
        dropping(&["a", "b"]).version()
    );
}

fn policy(mode: Option<CacheMode>, max_age: Option<u64>, must_align: Option<bool>) -> CachePolicy {
    let mut policy = CachePolicy::new();
    policy.mode = mode;
    policy.max_age_sec = max_age.map(|age| Whole::try_from(age).unwrap());
    policy.must_align = must_align;
    policy
}

// spec: SAP-6-3, SAP-6-4, SAP-6-5, SAP-6-9, SAP-6-14
#[test]
fn a_record_answers_under_these_conditions() {
    let good = record(&typed(&task()), at(100), "1");
    let decision =
        |policy: Option<&CachePolicy>, record: &CacheRecord, now: i64, verdict: Alignment| {
            decide(policy, Found::Record(record), at(now), |_| verdict.clone())
        };
    let hit = |age_sec| Decision::Hit { age_sec };
    let valid = Alignment::Valid;
    let prefer = policy(Some(CacheMode::Prefer), Some(60), None);
    assert_eq!(decision(Some(&prefer), &good, 159, valid.clone()), hit(59));
    let stale = MissReason::Stale {
        age_sec: 60,
        max_age_sec: 60,
    };
    assert_eq!(
        decision(Some(&prefer), &good, 160, valid.clone()),
        Decision::Compute {
            why: stale.clone(),
            write: true
        }
    );
    let only = policy(Some(CacheMode::Only), Some(60), None);
    assert_eq!(
        decision(Some(&only), &good, 160, valid.clone()),
        Decision::Refuse { why: stale }
    );
    assert_eq!(decision(Some(&only), &good, 50, valid.clone()), hit(0));
    let never = policy(None, Some(0), None);
    assert!(matches!(
        decision(Some(&never), &good, 50, valid.clone()),
        Decision::Compute { .. }
    ));
    let any_age = policy(None, None, None);
    assert_eq!(
        decision(Some(&any_age), &good, 1_000_000, valid.clone()),
        hit(999_900)
    );
    let checked = policy(None, None, Some(true));
    for verdict in [Alignment::Escalate, Alignment::NonConstitutional] {
        assert_eq!(
            decision(Some(&any_age), &good, 100, verdict.clone()),
            hit(0)
        );
        let wanted = Decision::Compute {
            why: MissReason::Misaligned,
            write: true,
        };
        assert_eq!(decision(Some(&checked), &good, 100, verdict), wanted);
    }
    let bypassed = Decision::Compute {
        why: MissReason::Bypassed,
        write: false,
    };
    let bypass = policy(Some(CacheMode::Bypass), None, None);
    assert!(!is_read(Some(&bypass)) && !is_read(None) && is_read(Some(&any_age)));
    assert_eq!(decision(Some(&bypass), &good, 100, valid.clone()), bypassed);
    assert_eq!(decision(None, &good, 100, valid.clone()), bypassed);
    let mut other = good.clone();
    other.sap_version = "2.1".into();
    assert!(matches!(
        decision(Some(&any_age), &other, 100, valid.clone()),
        Decision::Compute {
            why: MissReason::OtherVersion,
            ..
        }
    ));
    let mut doubtful = good;
    doubtful.alignment = Alignment::Escalate;
    assert!(matches!(
        decision(Some(&any_age), &doubtful, 100, valid),
        Decision::Compute {
            why: MissReason::NotValid,
            ..
        }
    ));
}

// spec: SAP-6-10
#[test]
fn a_record_is_read_back_as_it_was_written() {
    let record = record(&typed(&task()), at(100), "{\"n\":1.50}");
    let text = json::to_string(&record);
    let (again, _) =
        json::decode::<CacheRecord>(text.as_bytes(), &Limits::default(), Default::default())
            .unwrap();
    assert_eq!(again, record);
    assert!(
        !text.contains("ageSec")
            && text.contains("1.50")
            && text.contains("\"storedAt\":\"1970-01-01T00:01:40Z\"")
    );
    assert_eq!((record.age_sec(at(50)), record.age_sec(at(101))), (0, 1));
}

/// What every store does.
pub(crate) fn keeps_versions(store: &dyn CacheStore) {
    let task = typed(&task());
    let mut records: Vec<CacheRecord> = (1..4)
        .map(|n| record(&task, at(n), &n.to_string()))
        .collect();
    records[2].sap_version = "3.0".into();
    let key = records[0].cache_key;
    assert_eq!(block_on(store.find(&key)).unwrap().record, None);
    for record in &records {
        block_on(store.put(record)).unwrap();
    }
    assert_eq!(
        block_on(store.find(&key)).unwrap().record.as_ref(),
        Some(&records[1])
    );
    assert_eq!(store.versions(&key).unwrap(), records);
}

// spec: SAP-6-8, SAP-6-9
#[test]
fn a_cache_in_memory_keeps_every_version_up_to_its_bound() {
    let cache = MemoryCache::new(3);
    keeps_versions(&cache);
    let record = record(&typed(&task()), at(9), "9");
    assert!(block_on(cache.put(&record)).is_err());
    assert_eq!(cache.versions(&record.cache_key).unwrap().len(), 3);
}
