//! What learning leaves as it is.

use futures::executor::block_on;
use std::sync::Mutex;

use sap::Alignment;
use sap::cache::{CacheRecord, CacheStore as _, DropMembers, Keys, WholePayload};
use sap::learning::{Aggregate, Heuristics, Signal, SignalSink as _, Support};
use sap::store::{FileCache, FileTranscript};
use sap::transcript::{Entry, EntryKind, Transcript as _, Verdict};
use serde_json::json;
use ubos_common::json::RawBuf;
use ubos_common::log::{Config, LogId};
use ubos_common::time::Timestamp;

use super::pair;

// spec: SAP-7-4
#[test]
fn learning_leaves_the_cache_file_a_prefix_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([7; 16]))
            .with_segment_bytes(1 << 16)
    };
    let transcript = FileTranscript::open(folder.path().join("log"), config()).unwrap();
    let cache = FileCache::open(folder.path().join("cache"), config()).unwrap();
    let store = |n: u64, keys: Keys| {
        let output = RawBuf::parse(&n.to_string()).unwrap();
        let record = CacheRecord::new(
            keys.key,
            Timestamp::EPOCH.into(),
            "a".parse().unwrap(),
            Alignment::Valid,
            output,
            vec![],
            keys.fingerprint,
            "2.0".into(),
        );
        block_on(cache.put(&record)).unwrap();
        record
    };
    // What was written: behind it the log reserves room, which is zeros.
    let bytes = || {
        let files = std::fs::read_dir(folder.path().join("cache")).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        let is_segment = |file: &std::path::PathBuf| file.extension().is_some_and(|e| e == "seg");
        let mut bytes = std::fs::read(files.find(is_segment).unwrap()).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
        bytes
    };
    let learner = Mutex::<Aggregate>::default();
    let mut records = Vec::new();
    for n in 0..12 {
        let payload = (
            "/payload",
            json!({"q": n % 2, "askedAt": n / 2, "trace": 0}),
        );
        let (task, result) = pair(n, &[payload], &[("/output", json!(n % 2))]);
        let entry = Entry::of(EntryKind::Task, Timestamp::EPOCH, &task).unwrap();
        block_on(transcript.record(&entry)).unwrap();
        let keys = Keys::of(&task, &WholePayload).unwrap();
        records.push(store(n, keys));
        learner
            .emit(Signal::of_result(&task, Some(keys.fingerprint), &result).unwrap())
            .unwrap();
    }
    let (before, proof) = (bytes(), transcript.verify(None).unwrap());
    let heuristics = Heuristics::derive(
        &learner.into_inner().unwrap(),
        Support::default(),
        Some(&proof),
    );
    assert_eq!(
        heuristics.essences[0].evidence.learned_from,
        Some(proof.clone())
    );
    assert_eq!(bytes(), before);
    // Later writes go behind what is there, under other keys; the earlier records answer as before.
    let names = heuristics.essences[0].drop.iter().map(String::as_str);
    let extractor = DropMembers::approved("ada".parse().unwrap(), names);
    let (task, _) = pair(
        99,
        &[("/payload", json!({"q": 1, "askedAt": 99, "trace": 0}))],
        &[],
    );
    store(99, Keys::of(&task, &extractor).unwrap());
    let after = bytes();
    assert!(after.starts_with(&before) && after.len() > before.len());
    for record in records {
        assert_eq!(
            block_on(cache.find(&record.cache_key)).unwrap().record,
            Some(record)
        );
    }
    assert_eq!(
        transcript.verify(Some(&proof.head)).unwrap().verdict,
        Verdict::Intact
    );
}
